"""Feature maps on prepared views: linear, or RBF similarities to anchors.

    phi_j(x) = exp(-||x - t_j||^2 / (width * s)),    s the median squared distance of items to anchors

A linear method on phi is a kernel method on x, at the cost of P numbers per item.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusehash.files import storable
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.arrays import Array, namespace, precision, take_rows, zeros
from fusehash.numerics.features import Preparation

MAPS = ("linear", "rbf")


@storable
@dataclass(frozen=True)
class FeatureMap:
    """Preparation, then the features of a view: as prepared, or RBF similarities to anchors."""

    preparation: Preparation
    anchors: Array  # (P, width of the prepared view); empty for the linear map
    bandwidth: float  # absolute; 0 for the linear map

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
        """Anchors from a prepared sample, and the bandwidth relative to its median distance."""
        if kind == "linear":
            return cls(preparation, zeros((0, prepared.shape[1]), prepared, precision(prepared)), 0.0)
        count = max(min(n_anchors, len(prepared) // 2), 1)
        anchors = take_rows(prepared, np.sort(rng.choice(len(prepared), count, replace=False)))
        median = median_of(squared_distances(prepared[: min(len(prepared), 2000)], anchors))
        return cls(preparation, anchors, width * (median or 1.0))

    @classmethod
    def revive(cls, bandwidths: list[float], **fields: Any) -> FeatureMap:
        """A map of model format 1, which held a list of bandwidths and two weights."""
        return cls(fields["preparation"], fields["anchors"], bandwidths[0] if bandwidths else 0.0)

    @property
    def n_features(self) -> int:
        return len(self.anchors) if self.bandwidth else self.preparation.width

    def of_prepared(self, X: Array) -> Array:
        """Features of rows that are prepared already."""
        if not self.bandwidth:
            return X
        return namespace(X).exp(squared_distances(X, self.anchors) * float(-1.0 / self.bandwidth))

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
