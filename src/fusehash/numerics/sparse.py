"""Rows that are mostly zero, kept as they are: products and distances of wide rows without a dense copy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.files import storable

MOSTLY, NEARLY_ALL = 0.5, 0.9  # share of zeros in a bag, and in one with both signs


def stays_sparse(matrix: Any) -> bool:
    """Whether a matrix is sparse and mostly zero, as bags of words are: methods that know such rows take them as is."""
    if not sp.issparse(matrix):
        return False
    zeros = 1.0 - matrix.nnz / max(matrix.shape[0] * matrix.shape[1], 1)
    return bool(zeros > NEARLY_ALL or (zeros > MOSTLY and matrix.data.min(initial=0.0) >= 0.0))


@storable
@dataclass(frozen=True)
class SparseRows:
    """Sparse rows on the host, in the layout of scipy's csr_array. Use them like a dense matrix of prepared rows."""

    values: NDArray[np.float32]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    width: int

    def __post_init__(self) -> None:
        """Raise ValueError if the numbers, which may come from a file, do not describe rows."""
        starts, columns = self.starts, self.columns
        kinds = [(part.dtype.name, part.ndim) for part in (self.values, columns, starts)]
        if kinds != [("float32", 1), ("int32", 1), ("int64", 1)] or not len(starts) or starts[0] != 0:
            raise ValueError("not the layout of sparse rows")
        if (starts[1:] < starts[:-1]).any() or not starts[-1] == len(columns) == len(self.values):
            raise ValueError("sparse rows that overlap or end early")
        if len(columns) and not 0 <= columns.min() <= columns.max() < self.width:
            raise ValueError("sparse rows with entries outside of their columns")

    @classmethod
    def of(cls, matrix: Any) -> SparseRows:
        """The rows of a sparse or dense matrix."""
        matrix = sp.csr_array(matrix)
        matrix.sum_duplicates()
        parts = matrix.data.astype(np.float32), matrix.indices.astype(np.int32), matrix.indptr.astype(np.int64)
        return cls(*parts, int(matrix.shape[1]))

    @property
    def matrix(self) -> Any:
        return sp.csr_array((self.values, self.columns, self.starts), shape=self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts) - 1, self.width

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, rows: Any) -> SparseRows:
        return SparseRows.of(self.matrix[rows])

    def products(self, other: SparseRows) -> NDArray[np.float64]:
        """(n, P) inner products with other rows; a row alone gives exactly what it gives among others.

        Only columns in which the other rows have entries count, so that nothing depends on the width.
        """
        used, transposed = other._used
        if not len(used):
            return np.zeros((len(self), len(other)))
        places = np.minimum(np.searchsorted(used, self.columns), len(used) - 1)
        is_used = used[places] == self.columns
        starts = np.concatenate([[0], np.cumsum(is_used)])[self.starts]
        entries = self.values[is_used].astype(np.float64), places[is_used], starts
        return (sp.csr_array(entries, shape=(len(self), len(used))) @ transposed).toarray()

    def squared_distances(self, other: SparseRows) -> NDArray[np.float64]:
        D = self.products(other)
        D *= -2.0
        D += self._squares[:, None]
        D += other._squares
        return np.maximum(D, 0.0, out=D)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    @cached_property
    def _used(self) -> tuple[NDArray[np.int32], Any]:
        """The columns that have entries, and these columns as a (columns, rows) matrix."""
        used, places = np.unique(self.columns, return_inverse=True)
        rows = sp.csr_array((self.values.astype(np.float64), places, self.starts), shape=(len(self), len(used)))
        return used, rows.T.tocsr()

    @cached_property
    def _squares(self) -> NDArray[np.float64]:
        rows = np.repeat(np.arange(len(self)), np.diff(self.starts))
        return np.bincount(rows, self.values.astype(np.float64) ** 2, len(self)).astype(np.float64)
