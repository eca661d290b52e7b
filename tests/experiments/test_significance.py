"""The paired test over queries and seeds: right in the known cases, honest on noise, able to see a difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fusehash.errors import DataError
from fusehash.experiments.significance import _paired_test, compare, holm, marks


def crossed(rng, n, S, Q, delta=0.0, seed_spread=1.0, query_spread=1.0, noise=1.0):
    """n tables of differences with effects of seed and query."""
    return (
        delta
        + seed_spread * rng.standard_normal((n, S, 1))
        + query_spread * rng.standard_normal((n, 1, Q))
        + noise * rng.standard_normal((n, S, Q))
    )


def rejected(tables) -> float:
    return float(np.mean(_paired_test(np.asarray(tables))[2] < 0.05))


# -- the test of two -------------------------------------------------------------------------------------------------


def test_one_seed_is_the_paired_t_test():
    rng = np.random.default_rng(0)
    A, B = rng.random((2, 1, 40))
    result, expected = compare(A, B), stats.ttest_rel(A[0], B[0])
    assert result.p == pytest.approx(expected.pvalue)
    assert result.difference == pytest.approx((A - B).mean())


def test_equal_seeds_are_the_paired_t_test_too():
    rng = np.random.default_rng(1)
    A, B = (np.repeat(rng.random((1, 40)), 5, axis=0) for _ in range(2))
    assert compare(A, B).p == pytest.approx(stats.ttest_rel(A[0], B[0]).pvalue)


def test_without_queries_that_differ_it_is_the_t_test_over_seeds():
    rng = np.random.default_rng(2)
    A = np.repeat(rng.random((6, 1)), 30, axis=1)
    assert compare(A, np.zeros_like(A)).p == pytest.approx(stats.ttest_1samp(A[:, 0], 0.0).pvalue)


def test_the_variance_follows_the_sums_written_out():
    rng = np.random.default_rng(3)
    d = crossed(rng, 1, 4, 9)[0]
    S, Q = d.shape
    ms_seed = Q * sum((d[s].mean() - d.mean()) ** 2 for s in range(S)) / (S - 1)
    ms_query = S * sum((d[:, q].mean() - d.mean()) ** 2 for q in range(Q)) / (Q - 1)
    rest = sum((d[s, q] - d[s].mean() - d[:, q].mean() + d.mean()) ** 2 for s in range(S) for q in range(Q))
    variance = (ms_seed + ms_query - rest / ((S - 1) * (Q - 1))) / (S * Q)
    expected = max(variance, ms_seed / (S * Q), ms_query / (S * Q)) ** 0.5
    assert compare(d, np.zeros_like(d)).error == pytest.approx(expected)


@pytest.mark.parametrize(
    ("S", "seed_spread"), [(1, 0.0), (2, 0.0), (3, 0.0), (5, 0.0), (5, 0.1), (5, 0.3), (5, 1.0), (10, 0.3)]
)
def test_noise_is_rarely_called_a_difference(S, seed_spread):
    rate = rejected(crossed(np.random.default_rng(4), 1000, S, 60, seed_spread=seed_spread))
    assert rate < 0.075  # more than three standard errors above 0.05
    assert rate > 0.01


def test_two_seeds_say_little_about_seeds():
    assert rejected(crossed(np.random.default_rng(4), 1000, 2, 60)) < 0.16


def test_a_test_over_queries_alone_would_be_fooled_by_seeds():
    tables = crossed(np.random.default_rng(5), 400, 5, 200, seed_spread=0.5)
    naive = np.mean([stats.ttest_1samp(d.mean(axis=0), 0.0).pvalue < 0.05 for d in tables])
    assert naive > 0.3
    assert rejected(tables) < 0.09


def test_a_real_difference_is_seen():
    tables = crossed(np.random.default_rng(6), 200, 5, 300, delta=0.4, seed_spread=0.05)
    assert rejected(tables) > 0.95


def test_skewed_scores_between_0_and_1_keep_the_level():
    rng = np.random.default_rng(7)
    query = rng.beta(0.5, 1.5, (1000, 1, 100))
    A, B = (np.clip(query + 0.1 * rng.standard_normal((1000, 3, 100)), 0, 1) for _ in range(2))
    rate = np.mean([compare(a, b).p < 0.05 for a, b in zip(A, B, strict=True)])
    assert rate < 0.075


def test_equal_scores_are_equal_and_a_constant_lead_is_certain():
    A = np.full((3, 10), 0.5)
    assert compare(A, A).p == 1.0
    assert compare(A + 0.1, A).p == 0.0
    assert compare(A[:1, :1], A[:1, :1]).p == 1.0


def test_shapes_must_agree():
    with pytest.raises(DataError, match="one shape"):
        compare(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(DataError, match="one shape"):
        marks({"a": np.zeros((2, 3)), "b": np.zeros((1, 3))})


# -- many at once ----------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_rule_rejects(p):
    adjusted = holm(p)
    keep = True
    for step, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        keep = keep and p[i] * (len(p) - step) < 0.05
        assert (adjusted[i] < 0.05) == keep
    assert (adjusted >= np.asarray(p)).all()


def scores(rng, means, S=5, Q=200):
    query = 0.2 * rng.standard_normal((1, Q))
    return {
        name: mean + query + 0.01 * rng.standard_normal((S, 1)) + 0.1 * rng.standard_normal((S, Q))
        for name, mean in means.items()
    }


def test_a_clear_winner_is_best():
    result = marks(scores(np.random.default_rng(0), {"a": 0.4, "b": 0.6, "c": 0.3}))
    assert result == {"a": "", "b": "best", "c": ""}


def test_two_that_cannot_be_told_apart_share_the_lead():
    result = marks(scores(np.random.default_rng(1), {"a": 0.6, "b": 0.6, "c": 0.3}))
    assert result == {"a": "shared", "b": "shared", "c": ""}


def test_one_alone_has_nothing_to_beat():
    assert marks({"a": np.ones((2, 5))}) == {"a": ""}
    assert marks({}) == {}


@pytest.mark.slow
def test_bold_is_rarely_luck():
    rng = np.random.default_rng(8)
    rounds = [marks(scores(rng, {"a": 0.5, "b": 0.5, "c": 0.2}, S=5, Q=60)) for _ in range(500)]
    assert np.mean(["best" in result.values() for result in rounds]) < 0.08
    rounds = [marks(scores(rng, dict.fromkeys("abcdef", 0.5), S=5, Q=60)) for _ in range(300)]
    assert np.mean(["best" in result.values() for result in rounds]) < 0.02


def test_a_small_but_steady_lead_becomes_bold():
    rng = np.random.default_rng(9)
    rounds = [marks(scores(rng, {"a": 0.55, "b": 0.5, "c": 0.45}, Q=300)) for _ in range(100)]
    assert np.mean([result["a"] == "best" for result in rounds]) > 0.9
