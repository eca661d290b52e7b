"""Average precision and its mean over queries, with ties done right.

    AP@k(q) = (1 / R_k) sum_{r <= k, item r relevant} precision@r,   R_k = relevant items inside the top k;   0 if none
    MAP@k = mean over queries

Short codes tie a lot, and AP depends on the order inside a tie. `ties` says which order is meant:
"expected" the exact mean over all orders (closed form, default), "stable" database order (as the MATLAB codes), "best"
and "worst" the extremes over all orders. A constant code scores chance level under "expected", whatever the row order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.evaluation import tie_kernels
from fusehash.evaluation.checks import ORDER, Ties, check_k, check_ties
from fusehash.evaluation.map_rules import MapRule, get_rule
from fusehash.evaluation.ranking import Ranking
from fusehash.evaluation.relevance import Relevant, as_relevance


def mean_average_precision(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: int | None = 50,
    ties: Ties = "expected",
    *,
    rule: str = "E1",
) -> float:
    """MAP@k: the mean over queries of AP@k.

    Parameters
    ----------
    query_codes : uint8 packed codes (n_queries, bytes), or float projections (n_queries, n_bits) to rank asymmetrically
    database_codes : uint8 packed codes (n_items, bytes)
    relevant : a pair (query_labels, database_labels), a (n_queries, n_items) matrix, or a function (see `relevance`)
    k : the cut; None is the whole database
    ties : "expected", "stable", "best" or "worst"
    rule : which of the public meanings of MAP@k, a key of MAP_RULES; E3, E3', E4 and E6 want k=None
    """
    definition = get_rule(rule, k, "mean_average_precision")
    values, has_relevant = _per_query(
        query_codes, database_codes, relevant, k, ties, definition, "mean_average_precision"
    )
    return definition.mean(values, has_relevant)


def average_precision(
    query_codes: Any,
    database_codes: Any,
    relevant: Relevant,
    k: int | None = 50,
    ties: Ties = "expected",
    *,
    rule: str = "E1",
) -> NDArray[np.float64]:
    """AP@k of every query (n_queries,); parameters as for `mean_average_precision`. A query without hits has 0."""
    definition = get_rule(rule, k, "average_precision")
    return _per_query(query_codes, database_codes, relevant, k, ties, definition, "average_precision")[0]


def _per_query(
    query_codes: Any, database_codes: Any, relevant: Relevant, k: int | None, ties: Ties, rule: MapRule, owner: str
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """AP of every query, and whether the database holds anything relevant to it."""
    check_ties(ties, owner)
    ranking = Ranking(query_codes, database_codes)
    cut = check_k(k, owner, ranking.n_items)
    relevance = as_relevance(relevant, ranking.n_queries, ranking.n_items)
    values = np.zeros(ranking.n_queries)
    has_relevant = np.zeros(ranking.n_queries, dtype=bool)
    rank_cut = {"best": tie_kernels.best_ap, "worst": tie_kernels.worst_ap}.get(ties, tie_kernels.expected_ap)

    def work(block: slice) -> None:
        if ranking.is_hamming and rule.cut == "rank" and ties in ("expected", "stable"):
            ranking.average_precisions(block, relevance.hits(block), cut, ties == "stable", values, has_relevant)
            return
        for query, hits in enumerate(relevance.hits(block), block.start):
            sizes, found = ranking.group_hits(query, hits, stable=ties == "stable")
            has_relevant[query] = found.any()
            if rule.cut == "rank":
                values[query] = rank_cut(sizes, found, cut)
            else:
                values[query] = tie_kernels.first_hits_ap(sizes, found, cut, ORDER[ties])

    ranking.for_each_block(work)
    return values, has_relevant
