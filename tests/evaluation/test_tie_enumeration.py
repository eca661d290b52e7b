"""Every tie order of small cases, against the closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fusehash.evaluation import mean_average_precision, ndcg, pair_recall, precision_at, precision_recall_by_rank

EXACT = {"rel": 1e-12, "abs": 1e-12}

binary_cases = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=11)
graded_cases = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6)
one_tie = st.tuples(st.integers(1, 11), st.integers(0, 11)).map(lambda c: [(0, int(i < c[1])) for i in range(c[0])])


def split(case):
    return [d for d, _ in case], [value for _, value in case]


@settings(deadline=None, max_examples=250)
@given(case=binary_cases | one_tie, k=st.integers(1, 12))
@example(case=[(0, 1), (1, 0), (2, 1), (2, 0), (2, 0)], k=4)  # best: keep the late relevant item out, 1 and not 5/6
@example(case=[(0, 0), (1, 1), (1, 0), (1, 0)], k=2)  # worst: keep the only relevant item out, 0 and not 1/2
@example(case=[(0, 1), (0, 0), (0, 0), (1, 1), (1, 1), (1, 0)], k=4)
def test_average_precision_at_k(brute, case, k):
    distances, relevant = split(case)
    query, database = brute.codes_at(distances)
    values = [brute.ap_at(order, k) for order in brute.tie_patterns(distances, relevant)]
    want = {"expected": np.mean(values), "best": max(values), "worst": min(values)}
    order = np.argsort(distances, kind="stable")
    want["stable"] = brute.ap_at([relevant[i] for i in order], k)
    for ties, value in want.items():
        got = mean_average_precision(query, database, np.array([relevant]), k=k, ties=ties)
        assert got == pytest.approx(value, **EXACT), ties


@settings(deadline=None, max_examples=100)
@given(case=binary_cases)
def test_average_precision_over_the_whole_ranking(brute, case):
    distances, relevant = split(case)
    query, database = brute.codes_at(distances)
    values = [brute.ap_at(order, len(case)) for order in brute.tie_patterns(distances, relevant)]
    for ties, value in {"expected": np.mean(values), "best": max(values), "worst": min(values)}.items():
        got = mean_average_precision(query, database, np.array([relevant]), k=None, ties=ties)
        assert got == pytest.approx(value, **EXACT), ties


@settings(deadline=None, max_examples=200)
@given(case=binary_cases | one_tie, k=st.integers(1, 12))
def test_first_hits_rule(brute, case, k):
    distances, relevant = split(case)
    query, database = brute.codes_at(distances)
    values = [brute.ap_first_hits(order, k) for order in brute.tie_patterns(distances, relevant)]
    for ties, value in {"expected": np.mean(values), "best": max(values), "worst": min(values)}.items():
        got = mean_average_precision(query, database, np.array([relevant]), k=k, ties=ties, rule="E5")
        assert got == pytest.approx(value, **EXACT), ties


@settings(deadline=None, max_examples=100)
@given(case=binary_cases)
def test_precision_and_recall_at_every_rank(brute, case):
    distances, relevant = split(case)
    query, database = brute.codes_at(distances)
    ranks = list(range(1, len(case) + 1))
    found = np.array([np.cumsum(order) for order in brute.tie_patterns(distances, relevant)])
    want = {"expected": found.mean(axis=0), "best": found.max(axis=0), "worst": found.min(axis=0)}
    for ties, hits in want.items():
        precision = precision_at(query, database, np.array([relevant]), n=ranks, ties=ties)
        np.testing.assert_allclose(precision, hits / ranks, rtol=0, atol=1e-12)
        curve = precision_recall_by_rank(query, database, np.array([relevant]), ranks, ties)
        np.testing.assert_allclose(curve.precision, hits / ranks, rtol=0, atol=1e-12)
        if any(relevant):
            np.testing.assert_allclose(curve.recall, hits / sum(relevant), rtol=0, atol=1e-12)
        else:
            assert np.isnan(curve.recall).all()


@settings(deadline=None, max_examples=100)
@given(case=graded_cases, k=st.integers(1, 7), as_float=st.booleans())
def test_ndcg(brute, case, k, as_float):
    distances, grades = split(case)
    query, database = brute.codes_at(distances)
    matrix = np.array([grades], dtype=float if as_float else np.uint8)
    for gain, function in {"exponential": lambda x: 2.0**x - 1.0, "linear": lambda x: x}.items():
        values = [brute.ndcg_at(order, k, function) for order in brute.tie_orders(distances, grades)]
        assert ndcg(query, database, matrix, k=k, gain=gain) == pytest.approx(np.mean(values), **EXACT)
        stable = [grades[i] for i in np.argsort(distances, kind="stable")]
        got = ndcg(query, database, matrix, k=k, gain=gain, ties="stable")
        assert got == pytest.approx(brute.ndcg_at(stable, k, function), **EXACT)


@settings(deadline=None, max_examples=100)
@given(codes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6), k=st.integers(1, 6))
def test_pair_recall(brute, codes, k):
    k = min(k, len(codes))
    queries = np.array([[q] for q, _ in codes], dtype=np.uint8)
    database = np.array([[d] for _, d in codes], dtype=np.uint8)
    found = {"expected": [], "best": [], "worst": []}
    for i, row in enumerate(brute.hamming(queries, database)):
        partner = [int(j == i) for j in range(len(codes))]
        inside = [sum(order[:k]) for order in brute.tie_patterns(list(row), partner)]
        found["expected"].append(np.mean(inside))
        found["best"].append(max(inside))
        found["worst"].append(min(inside))
    for ties, values in found.items():
        assert pair_recall(queries, database, k=k, ties=ties)[0] == pytest.approx(np.mean(values), **EXACT)
