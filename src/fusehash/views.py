"""PairedViews: names, checks, row blocks and missing rows of views whose rows describe the same items.

Views are never copied as a whole, only block by block (`PairedViews.block`). Views that are not arrays are opened by
`streams`; such a stored view has `is_stored` and is checked for NaN while it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Union

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import (
    BLOCK_ROWS,
    Array,
    Floats,
    host,
    is_foreign,
    mask_rows,
    namespace,
    take_rows,
    to_dense,
    to_device_of,
    unmasked,
)

Mask = NDArray[np.bool_]
ViewsLike: TypeAlias = Union["PairedViews", Mapping[str, Any], Iterable[Any], Callable[[], Iterable[Any]]]

__all__ = ["BLOCK_ROWS", "Floats", "PairedViews", "ViewsLike", "check_view", "named", "to_dense"]

_SUM_ROWS = 2**20
OPENERS: dict[str, Callable[[Any], Any]] = {}  # set by `streams`: "view", "blocks" and "is_stream"


class PairedViews(Mapping[str, Any]):
    """Checked, paired views: a mapping from name to (n, d) matrix that you can also cut by rows.

    ``len(views)`` counts rows and ``shape`` is (rows, features), so that the splitters of scikit-learn work on it.

    Parameters
    ----------
    views : mapping of str to (n, d) array or scipy.sparse matrix, or sequence of matrices
        Matrices of a sequence are named "view0", "view1", ... A view may also be anything that `streams.open_view`
        opens, such as the path of a .npy file, and all of them a stream of paired blocks (`streams.open_blocks`).
    allow_missing : bool, default=False
        Accept rows that are all NaN in some view: the item is missing there.
    present : mapping of str to (n,) array of bool, optional
        The rows in which a view is present; the only way to say so for sparse views. Implies `allow_missing`.

    Attributes
    ----------
    present : dict of str to (n,) array of bool, for views that are missing in some row

    Raises
    ------
    DataError
        If rows do not pair one to one, or a view is not a matrix of finite numbers.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> views = fh.PairedViews({"image": np.ones((4, 3)), "text": np.zeros((4, 2))})
    >>> views
    PairedViews(4 rows; image: 3, text: 2)
    >>> views[1:3].shape
    (2, 5)
    """

    def __init__(
        self, views: ViewsLike, *, allow_missing: bool = False, present: Mapping[str, Any] | None = None
    ) -> None:
        by_name = named(views)
        earlier = views.present if isinstance(views, PairedViews) else {}
        allow_missing = allow_missing or bool(present)
        if earlier and not allow_missing:
            names = ", ".join(map(repr, earlier))
            raise DataError(f'Every view must be present in every row. Got gaps in {names}; missing="allow" is needed.')
        masks = dict(present or earlier)
        self._views: dict[str, Any] = {}
        self.present: dict[str, Mask] = {}
        for name, matrix in by_name.items():
            self._views[name], mask = check_view(matrix, name, allow_missing=allow_missing)
            if name in masks:
                stated = check_mask(masks.pop(name), name, self._views[name].shape[0])
                mask = stated if mask is None else stated & mask
            if mask is not None and not mask.all():
                self.present[name] = mask
        if masks:
            raise DataError(f"Masks must belong to the views {list(by_name)}. Got one for {next(iter(masks))!r}.")
        self.n_rows = check_paired(self._views)
        nowhere = ~np.any([self.is_present(name) for name in self.names], axis=0) if self.present else np.zeros(1)
        if nowhere.any():
            row = int(np.argmax(nowhere))
            raise DataError(f"Every row must be present in at least one view. Row {row} is in none.")

    @property
    def names(self) -> list[str]:
        return list(self._views)

    @property
    def n_features(self) -> dict[str, int]:
        return {name: int(matrix.shape[1]) for name, matrix in self._views.items()}

    @property
    def in_memory(self) -> bool:
        """Whether every view is an array (and not a file or a stream)."""
        return all(isinstance(view, np.ndarray) or sp.issparse(view) or is_foreign(view) for view in self.values())

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and the total number of features, for scikit-learn."""
        return self.n_rows, sum(self.n_features.values())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._views[key]
        return self.rows(key[0] if isinstance(key, tuple) else key)  # scikit-learn cuts by (rows, ...)

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return self.n_rows

    def __contains__(self, name: object) -> bool:
        return name in self._views

    def items(self) -> Any:
        return self._views.items()

    def values(self) -> Any:
        return self._views.values()

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {d}" for name, d in self.n_features.items())
        return f"PairedViews({self.n_rows} rows; {parts})"

    def rows(self, index: Any) -> PairedViews:
        """The same views, some rows."""
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            index = [index]  # one row stays a row

        def cut(view: Any) -> Any:
            return view.select(index) if getattr(view, "is_stored", False) else take_rows(view, index)

        views = {name: cut(view) for name, view in self.items()}
        return self._with(views, {name: mask[index] for name, mask in self.present.items()})

    def in_order(self) -> PairedViews:
        """The same views by name, "view2" before "view10", so that their order in a mapping decides nothing."""

        def key(name: str) -> tuple[str, str]:
            return re.sub(r"\d+", lambda digits: digits[0].zfill(9), name), name

        return self._with({name: self._views[name] for name in sorted(self._views, key=key)}, self.present)

    def on_host(self) -> PairedViews:
        """The same views with tensors copied to NumPy."""
        return self._with({name: host(view) if is_foreign(view) else view for name, view in self.items()}, self.present)

    @staticmethod
    def _with(views: dict[str, Any], present: dict[str, Mask]) -> PairedViews:
        """Views that are checked already."""
        paired = object.__new__(PairedViews)
        paired._views, paired.present, paired.n_rows = views, present, next(iter(views.values())).shape[0]
        return paired

    def is_present(self, name: str) -> Mask:
        """Which rows are present in the view."""
        return self.present.get(name, np.ones(self.n_rows, dtype=bool))

    def complete_rows(self) -> NDArray[np.intp]:
        """Rows that are present in every view."""
        return np.flatnonzero(np.all([self.is_present(name) for name in self], axis=0))

    def linked_rows(self) -> NDArray[np.intp]:
        """Rows that are present in at least two views; all rows of a single view."""
        return np.flatnonzero(np.sum([self.is_present(name) for name in self], axis=0) >= min(len(self.names), 2))

    def block(self, name: str, rows: slice | NDArray[np.intp]) -> Floats:
        """Some rows of one view as a dense float64 matrix of NumPy; missing rows come as zeros."""
        return np.asarray(host(self.dense(name, rows)), dtype=np.float64)

    def dense(self, name: str, rows: slice | NDArray[np.intp]) -> Array:
        """The same in the array library and on the device of the view."""
        dense = to_dense(take_rows(self._views[name], rows))
        if name not in self.present:
            return dense
        return mask_rows(dense, to_device_of(self.present[name][rows], dense))

    def sparse(self, name: str, rows: slice | NDArray[np.intp]) -> sp.csr_array:
        """The same of a sparse view, as it is."""
        block = sp.csr_array(take_rows(self._views[name], rows), dtype=np.float64)
        if name in self.present:
            block.data = block.data * np.repeat(self.present[name][rows], np.diff(block.indptr))
        return block

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[slice]:
        """Row slices that cover the data in order."""
        return (slice(start, min(start + size, self.n_rows)) for start in range(0, self.n_rows, size))


