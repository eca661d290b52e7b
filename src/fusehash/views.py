"""What a set of paired views is: names, checks, row blocks, missing rows.

Row i of every view describes the same item. Views may be dense or scipy.sparse; they are never copied as a whole,
only block by block (`PairedViews.block`), so that nothing of the size of the data is held twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Union

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
ViewsLike: TypeAlias = Union["PairedViews", Mapping[str, Any], Sequence[Any]]

BLOCK_ROWS = 2048


class PairedViews(Mapping[str, Any]):
    """Checked, paired views: a mapping name -> (n, d) matrix that can also be cut by rows.

    Cutting (`views[rows]`, `len(views)` counts rows, `shape`) is what lets scikit-learn's splitters and
    GridSearchCV work on it.

    Parameters
    ----------
    views : mapping name -> (n, d) array or scipy.sparse matrix, or a sequence of them (named "view0", "view1", ...)
    allow_missing : accept rows that are all NaN in some view (the item was not seen there)
    present : mapping name -> (n,) boolean, the rows in which a view is seen; another way to say what is missing, and
        the only one for sparse views (implies allow_missing)
    """

    def __init__(
        self, views: ViewsLike, *, allow_missing: bool = False, present: Mapping[str, Any] | None = None
    ) -> None:
        given = named(views)
        known = views.present if isinstance(views, PairedViews) and allow_missing else {}
        masks: dict[str, Any] = dict(present or known)
        if isinstance(views, PairedViews) and views.present and not (allow_missing or present):
            raise DataError(
                "Every view must be present in every row here. "
                f'Got missing rows in {", ".join(map(repr, views.present))}; missing="allow" is needed.'
            )
        self._views: dict[str, Any] = {}
        self.present: dict[str, Mask] = {}
        for name, matrix in given.items():
            self._views[name], mask = check_view(matrix, name, allow_missing=allow_missing or bool(present))
            if name in masks:
                stated = check_mask(masks.pop(name), name, self._views[name].shape[0])
                mask = stated if mask is None else stated & mask
            if mask is not None and not mask.all():
                self.present[name] = mask
        if masks:
            raise DataError(f"A mask must belong to one of the views {list(given)}. Got one for {next(iter(masks))!r}.")
        rows = {name: matrix.shape[0] for name, matrix in self._views.items()}
        if len(set(rows.values())) > 1:
            listed = ", ".join(f"'{name}' has {n}" for name, n in rows.items())
            raise DataError(f"Rows of the views must pair one to one. Got different numbers of rows: {listed}.")
        self.n_rows: int = next(iter(rows.values()))
        if self.present:
            nowhere = ~np.any([self.present.get(n, np.ones(self.n_rows, bool)) for n in self._views], axis=0)
            if nowhere.any():
                raise DataError(
                    f"Every row must be present in at least one view. Row {int(np.argmax(nowhere))} is in none."
                )

    @property
    def names(self) -> list[str]:
        return list(self._views)

    @property
    def n_features(self) -> dict[str, int]:
        return {name: int(matrix.shape[1]) for name, matrix in self._views.items()}

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and the total number of features, for scikit-learn."""
        return self.n_rows, sum(self.n_features.values())

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._views[key]
        if isinstance(key, tuple):  # scikit-learn cuts by (rows, ...)
            key = key[0]
        return self.rows(key)

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
        cut = object.__new__(PairedViews)
        cut._views = {name: matrix[index] for name, matrix in self._views.items()}
        cut.present = {name: mask[index] for name, mask in self.present.items()}
        cut.n_rows = next(iter(cut._views.values())).shape[0]
        return cut

    def is_present(self, name: str) -> Mask:
        """Which rows are seen in the view."""
        return self.present.get(name, np.ones(self.n_rows, dtype=bool))

    def block(self, name: str, rows: slice | NDArray[np.intp]) -> Floats:
        """Some rows of one view as a dense float64 matrix; missing rows come as zeros."""
        dense = to_dense(self._views[name][rows])
        if name in self.present:
            dense = np.where(self.present[name][rows][:, None], dense, 0.0)
        return dense

    def blocks(self, size: int = BLOCK_ROWS) -> Iterator[slice]:
        """Row slices that cover the data in order."""
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))


