"""Encoder: the rules that all encoders share (fit, transform in batches, what happens to items that cannot be read)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from fusehash.errors import DataError
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.parameters import check_integer

Single: TypeAlias = NDArray[np.float32]
Progress: TypeAlias = Callable[[int, int, str], None]
# The features of some items, and for those that cannot be read one sentence by position.
Batch: TypeAlias = tuple[Single, dict[int, str]]


class Encoder(BaseEstimator, TransformerMixin, ABC):
    """Base of every encoder: turns items of one modality into rows of numbers.

    Row i depends on item i alone: not on the other items, their number, or the number of threads. An item that cannot
    be read gives a row of NaN, which hashers with missing="allow" take for "not seen in this view".

    An encoder implements `_fit(items)`, which sets `n_features_` and what it learns, and `_encode(items)`.

    Attributes
    ----------
    n_features_ : columns that come out.
    problems_ : position -> one sentence, for the items of the last call that could not be read.
    """

    name: ClassVar[str] = ""
    modality: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    batch_rows: ClassVar[int] = 8  # items that are worked on at once

    n_features_: int
    problems_: dict[int, str]

    def fit(self, items: Iterable[Any], y: Any = None, *, progress: Progress | None = None) -> Encoder:
        """Learn from items; those that cannot be read are left out and told in `problems_`.

        Parameters
        ----------
        items : images (path, bytes or PIL.Image) or texts (str), by modality.
        y : ignored.
        progress : called as progress(step, total, message); may raise to interrupt.
        """
        self._check_params()
        listed = self._listed(items)
        before = dict(vars(self))
        try:
            with one_blas_thread():
                self._fit(listed, progress or _silent)
        except BaseException:  # also Ctrl-C: the encoder stays what it was
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def transform(self, items: Iterable[Any], progress: Progress | None = None) -> Single:
        """Features (n, n_features_) of items, float32; `problems_` tells which rows are NaN and why."""
        self._check_fitted()
        listed = self._listed(items)
        self._ready()
        rows = np.full((len(listed), self.n_features_), np.nan, dtype=np.float32)
        problems: dict[int, str] = {}
        for start, (features, told) in self._batches(self._encode, listed, progress, f"encoding {self.modality}s"):
            rows[start : start + len(features)] = features
            for place, sentence in told.items():
                rows[start + place] = np.nan
                problems[start + place] = sentence
        self.problems_ = problems
        return rows

    @abstractmethod
    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        """Learn; set `n_features_`, `problems_` and what `_encode` needs."""

    @abstractmethod
    def _encode(self, items: Sequence[Any]) -> Batch:
        """Features of a few items; must not change the encoder, as several threads call it."""

    def _ready(self) -> None:
        """Load what `_encode` needs, before several threads ask for it."""

    def _batch_rows(self) -> int:
        return self.batch_rows

    def check_usable(self) -> None:
        """Raise, before there are items, what `fit` would: wrong parameters, a package or a model that is missing."""
        self._check_params()

    def _check_params(self) -> None:
        """Check the parameters that do not depend on the data."""

    def _check_state(self) -> None:
        """Raise ValueError where learned attributes read from a file do not fit together."""

    def _batches(
        self, work: Callable[[Sequence[Any]], Any], items: Sequence[Any], progress: Progress | None, message: str
    ) -> Iterator[tuple[int, Any]]:
        """(position of the first item, work(items of the batch)) in order, on n_jobs threads."""
        report = progress or _silent
        size = self._batch_rows()
        starts = range(0, len(items), size)
        done = map_blocks(lambda start: work(items[start : start + size]), starts, self._n_threads())
        for start, result in zip(starts, done, strict=True):
            report(start, len(items), message)
            yield start, result
        report(len(items), len(items), message)

    def _n_threads(self) -> int | None:
        """Threads to work on; encoders without `n_jobs` use one."""
        return getattr(self, "n_jobs", 1)

    def _listed(self, items: Iterable[Any]) -> Sequence[Any]:
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise DataError(
                f"{type(self).__name__} needs a list of {self.modality}s. Got one {type(items).__name__} instead."
            )
        return items if isinstance(items, list | tuple) else list(items)

    def _check_fitted(self) -> None:
        if not hasattr(self, "n_features_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call 'fit' first.")

    def __getstate__(self) -> dict[str, Any]:
        """Loaded models (`_runtime`) are not copied and not pickled; they are loaded again when needed."""
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_runtime", None)
        return state


def check_jobs(owner: str, n_jobs: Any) -> None:
    """None for all cores, or a number of threads."""
    if n_jobs is not None:
        check_integer(owner, "n_jobs", n_jobs, low=1)


def gather(rows: Sequence[Single | None], width: int, problems: dict[int, str]) -> Batch:
    """A batch from one row an item; None stands for an item that cannot be read."""
    features = np.full((len(rows), width), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        if row is not None:
            features[place] = row
    return features, problems


def _silent(step: int, total: int, message: str) -> None:
    """No report wanted."""
