"""The ways to tell what is relevant agree with each other, and bad ones are refused in one sentence."""

from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse as sp

from fusehash.errors import DataError
from fusehash.evaluation import average_precision, ndcg_per_query, ranking
from fusehash.evaluation.relevance import as_relevance


def ways(case):
    queries, items, grades = case.query_labels, case.labels, case.grades
    return {
        "labels": (queries, items),
        "bool labels": (queries.astype(bool), items.astype(bool)),
        "float labels": (queries.astype(float), items.astype(float)),
        "sparse labels": (sp.csr_matrix(queries), sp.coo_array(items)),
        "mixed labels": (sp.csc_array(queries), items),
        "grades": grades,
        "sparse grades": sp.csc_array(grades),
        "list of grades": grades.tolist(),
        "function": lambda rows: grades[rows],
        "sparse function": lambda rows: sp.csr_array(grades)[rows],
        "relevance": as_relevance((queries, items), len(queries), len(items)),
    }


def test_all_ways_agree(case):
    ap = average_precision(case.queries, case.database, case.grades > 0)
    gain = ndcg_per_query(case.queries, case.database, case.grades)
    assert ap.mean() > 0
    for way, relevant in ways(case).items():
        np.testing.assert_array_equal(average_precision(case.queries, case.database, relevant), ap, err_msg=way)
        np.testing.assert_allclose(
            ndcg_per_query(case.queries, case.database, relevant), gain, rtol=0, atol=1e-12, err_msg=way
        )


def test_booleans_are_relevance_without_grades(case):
    relevant = case.grades > 0
    want = average_precision(case.queries, case.database, case.grades)
    for given in (relevant, sp.csr_matrix(relevant), lambda rows: relevant[rows], relevant.astype(np.uint8)):
        np.testing.assert_array_equal(average_precision(case.queries, case.database, given), want)


def test_classes_equal_their_one_hot_labels(case):
    rng = np.random.default_rng(0)
    queries, items = rng.integers(0, 5, 30), rng.integers(0, 5, 400)
    one_hot = np.eye(5, dtype=np.uint8)
    want = average_precision(case.queries, case.database, (one_hot[queries], one_hot[items]))
    for given in (
        (queries, items),
        (queries.tolist(), items),
        (queries - 2.0, items - 2.0),
        (queries.astype(str), items.astype(str)),
    ):
        np.testing.assert_array_equal(average_precision(case.queries, case.database, given), want)


def test_more_than_64_labels():
    rng = np.random.default_rng(1)
    labels = rng.random((90, 150)) < 0.01
    relevance = as_relevance((labels[:10], labels[10:]), 10, 80)
    shared = labels[:10].astype(int) @ labels[10:].T.astype(int)
    np.testing.assert_array_equal(relevance.grades(slice(0, 10)), shared)
    np.testing.assert_array_equal(relevance.hits(slice(3, 7)), shared[3:7] > 0)


def test_a_function_is_called_once_per_query_and_never_twice_at_a_time(monkeypatch):
    monkeypatch.setattr(ranking, "n_cores", lambda: 4)
    rng = np.random.default_rng(0)
    codes, busy, seen = rng.integers(0, 256, (800, 1), np.uint8), [], []

    def relevant(rows):
        busy.append(1)
        assert len(busy) == 1
        time.sleep(0.002)
        seen.extend(rows)
        busy.pop()
        return rng.random((len(rows), 800)) < 0.5

    average_precision(codes, codes, relevant)
    assert sorted(seen) == list(range(800))


CODES, ITEMS = np.zeros((2, 1), np.uint8), np.zeros((3, 1), np.uint8)


@pytest.mark.parametrize(
    ("relevant", "sentence"),
    [
        (([0, 1], [0, 1, 2], [3]), r"must be a pair .* Got a tuple of 3 instead"),
        (([0, 1], [0, 1]), "must cover 2 queries and 3 database items, as the codes do. Got 2 and 2"),
        (([0.0, np.nan], [0, 1, 2]), "Query labels must be finite class numbers"),
        (([0, 1], [0, np.inf, 2]), "Database labels must be finite class numbers"),
        (([0, 1], np.zeros((3, 2))), r"both be class numbers .* Got shapes \(2,\) and \(3, 2\)"),
        ((np.zeros((2, 4)), np.zeros((3, 5))), r"same columns. Got shapes \(2, 4\) and \(3, 5\)"),
        ((np.zeros((2, 4)), np.full((3, 4), 2)), "database labels must hold only 0 and 1"),
        ((sp.csr_array(np.full((2, 4), 3)), np.zeros((3, 4))), "query labels must hold only 0 and 1"),
        (([[5], [6]], [[5], [6], [7]]), "Pass class numbers as a 1-d array"),
        ((np.zeros((2, 2, 2)), [0, 1, 2]), r"Got an array of shape \(2, 2, 2\) instead"),
        (np.zeros(3), "Relevance must be a pair"),
        (None, "Relevance must be a pair"),
        ([[1, 0, 1], [1]], "Relevance must be a pair .* Got rows of unequal length"),
        (([[1, 0], [1]], np.zeros((3, 2))), "Query labels must be class numbers .* Got rows of unequal length"),
        ((np.zeros((2, 2)), [[1, 0], [1], [0, 1]]), "Database labels must be .* Got rows of unequal length"),
        (lambda rows: [[1, 0, 1], [1]], "Relevance must be a pair .* Got rows of unequal length"),
        (np.zeros((2, 4), bool), "Got 2 and 4 instead"),
        (np.array([[0, 1, -1], [0, 0, 0]]), "must be >= 0"),
        (np.array([[0, 1, np.nan], [0, 0, 0]]), "must be >= 0"),
        (lambda rows: np.zeros((len(rows), 2)), r"must return a matrix of shape \(\d, 3\)"),
        (lambda rows: np.array([["a"] * 3] * len(rows)), "booleans or grades"),
    ],
)
def test_bad_relevance(relevant, sentence):
    with pytest.raises(DataError, match=sentence):
        average_precision(CODES, ITEMS, relevant)
