"""Weights of words: against loops, what they rank first, and preparations that use them."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fusehash.numerics import word_weights as module
from fusehash.numerics.features import Preparation
from fusehash.numerics.sparse import SparseRows
from fusehash.numerics.word_weights import are_words, similarities, word_weights


def bags(rng: np.random.Generator, n: int, width: int, density: float = 0.05) -> Any:
    return sp.csr_array(sp.random_array((n, width), density=density, rng=rng, format="csr"))


def slow_similarities(views: list[np.ndarray]) -> np.ndarray:
    n = len(views[0])
    K = np.mean([[[a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-15) for b in X] for a in X] for X in views], 0)
    off = ~np.eye(n, dtype=bool)
    means = np.array([K[i, off[i]].mean() for i in range(n)])
    centered = K - means[:, None] - means[None] + means.mean()
    return np.where(off, centered, 0.0)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(3, 12))
def test_similarities_and_weights_are_what_loops_find(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    dense, bag, rows = rng.standard_normal((n, 4)), bags(rng, n, 9, 0.5), bags(rng, n, 30, 0.3)
    K = similarities([dense, SparseRows.of(bag)])
    single = SparseRows.of(bag).matrix.toarray().astype(float)
    expected = slow_similarities([dense - dense.mean(axis=0), single])
    assert_allclose(K, expected, atol=1e-9)
    has = rows.toarray() != 0
    sums = np.array(
        [sum(expected[i, j] for i in range(n) for j in range(n) if h[i] and h[j] and i != j) for h in has.T]
    )
    pairs = has.sum(axis=0) * (has.sum(axis=0) - 1.0)
    usual = sums.sum() / max(pairs.sum(), 1.0)
    weights = word_weights(SparseRows.of(rows), K)
    if usual < -1e-9:
        assert_array_equal(weights, 1.0)
    elif usual > 1e-9:
        slow = (sums + module.PRIOR_PAIRS * usual) / (pairs + module.PRIOR_PAIRS)
        slow = np.maximum(slow, module.MIN_WEIGHT * slow.max())
        assert_allclose(weights, slow / slow.mean(), rtol=1e-6)
        assert weights.min() > 0.0


def test_weights_of_many_words_need_no_matrix_of_rows_and_words(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, K = SparseRows.of(bags(rng, 50, 3000)), similarities([rng.standard_normal((50, 4))])
    at_once = word_weights(rows, np.abs(K))
    monkeypatch.setattr(module, "_PRODUCTS", 50 * 7)
    assert_array_equal(word_weights(rows, np.abs(K)), at_once)
    assert np.ptp(at_once) > 0
    n, width = 500, 200_000  # a matrix of all of them would take 800 MB
    wide = SparseRows.of(bags(rng, n, width, 1e-4))
    K = np.abs(similarities([rng.standard_normal((n, 4))]))
    monkeypatch.undo()
    tracemalloc.start()
    try:
        word_weights(wide, K)
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()


def test_entries_that_are_stored_but_zero_are_no_words() -> None:
    rng = np.random.default_rng(0)
    rows, K = bags(rng, 40, 100), np.abs(similarities([rng.standard_normal((40, 4))]))
    with_zeros = rows.copy()
    with_zeros.data[::3] = 0.0
    without = with_zeros.copy()
    without.eliminate_zeros()
    assert_array_equal(word_weights(SparseRows.of(with_zeros), K), word_weights(SparseRows.of(without), K))


def test_words_that_say_something_about_the_other_view_count_more() -> None:
    rng = np.random.default_rng(0)
    n, topics = 400, 20
    topic = rng.integers(0, topics, n)
    other = np.eye(topics)[topic] + 0.1 * rng.standard_normal((n, topics))
    telling = np.eye(topics)[topic]  # one word per topic
    common = rng.random((n, 20)) < 0.5
    rare = rng.random((n, 560)) < 0.004
    weights = word_weights(SparseRows.of(np.hstack([telling, common, rare])), similarities([other]))
    assert weights[:topics].min() > 1.3 * weights[topics:].max()
    never = np.flatnonzero(rare.sum(axis=0) == 0) + topics + 20
    once = np.flatnonzero(rare.sum(axis=0) == 1) + topics + 20
    assert len(once)
    assert len(never)
    assert_allclose(weights[once], weights[never[0]])  # a word that was seen once is usual, as one never seen
    assert weights[topics : topics + 20].max() < weights[once].min()


def test_bags_of_few_words_of_many_are_words() -> None:
    rng = np.random.default_rng(0)
    assert are_words(SparseRows.of(bags(rng, 50, 600, 0.02)))
    assert not are_words(SparseRows.of(bags(rng, 50, 600, 0.4)))  # bins of a histogram
    assert not are_words(rng.random((50, 600)))


def test_prepared_rows_are_weighted_and_of_unit_length() -> None:
    rng = np.random.default_rng(0)
    X, weights = bags(rng, 40, 700), rng.random(700) + 0.1
    plain = Preparation.learn(X)
    assert plain.sparse_width == 700
    weighted = replace(plain, word_weights=weights)
    expected = np.sqrt(X.toarray()) * weights
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(weighted(X).matrix.toarray(), expected, atol=1e-6)
    assert_array_equal(replace(plain, word_weights=np.ones(700))(X).values, plain(X).values)
    assert_array_equal(weighted(X[3:4]).values, weighted(X)[[3]].values)  # alone as among others
    with pytest.raises(ValueError, match="one weight per column"):
        replace(plain, word_weights=weights[:-1])