def named(views: ViewsLike) -> dict[str, Any]:
    """Give every view a name: a mapping keeps its keys, a sequence gets "view0", "view1", ...; a stream is opened."""
    if OPENERS and OPENERS["is_stream"](views):
        by_name: dict[Any, Any] = dict(OPENERS["blocks"](views))
    elif isinstance(views, Mapping):
        by_name = dict(views)
    elif isinstance(views, list | tuple):
        by_name = {f"view{i}": matrix for i, matrix in enumerate(views)}
    else:
        kind = type(views).__name__
        raise DataError(f"Views must be a mapping from name to matrix, or a list of matrices. Got {kind} instead.")
    if not by_name:
        raise DataError("Views must hold at least one view. Got none.")
    for name in by_name:
        if not isinstance(name, str) or not name:
            raise DataError(f"The name of a view must be a non-empty string. Got {name!r} instead.")
    return by_name


def check_view(matrix: Any, name: str, *, allow_missing: bool = False) -> tuple[Any, Mask | None]:
    """Check one (n, d) matrix; return it (CSR if sparse) and the mask of rows that are present."""
    matrix = OPENERS["view"](matrix) if OPENERS else matrix
    if getattr(matrix, "is_stored", False):
        stored = matrix.checked(name, allow_missing=allow_missing)
        mask = stored.present_rows() if allow_missing else None  # one pass: training must know which rows are missing
        return stored, None if mask is None or mask.all() else mask
    if is_foreign(matrix):
        return _check_foreign(matrix, name, allow_missing=allow_missing)
    try:
        matrix = matrix.tocsr() if sp.issparse(matrix) else np.asarray(unmasked(matrix))
    except ValueError:
        raise DataError(f"View '{name}' must be a matrix (rows, features). Got rows of unequal length.") from None
    check_shape(f"View '{name}'", matrix.shape)
    matrix = matrix.astype(np.float64) if matrix.dtype.kind == "b" else matrix
    if matrix.dtype.kind not in "fiu":
        raise DataError(f"View '{name}' must hold real numbers. Got dtype {matrix.dtype} instead.")
    values = matrix.data if sp.issparse(matrix) else matrix
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum()):  # a finite sum means no NaN and no infinity
            return matrix, None
    return _check_finite(matrix, name, allow_missing=allow_missing)


