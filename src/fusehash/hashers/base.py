"""CrossModalHasher: the rules that all methods share (fit, project, encode, fuse, score, save, load)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from fusehash import bits, parameters
from fusehash.errors import DataError, ParameterError, warn
from fusehash.evaluation import pair_auc
from fusehash.files import FileFormat, arrays_in, contiguous
from fusehash.numerics.arrays import Array, check_device, convert, device_of, host, is_foreign, namespace, to_device_of
from fusehash.numerics.memory import check_memory
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.numerics.sparse import stays_sparse
from fusehash.parameters import Progress, Rule, check_labels, flag, integer, multiple_of, real, resolve_seed, rng_for
from fusehash.streams import StoredMatrix, is_block_stream, open_view, passes_over, writers
from fusehash.streams.formats import is_dask
from fusehash.streams.row_passes import RowPasses, device_rows
from fusehash.views import Floats, PairedViews, ViewsLike, check_view, named, to_dense

Self = TypeVar("Self", bound="CrossModalHasher")

MODEL_FILE = FileFormat("fusehash-model", 4, "model", checked_since=3)
# Constructor arguments that are not settings of the method, and learned attributes of every method.
NOT_SAVED = ("callback", "n_threads")
LEARNED_BY_ALL = ("codes_", "n_features_", "n_samples_", "view_names_")
# Rows are encoded in blocks of exactly this size (the last one padded), so that the products behind a row are the same
# products whether it comes alone or inside a batch.
ENCODE_ROWS = 64
MAX_SPARSE_WIDTH = 2**31 - 1
# A bit whose mean over the training rows is beyond this is as good as constant, where there are so many rows.
COLLAPSED, COLLAPSE_ROWS = 0.95, 100


class CrossModalHasher(BaseEstimator, ABC):
    """Base of every method: learns one code of `n_bits` bits per training pair and one hash function per view.

    To write a method, declare the class attributes below, add rules for new parameters to `PARAMETERS`, and implement

    - ``_fit(views, labels)``: learn from `PairedViews`; set `codes_` and learned attributes, whose names end in "_".
      `labels` is a 0/1 matrix (rows, classes) for a supervised method, else None. Draw random numbers from
      ``rng_for(self._seed, "purpose")``, and report progress with ``self._report(step, total, message)``.
    - ``_project_block(block, view)``: real-valued projections (rows, n_bits) of dense rows of one view. Their signs are
      the code. For ``sgn((x - mean) W)``, subclass `LinearHasher`, which has it.

    A method may override ``_project_complete_block`` and ``_fusion_weights`` for its own fusion, ``_check_params`` for
    parameters that depend on each other, and ``_allows_missing``. Everything else (checks, files, streams, devices, an
    unchanged model after an error) is here.

    Attributes
    ----------
    codes_ : ndarray of uint8, shape (n, n_bits / 8)
        Codes of the training pairs.
    view_names_, n_features_, n_samples_ : list of str, dict, int
        The views in the order of their names, features per view and rows that the model was fitted on.
    """

    method: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    supervised: ClassVar[bool] = False  # learns from labels: `_fit` gets them as a 0/1 matrix (rows, classes)
    min_views: ClassVar[int] = 1
    max_views: ClassVar[int | None] = None
    seeded: ClassVar[bool | None] = True  # False: nothing is random; None: only where bits or rows must be drawn
    scale_free: ClassVar[bool] = True  # False: its settings are in units of the features, as in the authors' code
    accelerated: ClassVar[bool] = False  # True: fits and encodes arrays of any library where they are
    quadratic: ClassVar[bool] = True  # False: forms no matrix (features, features), so that wide views are no trouble
    keeps_sparse: ClassVar[bool] = (
        False  # True: rows of sparse matrices of the host come as they are, in `_fit` and after
    )
    comparable: ClassVar[bool] = True  # False: codes of different views have nothing to do with each other

    # What the parameters that methods share accept. A method adds its own, and may replace one of these.
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "n_bits": multiple_of(8),
        "device": parameters.optional(parameters.string()),
        "dtype": parameters.choice(None, "float32", "float64"),
        "random_state": parameters.seed(),
        "n_threads": parameters.optional(parameters.integer(1)),
        "callback": parameters.optional(parameters.function()),
        "max_iter": integer(1),
        "tol": real(),
        "ridge": real(),
        "n_anchors": integer(1),
        "n_neighbors": integer(1),
        "max_rows": integer(2),
        "subsample": flag(),
        "as_released": flag(),
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
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            One matrix (n, d) per view; row i of each is the same item. A method takes the views in the order of their
            names, whatever their order in a mapping; a list keeps its order. Matrices may be files
            (`streams.open_view`), and views a stream of paired blocks (`streams.open_blocks`). FuseHash, AGSFH and the
            controls read them block by block; other methods load all rows into memory.
        y : array-like, shape (n,) or (n, n_classes), optional
            Labels for supervised methods: one class per row, or a 0/1 matrix. Unsupervised methods ignore it.

        Returns
        -------
        self : CrossModalHasher

        Raises
        ------
        ParameterError, DataError
            If a parameter, the views or the labels cannot be used. The model stays as it was before the call.
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
        low, high, got = self.min_views, self.max_views, len(paired.names)
        if got < low or (high is not None and got > high):
            span = f"{low}" if low == high else f"at least {low}" if high is None else f"{low} to {high}"
            raise DataError(f"{type(self).__name__} needs {span} views. Got {got}: {', '.join(paired.names)}.")
        labels = check_labels(type(self).__name__, y, paired.n_rows) if self.supervised else None
        self._check_memory(paired)
        self._seed = resolve_seed(self.random_state)
        self._forget_device_copies()
        before = self._take_learned()
        try:
            with one_blas_thread():  # blocks run in parallel instead, and codes do not depend on the number of threads
                self._fit(paired, labels)
        except BaseException as error:  # also Ctrl-C: the model stays what it was
            self._take_learned()
            self.__dict__.update(before)
            if isinstance(error, MemoryError):
                raise DataError(f"{type(self).__name__} must fit into memory. It does not: {error}.") from error
            if isinstance(error, np.linalg.LinAlgError):
                problem = "Some rows or features are so much larger than others that rounding errors decide."
                raise DataError(f"The equations of {type(self).__name__} must have a solution. {problem}") from error
            raise
        _warn_if_collapsed(type(self).__name__, self.codes_, self.n_bits)
        self.view_names_, self.n_features_, self.n_samples_ = paired.names, paired.n_features, paired.n_rows
        self.__dict__.update({name: contiguous(value) for name, value in self._take_learned().items()})
        return self

    def _check_memory(self, views: PairedViews) -> None:
        """Refuse views of the host whose matrices cannot be held, before any work is done."""
        if getattr(self, "device", None) is not None or any(map(is_foreign, views.values())):
            return
        widths = list(views.n_features.values())
        if self.quadratic:  # sums, a factor of them, and what is between
            n_bytes = 3 * 8 * sum(width**2 for width in widths)
            check_memory(type(self).__name__, f"covariances of {sum(widths):,} features", n_bytes)
        else:  # FuseHash reads rows in blocks
            rows = min(views.n_rows, 256 if self.accelerated else getattr(self, "max_rows", views.n_rows))
            is_sparse = {name: self.keeps_sparse and stays_sparse(views[name]) for name in views}
            widths = [d for name, d in views.n_features.items() if not is_sparse[name]]
            content = f"{rows:,} dense rows of {sum(widths):,} features"
            check_memory(type(self).__name__, content, 3 * 8 * rows * sum(widths))

    def _paired(self, views: ViewsLike) -> PairedViews:
        """The views in the order of their names, checked; those that are checked already are not read again."""
        if not isinstance(views, PairedViews) or (views.present and not self._allows_missing):
            views = PairedViews(views, allow_missing=self._allows_missing)
        return views.in_order()

    def _take_learned(self) -> dict[str, Any]:
        """Remove and return the learned attributes."""
        return {name: self.__dict__.pop(name) for name in self._learned()}

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if is_learned(name)}

    def _passes(self, views: PairedViews) -> RowPasses:
        """How to pass over the rows: where they are, on the device that was asked for, or by a cluster."""
        return passes_over(views, self.n_threads, self.device, keep_sparse=self.keeps_sparse)

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

    def _codes_of(self, views: PairedViews) -> bits.Codes:
        """Codes of training pairs from the hash functions, fused as the method does or by the sum of projections."""

        def of_block(rows: slice) -> bits.Codes:
            blocks = {name: views.block(name, rows) for name in views}
            fused = self._project_complete_block(blocks)
            if fused is None:
                fused = np.sum([self._project_block(block, name) for name, block in blocks.items()], axis=0)
            return bits.pack(fused)

        return np.vstack(list(map_blocks(of_block, views.blocks(), self.n_threads)))

    def _sample_rows(self, n_rows: int, max_rows: int) -> Any:
        """All rows to learn from (a slice), or `max_rows` random ones; an error where `subsample` is off."""
        if n_rows <= max_rows:
            return slice(None)
        if not getattr(self, "subsample", True):
            raise DataError(
                f"{type(self).__name__} compares every pair of rows and takes at most {max_rows} of them (max_rows). "
                f"Got {n_rows}; subsample=True learns from a random part."
            )
        return np.sort(rng_for(self._seed, "rows").choice(n_rows, max_rows, replace=False))

    def _warn_about_bits(self, source: str, consequence: str) -> None:
        warn(f"{type(self).__name__} was asked for {self.n_bits} bits of {source}; {consequence}.")

    def _report(self, step: int, total: int, message: str) -> None:
        if self.callback is not None:
            self.callback(step, total, message)

    # -- encoding ------------------------------------------------------------------------------------------------

    def project(self, X: Any, *, view: str | int) -> Array:
        """Real-valued projections of items seen in one view; `encode` packs their signs.

        Parameters
        ----------
        X : array-like, sparse matrix or stored matrix, shape (n, d)
            Rows of the view.
        view : str or int
            Name of the view, or its position in `view_names_`.

        Returns
        -------
        projections : array, shape (n, n_bits)
            In the library and on the device of X for arrays of PyTorch and CuPy, else a NumPy array.

        Raises
        ------
        NotFittedError, DataError
            If the model is not fitted; if the view is unknown, or X does not have its features or holds NaN.
        """
        name = self._view_name(view)
        matrix = self._check_rows(X, name)
        if is_foreign(matrix):
            return self._project_foreign(matrix, name)
        projections = np.empty((matrix.shape[0], self.n_bits))
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):  # codes do not depend on threads
            for rows, block in _padded_blocks(matrix, keep_sparse=self._stays_sparse(name, self.__dict__)):
                projections[rows] = self._project_block(block, name)[: rows.stop - rows.start, : self.n_bits]
        return _checked(projections, f"View '{name}'")

    def _project_foreign(self, matrix: Array, name: str) -> Array:
        """The same for a tensor: where it is, or (for methods that know NumPy only) through the host."""
        if not self._encodes_tensors:
            return to_device_of(self.project(host(matrix), view=name), matrix)
        there = self._on_device_of(matrix)
        size = device_rows(matrix)
        parts = [there._project_block(to_dense(matrix[i : i + size]), name) for i in range(0, len(matrix), size)]
        whole = parts[0] if len(parts) == 1 else namespace(matrix).concat(parts, axis=0)
        return whole if whole.shape[1] == self.n_bits else whole[:, : self.n_bits]

    def _on_device_of(self, array: Array) -> CrossModalHasher:
        """This model with its arrays on the device of a tensor; copied once per device."""
        copies: dict[Any, CrossModalHasher] = self.__dict__.setdefault("_device_copies", {})
        key = device_of(array)
        if key not in copies:
            not_used = ("codes_", "sums_")  # by encoding
            used = {name: value for name, value in self._learned().items() if name not in not_used}
            copies[key] = copy(self)
            copies[key].__dict__.update(convert(used, lambda part: to_device_of(part, array)))
        return copies[key]

    def _forget_device_copies(self) -> None:
        self.__dict__.pop("_device_copies", None)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_device_copies", None)
        return state

    def encode(self, X: Any, *, view: str | int, out: str | Path | None = None, with_factors: bool = False) -> Any:
        """Packed codes of items seen in one view; raises as `project` does.

        Parameters
        ----------
        X : matrix, shape (n, d), or stream of blocks
            Rows of the view; anything that `fit` accepts for a view.
        view : str or int
            Name of the view, or its position in `view_names_`.
        out : path, optional
            Write the codes to this file block by block, instead of returning them.
        with_factors : bool, default False
            Also return two numbers per item, (n, 2) of float32. A query with projections p ranks an item with code b in
            {-1, +1} by ``factors[:, 0] * <b, p> + factors[:, 1]``, largest first.

        Returns
        -------
        codes : array of uint8, shape (n, n_bits / 8), or Path
            A lazy dask array for a dask array, a generator of code blocks for a stream, and the path with `out`; with
            `with_factors`, a pair of codes and factors.
        """
        name = self._view_name(view)
        if with_factors:
            return self._encode_with_factors(X, name, out)
        if out is None and is_dask(X):
            return writers.encode_lazily(self, X, name)
        return self._encode(X if is_block_stream(X) else {name: open_view(X)}, name, out)

    def _encode_with_factors(self, X: Any, name: str, out: str | Path | None) -> tuple[Any, NDArray[np.float32]]:
        matrix = self._check_rows(host(X) if is_foreign(X) else X, name)
        n_rows = int(matrix.shape[0])
        codes = np.empty((n_rows, bits.n_bytes(self.n_bits)), np.uint8)
        factors = np.empty((n_rows, 2), np.float32)
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for rows, block in _padded_blocks(matrix, keep_sparse=self._stays_sparse(name, self.__dict__)):
                projections, count = (
                    _checked(self._project_block(block, name), f"View '{name}'"),
                    rows.stop - rows.start,
                )
                codes[rows] = bits.pack(projections[:count, : self.n_bits])
                factors[rows] = self._factors_block(block, projections, name)[:count]
        return (codes if out is None else writers.write_codes([codes], n_rows, codes.shape[1], out)), factors

    def _factors_block(self, block: Any, projections: Floats, view: str) -> Floats:
        """Two numbers per item (rows, 2), from rows and their uncut projections, for methods that have them."""
        owner = f"{type(self).__name__}.encode"
        raise ParameterError(owner, "with_factors", "False: the codes of this method have no factors", True)

    def _encode(self, opened: Any, view: str | None, out: str | Path | None) -> Any:
        """Codes of a stream or of opened views: of one view, or of several that are fused (None)."""
        if is_block_stream(opened):
            blocks = writers.encode_blocks(self, opened, view)
            return blocks if out is None else writers.write_codes(blocks, None, bits.n_bytes(self.n_bits), out)
        fused = view is None
        is_stored = any(isinstance(matrix, StoredMatrix) for matrix in opened.values())
        has_tensors = any(is_foreign(matrix) for matrix in opened.values())
        if is_stored or (out is not None and not has_tensors):
            for name, matrix in opened.items():
                if not (fused and isinstance(matrix, StoredMatrix)):  # checked block by block
                    opened[name] = self._check_rows(matrix, name, allow_missing=fused)
            return writers.encode_rows(self, opened, fused=fused, out=out)
        return _packed(self.project_fused(opened) if view is None else self.project(opened[view], view=view), out)

    def project_fused(self, views: ViewsLike) -> Array:
        """Real-valued projections of items seen in any subset of the views; raises as `project` does.

        Items seen in every view are fused by the method; others get the weighted sum of the projections of their views.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            Some or all of the views. A row that is all NaN in a view is missing there.

        Returns
        -------
        projections : array, shape (n, n_bits)
        """
        opened = self._opened(views)
        if any(isinstance(matrix, StoredMatrix) for matrix in opened.values()):
            blocks = writers.paired_blocks(opened, allow_missing=True)
            return np.vstack([self.project_fused(block) for block in blocks])
        for name, matrix in opened.items():
            self._check_rows(matrix, name, allow_missing=True)
        present = views.present if isinstance(views, PairedViews) else None
        paired = PairedViews(opened, allow_missing=True, present=present).in_order()
        like = next(iter(paired.values()))
        is_mixed = len({device_of(view) if is_foreign(view) else None for view in paired.values()}) > 1
        if is_mixed or not self._encodes_tensors:  # views of several places meet on the host
            paired = paired.on_host()
        weights = self._fusion_weights()
        total: Array = None
        for name in paired:
            is_sparse = sp.issparse(paired[name]) and self._stays_sparse(name, self.__dict__)
            whole = paired.sparse if is_sparse else paired.dense
            matrix = paired[name] if name not in paired.present else whole(name, slice(None))
            part = self.project(matrix, view=name) * weights[name]
            if name in paired.present:
                seen = to_device_of(paired.present[name], part)[:, None]
                part = namespace(part).where(seen, part, namespace(part).zeros_like(part))
            total = part if total is None else total + part
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            self._replace_complete(paired, total)
        if is_foreign(total):
            return total
        total = _checked(total, "The views")
        return to_device_of(total, like) if is_foreign(like) and not is_mixed else total

    def _replace_complete(self, views: PairedViews, total: Array) -> None:
        """Items seen in every view get the method's own fusion where it has one."""
        if set(views.names) != set(self.view_names_):
            return
        there = is_foreign(total)
        model = self._on_device_of(total) if there else self
        rows = views.complete_rows()
        size = device_rows(total) if there else ENCODE_ROWS
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            padded = some if there else np.concatenate([some, np.repeat(some[:1], size - len(some))])
            fused = model._project_complete_block({n: self._cut(views, n, padded, there) for n in self.view_names_})
            if fused is None:
                return
            fused = fused[: len(some), : self.n_bits]
            total[to_device_of(some, total)] = fused if is_foreign(fused) else to_device_of(fused, total)

    def _cut(self, views: PairedViews, name: str, rows: Any, there: bool) -> Array:
        """Some rows of a view: on its device if they are wanted `there`, sparse where this method keeps them so."""
        if there:
            return views.dense(name, rows)
        is_sparse = sp.issparse(views[name]) and self._stays_sparse(name, self.__dict__)
        return views.sparse(name, rows) if is_sparse else views.block(name, rows)

    def _project_complete_block(self, blocks: dict[str, Array]) -> Array | None:
        """Real-valued projections of rows seen in every view; None: the weighted sum is the fusion."""
        return None

    def encode_fused(self, views: ViewsLike, *, out: str | Path | None = None) -> Any:
        """Packed codes of items seen in any subset of the views; raises as `project` does.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, PairedViews, or stream of blocks
            Some or all of the views. A row that is all NaN in a view is missing there.
        out : path, optional
            Write the codes to this file block by block, instead of returning them.

        Returns
        -------
        codes : array of uint8, shape (n, n_bits / 8), or Path
            A generator of code blocks for a stream, and the path with `out`.
        """
        self._check_fitted()
        if isinstance(views, PairedViews) and views.present:  # masks say where views are missing
            return _packed(self.project_fused(views), out)
        return self._encode(views if is_block_stream(views) else self._opened(views), None, out)

    def _opened(self, views: ViewsLike) -> dict[str, Any]:
        return {self._view_name(name): open_view(matrix) for name, matrix in self._named(views).items()}

    def _fusion_weights(self) -> dict[str, float]:
        return dict.fromkeys(self.view_names_, 1.0)

    def score(self, views: ViewsLike, y: Any = None) -> float:
        """Mean pair AUC: how often the true partner of an item is nearer than another item, without labels.

        Parameters
        ----------
        views : mapping of str to matrix, sequence of matrices, or PairedViews
            Paired rows, all of them present.
        y : None
            Ignored.

        Returns
        -------
        score : float
            Mean over ordered pairs of views; .5 is chance, 1 is perfect. With one view, 1.
        """
        self._check_fitted()
        paired = PairedViews(self._named(views)).in_order()
        codes = {name: host(self.encode(paired[name], view=name)) for name in paired}
        scores = [pair_auc(codes[a], codes[b]) for a in codes for b in codes if a != b]
        return float(np.mean(scores)) if scores else 1.0

    # -- shorter codes -------------------------------------------------------------------------------------------

    def cut(self: Self, n_bits: int) -> Self:
        """The same fitted model with shorter codes: exactly the first bits of every code.

        No array is copied. How good the first bits are depends on the method (docs/methods.md, "Several lengths").

        Parameters
        ----------
        n_bits : int
            Length of the codes, a multiple of 8.

        Returns
        -------
        model : CrossModalHasher
            A new model of the same class.

        Raises
        ------
        NotFittedError, ParameterError
            If the model is not fitted; if `n_bits` is no multiple of 8 or exceeds the bits of this model.
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
        """Write the model to one safetensors file, which `fusehash.load` reads.

        Parameters
        ----------
        path : path
            The file. An existing file is replaced only when the new one is complete.

        Raises
        ------
        NotFittedError, DataError
            If the model is not fitted; if the file cannot be written.
        """
        self._check_fitted()
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in NOT_SAVED}
        if not isinstance(params.get("random_state"), int | np.integer | type(None)):
            params["random_state"] = None  # a generator was used up; only seeds can be stored
        MODEL_FILE.write(Path(path), {"method": self.method, "params": params, "state": self._learned()})

    def _restore(self, learned: dict[str, Any]) -> None:
        """Take over the learned attributes of a file; raises if a model with them could not encode."""
        if not set(LEARNED_BY_ALL) <= set(learned) or not all(map(is_learned, learned)):
            raise ValueError("not the learned attributes of a model")
        parameters.check(type(self).__name__, self.parameter_rules(), self.get_params(deep=False))
        bits.check_codes(learned["codes_"], self.n_bits)
        arrays = list(arrays_in(learned))
        names, widths = learned["view_names_"], learned["n_features_"]
        if not names or sorted(widths) != sorted(names) or not all(isinstance(name, str) for name in names):
            raise ValueError("not the views of a model")
        largest = max(array.size for array in arrays)
        limits = {name: MAX_SPARSE_WIDTH if self._stays_sparse(name, learned) else largest for name in names}
        if not all(integer(1, limits[name]).accepts(width) for name, width in widths.items()):
            raise ValueError("more features than the arrays are for")
        if any(array.dtype.kind == "f" and np.isnan(array).any() for array in arrays):
            raise ValueError("NaN among the learned numbers")
        integer(1).check("a model", "n_samples_", learned["n_samples_"])
        self.__dict__.update(learned)
        self._try_out()

    @property
    def _encodes_tensors(self) -> bool:
        """Whether arrays of PyTorch and CuPy are encoded where they are, and not through the host."""
        return self.accelerated

    def _stays_sparse(self, name: str, learned: dict[str, Any]) -> bool:
        """Whether a fitted model never holds a dense row of a view."""
        return False

    def _try_out(self) -> None:
        """Raise unless rows of every view can be encoded, alone and fused."""
        n_rows = 3  # one row would hide arrays of the wrong shape, which NumPy repeats
        rows: dict[str, Any] = {}
        for name, width in self.n_features_.items():
            in_last_column = np.ones(n_rows), (np.arange(n_rows), np.full(n_rows, width - 1))
            is_sparse = self._stays_sparse(name, self.__dict__)
            rows[name] = sp.csr_array(in_last_column, (n_rows, width)) if is_sparse else np.ones((n_rows, width))
        with np.errstate(all="ignore"):
            projections = [self._project_block(row, name) for name, row in rows.items()]
            fused = self._project_complete_block(rows)
        for projection in projections if fused is None else [*projections, fused]:
            if projection.ndim != 2 or len(projection) != n_rows or projection.shape[1] < self.n_bits:
                raise ValueError("projections of another length than the codes")
        weights = self._fusion_weights()
        if not all(real(-np.inf).accepts(weights[name]) for name in rows):
            raise ValueError("not the weights of the views")

    # -- checks --------------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "codes_"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet. Call 'fit' first.")

    def _named(self, views: ViewsLike) -> dict[str, Any]:
        self._check_fitted()
        if not isinstance(views, list | tuple):
            return named(views)
        names = self.view_names_  # a list stands for the views in this order
        if len(views) != len(names):
            raise DataError(f"A list of views must have one matrix for each of {names}. Got {len(views)} instead.")
        return dict(zip(names, views, strict=True))

    def _view_name(self, view: str | int) -> str:
        self._check_fitted()
        if isinstance(view, int | np.integer) and not isinstance(view, bool) and 0 <= view < len(self.view_names_):
            return self.view_names_[view]
        if view not in self.view_names_:
            names = ", ".join(repr(name) for name in self.view_names_)
            raise DataError(f"The view must be one of {names}. Got {view!r} instead.")
        return str(view)

    def _check_rows(self, X: Any, name: str, *, allow_missing: bool = False) -> Any:
        matrix, _ = check_view(X, name, allow_missing=allow_missing)
        self._check_width(name, matrix.shape[1])
        return matrix

    def _check_width(self, name: str, width: int) -> None:
        if width != (expected := self.n_features_[name]):
            raise DataError(f"View '{name}' must have {expected} features, as in fit. Got {width} instead.")


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


def _checked(projections: Floats, content: str) -> Floats:
    """The projections; raises DataError where features were so large that they are no numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(projections.sum()):  # no NaN and no infinity
            return projections
    finite = np.isfinite(projections).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise DataError(f"{content} must hold numbers that can be projected. Got too large ones in row {row}.")
    return projections


