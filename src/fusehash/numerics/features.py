"""Features of a view: raw ones made comparable (`Preparation`), then mapped (`FeatureMap`).

A preparation treats five kinds of features, so that you pass them as they are:

    histogram   non-negative rows with (nearly) equal sums: square root, so that distance is Hellinger distance
    bag         non-negative and mostly zero (0/1 tags, counts, tf-idf): square root, rows scaled to unit length
    signed bag  sparse with both signs (hashed words): the same, with the signs kept
    embedding   rows of (nearly) equal length (CLIP), or columns in order of their size (principal components, LSA):
                centered, all columns divided by one number, because their relative sizes are information
    unit        rows scaled to unit length and centered; only where a caller asks for it
    dense       anything else: every column to mean 0 and variance 1; constant columns vanish

A preparation learns at most a mean and a scale per column. It does not cut a wide view to leading components: with few
rows these fit the rows that they were learned from, new rows lose length outside of them, and all their similarities,
and so their codes, move the same way. Bags wider than `MAX_WIDTH` stay sparse, so that any width fits into memory.
Their columns may have weights (`fusehash.numerics.word_weights`), which count before rows are scaled to unit length.

A feature map is RBF similarities to anchors t_j, or linear: the prepared columns, or inner products with the anchors
for views wider than `MAX_WIDTH`:

    phi_j(x) = exp(-||x - t_j||^2 / (width * s)),    s the median squared distance of items to anchors
    phi_j(x) = x_j,   or   phi_j(x) = <x, t_j>
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.files import storable
from fusehash.numerics.anchors import CenteredAnchors, squared_distances
from fusehash.numerics.arrays import Array, cast, host, namespace, precision, squares, take_rows, to_dense
from fusehash.numerics.memory import check_memory
from fusehash.numerics.sparse import MOSTLY, NEARLY_ALL, SparseRows

Rng = np.random.Generator
MAPS = ("linear", "rbf")
MAX_WIDTH = 512
BAGS = ("histogram", "bag", "signed bag")  # kinds that map zero to zero
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
    components: Array | None  # of models that an earlier version learned; else None
    dtype: str = "float32"  # of what comes out
    sparse_width: int = 0  # columns of a bag that stays sparse; 0: what comes out is dense
    word_weights: Array | None = None  # of the columns of a bag that stays sparse, if they are not all the same

    def __post_init__(self) -> None:
        """Raise ValueError if the weights, which may come from a file, do not fit the columns."""
        if self.word_weights is not None and np.shape(self.word_weights) != (self.sparse_width,):
            raise ValueError("not one weight per column")

    @classmethod
    def learn(cls, sample: Array, kind: str = "auto", dtype: str = "float32") -> Preparation:
        """Choose the kind by looking at the sample (unless given) and learn its numbers."""
        sample = canonical(sample) if sp.issparse(sample) else sample
        kind = kind_of(sample) if kind == "auto" else kind
        width = int(sample.shape[1])
        on_host = sp.issparse(sample) or isinstance(sample, np.ndarray)
        if kind in BAGS and width > MAX_WIDTH and on_host and share_of_zeros(sample) > MOSTLY:
            return cls(kind, np.zeros(0), np.ones(0), None, dtype, width)
        if sp.issparse(sample):
            check_memory("Views", f"{sample.shape[0]:,} dense rows of {width:,} features", 24 * sample.shape[0] * width)
        sample = to_dense(sample)
        xp = namespace(sample)
        sample = cast(sample, "float64")
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
        return cls(kind, mean, scale, None, dtype)

    def __call__(self, block: Array) -> Array:
        """Prepared rows of a dense or sparse block: centered on the sample's mean, or SparseRows."""
        if self.sparse_width:
            return SparseRows.of(transformed(canonical(block), self.kind, self.word_weights))
        block = to_dense(block)
        # Center in double precision: a large offset would eat the digits of single precision.
        changed = cast((transformed(block, self.kind) - self.mean) / self.scale, self.dtype)
        return changed if self.components is None else changed @ self.components

    @property
    def width(self) -> int:
        """Columns that come out."""
        return self.sparse_width or (len(self.mean) if self.components is None else int(self.components.shape[1]))


def transformed(block: Array, kind: str, word_weights: Array | None = None) -> Array:
    """Square roots of what counts, as unit rows for bags; everything else as it is. Weights are for sparse bags."""
    if kind in ("dense", "embedding"):
        return block
    if kind == "unit":
        return unit_rows(to_dense(block))
    if sp.issparse(block):
        rooted = block.copy()
        rooted.data = _rooted(block.data, kind)
        if word_weights is not None:
            rooted.data *= word_weights[rooted.indices]
        norms = np.sqrt(np.asarray(rooted.multiply(rooted).sum(axis=1)).ravel()) if kind != "histogram" else None
        if norms is not None:
            rooted.data /= np.repeat(np.where(norms > 0, norms, 1.0), np.diff(rooted.indptr))
        return rooted
    xp = namespace(block)
    rooted = _rooted(block, kind)
    if kind == "histogram":
        return rooted
    norms = xp.sqrt(squares(rooted))[:, None]
    return rooted / xp.where(norms > 0, norms, xp.ones_like(norms))


