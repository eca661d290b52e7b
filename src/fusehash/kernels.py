"""Feature maps on prepared views: linear, RBF similarities to anchors, or both side by side.

    phi_j(x) = exp(-||x - t_j||^2 / (width * s)),    s the median squared distance of items to anchors

A linear method on phi is a kernel method on x, at the cost of P numbers an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusehash.graph import squared_distances
from fusehash.persistence import storable
from fusehash.prepare import Preparation

Single = NDArray[np.float32]
MAPS = ("linear", "rbf", "stacked")
STACKED_WIDTHS = (0.3, 1.0, 3.0)


@storable
@dataclass(frozen=True)
class FeatureMap:
    """Preparation, then features: an optional linear part and RBF parts that share their anchors."""

    preparation: Preparation
    anchors: Single  # (P, width of the prepared view); empty for the linear map
    bandwidths: list[float]  # one RBF part each, absolute
    linear_weight: float  # 0 leaves the linear part out
    part_weight: float  # scale of each RBF part

    @classmethod
    def learn(
        cls,
        preparation: Preparation,
        prepared: Single,
        kind: str,
        width: float,
        n_anchors: int,
        rng: np.random.Generator,
    ) -> FeatureMap:
        """Anchors from a prepared sample, and the bandwidths relative to its median distance."""
        if kind == "linear":
            return cls(preparation, np.zeros((0, prepared.shape[1]), np.float32), [], 1.0, 1.0)
        widths = [width] if kind == "rbf" else [width * factor for factor in STACKED_WIDTHS]
        count = max(min(n_anchors // len(widths), len(prepared) // 2), 1)
        anchors = prepared[np.sort(rng.choice(len(prepared), count, replace=False))]
        some = prepared[: min(len(prepared), 2000)]
        median = float(np.median(squared_distances(some, anchors)))
        bandwidths = [w * (median or 1.0) for w in widths]
        if kind == "rbf":
            return cls(preparation, anchors, bandwidths, 0.0, 1.0)
        norm = float(np.sqrt(np.mean(np.einsum("ij,ij->i", some, some)))) or 1.0
        return cls(preparation, anchors, bandwidths, 1.0 / norm, float(1.0 / np.sqrt(count)))

    @property
    def n_features(self) -> int:
        linear = self.preparation.width if self.linear_weight else 0
        return linear + len(self.anchors) * len(self.bandwidths)

    def of_prepared(self, X: Single) -> Single:
        """Features of rows that are prepared already."""
        parts: list[Single] = []
        if self.linear_weight:
            parts.append(X * np.float32(self.linear_weight))
        if self.bandwidths:
            D = squared_distances(X, self.anchors)
            for bandwidth in self.bandwidths:
                part = np.exp(D * np.float32(-1.0 / bandwidth))
                parts.append(part if self.part_weight == 1.0 else part * np.float32(self.part_weight))
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def __call__(self, block: NDArray[np.float64]) -> Single:
        """Features of raw rows."""
        return self.of_prepared(self.preparation(block))
