"""PairedDataset: views, optional labels, and three lists of rows (train, query, database); and their normal form."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.parameters import as_labels
from fusehash.views import BLOCK_ROWS, PairedViews

Rows: TypeAlias = NDArray[np.int64]
PARTS = ("train", "query", "database")

# A view or label matrix is stored in compressed rows if it is this wide and has this small a share of non-zeros.
SPARSE_COLUMNS, SPARSE_DENSITY = 64, 0.10


@dataclass(frozen=True, eq=False, repr=False)
class PairedDataset:
    """Paired views with a split and usually labels. It is checked when you create it and never changes.

    Parameters
    ----------
    name : str
        Name of the dataset in results.
    views : PairedViews or dict of str to array-like of shape (n_rows, n_features)
        Row i of every view is the same item.
    labels : array-like of shape (n_rows,) or (n_rows, n_labels), or None
        Class numbers, or a 0/1 matrix, dense or sparse. Without labels you can fit but not evaluate.
    train, query, database : array-like of int
        Row numbers. Queries are neither in train nor in the database.
    split : str
        One sentence that says how the rows were divided.
    label_names : sequence of str, optional
        Name of each class number or label column.

    Raises
    ------
    DataError
        If the parts do not fit together.

    Examples
    --------
    >>> import numpy as np
    >>> from fusehash.datasets import PairedDataset
    >>> views = {"image": np.eye(4), "text": np.ones((4, 2))}
    >>> PairedDataset("tiny", views, [0, 1, 0, 1], train=[0, 1], query=[3], database=[0, 1, 2], split="by hand").query
    array([3])
    """

    name: str
    views: PairedViews
    labels: Any
    train: Rows
    query: Rows
    database: Rows
    split: str
    label_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        views = self.views if isinstance(self.views, PairedViews) else PairedViews(self.views)
        labels = None if self.labels is None else tidy_labels(self.labels)
        if labels is not None and labels.shape[0] != views.n_rows:
            rule = f"Labels of {self.name} must have one row for each of the {views.n_rows} items."
            raise DataError(f"{rule} Got {labels.shape[0]} instead.")
        object.__setattr__(self, "views", views)
        object.__setattr__(self, "labels", labels)
        for part in PARTS:
            object.__setattr__(self, part, check_rows(getattr(self, part), views.n_rows, f"'{part}' of {self.name}"))
        for part in ("train", "database"):
            shared = np.intersect1d(self.query, getattr(self, part))
            if shared.size:
                rule = f"Queries of {self.name} must not be among the rows of '{part}'."
                raise DataError(f"{rule} Got {shared.size} shared rows, first row {shared[0]}.")
        if self.label_names is not None:
            object.__setattr__(self, "label_names", tuple(str(name) for name in self.label_names))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of values, view names, labels and split; equal on every machine.

        It does not depend on how a view is stored (sparse or dense, float32 or float64) or on other names.
        """
        digest = hashlib.sha256(b"fusehash dataset 1")
        for view in sorted(self.views.names):
            _update(digest, f"view {view}", self.views[view], "<f8")
        if self.labels is not None:
            _update(digest, "labels", self.labels, "<i8")
        for part in PARTS:
            _update(digest, part, getattr(self, part), "<i8")
        return digest.hexdigest()

    def describe(self) -> str:
        """Summarize the dataset in a few lines of text."""
        lines = [f"{self.name}: {self.views.n_rows:,} pairs"]
        for view, matrix in self.views.items():
            stored = "sparse" if sp.issparse(matrix) else "dense"
            lines.append(f"  view '{view}': {matrix.shape[1]:,} features, {stored} {matrix.dtype}")
        labels = "none"
        if self.labels is not None and self.labels.ndim == 1:
            labels = f"one of {np.unique(self.labels).size} classes per pair"
        elif self.labels is not None:
            labels = f"{self.labels.shape[1]} labels, {self.labels.sum() / self.labels.shape[0]:.2f} per pair"
        counts = ", ".join(f"{part} {getattr(self, part).size:,}" for part in PARTS)
        return "\n".join([*lines, f"  labels: {labels}", f"  rows: {counts}", f"  split: {self.split}"])

    def __repr__(self) -> str:
        counts = ", ".join(f"{part}={getattr(self, part).size}" for part in PARTS)
        return f"{type(self).__name__}({self.name!r}, {self.views!r}, {counts})"


def check_rows(rows: Any, n_rows: int, what: str) -> Rows:
    """Row numbers as an int64 array; raises DataError if they are not distinct rows."""
    index = np.asarray(rows)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        got = f"{index.dtype} of shape {index.shape}"
        raise DataError(f"Rows {what} must be a non-empty list of row numbers. Got {got} instead.")
    index = index.astype(np.int64)
    if index.min() < 0 or index.max() >= n_rows:
        raise DataError(f"Rows {what} must be between 0 and {n_rows - 1}. Got {index.min()} to {index.max()} instead.")
    if np.unique(index).size != index.size:
        raise DataError(f"Rows {what} must be named once each. Got {index.size - np.unique(index).size} repetitions.")
    return index


def tidy_view(matrix: Any, name: str) -> Any:
    """A view as float32 or float64, dense or CSR (always float64); values are unchanged."""
    if sp.issparse(matrix):
        matrix = sp.csr_array(matrix)
        if not pays_sparse(matrix):
            return tidy_view(matrix.toarray(), name)
        return matrix.astype(np.float64)
    matrix = np.asarray(matrix)
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"View '{name}' must hold real numbers. Got dtype {matrix.dtype} instead.")
    if matrix.dtype == np.float16 or not matrix.dtype.isnative:  # not supported by scipy.sparse
        matrix = matrix.astype(np.float32 if matrix.dtype.itemsize <= 2 else np.float64)
    if matrix.ndim == 2 and pays_sparse(matrix):
        return sp.csr_array(matrix).astype(np.float64)
    narrow = matrix.dtype.kind == "b" or matrix.dtype.itemsize <= 2 or matrix.dtype == np.float32
    return np.ascontiguousarray(matrix, dtype=np.float32 if narrow else np.float64)


def pays_sparse(matrix: Any) -> bool:
    """Whether a matrix is wide and sparse enough for compressed rows."""
    rows, columns = matrix.shape
    if columns < SPARSE_COLUMNS or rows == 0:
        return False
    filled = matrix.nnz if sp.issparse(matrix) else np.count_nonzero(matrix)
    return bool(filled < SPARSE_DENSITY * rows * columns)


def tidy_labels(labels: Any) -> Any:
    """Labels as `parameters.as_labels` returns them, in compressed rows if that is much smaller."""
    tidy = as_labels(labels)
    return sp.csr_array(tidy) if tidy.ndim == 2 and not sp.issparse(tidy) and pays_sparse(tidy) else tidy


def _update(digest: Any, what: str, matrix: Any, dtype: str) -> None:
    """Feed one matrix to the digest in row blocks, as little-endian numbers in canonical form."""
    digest.update(f"\n{what} {'x'.join(map(str, matrix.shape))}\n".encode())
    for start in range(0, matrix.shape[0], BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS]
        dense = np.array(block.toarray() if sp.issparse(block) else block, dtype=dtype, order="C")
        if dtype == "<f8":
            dense += 0.0  # -0.0 becomes 0.0
            dense[np.isnan(dense)] = np.nan  # and every NaN the same one
        digest.update(dense.tobytes())
