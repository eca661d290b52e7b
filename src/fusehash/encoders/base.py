"""Encoder: what all encoders share (fit, transform in batches, items that cannot be read), and the encoder file."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from fusehash import parameters, trust
from fusehash.errors import DataError
from fusehash.files import FileFormat, arrays_in
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.parameters import Rule, integer, rules_of

Single: TypeAlias = NDArray[np.float32]
Progress: TypeAlias = Callable[[int, int, str], None]
# The features of a batch of items, and for the items that cannot be read: position -> why.
Batch: TypeAlias = tuple[Single, dict[int, str]]

ENCODER_FILE = FileFormat("fusehash-encoder", 2, "encoder", checked_since=2)
MAX_FEATURES = 1 << 24
NOT_SAVED = ("n_jobs",)  # a parameter that does not change the features
NOT_LEARNED = ("problems_",)  # describes the last call only
_LOADING = threading.RLock()


class Encoder(BaseEstimator, TransformerMixin, ABC):
    """Base class of all encoders: turns items of one modality into rows of numbers.

    Row i depends on item i only, not on the other items or the number of threads. An item that cannot be read gives a
    row of NaN, which hashers with ``missing="allow"`` treat as "not seen in this view".

    A subclass declares the rules of its parameters in PARAMETERS and implements `_fit(items, progress)`, which sets
    `n_features_`, `problems_` and what it learns, and `_rows(contents)`.

    Attributes
    ----------
    n_features_ : int
        Number of columns of the features.
    problems_ : dict of int to str
        Position -> why, for the items of the last call that could not be read.
    """

    name: ClassVar[str] = ""
    modality: ClassVar[str] = ""
    batch_rows: ClassVar[int] = 8  # items per batch
    learns: ClassVar[bool] = True  # whether its features depend on what it is fitted on
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "random_state": parameters.seed(),
        "n_jobs": parameters.optional(parameters.integer(1)),
        "batch_size": parameters.integer(1),
    }

    n_features_: int
    problems_: dict[int, str]

    def fit(self, items: Iterable[Any], y: Any = None, *, progress: Progress | None = None) -> Encoder:
        """Learn from items, except those that cannot be read, which `problems_` reports.

        Parameters
        ----------
        items : iterable
            Images (path, bytes or PIL.Image) or texts (str), depending on the modality.
        y : object
            Ignored.
        progress : callable, optional
            Called as ``progress(step, total, message)``. It may raise to interrupt the fit.

        Returns
        -------
        Encoder
            The encoder itself. If the fit fails, it is unchanged.

        Raises
        ------
        ParameterError
            If a parameter has a value that the encoder cannot use.
        DataError
            If there is nothing to learn from.
        MissingPackageError
            If an optional package is not installed.
        """
        self._check_params()
        listed = self._listed(items)
        before = dict(vars(self))
        self.__dict__.pop("_runtime", None)
        try:
            with one_blas_thread():
                self._fit(listed, progress or _silent)
        except BaseException:  # also Ctrl-C
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def transform(self, items: Iterable[Any], progress: Progress | None = None) -> Single:
        """Compute the features of items.

        Returns
        -------
        ndarray of shape (n_items, n_features_), float32
            Rows of items that cannot be read are NaN; `problems_` says why.
        """
        rows, self.problems_ = self.encode(items, progress)
        return rows

    def encode(self, items: Iterable[Any], progress: Progress | None = None) -> Batch:
        """`transform` for several threads at once: returns rows and problems, and does not change the encoder."""
        self._check_fitted()
        listed = self._listed(items)
        self._loaded()  # before several threads need it
        rows = np.full((len(listed), self.n_features_), np.nan, dtype=np.float32)
        problems: dict[int, str] = {}
        for start, (features, reasons) in self._batches(self._encode, listed, progress, f"encoding {self.modality}s"):
            rows[start : start + len(features)] = features
            for position, reason in reasons.items():
                rows[start + position] = np.nan
                problems[start + position] = reason
        return rows, problems

    @abstractmethod
    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        """Learn; set `n_features_`, `problems_` and what `_encode` needs."""

    def _encode(self, items: Sequence[Any]) -> Batch:
        """Features of one batch. Several threads call it, so it must not change the encoder."""
        contents, problems = self._read(items)
        features = np.full((len(items), self.n_features_), np.nan, dtype=np.float32)
        if contents:
            rows = self._rows(list(contents.values()))
            if rows.shape != (len(contents), self.n_features_):
                rule = f"{type(self).__name__} must give {self.n_features_} features per item, as when it was fitted."
                raise DataError(f"{rule} It gives {rows.shape[1]}.")
            features[list(contents)] = rows
        return features, problems

    @abstractmethod
    def _read(self, items: Sequence[Any]) -> tuple[dict[int, Any], dict[int, str]]:
        """Position -> content of the items that can be read, and position -> reason for the others."""

    @abstractmethod
    def _rows(self, contents: list[Any]) -> Single:
        """Features of what `_read` returned, one row per item."""

    @abstractmethod
    def _blank(self) -> Single:
        """The features of a blank item, to see how many there are."""

    def _load(self) -> Any:
        """What `_encode` needs besides the learned attributes, such as the session of a model."""

    def _loaded(self) -> Any:
        if not hasattr(self, "_runtime"):
            with _LOADING:
                if not hasattr(self, "_runtime"):
                    self._runtime = self._load()
        return self._runtime

    def _batch_rows(self) -> int:
        return int(getattr(self, "batch_size", self.batch_rows))

    def check_usable(self) -> None:
        """Raise what `fit` would raise without items: wrong parameters, a missing package or a missing model."""
        self._check_params()

    def identity(self) -> str:
        """What its features depend on apart from its parameters and what it was fitted on, such as a file."""
        return ""

    def _check_params(self) -> None:
        parameters.check(type(self).__name__, rules_of(type(self)), self.get_params(deep=False))

    def _check_state(self) -> None:
        """Raise ValueError if learned attributes that were read from a file do not fit together."""

    def _batches(
        self, work: Callable[[Sequence[Any]], Any], items: Sequence[Any], progress: Progress | None, message: str
    ) -> Iterator[tuple[int, Any]]:
        """(position of the first item, work(batch)) in order, on `n_jobs` threads."""
        report = progress or _silent
        size = self._batch_rows()
        starts = range(0, len(items), size)
        results = map_blocks(lambda start: work(items[start : start + size]), starts, self._n_threads())
        for start, result in zip(starts, results, strict=True):
            report(start, len(items), message)
            yield start, result
        report(len(items), len(items), message)

    def _n_threads(self) -> int | None:
        return getattr(self, "n_jobs", 1)

    def _listed(self, items: Iterable[Any]) -> Sequence[Any]:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            got = type(items).__name__
            raise DataError(f"{type(self).__name__} needs a list of {self.modality}s. Got one {got} instead.")
        return items if isinstance(items, list | tuple) else list(items)

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_features_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call 'fit' first.")

    def _to_content(self) -> dict[str, Any]:
        self._check_fitted()
        learned = {name: value for name, value in vars(self).items() if name.endswith("_") and name not in NOT_LEARNED}
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_SAVED}
        if not isinstance(params.get("random_state"), int | np.integer | type(None)):
            params["random_state"] = None  # a generator cannot be stored, only a seed
        return {"name": self.name, "modality": self.modality, "params": params, "state": learned}

    @classmethod
    def _from_content(cls, content: Any) -> Encoder:
        encoder = cls(**content["params"])
        encoder._check_params()
        for name, value in content["state"].items():
            if not name.endswith("_") or name.startswith("_"):
                raise ValueError("not a learned attribute of an encoder")
            setattr(encoder, name, value)
        if not integer(1, MAX_FEATURES).accepts(encoder.n_features_):
            raise ValueError("not a number of features")
        if any(array.dtype.kind == "f" and np.isnan(array).any() for array in arrays_in(content["state"])):
            raise ValueError("NaN among the learned numbers")
        encoder._check_state()
        encoder.problems_ = {}
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        """The state without what `_load` returned, which is loaded again when needed."""
        return {name: value for name, value in super().__getstate__().items() if name != "_runtime"}


class PretrainedEncoder(Encoder):
    """Base class of encoders that learn nothing: `fit` loads the model and runs it once."""

    learns: ClassVar[bool] = False

    def check_usable(self) -> None:
        """Load the model and run it once."""
        self.fit([])

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        self.problems_ = {}
        trust.confirm_models(self.name, self.get_params(deep=False))
        progress(0, 1, "loading the model")
        self.n_features_ = int(self._blank().shape[1])
        progress(1, 1, "done")


def unit_rows(rows: Single) -> Single:
    """Rows scaled to length 1; rows of zeros stay."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return (rows / np.where(norms > 0, norms, np.float32(1.0))).astype(np.float32, copy=False)


def _silent(step: int, total: int, message: str) -> None:
    """Report nothing."""
