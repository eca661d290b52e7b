"""Metrics against references on middling data, and facts that must hold whatever the data."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from fusehash.bits import pack, unpack
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
)

TIES = ("expected", "stable", "best", "worst")


def stable_ranks(distances):
    return np.argsort(distances, axis=1, kind="stable")


@pytest.mark.parametrize("k", [1, 50, None])
def test_stable_average_precision_is_the_textbook_loop(brute, case, k):
    order = stable_ranks(brute.hamming(case.queries, case.database))
    relevant = np.take_along_axis(case.grades > 0, order, axis=1)
    want = [brute.ap_at(list(row), k or len(row)) for row in relevant]
    got = average_precision(case.queries, case.database, case.grades > 0, k=k, ties="stable")
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert mean_average_precision(case.queries, case.database, case.grades > 0, k, "stable") == pytest.approx(
        np.mean(want)
    )


@pytest.mark.parametrize("rule", ["E1", "E5"])
@pytest.mark.parametrize("k", [5, 50])
def test_expected_is_what_random_row_orders_give_on_average(case, k, rule):
    rng = np.random.default_rng(0)
    samples = []
    for _ in range(400):
        order = rng.permutation(len(case.database))
        samples.append(
            mean_average_precision(
                case.queries, case.database[order], case.grades[:, order] > 0, k=k, ties="stable", rule=rule
            )
        )
    exact = mean_average_precision(case.queries, case.database, case.grades > 0, k=k, rule=rule)
    assert abs(exact - np.mean(samples)) < 4 * np.std(samples) / np.sqrt(len(samples))


def test_extremes_bracket_every_order(case):
    by_ties = {t: average_precision(case.queries, case.database, case.grades > 0, k=20, ties=t) for t in TIES}
    for ties in ("expected", "stable"):
        assert (by_ties["worst"] <= by_ties[ties] + 1e-12).all()
        assert (by_ties[ties] <= by_ties["best"] + 1e-12).all()
    assert by_ties["worst"].mean() < by_ties["expected"].mean() < by_ties["best"].mean()


def test_expected_and_extremes_do_not_depend_on_row_order(case):
    order = np.random.default_rng(1).permutation(len(case.database))
    for ties in ("expected", "best", "worst"):
        first = average_precision(case.queries, case.database, case.grades > 0, k=30, ties=ties)
        again = average_precision(case.queries, case.database[order], case.grades[:, order] > 0, k=30, ties=ties)
        np.testing.assert_array_equal(first, again)


def test_a_constant_code_scores_chance_level():
    """Random order of n items, r relevant: E[AP over the whole list] = (r-1)/(n-1) + (1 - (r-1)/(n-1)) H_n / n."""
    n, r = 1000, 300
    codes = np.full((n, 2), 9, dtype=np.uint8)
    relevant = np.zeros((1, n), dtype=bool)
    relevant[0, :r] = True  # all first: a stable order would call this perfect
    slope = (r - 1) / (n - 1)
    chance = slope + (1 - slope) * (1.0 / np.arange(1, n + 1)).sum() / n
    assert mean_average_precision(codes[:1], codes, relevant, k=None) == pytest.approx(chance, abs=1e-12)
    assert mean_average_precision(codes[:1], codes, relevant, k=None, ties="stable") == 1.0
    rng = np.random.default_rng(0)
    k = 50
    samples = []
    for _ in range(4000):
        hits = rng.permutation(relevant[0])[:k]
        samples.append((np.cumsum(hits) / np.arange(1, k + 1))[hits].mean() if hits.any() else 0.0)
    at_50 = mean_average_precision(codes[:1], codes, relevant, k=k)
    assert abs(at_50 - np.mean(samples)) < 4 * np.std(samples) / np.sqrt(len(samples))
    np.testing.assert_allclose(precision_at(codes[:1], codes, relevant, n=[1, 10, n]), r / n, rtol=1e-12)
    assert pair_auc(codes, codes) == pytest.approx(0.5, abs=1e-12)
    np.testing.assert_allclose(pair_recall(codes, codes, k=[1, 10, n]), [1 / n, 10 / n, 1], rtol=1e-12)


def test_one_huge_tie_stays_exact_and_finite():
    """184,577 tied items: no factorial overflows. With r of n relevant and k = 1, AP@1 is just r / n."""
    n, r = 184_577, 61_234
    codes = np.zeros((n, 8), dtype=np.uint8)
    classes = (np.arange(n) < r).astype(int)
    assert mean_average_precision(codes[:1], codes, ([1], classes), k=1) == pytest.approx(r / n, rel=1e-12)
    assert mean_average_precision(codes[:1], codes, ([1], classes), k=1, rule="E5") == pytest.approx(
        sum_first_hit(n, r), rel=1e-9
    )
    half = mean_average_precision(codes[:1], codes, ([1], classes), k=n // 2)
    assert half == pytest.approx(r / n, abs=1e-3)


@pytest.mark.parametrize(("n", "r", "k"), [(300, 90, 40), (400, 5, 3), (250, 240, 200)])
def test_one_middling_tie_against_binomials(n, r, k):
    """One tie of n items, r relevant: both cuts by exact binomial coefficients, too many orders to enumerate."""
    codes, relevant = np.zeros((n, 1), np.uint8), (np.arange(n) < r)[None, :]
    orders = comb(n, r)
    first_hits = sum(
        i * float(Fraction(comb(t - 1, i - 1) * comb(n - t, r - i), orders)) / t
        for i in range(1, k + 1)
        for t in range(i, n - r + i + 1)
    )
    got = mean_average_precision(codes[:1], codes, relevant, k=k, rule="E5")
    assert got == pytest.approx(first_hits / k, rel=1e-12)
    by_rank = 0.0
    for m in range(max(1, k - (n - r)), min(k, r) + 1):
        slope = (m - 1) / (k - 1)
        inside = sum((1 + t * slope) / (t + 1) for t in range(k)) / k  # m hits, divided by m
        by_rank += float(Fraction(comb(r, m) * comb(n - r, k - m), comb(n, k))) * inside
    assert mean_average_precision(codes[:1], codes, relevant, k=k) == pytest.approx(by_rank, rel=1e-12)


def test_collapsed_codes_on_wiki(data_file):
    """One code for all of Wiki: what its row order gives (.1906, .1110 in the reference codes), and chance."""
    wiki = np.load(data_file("wiki.npz"))
    query, train, classes = wiki["test_idx"], wiki["train_idx"], wiki["labels"]
    codes = np.zeros((len(classes), 2), np.uint8)
    relevant = (classes[query], classes[train])
    got = {
        (k, ties): mean_average_precision(codes[query], codes[train], relevant, k=k, ties=ties)
        for k in (50, None)
        for ties in ("stable", "expected", "best", "worst")
    }
    assert got[50, "stable"] == pytest.approx(0.1906, abs=5e-5)
    assert got[None, "stable"] == pytest.approx(0.111, abs=5e-4)
    assert got[50, "expected"] == pytest.approx(0.1715, abs=5e-5)
    assert got[None, "expected"] == pytest.approx(0.1114, abs=5e-5)
    assert (got[50, "worst"], got[50, "best"], got[None, "best"]) == (0.0, 1.0, 1.0)


def sum_first_hit(n, r):
    """E[1 / rank of the first relevant item] by its recurrence."""
    total, nothing_yet = 0.0, 1.0
    for t in range(1, min(n - r + 1, 2000) + 1):
        hit = r / (n - t + 1)
        total += nothing_yet * hit / t
        nothing_yet *= 1 - hit
    return total


def test_top_n_precision_and_rank_curve(brute, case):
    order = stable_ranks(brute.hamming(case.queries, case.database))
    found = np.take_along_axis(case.grades > 0, order, axis=1).cumsum(axis=1)
    n = [100, 1, 400, 7, 7]
    picked = found[:, np.array(n) - 1]
    got = precision_at(case.queries, case.database, case.grades, n=n, ties="stable")
    np.testing.assert_allclose(got, (picked / n).mean(axis=0), rtol=1e-12)
    micro = precision_recall_by_rank(case.queries, case.database, case.grades, n, "stable")
    np.testing.assert_allclose(micro.recall, picked.sum(axis=0) / found[:, -1].sum(), rtol=1e-12)
    macro = precision_recall_by_rank(case.queries, case.database, case.grades, n, "stable", average="macro")
    answerable = found[:, -1] > 0
    np.testing.assert_allclose(macro.recall, (picked[answerable] / found[answerable, -1:]).mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(macro.precision, micro.precision, rtol=1e-12)
    default = precision_recall_by_rank(case.queries, case.database, case.grades)
    assert default.at[0] == 1
    assert default.at[-1] == 400
    assert (np.diff(default.at) > 0).all()
    assert default.recall[-1] == pytest.approx(1.0)


def test_one_n_gives_one_value(case):
    assert precision_at(case.queries, case.database, case.grades, n=10).shape == (1,)


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_radius_curve(brute, case, average):
    distances, relevant = brute.hamming(case.queries, case.database), case.grades > 0
    curve = precision_recall_by_radius(case.queries, case.database, relevant, average=average)
    np.testing.assert_array_equal(curve.at, np.arange(17))
    for radius, precision, recall in zip(curve.at, curve.precision, curve.recall, strict=True):
        inside = distances <= radius
        hits, retrieved, total = (inside & relevant).sum(axis=1), inside.sum(axis=1), relevant.sum(axis=1)
        if average == "micro":
            want = hits.sum() / retrieved.sum() if retrieved.sum() else np.nan
            assert recall == pytest.approx(hits.sum() / total.sum())
        else:
            want = np.mean([h / m if m else 0.0 for h, m in zip(hits, retrieved, strict=True)])
            assert recall == pytest.approx(np.mean([h / t for h, t in zip(hits, total, strict=True) if t]))
        assert precision == pytest.approx(want, nan_ok=True)


def test_radius_curve_knows_the_bits_and_what_was_never_retrieved():
    query, database = np.zeros((1, 2), np.uint8), np.array([[255, 3], [0, 1]], np.uint8)
    curve = precision_recall_by_radius(query, database, np.array([[True, False]]), n_bits=10)
    assert len(curve.at) == 11
    assert np.isnan(curve.precision[0])
    assert curve.precision[1] == 0.0
    assert curve.precision[10] == 0.5
    assert curve.recall[10] == 1.0
    counted = precision_recall_by_radius(query, database, np.array([[True, False]]), n_bits=np.int64(10))
    np.testing.assert_array_equal(counted.recall, curve.recall)
    nothing = precision_recall_by_radius(query, database, np.array([[False, False]]), average="macro")
    assert np.isnan(nothing.recall).all()


def test_ndcg_of_graded_overlap(brute, case):
    order = stable_ranks(brute.hamming(case.queries, case.database))
    want = [brute.ndcg_at(list(row), 25) for row in np.take_along_axis(case.grades, order, axis=1)]
    labels = (case.query_labels, case.labels)
    np.testing.assert_allclose(
        ndcg_per_query(case.queries, case.database, labels, k=25, ties="stable"), want, rtol=0, atol=1e-12
    )
    assert ndcg(case.queries, case.database, labels, k=25, ties="stable") == pytest.approx(np.mean(want))
    for k in (25, None):
        integer = ndcg(case.queries, case.database, case.grades, k=k)
        assert integer == pytest.approx(ndcg(case.queries, case.database, case.grades.astype(float), k=k), abs=1e-12)


def test_pairs(brute):
    rng = np.random.default_rng(3)
    database = rng.integers(0, 256, (80, 2), dtype=np.uint8)
    queries = database ^ np.packbits(rng.random((80, 16)) < 0.2, axis=1, bitorder="little")
    distances = brute.hamming(queries, database)
    own = np.diagonal(distances)[:, None]
    nearer, tied = (distances < own).sum(axis=1), (distances == own).sum(axis=1)
    assert pair_auc(queries, database) == pytest.approx(1 - np.mean((nearer + (tied - 1) / 2) / 79))
    ranks = np.argmax(stable_ranks(distances) == np.arange(80)[:, None], axis=1) + 1
    np.testing.assert_allclose(
        pair_recall(queries, database, k=[1, 5, 80], ties="stable"), [np.mean(ranks <= k) for k in (1, 5, 80)]
    )
    assert pair_auc(database, ~database) < 0.2
    distinct = np.arange(80, dtype=np.uint8)[:, None]
    assert pair_auc(distinct, distinct) == 1.0


def test_asymmetric_signs_rank_as_hamming_does(case):
    """<q, b> of two sign vectors is K - 2 x distance: same ranking, same ties, to the last bit."""
    signs = unpack(case.queries, 16).astype(float)
    for ties in TIES:
        by_code = average_precision(case.queries, case.database, case.grades > 0, k=40, ties=ties)
        by_sign = average_precision(signs, case.database, case.grades > 0, k=40, ties=ties)
        np.testing.assert_allclose(by_code, by_sign, rtol=0, atol=1e-12)
    assert pair_auc(signs, case.database[:30]) == pytest.approx(pair_auc(case.queries, case.database[:30]))


def test_asymmetric_ranks_by_inner_product(brute):
    rng = np.random.default_rng(4)
    signs = np.where(rng.random((200, 13)) < 0.5, -1, 1)  # 13 bits: the padding must not count
    projections = rng.integers(-3, 4, (20, 13)).astype(np.float32)  # small whole numbers: ties, and exact sums
    relevant = rng.random((20, 200)) < 0.3
    order = np.argsort(-(projections @ signs.T), axis=1, kind="stable")
    want = [brute.ap_at(list(row), 30) for row in np.take_along_axis(relevant, order, axis=1)]
    got = average_precision(projections, pack(signs), relevant, k=30, ties="stable")
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    expected = average_precision(projections, pack(signs), relevant, k=30)
    samples = []
    for _ in range(300):
        shuffle = rng.permutation(200)
        shuffled = average_precision(projections, pack(signs[shuffle]), relevant[:, shuffle], k=30, ties="stable")
        samples.append(shuffled.mean())
    assert abs(expected.mean() - np.mean(samples)) < 4 * np.std(samples) / np.sqrt(len(samples))


@pytest.mark.parametrize("n_bits", [8, 64, 72, 128, 200])
def test_code_lengths(brute, n_bits):
    rng = np.random.default_rng(n_bits)
    codes = pack(rng.normal(size=(120, n_bits)))
    relevant = rng.random((20, 100)) < 0.4
    order = stable_ranks(brute.hamming(codes[:20], codes[20:]))
    want = [brute.ap_at(list(row), 50) for row in np.take_along_axis(relevant, order, axis=1)]
    np.testing.assert_allclose(average_precision(codes[:20], codes[20:], relevant, ties="stable"), want, atol=1e-12)
