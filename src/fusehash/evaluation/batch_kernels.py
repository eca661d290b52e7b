"""The loops over queries, compiled: what most evaluations ask for, without a step of Python for every query."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.evaluation.kernels import break_ties_in_order, group_hits, hamming_levels, partner_position
from fusehash.evaluation.tie_kernels import expected_ap
from fusehash.numerics.compiled import compiled


@compiled()
def ap_of_queries(
    queries: Any, words: Any, n_levels: Any, relevant: Any, k: Any, stable: Any, values: Any, has_relevant: Any
) -> None:
    """AP@k of every query (a row of words each) by Hamming distance; ties count as their mean, or in database order."""
    n = words.shape[1]
    n_groups = n if stable else n_levels
    levels = np.empty(n, np.int32)
    sizes, hits = np.empty(n_groups, np.int64), np.empty(n_groups, np.int64)
    for q in range(queries.shape[0]):
        hamming_levels(queries[q], words, levels)
        if stable:
            break_ties_in_order(levels, n_levels)
        sizes[:] = 0
        hits[:] = 0
        group_hits(levels, relevant[q], sizes, hits)
        has_relevant[q] = hits.sum() > 0
        values[q] = expected_ap(sizes, hits, k)


@compiled()
def partners_of_queries(queries: Any, words: Any, first: Any, positions: Any) -> None:
    """`partner_position` of queries whose partners stand from item ``first`` on, into the columns of (3, queries)."""
    levels = np.empty(words.shape[1], np.int32)
    for q in range(queries.shape[0]):
        hamming_levels(queries[q], words, levels)
        positions[:, q] = partner_position(levels, first + q)
