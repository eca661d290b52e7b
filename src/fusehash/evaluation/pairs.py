"""Does a code find its own partner? Row i of the queries belongs to row i of the database; no labels are needed.

With c items nearer than the partner and t items tied with it (itself included), its rank is uniform on c+1..c+t:
    recall@k = mean of P(rank <= k) = clip((k - c) / t, 0, 1)
    pair AUC = 1 - mean of (c + (t - 1) / 2) / (n - 1)      (1 perfect, 1/2 chance; ties count half)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.evaluation import kernels
from fusehash.evaluation.checks import Ties, check_ranks, check_ties
from fusehash.evaluation.ranking import Ranking


def pair_recall(
    query_codes: Any, database_codes: Any, k: int | Iterable[int] = (1, 5, 10), ties: Ties = "expected"
) -> NDArray[np.float64]:
    """Share of queries whose partner is among the first k, one value per k.

    query_codes: packed codes or float projections; database_codes: packed codes, as many rows.
    """
    check_ties(ties, "pair_recall")
    ranking = Ranking(query_codes, database_codes)
    cuts = check_ranks(k, "pair_recall", "k")
    nearer, tied_before, tied = _partner_positions(ranking)
    if ties == "expected":
        return np.clip((cuts[:, None] - nearer) / tied, 0.0, 1.0).mean(axis=1)
    rank = {"stable": nearer + tied_before + 1, "best": nearer + 1, "worst": nearer + tied}[ties]
    return (rank <= cuts[:, None]).mean(axis=1)


def pair_auc(query_codes: Any, database_codes: Any) -> float:
    """1 - mean normalized rank of the true partner; ties count half, so a constant code scores exactly 1/2."""
    ranking = Ranking(query_codes, database_codes)
    nearer, _, tied = _partner_positions(ranking)
    if ranking.n_items < 2:
        raise DataError("Pair AUC needs at least two pairs. Got one.")
    return float(1.0 - (nearer + (tied - 1) / 2).mean() / (ranking.n_items - 1))


def _partner_positions(ranking: Ranking) -> NDArray[np.int64]:
    """Per query: items nearer than the partner, tied before it in row order, tied with it at all (3, n)."""
    if ranking.n_queries != ranking.n_items:
        raise DataError(
            "Queries and database must pair row by row. "
            f"Got {ranking.n_queries} queries and {ranking.n_items} database items."
        )
    positions = np.zeros((3, ranking.n_queries), dtype=np.int64)

    def work(block: slice) -> None:
        if ranking.is_hamming:
            ranking.partners(block, positions)
            return
        for query in range(block.start, block.stop):
            positions[:, query] = kernels.partner_position(ranking.levels(query)[0], query)

    ranking.for_each_block(work)
    return positions
