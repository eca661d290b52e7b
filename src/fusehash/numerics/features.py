"""Features of a view: raw ones made comparable (`Preparation`), then mapped (`FeatureMap`).

A preparation treats four kinds of features, so that you pass them as they are:

    histogram   non-negative rows with (nearly) equal sums: square root, so that distance is Hellinger distance
    bag         non-negative and mostly zero (0/1 tags, counts, tf-idf): square root, rows scaled to unit length
    embedding   rows of (nearly) equal length (CLIP), or columns in order of their size (principal components, LSA):
                centered, all columns divided by one number, because their relative sizes are information
    dense       anything else: every column to mean 0 and variance 1; constant columns vanish

Views wider than `MAX_WIDTH` are then cut to their leading principal components, learned from a sample of rows.

A feature map is linear, or RBF similarities to anchors t_j:

    phi_j(x) = exp(-||x - t_j||^2 / (width * s)),    s the median squared distance of items to anchors
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusehash.files import storable
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.arrays import Array, cast, host, namespace, precision, squares, take_rows, to_device_of, top_eigh

Rng = np.random.Generator
MAPS = ("linear", "rbf")
MAX_WIDTH = 512
EXACT_SIDE = 1200
EMBEDDING_WIDTH = 8
MIN_VARIED = 0.01  # share of the squared length that must not be the mean's
MIN_SORTED = 0.98  # rank correlation of a column's number and size


@storable
@dataclass(frozen=True)
class Preparation:
    """How one view is made comparable; learned from a sample of its rows."""

    kind: str
    mean: Array
    scale: Array
    components: Array | None  # (d, MAX_WIDTH), or None where the view is narrow
    dtype: str = "float32"  # of what comes out

    @classmethod
    def learn(cls, sample: Array, kind: str = "auto", dtype: str = "float32") -> Preparation:
        """Choose the kind by looking at the sample (unless given) and learn its numbers."""
        xp = namespace(sample)
        sample = cast(sample, "float64")
        kind = kind_of(sample) if kind == "auto" else kind
        changed = transformed(sample, kind)
        mean = xp.mean(changed, axis=0)
        scale = xp.ones_like(mean)
        if kind in ("dense", "embedding"):
            size = xp.max(xp.abs(changed), axis=0)
            size = xp.where(size == 0.0, scale, size)
            spread = xp.std(changed / size, axis=0) * size  # in units of its size, so that no square overflows
            varies = spread > 1e-10 * xp.abs(mean)  # else constant up to rounding
            if kind == "embedding":
                unit = largest if (largest := float(xp.max(spread))) > 1e100 else 1.0  # or squares would overflow
                spread = scale * (unit * float(xp.mean((spread / unit) ** 2)) ** 0.5 or 1.0)
            scale = xp.where(varies, spread, scale * np.inf)
        centered = (changed - mean) / scale
        components = cast(leading_components(centered, MAX_WIDTH), dtype) if centered.shape[1] > MAX_WIDTH else None
        return cls(kind, mean, scale, components, dtype)

    def __call__(self, block: Array) -> Array:
        """Prepared rows, centered on the sample's mean."""
        # Center in double precision: a large offset would eat the digits of single precision.
        changed = cast((transformed(block, self.kind) - self.mean) / self.scale, self.dtype)
        return changed if self.components is None else changed @ self.components

    @property
    def width(self) -> int:
        """Columns that come out."""
        return len(self.mean) if self.components is None else int(self.components.shape[1])


def transformed(block: Array, kind: str) -> Array:
    """Square roots of what counts, as unit rows for bags; everything else as it is."""
    if kind in ("dense", "embedding"):
        return block
    xp = namespace(block)
    rooted = xp.sqrt(xp.clip(block, 0.0, None))
    if kind == "histogram":
        return rooted
    norms = xp.sqrt(squares(rooted))[:, None]
    return rooted / xp.where(norms > 0, norms, xp.ones_like(norms))


