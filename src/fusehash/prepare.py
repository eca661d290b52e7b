"""Raw features of any kind -> comparable ones, so that a user passes them as they are.

    histogram   rows of non-negative numbers with (nearly) equal sums: square root, so that Euclidean distance is
                Hellinger distance
    bag         non-negative and mostly zero (0/1 tags, counts, tf-idf): square root, rows scaled to unit length
    dense       anything else: every column to mean 0 and variance 1; constant columns vanish

Views wider than `MAX_WIDTH` are then cut to their leading principal components, found on a sample of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fusehash.hashers.persistence import storable

Single = NDArray[np.float32]
MAX_WIDTH = 512
EXACT_SIDE = 1200


@storable
@dataclass(frozen=True)
class Preparation:
    """How one view is made comparable; learned from a sample of its rows."""

    kind: str
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    components: Single | None  # (d, MAX_WIDTH), or None where the view is narrow

    @classmethod
    def learn(cls, sample: NDArray[np.float64], kind: str = "auto") -> Preparation:
        """Choose the kind by looking at the sample (unless given) and learn its numbers."""
        kind = kind_of(sample) if kind == "auto" else kind
        raw = cls(kind, np.zeros(1), np.ones(1), None)
        changed = raw._transform(np.asarray(sample, dtype=np.float64))
        mean = changed.mean(axis=0)
        if kind == "dense":
            size = np.abs(changed).max(axis=0)
            size[size == 0.0] = 1.0
            spread = (changed / size).std(axis=0) * size  # in units of its size, so that no square overflows
            scale = np.where(spread > 1e-10 * np.abs(mean), spread, np.inf)  # constant up to rounding
        else:
            scale = np.ones_like(mean)
        centred = (changed - mean) / scale
        components = leading_components(centred, MAX_WIDTH) if centred.shape[1] > MAX_WIDTH else None
        return cls(kind, mean, scale, components)

    def _transform(self, block: NDArray[Any]) -> NDArray[Any]:
        if self.kind == "dense":
            return block
        rooted = np.sqrt(np.maximum(block, 0))
        if self.kind == "histogram":
            return rooted
        norms = np.linalg.norm(rooted, axis=1, keepdims=True)
        return rooted / np.where(norms > 0, norms, 1)

    def __call__(self, block: NDArray[np.float64]) -> Single:
        """Prepared rows, centred on the sample's mean."""
        # Centre in double precision: a large offset would eat the digits of single precision.
        changed = ((self._transform(block) - self.mean) / self.scale).astype(np.float32)
        return changed if self.components is None else changed @ self.components

    @property
    def width(self) -> int:
        """Columns that come out."""
        return len(self.mean) if self.components is None else int(self.components.shape[1])


def kind_of(sample: NDArray[np.float64]) -> str:
    """Histogram, bag or dense; see the top of this file."""
    if sample.min() < 0:
        return "dense"
    sums = sample.sum(axis=1)
    if (sums > 0).all() and sums.std() <= 0.02 * sums.mean() and sample.shape[1] > 2:
        return "histogram"
    return "bag" if np.mean(sample == 0) > 0.5 else "dense"


def leading_components(centred: NDArray[np.float64], width: int) -> Single:
    """Directions of largest variance: exactly where the smaller side allows it, else by randomised SVD."""
    n, d = centred.shape
    width = min(width, n - 1, d)
    if min(n, d) > EXACT_SIDE:
        from sklearn.utils.extmath import randomized_svd

        _, _, Vt = randomized_svd(centred.astype(np.float32), width, n_iter=2, random_state=0)
        return np.ascontiguousarray(Vt.T).astype(np.float32)
    if d <= n:
        _, V = eigh(centred.T @ centred, subset_by_index=[d - width, d - 1])
        return np.ascontiguousarray(V[:, ::-1]).astype(np.float32)
    w, U = eigh(centred @ centred.T, subset_by_index=[n - width, n - 1])
    keep = w > 1e-10 * w[-1]
    return np.ascontiguousarray((centred.T @ (U[:, keep] / np.sqrt(w[keep])))[:, ::-1]).astype(np.float32)
