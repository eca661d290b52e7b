"""Curves: top-N precision, and precision against recall by Hamming radius or by rank.

h_q(N) is the number of relevant items in the top N of query q (under the order that `ties` selects), R_q of all items:
    precision@N = mean_q h_q(N) / N
    micro:  precision = sum_q h_q / sum_q retrieved_q,   recall = sum_q h_q / sum_q R_q
    macro:  precision = mean_q h_q / retrieved_q (0 where nothing is retrieved),
            recall = mean of h_q / R_q over the queries with R_q > 0
A value that would be 0/0 (nothing retrieved, nothing relevant) is NaN.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import n_bytes
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import tie_kernels
from fusehash.evaluation.ranking import ORDER, TIES, Ranking, Ties, check_ranks
from fusehash.evaluation.relevance import Relevant, as_relevance
from fusehash.parameters import choice, integer
from fusehash.views import Floats

Average: TypeAlias = Literal["micro", "macro"]


@dataclass(frozen=True, repr=False)
class PrecisionRecall:
    """A curve: precision and recall at every cut.

    Attributes
    ----------
    at : array of int (n_cuts,)
        The cuts: Hamming radii or ranks.
    precision, recall : arrays of float (n_cuts,)
        NaN where the ratio is 0/0.
    """

    at: NDArray[np.int64]
    precision: Floats
    recall: Floats

    def __repr__(self) -> str:
        return f"PrecisionRecall({len(self.at)} cuts from {self.at[0]} to {self.at[-1]})"


def precision_at(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    n: int | Iterable[int] = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000),
    ties: Ties = "expected",
) -> Floats:
    """Precision of the first N answers, mean over queries.

    Parameters
    ----------
    query_codes, database_codes, relevant, ties
        As for `mean_average_precision`, with the same errors.
    n : int or iterable of int, default=(100, 200, ..., 1000)
        One or more N, at most the number of database items.

    Returns
    -------
    array of float (len(n),)
        One value per N; higher is better.

    Examples
    --------
    >>> queries, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> precision_at(queries, database, ([1], [1, 2, 1]), n=(1, 2))
    array([1. , 0.5])
    """
    choice(*TIES).check("precision_at", "ties", ties)
    ranking = Ranking(query_codes, database_codes)
    ranks = check_ranks(n, "precision_at", "n", ranking.n_items)
    return _hits_at(ranking, relevant, ranks, ties)[0].mean(axis=0) / ranks


def precision_recall_by_rank(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    ranks: Iterable[int] | None = None,
    ties: Ties = "expected",
    *,
    average: Average = "micro",
) -> PrecisionRecall:
    """Precision and recall of the first N answers, for several N.

    Parameters
    ----------
    query_codes, database_codes, relevant, ties
        As for `mean_average_precision`, with the same errors.
    ranks : iterable of int or None, default=None
        The N; None is about 100 ranks from 1 to all, evenly spaced on a log scale.
    average : {"micro", "macro"}, default="micro"
        Pool the counts of all queries, or average the ratios of the queries.

    Returns
    -------
    PrecisionRecall
        One point per rank.

    Examples
    --------
    >>> queries, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> precision_recall_by_rank(queries, database, ([1], [1, 2, 1]), ranks=(1, 2)).recall
    array([0.5, 0.5])
    """
    choice(*TIES).check("precision_recall_by_rank", "ties", ties)
    choice("micro", "macro").check("precision_recall_by_rank", "average", average)
    ranking = Ranking(query_codes, database_codes)
    if ranks is None:
        ranks = [int(rank) for rank in np.unique(np.rint(np.geomspace(1, ranking.n_items, 100)))]
    cuts = check_ranks(ranks, "precision_recall_by_rank", "ranks", ranking.n_items)
    hits, total = _hits_at(ranking, relevant, cuts, ties)
    return _curve(cuts, hits, np.broadcast_to(cuts, hits.shape), total, average)


def precision_recall_by_radius(
    query_codes: Any, database_codes: Any, relevant: Relevant, *, n_bits: int | None = None, average: Average = "micro"
) -> PrecisionRecall:
    """Precision and recall of all items within Hamming radius 0, 1, ..., n_bits.

    A radius never cuts through a tie, so that the order inside ties does not matter.

    Parameters
    ----------
    query_codes, database_codes, relevant
        As for `mean_average_precision`; the queries must be packed codes.
    n_bits : int or None, default=None
        The length of the codes; None is all bits of their bytes.
    average
        As for `precision_recall_by_rank`.

    Returns
    -------
    PrecisionRecall
        One point per radius.

    Raises
    ------
    ParameterError, DataError
        As for `mean_average_precision`; also if n_bits does not fit the codes, or the queries are projections.

    Examples
    --------
    >>> queries, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> precision_recall_by_radius(queries, database, ([1], [1, 2, 1])).precision[:2]
    array([1. , 0.5])
    """
    choice("micro", "macro").check("precision_recall_by_radius", "average", average)
    ranking = Ranking(query_codes, database_codes)
    if not ranking.is_hamming:
        raise DataError("A Hamming radius needs binary query codes (uint8). Got real-valued projections instead.")
    largest = ranking.max_distance if n_bits is None else n_bits
    if not integer(1).accepts(largest) or n_bytes(largest) * 8 != ranking.max_distance:
        expected = f"the number of bits behind {ranking.max_distance // 8} bytes"
        raise ParameterError("precision_recall_by_radius", "n_bits", expected, n_bits)
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    retrieved, hits = np.zeros((2, ranking.n_queries, ranking.max_distance + 1), dtype=np.int64)

    def work(block: slice) -> None:
        for query, is_relevant in enumerate(relevance.hits(block), block.start):
            retrieved[query], hits[query] = ranking.groups(query, is_relevant)

    ranking.for_each_block(work)
    radii = np.arange(largest + 1)
    within = hits.cumsum(axis=1)[:, radii].astype(float)
    return _curve(radii, within, retrieved.cumsum(axis=1)[:, radii], hits.sum(axis=1), average)


def _hits_at(
    ranking: Ranking, relevant: Relevant, ranks: NDArray[np.int64], ties: Ties
) -> tuple[Floats, NDArray[np.int64]]:
    """Relevant items in the top of every rank (n_queries, ranks), and in the whole database (n_queries,)."""
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    ascending, position = np.unique(ranks, return_inverse=True)
    hits = np.zeros((ranking.n_queries, len(ascending)))
    total = np.zeros(ranking.n_queries, dtype=np.int64)

    def work(block: slice) -> None:
        for query, is_relevant in enumerate(relevance.hits(block), block.start):
            sizes, group_hits = ranking.groups(query, is_relevant, stable=ties == "stable")
            total[query] = group_hits.sum()
            tie_kernels.hits_at(sizes, group_hits, ascending, ORDER[ties], hits[query])

    ranking.for_each_block(work)
    return hits[:, position], total


def _curve(
    at: NDArray[np.int64], hits: Floats, retrieved: NDArray[np.int64], total: NDArray[np.int64], average: Average
) -> PrecisionRecall:
    if average == "micro":
        pooled = hits.sum(axis=0)
        return PrecisionRecall(at, _ratio(pooled, retrieved.sum(axis=0)), _ratio(pooled, total.sum()))
    answerable = total > 0
    precision = np.nan_to_num(_ratio(hits, retrieved)).mean(axis=0)
    recall = _ratio((hits[answerable] / total[answerable, None]).sum(axis=0), answerable.sum())
    return PrecisionRecall(at, precision, recall)


def _ratio(part: Floats, whole: Any) -> Floats:
    """part / whole, NaN where the whole is 0."""
    return np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
