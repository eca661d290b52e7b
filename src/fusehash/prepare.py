"""Raw features of any kind -> comparable ones, so that a user passes them as they are.

    histogram   rows of non-negative numbers with (nearly) equal sums: square root, so that Euclidean distance is
                Hellinger distance
    bag         non-negative and mostly zero (0/1 tags, counts, tf-idf): square root, rows scaled to unit length
    embedding   rows of (nearly) equal length (CLIP, normalised features), or columns in order of their size (principal
                components, LSA): centred, all columns divided by one number. Their relative sizes are information, and
                a column that hardly varies must not be blown up: new items, such as short queries, would go astray
    dense       anything else: every column to mean 0 and variance 1; constant columns vanish

Views wider than `MAX_WIDTH` are then cut to their leading principal components, found on a sample of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from fusehash.persistence import storable

Single = NDArray[np.float32]
MAX_WIDTH = 512
EXACT_SIDE = 1200
EMBEDDING_WIDTH = 8
VARIED = 0.01  # share of the squared length that must not be the mean's
SORTED = 0.98  # rank correlation of a column's place and size


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
        if kind in ("dense", "embedding"):
            size = np.abs(changed).max(axis=0)
            size[size == 0.0] = 1.0
            spread = (changed / size).std(axis=0) * size  # in units of its size, so that no square overflows
            varies = spread > 1e-10 * np.abs(mean)  # else constant up to rounding
            if kind == "embedding":
                spread = np.full_like(spread, np.sqrt(np.mean(spread**2)) or 1.0)
            scale = np.where(varies, spread, np.inf)
        else:
            scale = np.ones_like(mean)
        centred = (changed - mean) / scale
        components = leading_components(centred, MAX_WIDTH) if centred.shape[1] > MAX_WIDTH else None
        return cls(kind, mean, scale, components)

    def _transform(self, block: NDArray[Any]) -> NDArray[Any]:
        if self.kind in ("dense", "embedding"):
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
    """Histogram, bag, embedding or dense; see the top of this file."""
    if sample.min() >= 0:
        sums = sample.sum(axis=1)
        if (sums > 0).all() and sums.std() <= 0.02 * sums.mean() and sample.shape[1] > 2:
            return "histogram"
        if np.mean(sample == 0) > 0.5:
            return "bag"
    return "embedding" if _is_embedding(sample) else "dense"


def _is_embedding(sample: NDArray[np.float64]) -> bool:
    """Rows of equal length, or columns sorted by size; of few columns either can be chance."""
    largest = float(np.abs(sample).max())
    if sample.shape[1] < EMBEDDING_WIDTH or largest == 0.0:
        return False
    squares = (sample / largest) ** 2
    lengths = np.sqrt(squares.sum(axis=1))
    far = np.sum((sample / largest).mean(axis=0) ** 2) > (1.0 - VARIED) * np.mean(lengths**2)  # length is offset alone
    if lengths.std() <= 0.02 * lengths.mean() and not far:
        return True
    places = np.argsort(np.argsort(-squares.mean(axis=0), kind="stable"))
    return bool(np.corrcoef(np.arange(len(places)), places)[0, 1] > SORTED)


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
