"""Which database items answer a query, and how well: one block of queries at a time.

`Relevant` is one of:
- a pair (query_labels, database_labels) of class numbers, 1-d: relevant = equal class;
- a pair of 0/1 label matrices (rows, labels), dense or scipy.sparse: relevant = at least one shared label,
  grade = number of shared labels;
- a matrix (queries, items), dense or scipy.sparse, of booleans or of grades >= 0: relevant = grade > 0;
- a function: rows (int array) -> such a matrix (len(rows), items).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.bits import n_bytes, pack
from fusehash.errors import DataError
from fusehash.evaluation import kernels
from fusehash.parameters import check_label_array

Relevant: TypeAlias = Any  # a pair of labels, a matrix, a function, or a Relevance
Matrix: TypeAlias = NDArray[Any]

EXPECTED = (
    "Relevance must be a pair (query_labels, database_labels), a matrix (queries, items), "
    "or a function from query rows to such a matrix."
)


class Relevance(ABC):
    """Relevance of a database to queries, one block of queries at a time.

    Parameters
    ----------
    n_queries, n_items : int
        Shape of the whole matrix; a block has the shape (block, n_items).
    """

    def __init__(self, n_queries: int, n_items: int) -> None:
        self.n_queries, self.n_items = n_queries, n_items

    @abstractmethod
    def hits(self, block: slice) -> NDArray[np.uint8]:
        """1 where the item is relevant to the query."""

    def grades(self, block: slice) -> Matrix:
        """How relevant: the number of shared labels, or the grade of the matrix; by default the same as `hits`."""
        return self.hits(block)


class ClassRelevance(Relevance):
    """Relevant = same class."""

    def __init__(self, query_classes: Matrix, item_classes: Matrix) -> None:
        super().__init__(len(query_classes), len(item_classes))
        self._queries, self._items = query_classes, item_classes

    def hits(self, block: slice) -> NDArray[np.uint8]:
        return np.equal(self._queries[block, None], self._items[None, :]).view(np.uint8)


class LabelSetRelevance(Relevance):
    """Relevant = label sets meet; the sets are bit masks, so that a comparison is one AND."""

    def __init__(self, query_labels: Any, item_labels: Any) -> None:
        super().__init__(query_labels.shape[0], item_labels.shape[0])
        self._queries, self._items = _label_masks(query_labels), _label_masks(item_labels)

    def hits(self, block: slice) -> NDArray[np.uint8]:
        return self._shared(block, np.zeros((block.stop - block.start, self.n_items), dtype=np.uint8), count=False)

    def grades(self, block: slice) -> Matrix:
        return self._shared(block, np.zeros((block.stop - block.start, self.n_items), dtype=np.uint16), count=True)

    def _shared(self, block: slice, out: Matrix, *, count: bool) -> Matrix:
        kernels.shared_labels(np.ascontiguousarray(self._queries[:, block]), self._items, count, out)
        return out


class GradedRelevance(Relevance):
    """Grades from a function of query rows, which one thread calls at a time; relevant = grade > 0."""

    def __init__(self, function: Callable[[NDArray[np.int64]], Any], n_queries: int, n_items: int) -> None:
        super().__init__(n_queries, n_items)
        self._function, self._lock = function, threading.Lock()

    def hits(self, block: slice) -> NDArray[np.uint8]:
        return np.greater(self.grades(block), 0).view(np.uint8)

    def grades(self, block: slice) -> Matrix:
        rows = np.arange(block.start, block.stop, dtype=np.int64)
        with self._lock:
            grades = _as_grades(self._function(rows))
        expected = len(rows), self.n_items
        if grades.shape != expected:
            raise DataError(f"The relevance function must return a matrix of shape {expected}. Got {grades.shape}.")
        return grades


def as_relevance(relevant: Relevant, n_queries: int, n_items: int) -> Relevance:
    """Relevance of any of the four kinds, checked against the numbers of queries and items."""
    if isinstance(relevant, Relevance):
        relevance = relevant
    elif isinstance(relevant, tuple):
        if len(relevant) != 2:
            raise DataError(f"{EXPECTED} Got a tuple of {len(relevant)} instead.")
        relevance = _from_labels(*relevant)
    elif callable(relevant):
        relevance = GradedRelevance(relevant, n_queries, n_items)
    else:
        matrix = relevant.tocsr() if sp.issparse(relevant) else _as_array(relevant)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise DataError(f"{EXPECTED} Got {matrix.dtype} of shape {matrix.shape} instead.")
        relevance = GradedRelevance(lambda rows: matrix[rows[0] : rows[-1] + 1], *matrix.shape)
    if (relevance.n_queries, relevance.n_items) != (n_queries, n_items):
        raise DataError(
            f"Relevance must cover {n_queries} queries and {n_items} database items, as the codes do. "
            f"Got {relevance.n_queries} and {relevance.n_items} instead."
        )
    return relevance


def _as_array(values: Any) -> Matrix:
    try:
        return np.asarray(values)
    except ValueError:
        raise DataError(f"{EXPECTED} Got rows of unequal length.") from None


def _from_labels(query_labels: Any, item_labels: Any) -> Relevance:
    queries = check_label_array(query_labels, "Query labels")
    items = check_label_array(item_labels, "Database labels")
    if queries.shape[1:] != items.shape[1:]:
        raise DataError(
            "Query and database labels must both be class numbers (1-d) or both be 0/1 matrices with the same columns. "
            f"Got shapes {queries.shape} and {items.shape}."
        )
    return ClassRelevance(queries, items) if queries.ndim == 1 else LabelSetRelevance(queries, items)


def _label_masks(labels: Any) -> NDArray[np.uint64]:
    """0/1 rows as transposed bit masks (words, n), a few thousand rows at a time."""
    packed = np.empty((labels.shape[0], n_bytes(labels.shape[1])), dtype=np.uint8)
    for start in range(0, len(packed), 4096):
        rows = labels[start : start + 4096]
        dense = rows.toarray() if sp.issparse(rows) else rows
        packed[start : start + 4096] = pack(dense)
    return kernels.to_words(packed)


def _as_grades(matrix: Any) -> Matrix:
    grades = matrix.toarray() if sp.issparse(matrix) else _as_array(matrix)
    if grades.dtype == np.bool_:
        return grades.view(np.uint8)
    if grades.dtype.kind not in "iuf":
        raise DataError(f"Relevance must be booleans or grades. Got dtype {grades.dtype} instead.")
    if grades.dtype.kind != "u" and not (grades >= 0).all():  # false for NaN too
        raise DataError("Grades of relevance must be >= 0. Got a negative grade or NaN.")
    return grades
