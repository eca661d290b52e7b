"""CrossModalHasher: the rules that all methods share (fit, cut, save, load); codes of rows are in `encoding`."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import AbstractContextManager, ExitStack
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp

from fusehash import bits, parameters
from fusehash.errors import DataError, ParameterError, warn
from fusehash.files import FileFormat, arrays_in, contiguous
from fusehash.hashers.encoding import RowEncoder, is_learned
from fusehash.numerics.arrays import check_device, is_foreign
from fusehash.numerics.memory import check_memory
from fusehash.numerics.parallel import map_blocks, one_blas_thread
from fusehash.numerics.sparse import stays_sparse
from fusehash.parameters import Progress, Rule, check_labels, flag, integer, multiple_of, real, resolve_seed, rng_for
from fusehash.streams import passes_over
from fusehash.streams.row_passes import RowPasses
from fusehash.views import PairedViews, ViewsLike

Self = TypeVar("Self", bound="CrossModalHasher")

MODEL_FILE = FileFormat("fusehash-model", 4, "model", checked_since=3)
# Constructor arguments that are not settings of the method, and learned attributes of every method.
NOT_SAVED = ("callback", "n_threads")
LEARNED_BY_ALL = ("codes_", "n_features_", "n_samples_", "view_names_")
MAX_SPARSE_WIDTH = 2**31 - 1
# A bit whose mean over the training rows is beyond this is as good as constant, where there are so many rows.
COLLAPSED, COLLAPSE_ROWS = 0.95, 100


def _progress(title: str) -> AbstractContextManager[Progress]:
    from fusehash.console import progress

    return progress(title)


class CrossModalHasher(RowEncoder):
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

    device: str | None
    dtype: str | None
    random_state: Any
    n_threads: int | None
    callback: Progress | None
    _bar: Progress | None = None  # while `fit(verbose=True)` runs

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

    def fit(self, views: ViewsLike, y: Any = None, *, verbose: bool = False) -> CrossModalHasher:
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
        verbose : bool, default False
            Show the progress on stderr, next to the calls of `callback`.

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
            with ExitStack() as stack:
                if verbose:
                    self._bar = stack.enter_context(_progress(type(self).__name__))
                    stack.callback(self.__dict__.pop, "_bar", None)
                # Blocks run in parallel instead, and codes do not depend on the number of threads.
                stack.enter_context(one_blas_thread())
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
        for listener in (self.callback, self._bar):
            if listener is not None:
                listener(step, total, message)

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


def _warn_if_collapsed(owner: str, codes: bits.Codes, n_bits: int) -> None:
    """Bits that are (nearly) the same for every row say nothing; their ranking is the order of the database."""
    if len(codes) < COLLAPSE_ROWS:  # of few rows, a fair bit can be the same in nearly all
        return
    ones = np.sum([bits.unpack(codes[i : i + 4096], n_bits).clip(0).sum(axis=0) for i in range(0, len(codes), 4096)], 0)
    stuck = int(np.sum(np.abs(2.0 * ones / len(codes) - 1.0) > COLLAPSED))
    if stuck:
        warn(f"{stuck} of the {n_bits} bits of {owner} are nearly the same for all rows and tell nothing apart.")
