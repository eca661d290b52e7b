"""Hugging Face datasets: an index of a column, and a Dataset as views, `pip install "fusehash[datasets]"`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.hashers.base import CrossModalHasher
from fusehash.search import HammingIndex
from fusehash.views import PairedViews

_search: Any = require("datasets.search", "The index for Hugging Face datasets")
_ROWS_AT_ONCE = 8192


class HammingDatasetIndex(_search.BaseIndex):
    """An index of `datasets`: queries of one view find the rows of another by Hamming distance.

    Parameters
    ----------
    model : fitted hasher
        Makes the codes.
    query_view : str
        The view of the queries.
    index : HammingIndex, optional
        Where the codes are, under the numbers of their rows; by default in memory.
    """

    def __init__(self, model: CrossModalHasher, query_view: str, index: HammingIndex | None = None) -> None:
        self.model, self.query_view = model, query_view
        self.index = HammingIndex(model.n_bits) if index is None else index

    def search(self, query: ArrayLike, k: int = 10, **kwargs: Any) -> Any:
        """Distances and rows of the k nearest; the query is a vector of the view of queries."""
        found = self.search_batch(np.asarray(query).reshape(1, -1), k)
        return _search.SearchResults(found.total_scores[0], found.total_indices[0])

    def search_batch(self, queries: ArrayLike, k: int = 10, **kwargs: Any) -> Any:
        """The same for many queries."""
        codes = self.model.encode(np.asarray(queries, dtype=np.float64), view=self.query_view)
        distances, rows = self.index.search(codes, k)
        return _search.BatchedSearchResults(distances.astype(np.float64), rows)

    def save(self, file: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> None:
        """Write the codes to a new file, which `HammingIndex.open` reads; the model has a file of its own."""
        if os.path.exists(file):  # noqa: PTH110 (any path-like)
            raise DataError(f"An index is saved to a new file. '{file}' exists.")
        with HammingIndex.open(file, self.model.n_bits) as saved:
            for ids, codes in self.index.blocks():
                saved.add(codes, ids)

    @classmethod
    def load(cls, file: str | os.PathLike[str], **kwargs: Any) -> HammingDatasetIndex:
        """An index that `save` wrote; pass `model` and `query_view`."""
        return cls(kwargs["model"], kwargs["query_view"], HammingIndex.open(file))


def add_hamming_index(
    dataset: Any, column: str, model: CrossModalHasher, *, view: str, query_view: str | None = None, name: str = "",
    index: HammingIndex | None = None,
) -> Any:  # fmt: skip
    """Add an index of a column of vectors to a Dataset, in place, and return the Dataset.

    Parameters
    ----------
    dataset : datasets.Dataset
    column : str
        Holds the vectors of one view.
    model : fitted hasher
    view, query_view : str
        The view of the column, and of the queries (by default the same).
    name : str
        The name of the index; by default that of the column. `dataset.get_nearest_examples(name, vector, k)` asks it.
    index : HammingIndex, optional
        Where the codes are kept, such as an index in a file; by default in memory.
    """
    added = HammingDatasetIndex(model, query_view or view, index)
    for start in range(0, len(dataset), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(dataset)))
        added.index.add(model.encode(_vectors(dataset, column, rows), view=view), rows)
    dataset._indexes[name or column] = added
    return dataset


def views_of(dataset: Any, columns: Mapping[str, str | Sequence[str]]) -> PairedViews:
    """The views in a Dataset: each from one column of lists, or from several columns of numbers."""
    rows = np.arange(len(dataset))
    views = {}
    for view, chosen in columns.items():
        if isinstance(chosen, str):
            views[view] = _vectors(dataset, chosen, rows)
        else:
            views[view] = np.hstack([_vectors(dataset, name, rows) for name in chosen])
    return PairedViews(views)


def _vectors(dataset: Any, column: str, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """A column as a matrix; a column of numbers is a matrix with one column."""
    if column not in dataset.column_names:
        listed = ", ".join(dataset.column_names)
        raise DataError(f"Columns must be in the Dataset, which has {listed}. Got {column!r} instead.")
    plain = dataset.with_format("arrow", columns=[column])
    parts = [
        plain[int(rows[0]) + i : min(int(rows[0]) + i + _ROWS_AT_ONCE, int(rows[-1]) + 1)][column]
        for i in range(0, len(rows), _ROWS_AT_ONCE)
    ]
    try:
        matrix = np.concatenate([np.asarray(part.to_pylist(), dtype=np.float64) for part in parts])
    except (TypeError, ValueError):
        raise DataError(f"Column '{column}' must hold vectors of one length. It holds something else.") from None
    return matrix[:, None] if matrix.ndim == 1 else matrix
