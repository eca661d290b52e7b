"""What a paired dataset is: views, labels where there are any, and three lists of rows (train, query, database)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.datasets.normalize import tidy_labels
from fusehash.errors import DataError
from fusehash.views import BLOCK_ROWS, PairedViews

Rows: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class PairedDataset:
    """Paired views with a split and usually labels, checked when made and never changed afterwards.

    Parameters
    ----------
    name : what the dataset is called in results
    views : PairedViews, or whatever makes one; row i of every view is the same item
    labels : class number per row (1-d, int64), or a 0/1 matrix (rows, labels), dense or scipy.sparse; None where
        there are none, which is enough to learn without labels but not to evaluate
    train, query, database : row numbers; queries are neither in train nor in the database
    split : a sentence that says how the rows were divided
    label_names : the label of column (or class number) j in words, where known
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
            raise DataError(
                f"Labels of {self.name} must have one row for each of the {views.n_rows} items. "
                f"Got {labels.shape[0]} instead."
            )
        object.__setattr__(self, "views", views)
        object.__setattr__(self, "labels", labels)
        for part in ("train", "query", "database"):
            object.__setattr__(self, part, check_rows(getattr(self, part), views.n_rows, f"'{part}' of {self.name}"))
        for part in ("train", "database"):
            shared = np.intersect1d(self.query, getattr(self, part))
            if shared.size:
                raise DataError(
                    f"Queries of {self.name} must not be among the rows of '{part}'. "
                    f"Got {shared.size} shared rows, first row {shared[0]}."
                )
        if self.label_names is not None:
            object.__setattr__(self, "label_names", tuple(str(name) for name in self.label_names))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) of the content: the same values, labels and split give the same one on every machine.

        How a view is stored (sparse or dense, 4 or 8 bytes a number) does not count, and neither do names of
        datasets and labels; names of views do.
        """
        digest = hashlib.sha256(b"fusehash dataset 1")
        for view in sorted(self.views.names):
            _update(digest, f"view {view}", self.views[view], "<f8")
        if self.labels is not None:
            _update(digest, "labels", self.labels, "<i8")
        for part in ("train", "query", "database"):
            _update(digest, part, getattr(self, part), "<i8")
        return digest.hexdigest()

    def describe(self) -> str:
        """A few lines that say what is in the dataset."""
        lines = [f"{self.name}: {self.views.n_rows:,} pairs"]
        for view, matrix in self.views.items():
            stored = "sparse" if sp.issparse(matrix) else "dense"
            lines.append(f"  view '{view}': {matrix.shape[1]:,} features, {stored} {matrix.dtype}")
        if self.labels is None:
            lines.append("  labels: none")
        elif self.labels.ndim == 1:
            lines.append(f"  labels: one of {np.unique(self.labels).size} classes for each pair")
        else:
            each = self.labels.sum() / self.labels.shape[0]
            lines.append(f"  labels: {self.labels.shape[1]} labels, {each:.2f} for each pair on average")
        counts = ", ".join(f"{part} {getattr(self, part).size:,}" for part in ("train", "query", "database"))
        lines.append(f"  rows: {counts}")
        lines.append(f"  split: {self.split}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        counts = ", ".join(f"{part}={getattr(self, part).size}" for part in ("train", "query", "database"))
        return f"{type(self).__name__}({self.name!r}, {self.views!r}, {counts})"


def check_rows(rows: Any, n_rows: int, what: str) -> Rows:
    """Return row numbers as an int64 array or say why they are none."""
    index = np.asarray(rows)
    if index.ndim != 1 or index.size == 0 or index.dtype.kind not in "iu":
        raise DataError(
            f"Rows {what} must be a non-empty list of row numbers. Got {index.dtype} of shape {index.shape} instead."
        )
    index = index.astype(np.int64)
    if index.min() < 0 or index.max() >= n_rows:
        raise DataError(f"Rows {what} must lie between 0 and {n_rows - 1}. Got {index.min()} to {index.max()} instead.")
    if np.unique(index).size != index.size:
        raise DataError(f"Rows {what} must be named once each. Got {index.size - np.unique(index).size} repetitions.")
    return index


def _update(digest: Any, what: str, matrix: Any, dtype: str) -> None:
    """Feed one matrix to the digest in row blocks, as little-endian numbers in one canonical form."""
    digest.update(f"\n{what} {'x'.join(map(str, matrix.shape))}\n".encode())
    for start in range(0, matrix.shape[0], BLOCK_ROWS):
        block = matrix[start : start + BLOCK_ROWS]
        dense = np.array(block.toarray() if sp.issparse(block) else block, dtype=dtype, order="C")
        if dtype == "<f8":
            dense += 0.0  # -0.0 becomes 0.0
            dense[np.isnan(dense)] = np.nan  # and every NaN the same one
        digest.update(dense.tobytes())