def unit_rows(X: Array) -> Array:
    """Rows scaled to unit length; a row of zeros stays."""
    xp = namespace(X)
    largest = xp.max(xp.abs(X), axis=1, keepdims=True)
    scaled = X / xp.where(largest > 0.0, largest, xp.ones_like(largest))  # squares then neither overflow nor vanish
    lengths = xp.sqrt(squares(scaled))[:, None]
    return scaled / xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))


def canonical(block: Any) -> Any:
    """A sparse or dense block as csr_array with one entry per cell."""
    matrix = sp.csr_array(block, dtype=np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def _rooted(values: Array, kind: str) -> Array:
    xp = namespace(values)
    if kind == "signed bag":
        return xp.sign(values) * xp.sqrt(xp.abs(values))
    return xp.sqrt(xp.clip(values, 0.0, None))


def share_of_zeros(sample: Array) -> float:
    if sp.issparse(sample):
        return 1.0 - np.count_nonzero(sample.data) / max(sample.shape[0] * sample.shape[1], 1)
    return float(namespace(sample).mean(cast(sample == 0, precision(sample))))


def kind_of(sample: Array) -> str:
    """Histogram, bag, signed bag, embedding or dense; see the top of this file."""
    is_sparse = sp.issparse(sample)
    xp = np if is_sparse else namespace(sample)
    if float(sample.min() if is_sparse else xp.min(sample)) >= 0:
        sums = np.asarray(sample.sum(axis=1)).ravel() if is_sparse else host(xp.sum(sample, axis=1))
        if (sums > 0).all() and sums.std() <= 0.02 * sums.mean() and sample.shape[1] > 2:
            return "histogram"
        if share_of_zeros(sample) > MOSTLY:
            return "bag"
    elif is_sparse and share_of_zeros(sample) > NEARLY_ALL:
        return "signed bag"
    return "embedding" if _is_embedding(to_dense(sample)) else "dense"


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


def map_features(X: Array, anchors: Array, bandwidth: float, centered: CenteredAnchors | None = None) -> Array:
    """RBF similarities of prepared rows to anchors; of bandwidth 0, inner products, or without anchors X itself.

    `centered` are the anchors as `CenteredAnchors`, if the caller keeps them for many blocks.
    """
    if not bandwidth and not len(anchors):
        return X
    if not bandwidth:
        return X.products(anchors) if isinstance(X, SparseRows) else X @ anchors.T
    D = squared_distances(X, anchors, centered)
    D *= float(-1.0 / bandwidth)
    return np.exp(D, out=D) if isinstance(D, np.ndarray) else namespace(D).exp(D)


@storable
@dataclass(frozen=True)
class FeatureMap:
    """Preparation, then the features of a view: as prepared, or RBF similarities or products with anchors."""

    preparation: Preparation
    anchors: Array  # (P, width of the prepared view); empty for the linear map of a narrow view
    bandwidth: float  # absolute; 0 for the linear map

    @classmethod
    def learn(
        cls, preparation: Preparation, prepared: Array, kind: str, width: float, n_anchors: int, rng: Rng
    ) -> FeatureMap:
        """Anchors from a prepared sample, and the bandwidth relative to its median distance."""
        if kind == "linear" and preparation.width <= MAX_WIDTH:
            return cls(preparation, take_rows(prepared, []), 0.0)
        count = min(n_anchors, len(prepared))
        anchors = take_rows(prepared, np.sort(rng.choice(len(prepared), count, replace=False)))
        if isinstance(anchors, np.ndarray) and 2 * len(np.unique(anchors.sum(axis=1))) < len(anchors):
            different = np.sort(np.unique(anchors, axis=0, return_index=True)[1])
            # Of few different rows, repeated anchors would be the same column again and again.
            anchors = anchors[different] if 2 * len(different) < len(anchors) else anchors
        if kind == "linear":
            return cls(preparation, anchors, 0.0)
        median = median_of(squared_distances(prepared[: min(len(prepared), 2000)], anchors))
        return cls(preparation, anchors, width * (median or 1.0))

    @classmethod
    def revive(cls, bandwidths: list[float], **fields: Any) -> FeatureMap:
        """A map of model format 1, which held a list of bandwidths and two weights."""
        return cls(fields["preparation"], fields["anchors"], bandwidths[0] if bandwidths else 0.0)

    @property
    def n_features(self) -> int:
        return len(self.anchors) or self.preparation.width

    @property
    def dtype(self) -> str:
        return self.preparation.dtype

    @cached_property
    def centered(self) -> CenteredAnchors | None:
        """The anchors, centered once and not for every block of rows; None where no distances are needed."""
        if not self.bandwidth or isinstance(self.anchors, SparseRows):
            return None
        return CenteredAnchors.of(self.anchors, namespace(self.anchors))

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is cached

    def of_prepared(self, X: Array) -> Array:
        """Features of rows that are prepared already."""
        return cast(map_features(X, self.anchors, self.bandwidth, self.centered), self.dtype)

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
