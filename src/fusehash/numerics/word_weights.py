"""Weights of words: how much rows that share a word resemble each other in the other views.

A bag of words scaled to unit length is mostly frequent words, which say little about a pair. With k(i, i') the cosine
of two rows in the other views, minus what their rows and columns have on average, a word that occurs in the rows R of
a sample has the weight

    w = (sum of k over pairs of rows in R + PRIOR_PAIRS * usual) / (number of these pairs + PRIOR_PAIRS),

"usual" being the same mean over all rare words, which a word that was seen once gets. Weights are at least MIN_WEIGHT
of the largest, and have a mean of 1. Nothing but pairs is used: "the" joins any two rows, "surfboard" joins rows that
are near each other in the other views too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.numerics.arrays import Array, host
from fusehash.numerics.sparse import NEARLY_ALL, SparseRows

Weights = NDArray[np.float64]
RARE_ROWS = 20  # words of at most so many rows say what is usual
PRIOR_PAIRS = 30.0
MIN_WEIGHT = 0.02
_PRODUCTS = 1 << 22  # numbers in memory at a time, whatever the width


def are_words(rows: Array) -> bool:
    """Whether rows hold a few words of many: in bags that are less sparse, columns are bins or topics."""
    return isinstance(rows, SparseRows) and len(rows.values) < (1.0 - NEARLY_ALL) * len(rows) * rows.width


def similarities(views: list[Array]) -> Weights:
    """k over all pairs of rows, mean over the given views; zero between a row and itself."""
    total = np.zeros((len(views[0]), len(views[0])))
    for rows in views:
        if isinstance(rows, SparseRows):
            K = rows.products(rows)
        else:
            X = np.asarray(host(rows), np.float64)
            X = X - X.mean(axis=0)
            K = X @ X.T
        lengths = np.sqrt(np.maximum(np.diagonal(K), 1e-30))
        total += K / (lengths[:, None] * lengths)
    return _centered(total / len(views))


def word_weights(rows: SparseRows, K: Weights) -> Weights:
    """One number per column of the rows, from `similarities` of the same rows in the other views."""
    is_in: Any = rows.matrix.astype(np.float64)
    is_in.data = (is_in.data != 0).astype(np.float64)
    count = np.asarray(is_in.sum(axis=0)).ravel()
    sums, pairs = _sums_over_pairs(is_in, K, np.flatnonzero(count > 1)), count * (count - 1.0)
    rare = count <= RARE_ROWS
    usual = sums[rare].sum() / max(pairs[rare].sum(), 1.0)
    if usual <= 0.0:  # the other views do not know what these words mean
        return np.ones(rows.width)
    weights = (sums + PRIOR_PAIRS * usual) / (pairs + PRIOR_PAIRS)
    weights = np.maximum(weights, MIN_WEIGHT * weights.max())
    scaled: Weights = weights / weights.mean()
    return scaled


def _sums_over_pairs(is_in: Any, K: Weights, shared: NDArray[np.intp]) -> Weights:
    """Per column, the sum of K over pairs of its rows; 0 but for the columns that rows share."""
    sums, step = np.zeros(is_in.shape[1]), max(1, _PRODUCTS // len(K))
    for start in range(0, len(shared), step):
        columns = shared[start : start + step]
        part = is_in[:, columns]
        sums[columns] = np.asarray(part.multiply(K @ part).sum(axis=0)).ravel()
    return sums


def _centered(K: Weights) -> Weights:
    """K minus the means of its rows and columns, all without the diagonal, which becomes 0."""
    n = len(K)
    np.fill_diagonal(K, 0.0)
    means = K.sum(axis=1) / max(n - 1, 1)
    K -= means[:, None]
    K -= means - means.mean()
    np.fill_diagonal(K, 0.0)
    return K
