"""StoredMatrix: the rows of one view, read where they lie when they are asked for.

A stored matrix has a shape, a dtype and rows that can be cut as those of an array can: `matrix[10:20]`,
`matrix[[3, 1, 3]]`, `matrix[mask]`. Each cut is a new array, holds only what was asked for, and may be asked for by
several threads at once. A subclass reads consecutive rows (`_read`); rows in any order are made from such reads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError

Rows = NDArray[np.intp]
Block = NDArray[Any]

PIECE_BYTES = 2**22  # what is worth one read: large enough to be fast, small enough to hold several
GAP_BYTES = 2**15  # rows nearer than this are read together with what lies between them


class StoredMatrix(ABC):
    """An (n, d) matrix that is not in memory.

    Attributes
    ----------
    source : where it lies, for messages
    shape, dtype, ndim : as of an array
    chunk_rows : how many rows are best read at a time
    """

    ndim: ClassVar[int] = 2

    def __init__(self, source: str, shape: tuple[int, ...], dtype: Any, chunk_rows: int | None = None) -> None:
        self.source = source
        self.shape = check_shape(source, shape)
        self.dtype: np.dtype[Any] = check_dtype(source, dtype)
        self.chunk_rows = max(1, min(chunk_rows or PIECE_BYTES // self.row_bytes, self.shape[0]))

    @property
    def row_bytes(self) -> int:
        return max(1, self.shape[1] * self.dtype.itemsize)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r}, {self.shape[0]} x {self.shape[1]}, {self.dtype})"

    def __getitem__(self, index: Any) -> Block:
        if isinstance(index, slice):
            start, stop, step = index.indices(self.shape[0])
            if step == 1:
                return self._read(start, stop) if start < stop else self._empty(0)
            return self.take(np.arange(start, stop, step, dtype=np.intp))
        if isinstance(index, int | np.integer) and not isinstance(index, bool):
            return self.take(self._rows([index]))[0]
        return self.take(self._rows(index))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Block:
        """Everything at once: for those who ask for an array and have the memory."""
        if copy is False:
            raise ValueError(f"A stored matrix must be copied to become an array. Got copy=False for {self.source}.")
        whole = self[:]
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def blocks(self, size: int | None = None) -> Iterator[tuple[slice, Block]]:
        """All rows in order: (row slice, array)."""
        size = size or self.chunk_rows
        for start in range(0, self.shape[0], size):
            rows = slice(start, min(start + size, self.shape[0]))
            yield rows, self[rows]

    def select(self, index: Any) -> StoredMatrix:
        """Some of the rows as a stored matrix of its own; nothing is read."""
        if isinstance(index, slice):
            return SelectedRows(self, np.arange(*index.indices(self.shape[0]), dtype=np.intp))
        return SelectedRows(self, self._rows(index))

    def take(self, rows: Rows) -> Block:
        """Rows by number, in any order, also repeated."""
        if len(rows) < 2 or bool(np.all(rows[1:] > rows[:-1])):
            return self._take(rows)
        ordered, back = np.unique(rows, return_inverse=True)
        return self._take(ordered)[back]

    @abstractmethod
    def _read(self, start: int, stop: int) -> Block:
        """Rows start to stop (0 <= start < stop <= n) as a new array."""

    def _take(self, rows: Rows) -> Block:
        """Rows by number, increasing: neighbors are read together."""
        taken = self._empty(len(rows))
        far = max(1, GAP_BYTES // self.row_bytes)
        most = max(1, PIECE_BYTES // self.row_bytes)
        cuts = np.flatnonzero((np.diff(rows) > far) | (np.diff(rows // most) != 0)) + 1
        bounds = [0, *cuts.tolist(), len(rows)] if len(rows) else [0]
        for first, last in pairwise(bounds):
            start, stop = int(rows[first]), int(rows[last - 1]) + 1
            block = self._read(start, stop)
            taken[first:last] = block if stop - start == last - first else block[rows[first:last] - start]
        return taken

    def _empty(self, n_rows: int) -> Block:
        return np.empty((n_rows, self.shape[1]), self.dtype)

    def _rows(self, index: Any) -> Rows:
        """A list of rows, or a boolean for each, as row numbers from 0."""
        if isinstance(index, tuple):
            raise IndexError(f"A stored matrix is cut by rows only. Got {len(index)} indices.")
        rows = np.asarray(index)
        n_rows = self.shape[0]
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
            raise IndexError(f"Row {wrong} was asked for. {self.source} has {n_rows} rows.")
        rows = rows.astype(np.intp, copy=False)
        return np.where(rows < 0, rows + n_rows, rows) if bool((rows < 0).any()) else rows


class SelectedRows(StoredMatrix):
    """Some rows of another stored matrix."""

    def __init__(self, matrix: StoredMatrix, rows: Rows) -> None:
        super().__init__(matrix.source, (len(rows), matrix.shape[1]), matrix.dtype, matrix.chunk_rows)
        self._matrix, self._selected = matrix, rows

    def _read(self, start: int, stop: int) -> Block:
        return self._matrix.take(self._selected[start:stop])

    def _take(self, rows: Rows) -> Block:
        return self._matrix.take(self._selected[rows])

    def select(self, index: Any) -> StoredMatrix:
        return self._matrix.select(self._selected[index if isinstance(index, slice) else self._rows(index)])


def check_shape(source: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns, of which there must be some."""
    shape = tuple(shape)
    if len(shape) != 2:
        raise DataError(f"{source} must hold a matrix (rows, features). Got shape {shape} instead.")
    if 0 in shape:
        raise DataError(f"{source} must have rows and features. Got shape {shape} instead.")
    return int(shape[0]), int(shape[1])


def check_dtype(source: str, dtype: Any) -> np.dtype[Any]:
    """The dtype of what is read, in the byte order of this machine."""
    found = np.dtype(dtype)
    if found.kind not in "fiub":
        what = "Python objects" if found.kind == "O" else f"dtype {found}"
        raise DataError(f"{source} must hold real numbers. Got {what} instead.")
    return found.newbyteorder("=")


def reopen(opener: Callable[..., StoredMatrix], given: tuple[Any, ...], shape: tuple[int, int]) -> StoredMatrix:
    """What a pickled stored matrix becomes elsewhere: the same file, opened again."""
    matrix = opener(*given)
    if matrix.shape != shape:
        raise DataError(f"{matrix.source} must still have the shape {shape}. Got {matrix.shape}: it has changed.")
    return matrix
