"""The exact search in NumPy alone: the same results as scan.py, for comparison.

A distance and a position become one integer, `distance << 40 | position`; the smallest are the result.
"""

from __future__ import annotations

import numpy as np

from fusehash.bits import Codes, distances_to
from fusehash.search.rows import Allowed, CodeRows, InRange, Ints, Nearest, Threads

SHIFT = 40  # a key is distance << 40 | position


class NumpyEngine:
    """Compares every code on one thread."""

    name = "numpy"

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        best = np.empty((len(queries), k), np.int64)
        for q, query in enumerate(queries):
            keys = _keys(rows, query, allowed)
            best[q] = np.sort(np.partition(keys, k)[:k] if k < len(keys) else keys)
        return split(best)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        near = [np.empty(0, np.int64)]
        for query in queries:
            keys = _keys(rows, query, allowed)
            near.append(np.sort(keys[keys < (radius + 1) << SHIFT]))
        offsets = np.cumsum([len(keys) for keys in near], dtype=np.int64)
        return offsets, *split(np.concatenate(near))


def _keys(rows: CodeRows, query: Codes, allowed: Allowed) -> Ints:
    if allowed is None:
        return distances_to(query, rows.codes) << SHIFT | np.arange(len(rows))
    return distances_to(query, rows.codes[allowed]) << SHIFT | allowed


def split(keys: Ints) -> Nearest:
    """Distances and positions from keys."""
    return (keys >> SHIFT).astype(np.int32), keys & ((1 << SHIFT) - 1)
