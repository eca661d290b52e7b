"""Feature maps on prepared views: linear, RBF similarities to anchors, or both side by side.

    phi_j(x) = exp(-||x - t_j||^2 / (width * s)),    s the median squared distance of items to anchors

A linear method on phi is a kernel method on x, at the cost of P numbers an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusehash.arrays import Array, host, namespace, precision, squares, take_rows, zeros
from fusehash.graph import squared_distances
from fusehash.persistence import storable
from fusehash.prepare import Preparation

MAPS = ("linear", "rbf", "stacked")
STACKED_WIDTHS = (0.3, 1.0, 3.0)


@storable
@dataclass(frozen=True)
class FeatureMap:
    """Preparation, then features: an optional linear part and RBF parts that share their anchors."""

    preparation: Preparation
    anchors: Array  # (P, width of the prepared view); empty for the linear map
    bandwidths: list[float]  # one RBF part each, absolute
    linear_weight: float  # 0 leaves the linear part out
    part_weight: float  # scale of each RBF part

    @classmethod
    def learn(
        cls,
        preparation: Preparation,
        prepared: Array,
        kind: str,
        width: float,
        n_anchors: int,
        rng: np.random.Generator,
    ) -> FeatureMap:
        """Anchors from a prepared sample, and the bandwidths relative to its median distance."""
        if kind == "linear":
            return cls(preparation, zeros((0, prepared.shape[1]), prepared, precision(prepared)), [], 1.0, 1.0)
        widths = [width] if kind == "rbf" else [width * factor for factor in STACKED_WIDTHS]
        count = max(min(n_anchors // len(widths), len(prepared) // 2), 1)
        anchors = take_rows(prepared, np.sort(rng.choice(len(prepared), count, replace=False)))
        some = prepared[: min(len(prepared), 2000)]
        median = median_of(squared_distances(some, anchors))
        bandwidths = [w * (median or 1.0) for w in widths]
        if kind == "rbf":
            return cls(preparation, anchors, bandwidths, 0.0, 1.0)
        norm = float(np.sqrt(np.mean(host(squares(some))))) or 1.0
        return cls(preparation, anchors, bandwidths, 1.0 / norm, float(1.0 / np.sqrt(count)))

    @property
    def n_features(self) -> int:
        linear = self.preparation.width if self.linear_weight else 0
        return linear + len(self.anchors) * len(self.bandwidths)

    def of_prepared(self, X: Array) -> Array:
        """Features of rows that are prepared already."""
        xp = namespace(X)
        parts: list[Array] = []
        if self.linear_weight:
            parts.append(X if self.linear_weight == 1.0 else X * float(self.linear_weight))
        if self.bandwidths:
            D = squared_distances(X, self.anchors)
            for bandwidth in self.bandwidths:
                part = xp.exp(D * float(-1.0 / bandwidth))
                parts.append(part if self.part_weight == 1.0 else part * float(self.part_weight))
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=1)

    def __call__(self, block: Array) -> Array:
        """Features of raw rows."""
        return self.of_prepared(self.preparation(block))


def median_of(D: Array) -> float:
    """The median entry; of a large matrix on a device only the entry itself travels."""
    if isinstance(D, np.ndarray):
        return float(np.median(D))
    xp = namespace(D)
    ordered = xp.sort(xp.reshape(D, (-1,)))
    middle = ordered.shape[0] // 2
    return float(ordered[middle] if ordered.shape[0] % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
