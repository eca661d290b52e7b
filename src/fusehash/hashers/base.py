"""CrossModalHasher: the rules that all methods share (fit, project, encode, fuse, score, save, load)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fusehash import bits, parameters
from fusehash.errors import DataError, ParameterError, warn
from fusehash.files import FileFormat, contiguous
from fusehash.numerics.arrays import (
    Array,
    check_device,
    convert,
    host,
    is_foreign,
    namespace,
    place,
    to_device_of,
    zeros,
)
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.parameters import Rule, check_labels, multiple_of, resolve_seed
from fusehash.streams import StoredMatrix, encoding, is_block_stream, open_view
from fusehash.streams.cluster import passes_over
from fusehash.streams.row_passes import RowPasses, device_rows
from fusehash.views import Floats, PairedViews, ViewsLike, check_view, named, to_dense

Progress = Callable[[int, int, str], None]
Self = TypeVar("Self", bound="CrossModalHasher")

MODEL_FILE = FileFormat("fusehash-model", 2, "model")
# Constructor arguments that are not settings of the method, and learned attributes of every method.
NOT_SAVED = ("callback", "n_threads")
LEARNED_BY_ALL = ("codes_", "n_features_", "n_samples_", "view_names_")
# Rows are encoded in blocks of exactly this size (the last one padded), so that the products behind a row are the same
# products whether it comes alone or inside a batch.
ENCODE_ROWS = 64
# A bit whose mean over the training rows is beyond this is as good as constant, where there are so many rows.
COLLAPSED, COLLAPSE_ROWS = 0.95, 100


class CrossModalHasher(BaseEstimator, ABC):
    """Base of every method: learns one K-bit code per training pair and one hash function per view.

    A method implements `_fit(views)`, which sets `codes_` and whatever `_project_block(block, view)` needs.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8, the unified codes of the training pairs.
    view_names_, n_features_, n_samples_ : what it was fitted on.
    """

    # What kind of method it is; see catalogue.py for the rest.
    method: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    supervised: ClassVar[bool] = False  # learns from labels: `_fit` gets them as a 0/1 matrix (rows, classes)
    min_views: ClassVar[int] = 1
    max_views: ClassVar[int | None] = None
    seeded: ClassVar[bool | None] = True  # False: nothing is random; None: only where bits or rows must be drawn
    scale_free: ClassVar[bool] = True  # False: its settings are in units of the features, as in the authors' code
    accelerated: ClassVar[bool] = False  # True: fits and encodes arrays of any library where they are
    comparable: ClassVar[bool] = True  # False: codes of different views have nothing to do with each other

    # What each parameter accepts. A method adds its own; see `parameter_rules`.
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "n_bits": multiple_of(8),
        "device": parameters.optional(parameters.string()),
        "dtype": parameters.choice(None, "float32", "float64"),
        "random_state": parameters.seed(),
        "n_threads": parameters.optional(parameters.integer(1)),
        "callback": parameters.optional(parameters.function()),
    }
    # Parameters that are gone -> what to use instead.
    REMOVED: ClassVar[dict[str, str]] = {}

    n_bits: int
    device: str | None
    dtype: str | None
    random_state: Any
    n_threads: int | None
    callback: Progress | None

    codes_: bits.Codes
    view_names_: list[str]
    n_features_: dict[str, int]
    n_samples_: int
    uncut_bits_: int  # only of a model that `cut` has made: the bits that its hash functions give

    def __new__(cls, *args: Any, **params: Any) -> CrossModalHasher:
        for name in params.keys() & cls.REMOVED.keys():
            raise ParameterError(cls.__name__, name, f"left out: {cls.REMOVED[name]}", params[name])
        return super().__new__(cls)

    @classmethod
    def parameter_rules(cls) -> dict[str, Rule]:
        """The rule of every parameter, by name."""
        return parameters.rules_of(cls)

    # -- fitting -------------------------------------------------------------------------------------------------

    def fit(self, views: ViewsLike, y: Any = None) -> CrossModalHasher:
        """Learn codes and hash functions from paired views.

        Parameters
        ----------
        views : mapping name -> (n, d) matrix, a list of matrices, or PairedViews; row i of each is the same item.
            A matrix may lie in a file (`streams.open_view`), and all views may come as a stream of paired blocks
            (`streams.open_blocks`). A method that needs sums over rows alone, as FuseHash, AGSFH and
            the controls do, reads them block by block, in several passes; others bring all rows into memory.
        y : labels, for the methods that learn from them: a class for each row, or a 0/1 matrix (rows, classes).
            Ignored by unsupervised methods.
        """
        parameters.check(type(self).__name__, self.parameter_rules(), self.get_params(deep=False))
        if getattr(self, "device", None) is not None:
            check_device(str(self.device))
        self._check_params()
        paired = self._paired(views)
        if paired.n_rows < 2:
            raise DataError(f"{type(self).__name__} needs at least 2 paired rows to learn from. Got {paired.n_rows}.")
        for name, mask in paired.present.items():
            if not mask.any():
                raise DataError(f"View '{name}' must be present in at least one row. Every row is missing.")
        if not self.accelerated:  # this method knows NumPy only
            paired = paired.on_host()
        self._check_number_of_views(paired)
        labels = check_labels(type(self).__name__, y, paired.n_rows) if self.supervised else None
        self._seed = resolve_seed(self.random_state)
        self.__dict__.pop("_elsewhere", None)  # copies of the old model on devices
        before = self._take_learned()
        try:
            with one_blas_thread():  # blocks run in parallel instead, and codes do not depend on the number of threads
                self._fit(paired, labels)
        except BaseException:  # also Ctrl-C: the model stays what it was
            self._take_learned()
            self.__dict__.update(before)
            raise
        _warn_if_collapsed(type(self).__name__, self.codes_, self.n_bits)
        self.view_names_ = paired.names
        self.n_features_ = paired.n_features
        self.n_samples_ = paired.n_rows
        self.__dict__.update({name: contiguous(value) for name, value in self._take_learned().items()})
        return self

    def _paired(self, views: ViewsLike) -> PairedViews:
        """The views, checked; those that are checked already are not read again."""
        if isinstance(views, PairedViews) and (self._allows_missing or not views.present):
            return views
        return PairedViews(views, allow_missing=self._allows_missing)

    def _check_number_of_views(self, views: PairedViews) -> None:
        low, high, got = self.min_views, self.max_views, len(views.names)
        if got < low or (high is not None and got > high):
            span = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
            raise DataError(f"{type(self).__name__} needs {span} views. Got {got}: {', '.join(views.names)}.")

    def _take_learned(self) -> dict[str, Any]:
        """Remove and return the learned attributes."""
        names = [name for name in vars(self) if is_learned(name)]
        return {name: self.__dict__.pop(name) for name in names}

    def _passes(self, views: PairedViews) -> RowPasses:
        """How to pass over the rows: where they are, on the device that was asked for, or by a cluster."""
        return passes_over(views, self.n_threads, self.device)

    @property
    def _allows_missing(self) -> bool:
        return False

    def _check_params(self) -> None:
        """Check what the table of rules cannot express: parameters that depend on each other."""

    @abstractmethod
    def _fit(self, views: PairedViews, labels: Any) -> None:
        """Learn; set `codes_` and what `_project_block` needs. ``labels`` is None for unsupervised methods."""

    @abstractmethod
    def _project_block(self, block: Floats, view: str) -> Floats:
        """Real-valued (rows, n_bits) projections of dense rows; their signs are the code."""

    def _codes_of(self, views: PairedViews, real: Callable[[slice], Floats] | None = None) -> bits.Codes:
        """Packed signs of what `real` makes of each block of rows; by default, of the sum of the views' projections."""

        def summed(rows: slice) -> Floats:
            return np.sum([self._project_block(views.block(name, rows), name) for name in views], axis=0)

        real = real or summed
        return np.vstack(list(map_blocks(lambda rows: bits.pack(real(rows)), views.blocks(), self.n_threads)))

    def _report(self, step: int, total: int, message: str) -> None:
        if self.callback is not None:
            self.callback(step, total, message)

    # -- encoding ------------------------------------------------------------------------------------------------

    def project(self, X: Any, *, view: str | int) -> Array:
        """Real-valued projections (n, n_bits) of items seen in one view; `encode` is their sign.

        Arrays of PyTorch and CuPy are answered in kind.
        """
        name = self._view_name(view)
        matrix = self._check_rows(X, name)
        if is_foreign(matrix):
            return self._project_foreign(matrix, name)
        projections = np.empty((matrix.shape[0], self.n_bits))
        for rows, block in _padded_blocks(matrix):
            projections[rows] = self._project_block(block, name)[: rows.stop - rows.start, : self.n_bits]
        return projections

    def _project_foreign(self, matrix: Array, name: str) -> Array:
        """The same for a tensor: where it is, or (for methods that know NumPy only) through the host."""
        if not self.accelerated:
            return to_device_of(self.project(host(matrix), view=name), matrix)
        there = self._beside(matrix)
        size = device_rows(matrix)
        starts = range(0, len(matrix), size)
        parts = [there._project_block(to_dense(matrix[i : i + size]), name) for i in starts]
        whole = parts[0] if len(parts) == 1 else namespace(matrix).concat(parts, axis=0)
        return whole if whole.shape[1] == self.n_bits else whole[:, : self.n_bits]

    def _beside(self, array: Array) -> CrossModalHasher:
        """This model with its arrays where a tensor is; moved once for each place."""
        key, known = place(array), self.__dict__.setdefault("_elsewhere", {})
        if key not in known:
            moved = copy(self)
            used = [n for n in vars(self) if is_learned(n) and n not in ("codes_", "sums_")]  # by encoding
            learned = {name: self.__dict__[name] for name in used}
            moved.__dict__.update(convert(learned, lambda part: to_device_of(part, array)))
            known[key] = moved
        there: CrossModalHasher = known[key]
        return there

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_elsewhere", None)
        return state

    def encode(self, X: Any, *, view: str | int, out: str | Path | None = None) -> Any:
        """Packed codes (n, n_bits / 8) of items seen in one view only.

        X may be whatever `fit` takes for a view. Of a dask array the codes are a dask array, computed when asked for;
        of a stream of blocks, a generator of code blocks. With ``out``, the path of a .npy, .zarr or .parquet file,
        they are written there block by block instead, and the path is returned.
        """
        name = self._view_name(view)
        if out is None and encoding.is_dask(X):
            return encoding.encode_lazily(self, X, name)
        if is_block_stream(X):
            return self._streamed(encoding.encode_blocks(self, X, name), out)
        matrix = open_view(X)
        if out is not None and is_foreign(matrix):
            codes = host(self.encode(matrix, view=name))
            return encoding.write_codes([codes], len(codes), codes.shape[1], out)
        if out is not None or isinstance(matrix, StoredMatrix):
            return encoding.encode_rows(self, {name: self._check_rows(matrix, name)}, fused=False, out=out)
        return bits.pack(self.project(matrix, view=name))

    def _streamed(self, blocks: Iterator[bits.Codes], out: str | Path | None) -> Any:
        return blocks if out is None else encoding.write_codes(blocks, None, bits.n_bytes(self.n_bits), out)

    def project_fused(self, views: ViewsLike) -> Array:
        """Real-valued projections of items seen in any subset of the views.

        Items seen in every view go through the method's own fusion; others get the weighted sum of the projections of
        the views they are seen in. A row that is all NaN in a view counts as not seen there.
        """
        given = {self._view_name(name): open_view(matrix) for name, matrix in self._named(views).items()}
        if any(isinstance(matrix, StoredMatrix) for matrix in given.values()):
            return np.vstack([self.project_fused(block) for block in encoding.paired_blocks(given, allow_missing=True)])
        for name, matrix in given.items():
            self._check_rows(matrix, name, allow_missing=True)
        paired = PairedViews(given, allow_missing=True)
        if len({place(view) if is_foreign(view) else None for view in paired.values()}) > 1:
            paired = paired.on_host()  # views of several places meet here
        weights = self._fusion_weights()
        total: Array = None
        for name in paired:
            matrix = paired[name] if name not in paired.present else paired.dense(name, slice(None))
            part = self.project(matrix, view=name) * weights[name]
            if name in paired.present:
                seen = to_device_of(paired.present[name], part)[:, None]
                part = namespace(part).where(seen, part, zeros((1, 1), part))
            total = part if total is None else total + part
        self._replace_complete(paired, total)
        return total

    def _replace_complete(self, views: PairedViews, total: Array) -> None:
        """Items seen in every view get the method's own fusion where it has one."""
        if set(views.names) != set(self.view_names_):
            return
        there = is_foreign(total) and self.accelerated
        model = self._beside(total) if there else self
        rows = np.flatnonzero(np.all([views.is_present(name) for name in views], axis=0))
        size = device_rows(total) if there else ENCODE_ROWS
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            padded = some if there else np.concatenate([some, np.repeat(some[:1], size - len(some))])
            cut = views.dense if there else views.block
            fused = model._project_complete_block({name: cut(name, padded) for name in self.view_names_})
            if fused is None:
                return
            found = fused[: len(some), : self.n_bits]
            total[to_device_of(some, total)] = found if is_foreign(found) else to_device_of(found, total)

    def _project_complete_block(self, blocks: dict[str, Array]) -> Array | None:
        """Real-valued projections of dense rows seen in every view; None: the weighted sum is the fusion."""
        return None

    def encode_fused(self, views: ViewsLike, *, out: str | Path | None = None) -> Any:
        """Packed codes of items seen in several views, or in any subset of them; ``out`` as in `encode`."""
        self._check_fitted()
        if is_block_stream(views):
            return self._streamed(encoding.encode_blocks(self, views, None), out)
        given = {self._view_name(name): open_view(matrix) for name, matrix in self._named(views).items()}
        if out is not None and any(is_foreign(matrix) for matrix in given.values()):
            codes = host(self.encode_fused(given))
            return encoding.write_codes([codes], len(codes), codes.shape[1], out)
        if out is not None or any(isinstance(matrix, StoredMatrix) for matrix in given.values()):
            whole = {
                n: m if isinstance(m, StoredMatrix) else self._check_rows(m, n, allow_missing=True)
                for n, m in given.items()
            }
            return encoding.encode_rows(self, whole, fused=True, out=out)
        return bits.pack(self.project_fused(views))

    def _fusion_weights(self) -> dict[str, float]:
        return dict.fromkeys(self.view_names_, 1.0)

    def score(self, views: ViewsLike, y: Any = None) -> float:
        """Label-free quality on paired rows: mean rank-based probability that the true partner is nearer than another.

        The mean over ordered pairs of views of the pair AUC; .5 is chance and 1 is perfect. It is what scikit-learn's
        model selection uses by default. With one view there is nothing to pair: 1.
        """
        from fusehash.evaluation import pair_auc

        self._check_fitted()
        paired = PairedViews(self._named(views))
        codes = {name: host(self.encode(paired[name], view=name)) for name in paired}
        scores = [pair_auc(codes[a], codes[b]) for a in codes for b in codes if a != b]
        return float(np.mean(scores)) if scores else 1.0

    # -- shorter codes -------------------------------------------------------------------------------------------

    def cut(self: Self, n_bits: int) -> Self:
        """The same fitted model with shorter codes: exactly the first ``n_bits`` (a multiple of 8) of every code.

        Nothing is learned and no array is copied: the hash functions give all bits, of which the first are taken. How
        good the first bits are by themselves is up to the method (docs/methods.md, "Several lengths").
        """
        self._check_fitted()
        owner = f"{type(self).__name__}.cut"
        if multiple_of(8).check(owner, "n_bits", n_bits) > self.n_bits:
            raise ParameterError(owner, "n_bits", f"at most {self.n_bits}, the bits of this model", n_bits)
        short = copy(self)
        short.n_bits = int(n_bits)
        short.codes_ = bits.cut(self.codes_, n_bits)
        short.uncut_bits_ = getattr(self, "uncut_bits_", self.n_bits)
        return short

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model to one safetensors file; the old file stays whole until the new one is complete."""
        self._check_fitted()
        learned = {name: value for name, value in vars(self).items() if is_learned(name)}
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_SAVED}
        if not isinstance(params.get("random_state"), int | np.integer | type(None)):
            params["random_state"] = None  # a generator was used up; only seeds can be stored
        MODEL_FILE.write(Path(path), {"method": self.method, "params": params, "state": learned})

    def _restore(self, learned: dict[str, Any]) -> None:
        """Take over the learned attributes of a file; raises ValueError if they are not those of a model."""
        if not set(LEARNED_BY_ALL) <= set(learned) or not all(map(is_learned, learned)):
            raise ValueError("not the learned attributes of a model")
        bits.check_codes(learned["codes_"], self.n_bits)
        self.__dict__.update(learned)

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "codes_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call 'fit' first.")

    def _named(self, views: ViewsLike) -> dict[str, Any]:
        self._check_fitted()
        if isinstance(views, list | tuple):  # a list stands for the views in the order of fit
            if len(views) != len(self.view_names_):
                raise DataError(
                    f"A list of views must have one matrix for each of {self.view_names_}. Got {len(views)} instead."
                )
            return dict(zip(self.view_names_, views, strict=True))
        return named(views)

    def _view_name(self, view: str | int) -> str:
        self._check_fitted()
        if isinstance(view, int | np.integer) and not isinstance(view, bool) and 0 <= view < len(self.view_names_):
            return self.view_names_[view]
        if view not in self.view_names_:
            known = ", ".join(repr(name) for name in self.view_names_)
            raise DataError(f"The view must be one of {known}. Got {view!r} instead.")
        return str(view)

    def _check_rows(self, X: Any, name: str, *, allow_missing: bool = False) -> Any:
        matrix, _ = check_view(X, name, allow_missing=allow_missing)
        expected = self.n_features_[name]
        if matrix.shape[1] != expected:
            raise DataError(f"View '{name}' must have {expected} features, as in fit. Got {matrix.shape[1]} instead.")
        return matrix


def is_learned(name: str) -> bool:
    """Whether an attribute of a model was learned by `fit`."""
    return name.endswith("_") and not name.startswith("_")


def _warn_if_collapsed(owner: str, codes: bits.Codes, n_bits: int) -> None:
    """Bits that are (nearly) the same for every row say nothing; their ranking is the order of the database."""
    if len(codes) < COLLAPSE_ROWS:  # of few rows, a fair bit can be the same in nearly all
        return
    ones = np.sum([bits.unpack(codes[i : i + 4096], n_bits).clip(0).sum(axis=0) for i in range(0, len(codes), 4096)], 0)
    stuck = int(np.sum(np.abs(2.0 * ones / len(codes) - 1.0) > COLLAPSED))
    if stuck:
        warn(f"{stuck} of the {n_bits} bits of {owner} are nearly the same for all rows and tell nothing apart.")


def _padded_blocks(matrix: Any) -> Iterator[tuple[slice, Floats]]:
    """Row blocks of exactly ENCODE_ROWS rows; the last is padded with copies of its first row."""
    starts = range(0, matrix.shape[0], ENCODE_ROWS)
    cuts: Iterable[Any] = (matrix[start : start + ENCODE_ROWS] for start in starts)
    if isinstance(matrix, StoredMatrix):
        cuts = encoding.stored_blocks(matrix, ENCODE_ROWS)
    for start, cut in zip(starts, cuts, strict=True):
        block = np.ascontiguousarray(to_dense(cut))
        rows = slice(start, start + len(block))
        if len(block) < ENCODE_ROWS:
            block = np.vstack([block, np.repeat(block[:1], ENCODE_ROWS - len(block), axis=0)])
        yield rows, block
