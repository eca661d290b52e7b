"""How numbers from files become views and labels: plain floats, sparse where it pays, labels in one of two forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.errors import DataError

SPARSE_DENSITY = 0.10  # below this share of non-zeros, and
SPARSE_COLUMNS = 64  # from this width on, compressed rows are the smaller form by far


def tidy_view(matrix: Any, name: str) -> Any:
    """A view as float32/float64, dense or CSR, whichever is smaller by far; values are unchanged.

    Small integers and half floats become float32 (exact); sparse ones float64, so that products never overflow.
    """
    if sp.issparse(matrix):
        matrix = sp.csr_array(matrix)
        if not pays_sparse(matrix):
            return tidy_view(matrix.toarray(), name)
        return matrix.astype(np.float64)
    matrix = np.asarray(matrix)
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"View '{name}' must hold real numbers. Got dtype {matrix.dtype} instead.")
    if matrix.dtype == np.float16 or not matrix.dtype.isnative:  # forms that scipy.sparse does not know
        matrix = matrix.astype(np.float32 if matrix.dtype.itemsize <= 2 else np.float64)
    if matrix.ndim == 2 and pays_sparse(matrix):
        return sp.csr_array(matrix).astype(np.float64)
    narrow = matrix.dtype.kind == "b" or matrix.dtype.itemsize <= 2 or matrix.dtype == np.float32
    return np.ascontiguousarray(matrix, dtype=np.float32 if narrow else np.float64)


def pays_sparse(matrix: Any) -> bool:
    """Whether a matrix is wide and empty enough for compressed rows."""
    rows, columns = matrix.shape
    if columns < SPARSE_COLUMNS or rows == 0:
        return False
    filled = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    return bool(filled < SPARSE_DENSITY * rows * columns)


def tidy_labels(labels: Any) -> Any:
    """Labels as int64 class numbers (1-d), or a 0/1 uint8 matrix (dense or CSR); one column means class numbers."""
    if sp.issparse(labels) and labels.shape[1] == 1:
        labels = labels.toarray()
    if sp.issparse(labels):
        matrix = sp.csr_array(labels)
        matrix.eliminate_zeros()
        matrix.sum_duplicates()
        _check_binary(matrix.data)
        return matrix.astype(np.uint8)
    array = np.asarray(labels)
    if array.dtype.kind not in "biuf":
        raise DataError(f"Labels must be numbers. Got dtype {array.dtype} instead.")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 1:
        if array.dtype.kind == "f" and not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            raise DataError("Labels must be whole class numbers or a 0/1 matrix. Got fractions or NaN instead.")
        return array.astype(np.int64)
    if array.ndim != 2:
        raise DataError(f"Labels must be class numbers or a 0/1 matrix. Got an array of shape {array.shape} instead.")
    _check_binary(array)
    if pays_sparse(array):
        return sp.csr_array(array.astype(np.uint8))
    return array.astype(np.uint8)


def _check_binary(values: Any) -> None:
    if not ((values == 0) | (values == 1)).all():
        raise DataError(
            f"A matrix of labels must hold only 0 and 1. Got values from {values.min()} to {values.max()} instead."
        )
