"""Bad codes and parameters get one sentence each; blocks and threads change nothing; memory stays small."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import (
    average_precision,
    mean_average_precision,
    ndcg,
    ndcg_per_query,
    pair_auc,
    pair_recall,
    precision_at,
    precision_recall_by_radius,
    precision_recall_by_rank,
    ranking,
)

Q, D = np.zeros((2, 2), np.uint8), np.zeros((3, 2), np.uint8)
R = np.ones((2, 3), bool)


@pytest.mark.parametrize(
    ("queries", "database", "sentence"),
    [
        (Q.astype(int), D, r"Query codes must be a uint8 matrix \(n, bytes\). Got int64"),
        (Q[0], D, "Query codes must be a uint8 matrix"),
        (Q, D.astype(float), "Database codes must be a uint8 matrix"),
        (Q[:, :1], D, "equal numbers of bytes per row. Got 1 and 2"),
        (Q[:0], D, "must have rows. Got 0 queries and 3 database items"),
        (Q, D[:0], "must have rows. Got 2 queries and 0 database items"),
        (np.zeros((2, 8)), D, r"a column per bit of the database codes \(9 to 16\). Got an array of shape \(2, 8\)"),
        (np.zeros(16), D, "Query projections must be a matrix"),
        (np.full((2, 16), np.nan), D, "must be finite"),
    ],
)
def test_bad_codes(queries, database, sentence):
    with pytest.raises(DataError, match=sentence):
        mean_average_precision(queries, database, R)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: mean_average_precision(Q, D, R, k=0),
            "'k' parameter of mean_average_precision must be None or an integer of at least 1",
        ),
        (lambda: mean_average_precision(Q, D, R, k=2.0), "Got 2.0 instead"),
        (lambda: average_precision(Q, D, R, k=True), "'k' parameter of average_precision"),
        (lambda: average_precision(Q, D, R, ties="random"), "'expected', 'stable', 'best', 'worst'. Got 'random'"),
        (
            lambda: ndcg(Q, D, R, ties="best"),
            "'ties' parameter of ndcg must be one of 'expected', 'stable'. Got 'best'",
        ),
        (lambda: ndcg(Q, D, R, gain="square"), "'gain' parameter of ndcg must be one of 'exponential', 'linear'"),
        (
            lambda: precision_at(Q, D, R),
            r"'n' parameter of precision_at must be .* from 1 to 3, the number of database items. Got 100",
        ),
        (lambda: precision_at(Q, D, R, n=[]), "one or more integers"),
        (lambda: precision_at(Q, D, R, n=[1, 2.5]), "Got 2.5"),
        (lambda: precision_recall_by_rank(Q, D, R, [0]), "'ranks' parameter of precision_recall_by_rank"),
        (lambda: precision_recall_by_rank(Q, D, R, average="mean"), "one of 'micro', 'macro'. Got 'mean'"),
        (lambda: precision_recall_by_radius(Q, D, R, n_bits=8), "the number of bits behind 2 bytes. Got 8"),
        (lambda: precision_recall_by_radius(Q, D, R, n_bits=16.0), "the number of bits behind 2 bytes. Got 16.0"),
        (
            lambda: pair_recall(Q, Q, k=0),
            "'k' parameter of pair_recall must be one or more integers of at least 1. Got 0",
        ),
    ],
)
def test_bad_parameters(call, sentence):
    with pytest.raises(ParameterError, match=sentence):
        call()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: precision_recall_by_radius(np.zeros((2, 16)), D, R), "A Hamming radius needs binary query codes"),
        (lambda: pair_auc(Q, D), "must pair row by row. Got 2 queries and 3 database items"),
        (lambda: pair_recall(Q, D), "must pair row by row"),
        (lambda: pair_auc(Q[:1], Q[:1]), "at least two pairs"),
        (lambda: ndcg(Q, D, 1000.0 * R), "Grades under exponential gain must be at most 900. Got 1000"),
    ],
)
def test_bad_data(call, sentence):
    with pytest.raises(DataError, match=sentence):
        call()


def test_a_cut_beyond_the_database_is_the_whole_database():
    assert mean_average_precision(Q, D, R, k=50) == 1.0
    np.testing.assert_array_equal(pair_recall(Q, Q, k=[1, 50]), [0.5, 1.0])


@pytest.mark.parametrize("entries", [1, 3 * 5000, 1 << 30])
@pytest.mark.parametrize("cores", [1, 3])
def test_blocks_and_threads_change_nothing(monkeypatch, entries, cores):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (5037, 2), dtype=np.uint8)
    classes = rng.integers(0, 4, 5037)
    relevant = (classes[:37], classes[37:])

    def everything():
        q, d = codes[:37], codes[37:]
        return [
            average_precision(q, d, relevant),
            average_precision(q, d, relevant, ties="stable", k=None),
            ndcg_per_query(q, d, relevant),
            precision_at(q, d, relevant),
            precision_recall_by_radius(q, d, relevant).recall,
            np.array([pair_auc(codes[:500], codes[500:1000])]),
        ]

    before = everything()
    monkeypatch.setattr(ranking, "BLOCK_ENTRIES", entries)
    monkeypatch.setattr(ranking, "n_cores", lambda: cores)
    for first, again in zip(before, everything(), strict=True):
        np.testing.assert_array_equal(first, again)


def test_an_error_in_a_thread_reaches_the_caller():
    codes = np.zeros((1000, 1), np.uint8)

    def broken(rows):
        raise KeyError("no such row")

    with pytest.raises(KeyError, match="no such row"):
        average_precision(codes, codes, broken)


def test_memory_does_not_grow_with_queries_times_items():
    """1,000 queries x 60,000 items would be 480 MB of floats and 60 MB of bytes."""
    rng = np.random.default_rng(0)
    queries, database = rng.integers(0, 256, (1000, 8), np.uint8), rng.integers(0, 256, (60_000, 8), np.uint8)
    labels = rng.random((61_000, 24)) < 0.1
    relevant = (labels[:1000], labels[1000:])
    mean_average_precision(queries[:2], database, (labels[:2], labels[1000:]))  # compile outside the measurement
    for ties in ("expected", "stable"):
        tracemalloc.start()
        mean_average_precision(queries, database, relevant, k=None, ties=ties)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 40e6, f"{ties}: {peak / 1e6:.0f} MB"
