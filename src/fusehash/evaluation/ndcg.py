"""Normalized discounted cumulative gain with graded relevance (number of shared labels).

    DCG@k = sum_{r <= k} gain(grade of item r) / log2(r + 1),   gain(x) = 2^x - 1 ("exponential") or x ("linear")
    NDCG@k = DCG@k / (DCG@k of the best possible ranking), 0 where nothing is relevant; mean over queries

Under ties="expected" every slot of a tie group has the mean gain of the group; DCG is linear in gains: this is exact.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import tie_kernels
from fusehash.evaluation.checks import check_k, check_ties
from fusehash.evaluation.ranking import Ranking
from fusehash.evaluation.relevance import Relevant, as_relevance

Gain: TypeAlias = Literal["exponential", "linear"]

# Beyond it 2^grade, summed over a database, overflows.
LARGEST_GRADE = 900


def ndcg(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: int | None = 50,
    ties: Literal["expected", "stable"] = "expected",
    *,
    gain: Gain = "exponential",
) -> float:
    """NDCG@k, mean over all queries. Parameters as for `mean_average_precision`; ties "expected" or "stable"."""
    return float(ndcg_per_query(query_codes, database_codes, relevant, k, ties, gain=gain).mean())


def ndcg_per_query(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: int | None = 50,
    ties: Literal["expected", "stable"] = "expected",
    *,
    gain: Gain = "exponential",
) -> NDArray[np.float64]:
    """NDCG@k of every query (n_queries,)."""
    check_ties(ties, "ndcg", ("expected", "stable"))
    if gain not in ("exponential", "linear"):
        raise ParameterError("ndcg", "gain", "'exponential' or 'linear'", gain)
    ranking = Ranking(query_codes, database_codes)
    cut = check_k(k, "ndcg", ranking.n_items)
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    discounts = 1.0 / np.log2(np.arange(2, cut + 2))
    values = np.zeros(ranking.n_queries)

    def work(block: slice) -> None:
        for query, grades in enumerate(relevance.grades(block), block.start):
            gains, largest = _gains(grades, gain, cut)
            ideal = largest @ discounts
            if ideal > 0:
                sizes, sums = ranking.group_gains(query, gains, stable=ties == "stable")
                values[query] = tie_kernels.discounted_gain(sizes, sums, discounts) / ideal

    ranking.for_each_block(work)
    return values


def _gains(grades: NDArray[Any], gain: Gain, k: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The gain of every item, and the k largest gains in falling order."""
    if (
        grades.dtype.kind == "u" and grades.max() < 1024
    ):  # few values, many items: a table and a count, no powers, no sort
        values = _gain(np.arange(int(grades.max()) + 1), gain)
        counts = np.bincount(grades)
        return values[grades], np.repeat(values[::-1], counts[::-1])[:k]
    gains = _gain(grades, gain)
    return gains, np.sort(gains)[::-1][:k]


def _gain(grades: NDArray[Any], gain: Gain) -> NDArray[np.float64]:
    exact = grades.astype(np.float64)
    if gain == "exponential" and exact.max() > LARGEST_GRADE:
        raise DataError(f"Grades under exponential gain must be at most {LARGEST_GRADE}. Got {exact.max():g}.")
    return np.exp2(exact) - 1.0 if gain == "exponential" else exact
