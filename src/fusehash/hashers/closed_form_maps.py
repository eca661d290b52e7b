"""What the closed form learns, and all that encoding needs of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusehash.graph import fuse, neighbour_graph
from fusehash.kernels import FeatureMap
from fusehash.persistence import storable

Single = NDArray[np.float32]
Floats = NDArray[np.float64]
Masks = dict[str, NDArray[np.bool_]]


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

    on_features: Single
    on_graph: Single

    def __call__(self, F: Single, S: Single | None) -> Single:
        Y: Single = F @ self.on_features
        if S is not None and len(self.on_graph):
            Y += S @ self.on_graph
        return Y

    def rotated(self, R: Floats) -> Embedding:
        return Embedding((self.on_features @ R).astype(np.float32), (self.on_graph @ R).astype(np.float32))


@storable
@dataclass
class GraphMap:
    """Graph rows of any items: anchors in every view, and in the first embedding for the latent graph."""

    anchors: dict[str, Single]
    has_anchor: Masks
    n_neighbors: int
    fusion: str
    weights: list[float]
    latent_weight: float = 0.0
    latent_anchors: Single | None = None
    first: Embedding | None = None

    def raw(
        self,
        prepared: dict[str, Single],
        present: Masks,
        graphs: list[Single] | None = None,
    ) -> Single:
        """Fused graph rows over the raw views (whose graphs may be at hand already)."""
        graphs = graphs or [
            neighbour_graph(prepared[name], self.anchors[name], self.n_neighbors, self.has_anchor[name])
            for name in self.anchors
        ]
        masks = [present[name] for name in self.anchors]
        return fuse(graphs, masks, self.weights, self.fusion)

    def __call__(
        self,
        prepared: dict[str, Single],
        present: Masks,
        F: Single,
        graphs: list[Single] | None = None,
    ) -> Single:
        S = self.raw(prepared, present, graphs)
        if self.latent_anchors is None or self.first is None:
            return S
        Y = self.first(F, S)
        latent = neighbour_graph(Y, self.latent_anchors, self.n_neighbors)
        share = self.latent_weight / (1.0 + self.latent_weight)
        return ((1.0 - share) * S + share * latent).astype(np.float32)


@storable
@dataclass
class Fitted:
    """All that encoding needs."""

    maps: dict[str, FeatureMap]
    means: dict[str, Single]  # of the features
    weights: dict[str, Floats]  # W_m (n_features x K)
    fusion_weights: dict[str, float]
    graph: GraphMap | None
    code_map: Embedding  # features and graph of a complete item -> real code

    def features(self, prepared: dict[str, Single], present: Masks) -> Single:
        """Centred features of all views side by side; zero where a view is missing."""
        return features_of(self.maps, self.means, prepared, present)

    def project(self, block: Floats, name: str) -> Floats:
        """Real code of items seen in one view."""
        F = self.maps[name](block) - self.means[name]
        return F.astype(np.float64) @ self.weights[name]

    def project_complete(self, prepared: dict[str, Single]) -> Floats:
        """Real code of items seen in every view: the very map that gave the training codes."""
        present = {name: np.ones(len(X), dtype=bool) for name, X in prepared.items()}
        F = self.features(prepared, present)
        S = self.graph(prepared, present, F) if self.graph is not None else None
        return self.code_map(F, S).astype(np.float64)


def features_of(
    maps: dict[str, FeatureMap],
    means: dict[str, Single],
    prepared: dict[str, Single],
    present: Masks,
) -> Single:
    parts = []
    for name, feature_map in maps.items():
        F = feature_map.of_prepared(prepared[name]) - means[name]
        if not present[name].all():
            F[~present[name]] = 0.0
        parts.append(F)
    return np.hstack(parts)