def kind_of(sample: Array) -> str:
    """Histogram, bag, embedding or dense; see the top of this file."""
    xp = namespace(sample)
    if float(xp.min(sample)) >= 0:
        sums = host(xp.sum(sample, axis=1))
        if (sums > 0).all() and sums.std() <= 0.02 * sums.mean() and sample.shape[1] > 2:
            return "histogram"
        if float(xp.mean(cast(sample == 0, precision(sample)))) > 0.5:
            return "bag"
    return "embedding" if _is_embedding(sample) else "dense"


def _is_embedding(sample: Array) -> bool:
    """Rows of equal length, or columns sorted by size; of few columns either can be chance."""
    xp = namespace(sample)
    largest = float(xp.max(xp.abs(sample)))
    if sample.shape[1] < EMBEDDING_WIDTH or largest == 0.0:
        return False
    scaled = sample / largest
    lengths = np.sqrt(host(squares(scaled)))
    offset = float(np.sum(host(xp.mean(scaled, axis=0)) ** 2))
    far = offset > (1.0 - MIN_VARIED) * np.mean(lengths**2)  # length is offset alone
    if lengths.std() <= 0.02 * lengths.mean() and not far:
        return True
    sizes = host(xp.mean(scaled * scaled, axis=0))
    ranks = np.argsort(np.argsort(-sizes, kind="stable"))
    return bool(np.corrcoef(np.arange(len(ranks)), ranks)[0, 1] > MIN_SORTED)


def leading_components(centered: Array, width: int) -> Array:
    """Directions of largest variance: exactly where the smaller side allows it, else by randomized SVD."""
    xp = namespace(centered)
    n, d = centered.shape
    width = min(width, n - 1, d)
    if min(n, d) > EXACT_SIDE:
        from sklearn.utils.extmath import randomized_svd

        _, _, Vt = randomized_svd(host(cast(centered, "float32")), width, n_iter=2, random_state=0)
        return to_device_of(np.ascontiguousarray(Vt.T), centered)
    if d <= n:
        return top_eigh(centered.T @ centered, width)[1]
    w, U = top_eigh(centered @ centered.T, width)
    keep = w > 1e-10 * w[0]
    return centered.T @ (U[:, keep] / xp.sqrt(w[keep]))


def rbf_features(X: Array, anchors: Array, bandwidth: float) -> Array:
    """exp(-||x - t_j||^2 / bandwidth) of every row x and anchor t_j; X itself if the bandwidth is 0."""
    if not bandwidth:
        return X
    D = squared_distances(X, anchors)
    D *= float(-1.0 / bandwidth)
    return np.exp(D, out=D) if isinstance(D, np.ndarray) else namespace(D).exp(D)


@storable
@dataclass(frozen=True)
class FeatureMap:
    """Preparation, then the features of a view: as prepared, or RBF similarities to anchors."""

    preparation: Preparation
    anchors: Array  # (P, width of the prepared view); empty for the linear map
    bandwidth: float  # absolute; 0 for the linear map

    @classmethod
    def learn(
        cls, preparation: Preparation, prepared: Array, kind: str, width: float, n_anchors: int, rng: Rng
    ) -> FeatureMap:
        """Anchors from a prepared sample, and the bandwidth relative to its median distance."""
        if kind == "linear":
            return cls(preparation, take_rows(prepared, []), 0.0)
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
        return rbf_features(X, self.anchors, self.bandwidth)

    def __call__(self, block: Array) -> Array:
        """Features of raw rows."""
        return self.of_prepared(self.preparation(block))


def median_of(D: Array) -> float:
    """The median entry; of a large matrix on a device only the entry itself travels."""
    if isinstance(D, np.ndarray):
        return float(np.median(D))
    ordered = namespace(D).sort(namespace(D).reshape(D, (-1,)))
    middle = len(ordered) // 2
    return float(ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
