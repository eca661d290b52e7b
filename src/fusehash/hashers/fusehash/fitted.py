"""What the closed form learns, and all that encoding needs of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusehash.files import storable
from fusehash.numerics.anchors import fuse, neighbor_graph
from fusehash.numerics.arrays import Array, cast, host, namespace, precision, to_device_of, zeros
from fusehash.numerics.features import FeatureMap

Masks = dict[str, Array | None]  # None: present in all rows


@dataclass(frozen=True)
class Choices:
    """Everything that can be tuned, with the values that were best on average over the study (docs/study.md).

    graph_weight and latent_weight are relative to what is usual for the number of rows (`usual_graph_weight`, and half
    of that), so that what is tuned on a sample holds for the whole.
    """

    feature_map: str = "rbf"
    kernel_width: float = 1.0
    ridge: float = 0.03
    hash_ridge: float = 0.003
    graph_weight: float = 1.0  # mu, relative
    latent_weight: float = 1.0  # weight of the graph over Y beside the raw views' graph, relative
    spectral_power: float = 2.0  # p
    view_weights: tuple[float, ...] = ()  # a_m and the weights of the views in the raw graph; () is all ones
    fusion: str = "mean"


def usual_graph_weight(n_rows: int) -> float:
    """The weight of the graph that was best on average: 2 for small data, 1 from 6,000 rows on (docs/study.md).

    The more rows there are, the better the views alone tell what belongs together.
    """
    return float(np.clip(np.sqrt(6000.0 / n_rows), 1.0, 2.0))


@storable
@dataclass
class Embedding:
    """The map from features and graph rows to r numbers: Y = (F - mean_F) on_features + (S - mean_S) on_graph."""

    on_features: Array
    on_graph: Array

    def __call__(self, F: Array, S: Array | None) -> Array:
        Y = F @ self.on_features
        if S is not None and len(self.on_graph):
            Y += S @ self.on_graph
        return Y

    def rotated(self, R: Array) -> Embedding:
        dtype = precision(self.on_features)
        return Embedding(cast(real_product(self.on_features, R), dtype), cast(real_product(self.on_graph, R), dtype))


def real_product(A: Array, R: Array) -> Array:
    return cast(A, "float64") @ cast(R, "float64")


@storable
@dataclass
class GraphMap:
    """Graph rows of any items: anchors in every view, and in the first embedding for the latent graph."""

    anchors: dict[str, Array]
    has_anchor: dict[str, NDArray[np.bool_]]
    n_neighbors: int
    fusion: str
    weights: list[float]
    latent_weight: float = 0.0
    latent_anchors: Array | None = None
    first: Embedding | None = None

    def raw(self, prepared: dict[str, Array], present: Masks, graphs: list[Array] | None = None) -> Array:
        """Fused graph rows over the raw views (whose graphs may be at hand already)."""
        graphs = graphs or [
            neighbor_graph(prepared[name], self.anchors[name], self.n_neighbors, host(self.has_anchor[name]))
            for name in self.anchors
        ]
        return fuse(graphs, [present[name] for name in self.anchors], self.weights, self.fusion)

    def __call__(
        self, prepared: dict[str, Array], present: Masks, F: Array, graphs: list[Array] | None = None
    ) -> Array:
        S = self.raw(prepared, present, graphs)
        if self.latent_anchors is None or self.first is None:
            return S
        latent = neighbor_graph(self.embedded(F, S, present), self.latent_anchors, self.n_neighbors)
        share = self.latent_weight / (1.0 + self.latent_weight)
        return (1.0 - share) * S + share * latent

    def embedded(self, F: Array, S: Array, present: Masks) -> Array:
        """Rows where the latent anchors are."""
        assert self.first is not None
        return self.first(F, S)

    def anchors_present(self) -> Masks:
        """Where the anchors themselves are seen."""
        masks = {name: host(mask) for name, mask in self.has_anchor.items()}
        return {name: None if mask.all() else to_device_of(mask, self.anchors[name]) for name, mask in masks.items()}


@storable
@dataclass
class Fitted:
    """All that encoding needs."""

    maps: dict[str, FeatureMap]
    means: dict[str, Array]  # of the features
    weights: dict[str, Array]  # W_m (n_features x K)
    fusion_weights: dict[str, float]
    graph: GraphMap | None
    code_map: Embedding  # features and graph of a complete item -> real code

    def project(self, block: Array, name: str) -> Array:
        """Real code of items seen in one view."""
        F = self.maps[name](block) - self.means[name]
        return cast(F, "float64") @ self.weights[name]

    def project_complete(self, prepared: dict[str, Array]) -> Array:
        """Real code of items seen in every view: the very map that gave the training codes."""
        present: Masks = dict.fromkeys(prepared)
        F = features_of(self.maps, self.means, prepared, present)
        S = self.graph(prepared, present, F) if self.graph is not None else None
        return cast(self.code_map(F, S), "float64")


def features_of(
    maps: dict[str, FeatureMap], means: dict[str, Array], prepared: dict[str, Array], present: Masks
) -> Array:
    """Features of all views side by side, less their means; zero where a view is missing."""
    parts = []
    for name, feature_map in maps.items():
        F = feature_map.of_prepared(prepared[name])
        F = F - means[name] if name in means else F
        seen = present[name]
        if seen is not None:
            F = namespace(F).where(seen[:, None], F, zeros((1, 1), F, precision(F)))
        parts.append(F)
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(parts, axis=1)