def named(views: ViewsLike) -> dict[str, Any]:
    """Give every view a name: a mapping keeps its keys, a sequence gets "view0", "view1", ..."""
    if isinstance(views, Mapping):
        given = dict(views)
    elif isinstance(views, list | tuple):
        given = {f"view{i}": matrix for i, matrix in enumerate(views)}
    else:
        raise DataError(
            f"Views must be a mapping from name to matrix, or a list of matrices. Got {type(views).__name__} instead."
        )
    if not given:
        raise DataError("Views must hold at least one view. Got none.")
    for name in given:
        if not isinstance(name, str) or not name:
            raise DataError(f"The name of a view must be a non-empty string. Got {name!r} instead.")
    return given


def check_view(matrix: Any, name: str, *, allow_missing: bool = False) -> tuple[Any, Mask | None]:
    """Check one (n, d) matrix; return it (CSR if sparse, float if dense) and the mask of rows that are present."""
    if sp.issparse(matrix):
        matrix = matrix.tocsr()
        values = matrix.data
    else:
        try:
            matrix = np.asarray(matrix)
        except ValueError:
            raise DataError(f"View '{name}' must be a matrix (rows, features). Got rows of unequal length.") from None
        values = matrix
    if matrix.ndim != 2:
        raise DataError(f"View '{name}' must be a matrix (rows, features). Got shape {matrix.shape} instead.")
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        raise DataError(f"View '{name}' must have rows and features. Got shape {matrix.shape} instead.")
    if matrix.dtype.kind == "b":
        matrix = matrix.astype(np.float64)
        values = matrix.data if sp.issparse(matrix) else matrix
    if matrix.dtype.kind not in "fiu":
        raise DataError(f"View '{name}' must hold real numbers. Got dtype {matrix.dtype} instead.")
    with np.errstate(over="ignore", invalid="ignore"):
        if values.dtype.kind != "f" or np.isfinite(values.sum()):
            return matrix, None  # a finite sum means no NaN and no infinity
    return _check_finite(matrix, name, allow_missing=allow_missing)


def check_mask(mask: Any, name: str, n_rows: int) -> Mask:
    """A boolean for every row of a view, at least one of them true."""
    checked = np.asarray(mask)
    if checked.dtype != np.bool_ or checked.shape != (n_rows,):
        raise DataError(
            f"The mask of view '{name}' must be {n_rows} booleans. "
            f"Got {checked.dtype} of shape {checked.shape} instead."
        )
    if not checked.any():
        raise DataError(f"View '{name}' must be present in at least one row. Every row is missing.")
    return checked


def _check_finite(matrix: Any, name: str, *, allow_missing: bool) -> tuple[Any, Mask | None]:
    if sp.issparse(matrix):
        bad_values = ~np.isfinite(matrix.data)
        bad = np.zeros(matrix.shape[0], dtype=bool)
        bad[np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))[bad_values]] = True
        absent = np.zeros_like(bad)
    else:
        bad = np.zeros(matrix.shape[0], dtype=bool)
        absent = np.zeros_like(bad)
        for start in range(0, matrix.shape[0], BLOCK_ROWS):
            block = np.asarray(matrix[start : start + BLOCK_ROWS])
            bad[start : start + len(block)] = ~np.isfinite(block).all(axis=1)
            absent[start : start + len(block)] = np.isnan(block).all(axis=1)
    if not bad.any():
        return matrix, None  # the sum overflowed, the entries are fine
    if allow_missing and not (bad & ~absent).any():
        return matrix, ~absent
    wrong = bad & ~absent if allow_missing else bad
    hint = (
        "" if not (absent.any() and not allow_missing) else ' Rows that are all NaN are allowed with missing="allow".'
    )
    raise DataError(
        f"View '{name}' must hold finite numbers. "
        f"Got NaN or infinity in {int(wrong.sum())} rows, first in row {int(np.argmax(wrong))}.{hint}"
    )


def to_dense(block: Any) -> Floats:
    """A small cut of a view as a dense float64 matrix."""
    if sp.issparse(block):
        block = block.toarray()
    return np.asarray(block, dtype=np.float64)
