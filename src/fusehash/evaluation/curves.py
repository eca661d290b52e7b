"""Curves: top-N precision, and precision against recall by Hamming radius or by rank.

With h_q(N) the relevant items in the top N of query q (under ties: expected, stable, most or fewest), R_q all of them:
    precision@N = mean_q h_q(N) / N
    micro:  precision = sum_q h_q / sum_q retrieved_q,   recall = sum_q h_q / sum_q R_q
    macro:  precision = mean_q h_q / retrieved_q (0 where nothing is retrieved),
            recall = mean of h_q / R_q over the queries with R_q > 0
A value that would be 0/0 (nothing retrieved, nothing relevant) is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import n_bytes
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import tie_kernels
from fusehash.evaluation.checks import ORDER, Ties, check_ranks, check_ties
from fusehash.evaluation.ranking import Ranking
from fusehash.evaluation.relevance import Relevant, as_relevance

Floats: TypeAlias = NDArray[np.float64]
Average: TypeAlias = Literal["micro", "macro"]


@dataclass(frozen=True)
class PrecisionRecall:
    """A curve: precision and recall at every cut in `at` (Hamming radii or ranks)."""

    at: NDArray[np.int64]
    precision: Floats
    recall: Floats


def precision_at(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    n: int | Iterable[int] = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000),
    ties: Ties = "expected",
) -> Floats:
    """Top-N precision, one value per N: relevant items in the first N / N, mean over queries.

    Other parameters as for `mean_average_precision`.
    """
    check_ties(ties, "precision_at")
    ranking = Ranking(query_codes, database_codes)
    ranks = check_ranks(n, "precision_at", "n", ranking.n_items)
    found, _ = _hits_at(ranking, relevant, ranks, ties)
    return found.mean(axis=0) / ranks


def precision_recall_by_rank(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    ranks: Iterable[int] | None = None,
    ties: Ties = "expected",
    *,
    average: Average = "micro",
) -> PrecisionRecall:
    """Precision and recall of the top N for N in `ranks` (None: about 100 ranks from 1 to all, even on a log scale)."""
    check_ties(ties, "precision_recall_by_rank")
    _check_average(average, "precision_recall_by_rank")
    ranking = Ranking(query_codes, database_codes)
    if ranks is None:
        ranks = [int(rank) for rank in np.unique(np.rint(np.geomspace(1, ranking.n_items, 100)))]
    cuts = check_ranks(ranks, "precision_recall_by_rank", "ranks", ranking.n_items)
    found, total = _hits_at(ranking, relevant, cuts, ties)
    return _curve(cuts, found, np.broadcast_to(cuts, found.shape), total, average)


def precision_recall_by_radius(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    *,
    n_bits: int | None = None,
    average: Average = "micro",
) -> PrecisionRecall:
    """Precision and recall of all items within Hamming radius 0, 1, ..., n_bits (by default all bits of the bytes).

    A radius never cuts through a tie, so there is nothing to say about ties.
    """
    _check_average(average, "precision_recall_by_radius")
    ranking = Ranking(query_codes, database_codes)
    if not ranking.is_hamming:
        raise DataError("A Hamming radius needs binary query codes (uint8). Got real-valued projections instead.")
    largest = ranking.max_distance if n_bits is None else n_bits
    is_whole = isinstance(largest, Integral) and not isinstance(largest, bool)
    if not is_whole or largest < 1 or n_bytes(largest) * 8 != ranking.max_distance:
        raise ParameterError(
            "precision_recall_by_radius",
            "n_bits",
            f"the number of bits behind {ranking.max_distance // 8} bytes",
            n_bits,
        )
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    retrieved = np.zeros((ranking.n_queries, ranking.max_distance + 1), dtype=np.int64)
    found = np.zeros_like(retrieved)

    def work(block: slice) -> None:
        for query, hits in enumerate(relevance.hits(block), block.start):
            retrieved[query], found[query] = ranking.group_hits(query, hits)

    ranking.for_each_block(work)
    retrieved, found = retrieved.cumsum(axis=1), found.cumsum(axis=1)
    radii = np.arange(largest + 1)
    return _curve(radii, found[:, : largest + 1].astype(float), retrieved[:, : largest + 1], found[:, -1], average)


def _hits_at(
    ranking: Ranking, relevant: Relevant, ranks: NDArray[np.int64], ties: Ties
) -> tuple[Floats, NDArray[np.int64]]:
    """Relevant items in the top of every rank (n_queries, ranks), and in the whole database (n_queries,)."""
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    ascending, place = np.unique(ranks, return_inverse=True)
    found = np.zeros((ranking.n_queries, len(ascending)))
    total = np.zeros(ranking.n_queries, dtype=np.int64)

    def work(block: slice) -> None:
        for query, hits in enumerate(relevance.hits(block), block.start):
            sizes, relevant_in = ranking.group_hits(query, hits, stable=ties == "stable")
            total[query] = relevant_in.sum()
            tie_kernels.hits_at(sizes, relevant_in, ascending, ORDER[ties], found[query])

    ranking.for_each_block(work)
    return found[:, place], total


def _curve(
    at: NDArray[np.int64], found: Floats, retrieved: NDArray[np.int64], total: NDArray[np.int64], average: Average
) -> PrecisionRecall:
    if average == "micro":
        hits = found.sum(axis=0)
        return PrecisionRecall(at, _ratio(hits, retrieved.sum(axis=0)), _ratio(hits, np.full(len(at), total.sum())))
    answerable = total > 0
    precision = np.nan_to_num(_ratio(found, retrieved)).mean(axis=0)
    recall = _ratio((found[answerable] / total[answerable, None]).sum(axis=0), np.full(len(at), answerable.sum()))
    return PrecisionRecall(at, precision, recall)


def _ratio(part: Floats, whole: NDArray[np.int64]) -> Floats:
    """part / whole, NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)


def _check_average(average: Any, owner: str) -> None:
    if average not in ("micro", "macro"):
        raise ParameterError(owner, "average", "'micro' or 'macro'", average)
