"""What the closed form computes of a block of rows: prepared views, features, rows of the graph.

It holds small matrices only and no data, so that it can be sent to where the rows are. What a pass has computed is kept
for the next as long as it is small, and is not sent along.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fusehash.hashers.fusehash.fitted import GraphMap, Masks, features_of
from fusehash.numerics.arrays import Array, precision, zeros
from fusehash.numerics.features import FeatureMap
from fusehash.streams.row_passes import Block

# Entries that are kept between passes (64 MiB); beyond, they are computed anew.
CACHED_ENTRIES = 2**24


class Features(NamedTuple):
    """Prepared rows of every view, where they are present, and their features side by side, less their means."""

    prepared: dict[str, Array]
    present: Masks
    F: Array


@dataclass
class RowMaps:
    """From a block of rows to features and graph rows.

    n_rows : of the whole pass, which tells whether results are worth keeping
    is_prepared : the blocks hold prepared rows already
    raw_graphs : the graph of every view for all rows, where the caller has them
    """

    maps: dict[str, FeatureMap]
    graph: GraphMap | None
    n_rows: int
    means: dict[str, Array] = field(default_factory=dict)
    is_prepared: bool = False
    raw_graphs: list[Array] | None = None
    kept_features: dict[int, Features] = field(default_factory=dict, repr=False)
    kept_graphs: dict[int, Array] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept_features": {}, "kept_graphs": {}}

    def with_means(self, means: dict[str, Array]) -> RowMaps:
        return replace(self, means=means, kept_features={}, kept_graphs={})

    def with_graph(self, graph: GraphMap | None) -> RowMaps:
        """The same features, another graph."""
        return replace(self, graph=graph, kept_graphs={})

    def over(self, n_rows: int) -> RowMaps:
        """The same maps for passes over other rows."""
        return replace(self, n_rows=n_rows, kept_features={}, kept_graphs={})

    def features(self, block: Block) -> Features:
        kept = self.kept_features.get(block.rows.start)
        if kept is not None:
            return kept
        prepared = block.arrays
        if not self.is_prepared:
            prepared = {name: self.maps[name].preparation(X) for name, X in block.arrays.items()}
        found = Features(prepared, block.present, features_of(self.maps, self.means, prepared, block.present))
        width = found.F.shape[1] + sum(X.shape[1] for X in prepared.values())
        if self.means and self.n_rows * width <= CACHED_ENTRIES:
            self.kept_features[block.rows.start] = found
        return found

    def __call__(self, block: Block) -> tuple[Array, Array]:
        """Features and graph rows."""
        found = self.features(block)
        if self.graph is None:
            return found.F, zeros((len(found.F), 0), found.F, precision(found.F))
        S = self.kept_graphs.get(block.rows.start)
        if S is None:
            raw = None if self.raw_graphs is None else [graph[block.rows] for graph in self.raw_graphs]
            S = self.graph(found.prepared, found.present, found.F, raw)
            if self.n_rows * S.shape[1] <= CACHED_ENTRIES:
                self.kept_graphs[block.rows.start] = S
        return found.F, S
