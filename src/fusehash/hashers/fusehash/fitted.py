"""What the closed form learns, and the maps from rows to features, graph rows and codes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fusehash.files import storable
from fusehash.hashers.fusehash.best_bits import projector_of
from fusehash.numerics.anchors import CenteredAnchors, fuse, graph_anchors, neighbor_graph
from fusehash.numerics.arrays import (
    Array,
    cast,
    convert,
    host,
    is_accelerated,
    mask_rows,
    namespace,
    precision,
    to_device_of,
    zeros,
)
from fusehash.numerics.features import FeatureMap, map_features
from fusehash.numerics.linalg import trace
from fusehash.numerics.sparse import SparseRows
from fusehash.streams.row_passes import Block
from fusehash.views import Floats

Arrays = dict[str, Array]  # by view
Masks = dict[str, Array | None]  # by view; None: present in all rows

# A pass keeps its features and graph rows for the next pass up to this many entries (64 MiB of single precision).
CACHED_ENTRIES = 2**24


@dataclass(frozen=True)
class Choices:
    """Everything that can be tuned; the defaults were best on average over the study (docs/study.md).

    graph_weight and latent_weight are relative to the usual weights for the number of rows (`usual_graph_weight`, and
    half of it), so that a value tuned on a sample holds for all rows.
    """

    feature_map: str = "rbf"
    kernel_width: float = 1.0
    ridge: float = 0.03
    hash_ridge: float = 0.003
    graph_weight: float = 1.0  # mu, relative
    latent_weight: float = 1.0  # of the graph over Y, against the graph of the raw views, relative
    spectral_power: float = 2.0  # p
    hash_functions: str = "regression"  # on the codes of pairs, or "canonical": rotated canonical variates
    view_weights: tuple[float, ...] = ()  # a_m, and the weights of the views in the raw graph; () is all ones
    word_weights: float = 0.0  # power of the weights of words, relative to `WORD_POWER`; 0: all words count the same
    fusion: str = "mean"

    @property
    def is_canonical(self) -> bool:
        return self.hash_functions == "canonical"

    @property
    def has_graph(self) -> bool:
        return self.graph_weight > 0.0 and not self.is_canonical

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "view_weights": list(self.view_weights)}


@storable
@dataclass
class Embedding:
    """The map from centered features and graph rows to r numbers: Y = F on_features + S on_graph."""

    on_features: Array
    on_graph: Array

    def __call__(self, F: Array, S: Array) -> Array:
        Y = F @ self.on_features
        if len(self.on_graph):
            Y += S @ self.on_graph
        return Y

    def rotated(self, R: Array) -> Embedding:
        """The map to Y R."""
        dtype, R = precision(self.on_features), cast(R, "float64")
        parts = (cast(part, "float64") @ R for part in (self.on_features, self.on_graph))
        return Embedding(*(cast(part, dtype) for part in parts))


@storable
@dataclass
class GraphMap:
    """The anchors of the graph in every view and, for the latent graph, in the first embedding."""

    anchors: Arrays
    has_anchor: dict[str, NDArray[np.bool_]]
    n_neighbors: int
    fusion: str
    weights: list[float]
    latent_weight: float = 0.0
    latent_anchors: Array | None = None
    first: Embedding | None = None

    @classmethod
    def over(
        cls, anchors: Arrays, n_neighbors: int, choices: Choices, has_anchor: dict[str, Any] | None = None
    ) -> GraphMap:
        """The graph of the raw views; anchors are present in every view unless `has_anchor` says otherwise."""
        everywhere = {name: np.ones(len(X), dtype=bool) for name, X in anchors.items()}
        weights = list(choices.view_weights or (1.0,) * len(anchors))
        return cls(anchors, has_anchor or everywhere, n_neighbors, choices.fusion, weights)

    @cached_property
    def centered(self) -> dict[str, CenteredAnchors | None]:
        """The dense anchors as distances need them, prepared once and not for every block of rows."""
        centered: dict[str, CenteredAnchors | None] = dict.fromkeys(self.anchors)
        for name, anchors in self.anchors.items():
            has_anchor = host(self.has_anchor[name])
            if has_anchor.any() and not isinstance(anchors, SparseRows):
                centered[name] = graph_anchors(anchors, has_anchor)
        return centered

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    def embedded(self, F: Array, S: Array, present: Masks) -> Array:
        """Rows in the space of the latent anchors."""
        assert self.first is not None
        return self.first(F, S)

    def anchor_block(self) -> Block:
        """The anchors as rows."""
        masks = {name: host(mask) for name, mask in self.has_anchor.items()}
        on_host = {name for name, anchors in self.anchors.items() if isinstance(anchors, SparseRows)}
        present = {
            name: None if mask.all() else mask if name in on_host else to_device_of(mask, self.anchors[name])
            for name, mask in masks.items()
        }
        return Block(slice(0, len(next(iter(masks.values())))), self.anchors, present)


class RowFeatures(NamedTuple):
    """Some rows: prepared views, where each view is present, and the features of all views side by side."""

    rows: slice
    prepared: Arrays
    present: Masks
    F: Array


@dataclass
class RowMaps:
    """The maps from a block of rows to centered features F and graph rows S.

    It holds small matrices and no data, so that it can be sent to where the rows are. What it computes of a block is
    kept for the next pass if the rows are few.
    """

    maps: dict[str, FeatureMap]
    graph: GraphMap | None  # None: S has no columns
    means: Arrays = field(default_factory=dict)  # of the features
    n_rows: int = 0  # of the passes that use these maps
    is_prepared: bool = False  # blocks hold prepared rows
    raw_graphs: list[Array] | None = None  # the graph of every view for all rows, if the caller has them
    kept_features: dict[int, RowFeatures] = field(default_factory=dict, repr=False)
    kept_graphs: dict[int, Array] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "kept_features": {}, "kept_graphs": {}}

    @property
    def spans(self) -> dict[str, slice]:
        """The columns of each view in F."""
        cuts = np.cumsum([0, *(m.n_features for m in self.maps.values())])
        return {name: slice(int(cuts[i]), int(cuts[i + 1])) for i, name in enumerate(self.maps)}

    @property
    def dtype(self) -> str:
        return next(iter(self.maps.values())).preparation.dtype

    def norms(self) -> Arrays:
        """K of the anchors by view: v'Kv is the squared norm of a function with the weights v on similarities to them.

        For products with anchors, that is the squared norm of the weights of the columns. K is scaled so that one unit
        per row is the mean diagonal of X'X (or that of similarities), which a ridge is relative to.
        """
        norms = {}
        for name, m in self.maps.items():
            if len(m.anchors):
                K = cast(map_features(m.anchors, m.anchors, m.bandwidth), "float64")
                norms[name] = K * (trace(K) / (len(K) * (len(K) if m.bandwidth else m.preparation.width)))
        return norms

    def exact(self, F: Array) -> Array:
        """Features in the precision in which products are summed: double on a GPU, whose blocks are long.

        Double also for products with anchors: their Gram matrix has squared eigenvalues, of which the small ones count.
        """
        are_products = any(len(m.anchors) and not m.bandwidth for m in self.maps.values())
        return cast(F, "float64") if are_products or is_accelerated(F) else F

    def features(self, block: Block) -> RowFeatures:
        """Features of a block, minus their means; zero where a view is missing."""
        kept = self.kept_features.get(block.rows.start)
        if kept is not None:
            return kept
        prepared, parts = {}, []
        for name, feature_map in self.maps.items():
            X = block.arrays[name]
            prepared[name] = X if self.is_prepared else feature_map.preparation(X)
            anchors = feature_map.anchors, feature_map.bandwidth, feature_map.centered
            F = cast(map_features(prepared[name], *anchors), feature_map.dtype)
            if self.means:
                F = F - self.means[name]
            seen = block.present[name]
            if seen is not None:
                F = mask_rows(F, seen)
            parts.append(F)
        F = parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=1)
        features = RowFeatures(block.rows, prepared, block.present, F)
        width = F.shape[1] + sum(X.shape[1] for X in prepared.values() if not isinstance(X, SparseRows))
        if self.means and self.n_rows * width <= CACHED_ENTRIES:
            self.kept_features[block.rows.start] = features
        return features

    def graph_rows(self, features: RowFeatures) -> Array:
        """Graph rows: the fused graph of the raw views, blended with the graph over the first embedding."""
        graph, (rows, prepared, present, F) = self.graph, features
        if graph is None:
            return zeros((len(F), 0), F, precision(F))
        if rows.start in self.kept_graphs:
            return self.kept_graphs[rows.start]
        graphs = [whole[rows] for whole in self.raw_graphs or ()]
        if not graphs:
            for name, anchors in graph.anchors.items():
                has_anchor, centered = host(graph.has_anchor[name]), graph.centered[name]
                graphs.append(neighbor_graph(prepared[name], anchors, graph.n_neighbors, has_anchor, centered))
        S = fuse(graphs, [present[name] for name in graph.anchors], graph.weights, graph.fusion)
        if graph.latent_anchors is not None:
            latent = neighbor_graph(graph.embedded(F, S, present), graph.latent_anchors, graph.n_neighbors)
            share = graph.latent_weight / (1.0 + graph.latent_weight)
            S = (1.0 - share) * S + share * latent
        if self.n_rows * S.shape[1] <= CACHED_ENTRIES:
            self.kept_graphs[rows.start] = S
        return S


@storable
@dataclass
class Fitted:
    """All that encoding needs."""

    maps: dict[str, FeatureMap]
    means: Arrays  # of the features
    weights: Arrays  # W_m (n_features x K)
    fusion_weights: dict[str, float]
    graph: GraphMap | None
    code_map: Embedding  # features and graph row of a complete item -> real code
    softness: float = 0.0  # of the targets of the hash functions; 0: they were signs
    frame_rank: int = 0  # directions of the frame that gives the bits (best_bits.py); 0: there is none

    @cached_property
    def in_double(self) -> Fitted:
        """The same maps in double precision, for encoding on the host.

        Single-precision products of OpenBLAS differ in the last digit with the place of a row in its block, on some
        processors (its kernels for Haswell and Zen). A row must have the same code alone and in a batch.
        """
        double = convert(self, lambda part: cast(part, "float64") if part.ndim == 2 else part)
        preparations = {name: replace(m.preparation, dtype="float64") for name, m in double.maps.items()}
        return replace(
            double, maps={name: replace(m, preparation=preparations[name]) for name, m in double.maps.items()}
        )

    @cached_property
    def frame_projector(self) -> Floats:
        """P of best_bits.py."""
        return projector_of(self.in_double.weights, self.frame_rank)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    def project(self, prepared: Array, name: str) -> Array:
        """Real code of items seen in one view, from prepared rows."""
        F = self.maps[name].of_prepared(prepared) - self.means[name]
        return cast(F, "float64") @ self.weights[name]

    def project_complete(self, prepared: Arrays) -> Array:
        """Real code of items seen in every view, by the map that gave the training codes."""
        maps = RowMaps(self.maps, self.graph, self.means, is_prepared=True)
        n_rows = len(next(iter(prepared.values())))
        features = maps.features(Block(slice(0, n_rows), prepared, dict.fromkeys(prepared)))
        return cast(self.code_map(features.F, maps.graph_rows(features)), "float64")