def _packed(projections: Array, out: str | Path | None) -> Any:
    """Their codes, or the path to which they were written."""
    codes = bits.pack(projections)
    return codes if out is None else writers.write_codes([host(codes)], len(codes), codes.shape[1], out)


def _padded_blocks(matrix: Any, *, keep_sparse: bool = False) -> Iterator[tuple[slice, Any]]:
    """Row blocks of exactly ENCODE_ROWS rows; the last is padded with copies of its first row."""
    if keep_sparse and sp.issparse(matrix):
        for start in range(0, matrix.shape[0], ENCODE_ROWS):
            stop = min(start + ENCODE_ROWS, matrix.shape[0])
            padded = np.concatenate([np.arange(start, stop), np.full(ENCODE_ROWS - (stop - start), start)])
            yield slice(start, stop), sp.csr_array(matrix[padded], dtype=np.float64)
        return
    starts = range(0, matrix.shape[0], ENCODE_ROWS)
    cuts: Iterable[Any] = (matrix[start : start + ENCODE_ROWS] for start in starts)
    if isinstance(matrix, StoredMatrix):
        cuts = writers.stored_blocks(matrix, ENCODE_ROWS)
    for start, cut in zip(starts, cuts, strict=True):
        block = np.ascontiguousarray(to_dense(cut))
        rows = slice(start, start + len(block))
        if len(block) < ENCODE_ROWS:
            block = np.vstack([block, np.repeat(block[:1], ENCODE_ROWS - len(block), axis=0)])
        yield rows, block
