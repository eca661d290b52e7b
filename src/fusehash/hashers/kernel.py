"""Kernel hash functions sgn(phi(x) W) on RBF similarities to anchors, and what supervised methods share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fusehash.files import storable
from fusehash.hashers.base import CrossModalHasher
from fusehash.hashers.linear import centered_matrices
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.features import map_features
from fusehash.views import Floats, PairedViews


@storable
@dataclass(frozen=True)
class RBFFeatures:
    """phi_j(x) = exp(-||x - t_j||^2 / bandwidth) - offset_j; the anchors t_j are relative to the training mean."""

    origin: Floats
    anchors: Floats  # (P, d)
    bandwidth: float
    offset: Floats  # (P,)

    def __call__(self, block: Floats) -> Floats:
        """Features of raw rows."""
        return self.of_centered(block - self.origin)

    def of_centered(self, X: Floats) -> Floats:
        """Features of rows from which the training mean was subtracted already."""
        return map_features(X, self.anchors, self.bandwidth) - self.offset

    @classmethod
    def centered(cls, X: Floats, origin: Floats, anchors: Floats) -> tuple[RBFFeatures, Floats]:
        """Bandwidth 2 sigma, sigma the mean squared distance to the anchors, and features of training mean zero.

        Also returns the features of the training rows X.
        """
        sigma = float(squared_distances(X, anchors).mean())
        plain = cls(origin, anchors, 2.0 * sigma or 1.0, np.zeros(len(anchors)))
        features = plain.of_centered(X)
        offset = features.mean(axis=0)
        return cls(origin, anchors, plain.bandwidth, offset), features - offset


class KernelHasher(CrossModalHasher):
    """A method whose hash functions are linear in RBF features: `weights_[view]` is W_m (P x K)."""

    quadratic: ClassVar[bool] = False

    features_: dict[str, RBFFeatures]
    weights_: dict[str, Floats]

    def _project_block(self, block: Floats, view: str) -> Floats:
        return self.features_[view](block) @ self.weights_[view]


def anchor_features(
    views: PairedViews, n_anchors: int, rng: np.random.Generator
) -> tuple[dict[str, RBFFeatures], dict[str, Floats]]:
    """Centered RBF similarities to the same random training rows in every view: the maps, and those of the rows."""
    X, means = centered_matrices(views)
    rows = np.sort(rng.choice(views.n_rows, min(n_anchors, views.n_rows), replace=False))
    both = {name: RBFFeatures.centered(x, means[name], x[rows]) for name, x in X.items()}
    return {name: rbf for name, (rbf, _) in both.items()}, {name: phi for name, (_, phi) in both.items()}


def label_cosines(labels: Floats) -> Floats:
    """Rows of labels scaled to unit length: L L' holds the cosines. A row without labels stays zero."""
    norms = np.linalg.norm(labels, axis=1, keepdims=True)
    return labels / np.where(norms > 0.0, norms, 1.0)


def balanced_codes(n_rows: int, n_bits: int, rng: np.random.Generator) -> Floats:
    """Random codes in which every bit is +1 for half of the rows."""
    half = np.where(np.arange(n_rows) < n_rows // 2, 1.0, -1.0)
    return rng.permuted(np.tile(half[:, None], n_bits), axis=0)