def check_paired(views: Mapping[str, Any], what: str = "the views", where: str = "of rows") -> int:
    """The number of rows, which must be the same in every view; `what` and `where` are for the message."""
    counts = {name: int(matrix.shape[0]) for name, matrix in views.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{name}' has {n}" for name, n in counts.items())
        raise DataError(f"Rows of {what} must pair one to one. Got different numbers {where}: {listed}.")
    return next(iter(counts.values()))


def check_shape(what: str, shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of a matrix, at least one of each; `what` begins the message."""
    if len(shape) != 2:
        raise DataError(f"{what} must be a matrix (rows, features). Got shape {tuple(shape)} instead.")
    if 0 in shape:
        raise DataError(f"{what} must have rows and features. Got shape {tuple(shape)} instead.")
    return int(shape[0]), int(shape[1])


def _check_foreign(matrix: Array, name: str, *, allow_missing: bool) -> tuple[Array, Mask | None]:
    """The same checks for a tensor, on its device."""
    xp = namespace(matrix)
    check_shape(f"View '{name}'", matrix.shape)
    if str(getattr(matrix, "layout", "torch.strided")) != "torch.strided":
        raise DataError(f"View '{name}' must be a dense tensor or a scipy.sparse matrix. Got {matrix.layout} instead.")
    if xp.isdtype(matrix.dtype, "complex floating"):
        raise DataError(f"View '{name}' must hold real numbers. Got dtype {matrix.dtype} instead.")
    sums = (xp.sum(matrix[i : i + _SUM_ROWS]) for i in range(0, len(matrix), _SUM_ROWS))  # of slices: saves memory
    if not xp.isdtype(matrix.dtype, "real floating") or all(bool(xp.isfinite(part)) for part in sums):
        return matrix, None
    return _check_finite(matrix, name, allow_missing=allow_missing)


def check_mask(mask: Any, name: str, n_rows: int) -> Mask:
    """A boolean for every row of a view, at least one of them true."""
    mask = np.asarray(host(mask))
    if mask.dtype != np.bool_ or mask.shape != (n_rows,):
        raise DataError(f"The mask of view '{name}' must be {n_rows} booleans. Got {mask.dtype} of shape {mask.shape}.")
    if not mask.any():
        raise DataError(f"View '{name}' must be present in at least one row. Every row is missing.")
    return mask


def _check_finite(matrix: Any, name: str, *, allow_missing: bool) -> tuple[Any, Mask | None]:
    bad, absent = np.zeros((2, matrix.shape[0]), dtype=bool)
    if sp.issparse(matrix):
        bad[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[~np.isfinite(matrix.data)]] = True
    else:
        for start in range(0, matrix.shape[0], BLOCK_ROWS):
            block = host(matrix[start : start + BLOCK_ROWS])
            bad[start : start + len(block)] = ~np.isfinite(block).all(axis=1)
            absent[start : start + len(block)] = np.isnan(block).all(axis=1)
    wrong = bad & ~absent if allow_missing else bad
    if not wrong.any():  # nothing is bad if just the sum overflowed
        return matrix, ~absent if bad.any() else None
    hint = ' Rows that are all NaN are allowed with missing="allow".' if absent.any() and not allow_missing else ""
    raise DataError(
        f"View '{name}' must hold finite numbers. "
        f"Got NaN or infinity in {int(wrong.sum())} rows, first in row {int(np.argmax(wrong))}.{hint}"
    )
