"""What is measured on held-out rows, without labels: partners, neighbors, live bits, evenness.

partners     mean of -log(r / n), r the rank of the true partner among n: are the views aligned? The query is real
             and the database binary, which is less noisy than two codes.
neighbors    MAP@50, by Hamming distance, of finding items that are near in every view at once (`NearItems`), from
             each view among the codes of each other view and among the fused codes: do neighborhoods survive?
live bits    share of the bits that tell rows apart. Bits that are nearly constant count as missing, and codes that
             are nearly all the same, for rows that are not, as no bits: a collapse.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.errors import warn
from fusehash.evaluation import Relevance
from fusehash.numerics.anchors import squared_distances
from fusehash.numerics.arrays import Array
from fusehash.numerics.sparse import SparseRows
from fusehash.views import Floats

# A bit of held-out rows whose mean is beyond MAX_MEAN tells nothing apart. Codes collapse if no bit is left, or if they
# have less than this share of distinct codes per distinct row.
MAX_MEAN, MIN_DISTINCT = 0.8, 0.1
MIN_EVENNESS = 0.8  # of held-out codes relative to learned ones, below which `fit` warns


def partner_rank(queries: Floats, codes: bits.Codes) -> float:
    """Mean of -log(r / n), with r the rank of a row's partner for a real-valued query over binary codes."""
    scores = queries @ bits.unpack(codes, queries.shape[1]).T
    own = np.diagonal(scores)[:, None]
    ranks = np.sum(scores > own, axis=1) + 0.5 * np.sum(scores == own, axis=1)
    return float(-np.mean(np.log(ranks / len(ranks))))


def live_share(codes: bits.Codes, n_bits: int, n_distinct: int) -> float:
    """Share of the bits that tell rows apart, `n_distinct` of which are different; 0 is a collapse."""
    if len(np.unique(codes, axis=0)) < MIN_DISTINCT * n_distinct:
        return 0.0
    means = np.mean(bits.unpack(codes, n_bits), axis=0, dtype=np.float64)
    return float(np.mean(np.abs(means) <= MAX_MEAN))


def count_distinct(X: Array) -> int:
    """How many different rows there are."""
    if isinstance(X, SparseRows):
        rows = (slice(a, b) for a, b in pairwise(X.starts))
        return len({(X.columns[row].tobytes(), X.values[row].tobytes()) for row in rows})
    return len({row.tobytes() for row in X})


def evenness_of(codes: bits.Codes, n_bits: int) -> float:
    """Mean variance of the bits: 1 if every bit divides the rows into halves, 0 if all codes are the same."""
    return float(np.mean(1.0 - np.mean(bits.unpack(codes, n_bits), axis=0, dtype=np.float64) ** 2))


def warn_if_uneven(owner: str, evenness: dict[str, float]) -> None:
    """Warn if rows that were held out get much less even codes than those that were learned from."""
    view = min(evenness, key=lambda name: evenness[name], default=None)
    if view is not None and evenness[view] < MIN_EVENNESS:
        warn(
            f"{owner} gives new rows of view '{view}' much less even codes than training rows "
            f"({evenness[view]:.0%} of their variance), so that they are hard to tell apart. "
            "Train on more rows, or reduce the features of that view."
        )


class NearItems(Relevance):
    """Relevant are the few percent of items with the best product of ranks over the views, except the item itself."""

    def __init__(self, arrays: list[Array], share: float = 0.03) -> None:
        n = len(arrays[0])
        super().__init__(n, n)
        total = np.zeros((n, n))
        for X in arrays:
            ranks = np.argsort(np.argsort(squared_distances(X, X), axis=1), axis=1)
            total += np.log((ranks + 1.0) / n)
        np.fill_diagonal(total, np.inf)
        count = min(int(share * n) + 1, n - 1)
        self.is_near = total <= np.partition(total, count - 1, axis=1)[:, count - 1 : count]

    def hits(self, block: slice) -> NDArray[np.uint8]:
        return self.is_near[block].view(np.uint8)

    grades = hits
