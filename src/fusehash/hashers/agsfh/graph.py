"""Rows of the paper's fused graph A as lists of edges: stored where they are few, else computed again when needed.

A is the Hadamard product of the views' anchor graphs (Eq. 15), so a row has at most k edges and often none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.numerics.anchors import anchor_weights, neighbor_graph
from fusehash.numerics.arrays import Array, cast, namespace, zeros
from fusehash.streams.row_passes import Block, RowPasses, RowSums

# Edges that are kept (a few hundred MiB); a graph with more is computed again in every iteration.
MAX_KEPT_EDGES = 2**24
BLOCK = 256  # rows per block: one step of Algorithm 1 then fits the cache of a core

Edges = tuple[Array, Array, Array]  # rows within the block, columns, weights


@dataclass(frozen=True)
class StoredGraph:
    """A sparse graph in the memory of the host."""

    A: sp.csr_matrix

    @property
    def n_anchors(self) -> int:
        return int(self.A.shape[1])

    def __call__(self, block: Block) -> Edges:
        a = self.A[block.rows]
        return np.repeat(np.arange(a.shape[0]), np.diff(a.indptr)), a.indices, a.data

    def gram(self, data: RowPasses) -> tuple[Array, Array]:
        """A'A and A'1."""
        return gram_and_mass(self.A)


@dataclass
class ComputedGraph:
    """A graph that is computed from its anchors block by block, on the device of the rows."""

    anchors: dict[str, Array]
    n_neighbors: int
    dtype: str = "float64"
    kept: dict[tuple[int, int], Edges] = field(default_factory=dict, repr=False)
    n_kept: int = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept": {}, "n_kept": 0}

    @property
    def n_anchors(self) -> int:
        return len(next(iter(self.anchors.values())))

    def __call__(self, block: Block) -> Edges:
        key = block.rows.start, block.rows.stop
        if key in self.kept:
            return self.kept[key]
        edges = self.edges(block)
        if self.n_kept + len(edges[2]) <= MAX_KEPT_EDGES:
            self.n_kept += len(edges[2])
            self.kept[key] = edges
        return edges

    def edges(self, block: Block) -> Edges:
        """The neighbors in the first view, with the product of the weights that they have in all views."""
        first, *others = ((cast(block.arrays[name], self.dtype), cast(T, self.dtype)) for name, T in
                          self.anchors.items())  # fmt: skip
        xp = namespace(first[0])
        index, weights = anchor_weights(*first, self.n_neighbors)
        columns = cast(index, "int64")
        for X, anchors in others:
            weights = weights * xp.take_along_axis(neighbor_graph(X, anchors, self.n_neighbors), columns, axis=1)
        rows, places = xp.nonzero(weights)
        return rows, columns[rows, places], weights[rows, places]

    def gram(self, data: RowPasses) -> tuple[Array, Array]:
        """A'A and A'1, in one pass."""

        def of_block(block: Block) -> tuple[None, RowSums]:
            X = next(iter(block.arrays.values()))
            dense = zeros((len(X), self.n_anchors), X, self.dtype)
            add_edges(dense, self(block), 1.0)
            xp = namespace(dense)
            return None, RowSums(gram=cast(dense.T @ dense, "float64"), mass=xp.sum(dense, axis=0, dtype=xp.float64))

        sums = data.total(of_block, BLOCK)[1]
        return sums["gram"], sums["mass"]


GraphRows = StoredGraph | ComputedGraph  # the edges of any block of training rows


def gram_and_mass(A: sp.csr_matrix) -> tuple[Array, Array]:
    """A'A and A'1 of a sparse graph."""
    return (A.T @ A).toarray(), np.asarray(A.sum(axis=0)).ravel()


def add_edges(dense: Array, edges: Edges, weight: float) -> None:
    """dense += weight * A, in place; an entry has at most one edge."""
    rows, columns, values = edges
    dense[rows, columns] += weight * values


def edge_sum(S: Array, edges: Edges) -> Array:
    """<A, S>."""
    rows, columns, values = edges
    return (S[rows, columns] * values).sum()
