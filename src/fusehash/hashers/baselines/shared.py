"""What several baselines share: centered matrices, joint features of a factorization, RBF features, label rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.files import storable
from fusehash.hashers.linear import check_size, check_varies, gram_sums
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.parallel import map_blocks
from fusehash.parameters import rng_for
from fusehash.views import Floats, PairedViews


def centered_matrices(views: PairedViews) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Every view as one dense matrix minus its mean, and the means; for methods whose steps need all rows at once."""
    means, centered = {}, {}
    for name in views:
        X = views.block(name, slice(None))
        means[name] = _checked_mean(name, X)
        centered[name] = X - means[name]
    return centered, means


def check_variation(views: PairedViews) -> None:
    """Raise DataError if a view is constant or too large, for methods that go on with scaled rows or some rows."""
    for name in views:
        _checked_mean(name, views.block(name, slice(None)))


def _checked_mean(name: str, X: Floats) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = X.mean(axis=0), X.var(axis=0)
    check_size(name, len(X) * variance)
    check_varies(name, mean, variance)
    return np.asarray(mean)


class JointFeatures:
    """All centered features and the random starts of the factors, side by side in one matrix that is never held whole.

    A factor V = [X_1 ... X_M, starts] A is held as its coefficients A; `gram` is all that the products of such factors
    need. `span` says which columns belong to a view or a start.
    """

    def __init__(self, views: PairedViews, means: dict[str, Floats], starts: dict[str, int], seed: int) -> None:
        self.views, self.means, self.starts, self._seed = views, means, starts, seed
        widths = {**views.n_features, **{f"start {name}": width for name, width in starts.items()}}
        cuts = np.cumsum([0, *widths.values()])
        self.span = {name: slice(int(a), int(b)) for name, (a, b) in zip(widths, pairwise(cuts), strict=True)}
        self.gram = np.zeros((cuts[-1], cuts[-1]))
        self.n_threads: int | None = None

    @classmethod
    def of(cls, views: PairedViews, starts: dict[str, int], seed: int, n_threads: int | None) -> JointFeatures:
        """Means in one pass over the data, the Gram matrix in a second; `starts` maps a factor to its columns."""
        means = {name: total.mean for name, total in gram_sums(views, n_threads).items()}
        data = cls(views, means, starts, seed)
        data.n_threads = n_threads
        for part in data.map_blocks(lambda block: block.T @ block):
            data.gram += part
        return data

    def map_blocks(self, work: Any) -> Any:
        """work(rows of the matrix) for all row blocks, in order."""
        return map_blocks(lambda rows: work(self.block(rows)), self.views.blocks(), self.n_threads)

    def block(self, rows: slice) -> Floats:
        """Some rows: the centered views, then starts from U(0, 1), the same ones whenever the block is asked for."""
        parts = [self.views.block(name, rows) - self.means[name] for name in self.views]
        rng = rng_for(self._seed, f"start {rows.start}")
        return np.hstack([*parts, *(rng.random((len(parts[0]), width)) for width in self.starts.values())])

    def start(self, name: str) -> Floats:
        """The coefficients of the random start of a factor."""
        return np.eye(len(self.gram))[:, self.span[f"start {name}"]]

    def residual(self, name: str, A: Floats, U: Floats) -> float:
        """||X_m - V U'||^2 for V given by A."""
        span = self.span[name]
        fitted = np.sum((A.T @ self.gram @ A) * (U.T @ U))
        explained = 2.0 * np.sum((self.gram[span] @ A) * U) - fitted
        return max(float(np.trace(self.gram[span, span]) - explained), 0.0)


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
        D = squared_distances(X, self.anchors)
        D *= -1.0 / self.bandwidth
        return np.exp(D, out=D) - self.offset

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


def label_cosines(labels: Floats) -> Floats:
    """Rows of labels scaled to unit length: L L' holds the cosines. A row without labels stays zero."""
    norms = np.linalg.norm(labels, axis=1, keepdims=True)
    return labels / np.where(norms > 0.0, norms, 1.0)


def k_means(X: Floats, n_clusters: int, rng: np.random.Generator, max_iter: int = 100) -> Floats:
    """Centers of k-means (Lloyd) from random distinct rows; a center that loses all its rows stays where it was.

    One thread, so that equal seed and data give equal centers on any machine.
    """
    n = len(X)
    centers = X[np.sort(rng.choice(n, n_clusters, replace=False))]
    nearest = np.full(n, -1)
    for _ in range(max_iter):
        before, nearest = nearest, np.argmin(squared_distances(X, centers), axis=1)
        if np.array_equal(before, nearest):
            break
        members = sp.csr_matrix((np.ones(n), (nearest, np.arange(n))), shape=(n_clusters, n))
        counts = np.bincount(nearest, minlength=n_clusters)[:, None]
        centers = np.where(counts > 0, (members @ X) / np.maximum(counts, 1), centers)
    return centers


def anchor_features(
    views: PairedViews, n_anchors: int, rng: np.random.Generator
) -> tuple[dict[str, RBFFeatures], dict[str, Floats]]:
    """Centered RBF similarities to the same random training rows in every view: the maps, and those of the rows."""
    X, means = centered_matrices(views)
    rows = np.sort(rng.choice(views.n_rows, min(n_anchors, views.n_rows), replace=False))
    both = {name: RBFFeatures.centered(x, means[name], x[rows]) for name, x in X.items()}
    return {name: rbf for name, (rbf, _) in both.items()}, {name: phi for name, (_, phi) in both.items()}


def balanced_codes(n_rows: int, n_bits: int, rng: np.random.Generator) -> Floats:
    """Random codes in which every bit is +1 for half of the rows."""
    half = np.where(np.arange(n_rows) < n_rows // 2, 1.0, -1.0)
    return rng.permuted(np.tile(half[:, None], n_bits), axis=0)
