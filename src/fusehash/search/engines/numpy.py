"""The exact search in NumPy alone: the same results as scan.py, for comparison.

A distance and a position become one integer, `distance << 40 | position`; the smallest are the result.
"""

from __future__ import annotations

import numpy as np

from fusehash.bits import Codes, distances_to
from fusehash.search.rows import Allowed, CodeRows, InRange, Ints, Nearest, Threads

_SHIFT = 40
_CELLS = 1 << 22  # keys in memory at a time


class NumpyEngine:
    """Compares every code on one thread."""

    name = "numpy"

    def search(self, rows: CodeRows, queries: Codes, k: int, allowed: Allowed, threads: Threads) -> Nearest:
        positions = np.arange(len(rows)) if allowed is None else allowed
        best = np.empty((len(queries), k), np.int64)
        for q, query in enumerate(queries):
            kept = np.empty(0, np.int64)
            for start in range(0, len(positions), _CELLS):
                kept = np.concatenate((kept, _keys(rows.codes, positions[start : start + _CELLS], query)))
                if k < len(kept):
                    kept = np.partition(kept, k)[:k]
            best[q] = np.sort(kept)
        return _split(best)

    def range_search(self, rows: CodeRows, queries: Codes, radius: int, allowed: Allowed, threads: Threads) -> InRange:
        positions = np.arange(len(rows)) if allowed is None else allowed
        near, offsets = [np.empty(0, np.int64)], np.zeros(len(queries) + 1, np.int64)
        for q, query in enumerate(queries):
            parts = [np.empty(0, np.int64)]
            for start in range(0, len(positions), _CELLS):
                keys = _keys(rows.codes, positions[start : start + _CELLS], query)
                parts.append(keys[keys < (radius + 1) << _SHIFT])
            near.append(np.sort(np.concatenate(parts)))
            offsets[q + 1] = offsets[q] + len(near[-1])
        return offsets, *_split(np.concatenate(near))


def _keys(codes: Codes, positions: Ints, query: Codes) -> Ints:
    return distances_to(query, codes[positions]) << _SHIFT | positions


def _split(keys: Ints) -> Nearest:
    return (keys >> _SHIFT).astype(np.int32), keys & ((1 << _SHIFT) - 1)
