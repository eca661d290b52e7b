"""StoredMatrix: the rows of one view, read when you ask for them.

What differs between formats is a `RowReader`. Cutting by rows, selections and checks are the same for all of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError, first_line
from fusehash.views import check_shape

Rows = NDArray[np.intp]
Matrix = NDArray[Any]
Recipe = tuple[Callable[..., "StoredMatrix"], tuple[Any, ...]]

PIECE_BYTES = 2**22  # what is worth one read: large enough to be fast, small enough to hold several
GAP_BYTES = 2**15  # rows nearer than this are read together with the rows between them


class StoredMatrix:
    """An (n, d) matrix that is not in memory; `streams.open_view` makes it.

    Cut it by rows as you cut an array: ``matrix[10:20]``, ``matrix[[3, 1, 3]]``, ``matrix[mask]``. Each cut is a new
    array that holds only these rows. Several threads can read at once.

    Parameters
    ----------
    source : str
        What it is, for messages.
    shape : tuple of int
    dtype : dtype
    reader : RowReader
    chunk_rows : int, optional
        How many rows are best read at a time.
    in_chunks : bool
        Whether a chunk must be decoded as a whole to read any of its rows.
    recipe : (function, arguments), optional
        How another process opens the same matrix.
    is_shared : bool
        Whether workers on other hosts can follow the recipe: a file that is not temporary.
    dask_array : dask.array.Array, optional
    """

    ndim: ClassVar[int] = 2
    is_stored: ClassVar[bool] = True

    def __init__(
        self,
        source: str,
        shape: Sequence[int],
        dtype: Any,
        reader: RowReader,
        *,
        chunk_rows: int | None = None,
        in_chunks: bool = False,
        recipe: Recipe | None = None,
        is_shared: bool = False,
        dask_array: Any = None,
    ) -> None:
        self.source, self.reader, self.recipe = source, reader, recipe
        self.shape = self._stored_shape = check_shape(source, shape)
        self.dtype: np.dtype[Any] = check_dtype(source, dtype)
        self.chunk_rows = max(1, min(chunk_rows or PIECE_BYTES // self.row_bytes, self.shape[0]))
        self.in_chunks, self.is_shared, self.dask_array = in_chunks, is_shared, dask_array
        self.selection: Rows | None = None
        self.name: str | None = None  # of the view, once it is checked
        self.allow_missing = False
        self._mask: NDArray[np.bool_] | None = None

    @property
    def row_bytes(self) -> int:
        return max(1, self.shape[1] * self.dtype.itemsize)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r}, {self.shape[0]} x {self.shape[1]}, {self.dtype})"

    def __reduce__(self) -> Any:
        return _reopen, (self.recipe, self._stored_shape, self.selection, self.name, self.allow_missing)

    def __copy__(self) -> StoredMatrix:
        other = object.__new__(StoredMatrix)
        other.__dict__.update(self.__dict__)
        return other

    def __getitem__(self, index: Any) -> Matrix:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step != 1 or start >= stop or self.selection is not None:
                return self._take(self._row_numbers(index))
            return self._checked(self.reader.read(start, stop), slice(start, stop))
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            return self._take(self._row_numbers([index]))[0]
        return self._take(self._row_numbers(index))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        """All rows at once."""
        if copy is False:
            raise ValueError(f"A stored matrix must be copied to become an array. Got copy=False for {self.source}.")
        return self[:].astype(dtype or self.dtype, copy=False)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Matrix]]:
        """All rows in order: (row slice, array)."""
        size = size or self.chunk_rows
        for start in range(0, self.shape[0], size):
            rows = slice(start, min(start + size, self.shape[0]))
            yield rows, self[rows]

    def _take(self, rows: Rows) -> Matrix:
        """Rows by number, in any order, also repeated."""
        stored = rows if self.selection is None else self.selection[rows]
        if not len(stored):
            return np.empty((0, self.shape[1]), self.dtype)
        if bool(np.all(stored[1:] > stored[:-1])):
            block = self.reader.take(stored, self.row_bytes)
        else:
            ordered, back = np.unique(stored, return_inverse=True)
            block = self.reader.take(ordered, self.row_bytes)[back]
        return self._checked(block, rows)

    def _row_numbers(self, index: Any) -> Rows:
        """A slice, a list of rows, or a boolean per row, as row numbers from 0."""
        n_rows = self.shape[0]
        if isinstance(index, slice):
            return np.arange(*index.indices(n_rows), dtype=np.intp)
        if isinstance(index, tuple):
            raise IndexError(f"A stored matrix is cut by rows only. Got {len(index)} indices.")
        rows = np.asarray(index)
        if rows.dtype == np.bool_ and rows.shape == (n_rows,):
            return np.flatnonzero(rows)
        if rows.size == 0 and rows.ndim == 1:
            return np.zeros(0, np.intp)
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise IndexError(
                f"Rows of a stored matrix are cut by a slice, row numbers or {n_rows} booleans. "
                f"Got {rows.dtype} of shape {rows.shape}."
            )
        if int(rows.min()) < -n_rows or int(rows.max()) >= n_rows:
            wrong = rows[(rows < -n_rows) | (rows >= n_rows)][0]
            raise IndexError(f"Rows of {self.source} must be below {n_rows}. Got row {wrong}.")
        rows = rows.astype(np.intp, copy=False)
        return np.where(rows < 0, rows + n_rows, rows) if bool((rows < 0).any()) else rows

    def select(self, index: Any) -> StoredMatrix:
        """Some of the rows as another stored matrix; nothing is read."""
        rows, some = self._row_numbers(index), copy(self)
        some.shape = check_shape(self.source, (len(rows), self.shape[1]))
        some.chunk_rows = max(1, min(self.chunk_rows, len(rows)))
        some.selection = rows if self.selection is None else self.selection[rows]
        some._mask = None if self._mask is None else self._mask[rows]
        return some

    def spread(self, rows: Rows) -> StoredMatrix:
        """The matrix whose row i is the row `rows[i]` of this one, or missing (all NaN) where that is -1."""
        dtype, shape = np.result_type(self.dtype, np.float32), (len(rows), self.shape[1])

        def load(start: int, stop: int) -> Matrix:
            block = np.full((stop - start, shape[1]), np.nan, dtype)
            is_there = rows[start:stop] >= 0
            block[is_there] = self[rows[start:stop][is_there]]
            return block

        return StoredMatrix(self.source, shape, dtype, RowReader(load))

    def checked(self, name: str, *, allow_missing: bool = False) -> StoredMatrix:
        """The same matrix as the view ``name``: every cut of it is finite (or a row of NaN with ``allow_missing``)."""
        if (self.name, self.allow_missing) == (name, allow_missing):
            return self
        checked = copy(self)
        checked.name, checked.allow_missing, checked._mask = name, allow_missing, None
        return checked

    def present_rows(self) -> NDArray[np.bool_]:
        """Which rows are not all NaN; the first call reads and checks the matrix in one pass."""
        if self._mask is None:
            mask = np.ones(self.shape[0], dtype=bool)
            for rows, block in self.blocks() if self.dtype.kind == "f" else ():
                mask[rows] = ~np.isnan(block).all(axis=1)
            self._mask = mask
        return self._mask

    def _checked(self, block: Matrix, index: Rows | slice) -> Matrix:
        """Rows in the dtype of the matrix; raises if the view has NaN or infinity where it must not."""
        block = block.astype(self.dtype, copy=False)
        if self.name is None or block.dtype.kind != "f":
            return block
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):  # a finite sum means no NaN and no infinity
                return block
        bad, absent = ~np.isfinite(block).all(axis=1), np.isnan(block).all(axis=1)
        if self.allow_missing:
            bad &= ~absent
        if bad.any():
            rows = self._row_numbers(index)
            hint = ' Rows that are all NaN are allowed with missing="allow".' if (bad & absent).any() else ""
            raise DataError(
                f"View '{self.name}' must hold finite numbers. "
                f"Got NaN or infinity in {int(bad.sum())} of the rows {int(rows.min())} to {int(rows.max())}, "
                f"first in row {int(rows[bad].min())}.{hint}"
            )
        return block


def _reopen(
    recipe: Recipe, shape: tuple[int, int], selection: Rows | None, name: str | None, allow_missing: bool
) -> StoredMatrix:
    """Open a pickled stored matrix in another process."""
    matrix = recipe[0](*recipe[1])
    if matrix.shape != shape:
        raise DataError(f"{matrix.source} must still have the shape {shape}. Got {matrix.shape}: it has changed.")
    if name is not None:
        matrix = matrix.checked(name, allow_missing=allow_missing)
    return matrix if selection is None else matrix.select(selection)


def is_reachable(view: Any) -> bool:
    """Whether workers can read a view: a file that is not temporary, or a dask array."""
    is_whole = isinstance(view, StoredMatrix) and view.selection is None
    return is_whole and (view.is_shared or view.dask_array is not None)


def check_dtype(source: str, dtype: Any) -> np.dtype[Any]:
    """The dtype of what is read, in the byte order of this machine."""
    checked = np.dtype(dtype)
    if checked.kind not in "fiub":
        what = "Python objects" if checked.kind == "O" else f"dtype {checked}"
        raise DataError(f"{source} must hold real numbers. Got {what} instead.")
    return checked.newbyteorder("=")


def check_exists(path: Path) -> None:
    if not path.exists():
        raise DataError(f"The path of a view must exist. At {path} there is no file and no folder.")


def unreadable(source: str, error: BaseException) -> DataError:
    """What to raise for an error of a reader of foreign bytes: its first line."""
    return DataError(f"{source} could not be read: {first_line(error)}.")


class RowReader:
    """Reads rows by `load(start, stop)`, which gives consecutive rows (0 <= start < stop <= n) as a new array."""

    def __init__(self, load: Callable[[int, int], Matrix]) -> None:
        self._load = load

    def read(self, start: int, stop: int) -> Matrix:
        """Rows start to stop."""
        return self._load(start, stop)

    def take(self, rows: Rows, row_bytes: int) -> Matrix:
        """Rows by number, increasing; neighbors are read together."""
        far, most = max(1, GAP_BYTES // row_bytes), max(1, PIECE_BYTES // row_bytes)
        cuts = np.flatnonzero((np.diff(rows) > far) | (np.diff(rows // most) != 0)) + 1
        taken: Matrix | None = None
        for first, last in pairwise([0, *cuts.tolist(), len(rows)]):
            start, stop = int(rows[first]), int(rows[last - 1]) + 1
            block = self.read(start, stop)
            if taken is None:
                taken = np.empty((len(rows), block.shape[1]), block.dtype)
            taken[first:last] = block if stop - start == last - first else block[rows[first:last] - start]
        assert taken is not None
        return taken


class PieceReader(RowReader):
    """Rows in pieces that are costly to make, such as compressed chunks; the last few pieces are kept.

    Piece k holds the rows edges[k] to edges[k + 1]. If several threads need it at the same time, one makes it.
    """

    def __init__(self, edges: Any, load: Callable[[int, int], Matrix], n_kept: int) -> None:
        super().__init__(load)
        self._edges, self._n_kept = np.asarray(edges, dtype=np.int64), n_kept
        self._kept: OrderedDict[int, Future[Matrix]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, start: int, stop: int) -> Matrix:
        first, last = np.searchsorted(self._edges, (start, stop - 1), side="right") - 1
        edges = self._edges[first : last + 1].tolist()
        parts = [self._piece(first + i)[max(start - edge, 0) : stop - edge] for i, edge in enumerate(edges)]
        return np.concatenate(parts)

    def take(self, rows: Rows, row_bytes: int) -> Matrix:
        numbers = np.searchsorted(self._edges, rows, side="right") - 1
        cuts = np.flatnonzero(np.diff(numbers)) + 1
        groups = zip(numbers[np.r_[0, cuts]].tolist(), np.split(rows, cuts), strict=True)
        return np.concatenate([self._piece(k)[some - self._edges[k]] for k, some in groups])

    def _piece(self, k: int) -> Matrix:
        with self._lock:
            is_new = k not in self._kept
            piece = self._kept.setdefault(k, Future())
            self._kept.move_to_end(k)
            while len(self._kept) > self._n_kept:
                self._kept.popitem(last=False)  # a thread that waits for it still has it
        if is_new:
            try:
                piece.set_result(self._load(int(self._edges[k]), int(self._edges[k + 1])))
            except BaseException as error:
                with self._lock:
                    if self._kept.get(k) is piece:
                        del self._kept[k]
                piece.set_exception(error)
                raise
        return piece.result()
