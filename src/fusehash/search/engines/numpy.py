"""The exact search in NumPy alone: what scan.py computes, to the position, where numba is not to be had.

A code's distance and position are put into one integer, ``distance << 40 | position``; the smallest are the result.
"""

from __future__ import annotations

import numpy as np

from fusehash.bits import Codes
from fusehash.search.engines.scan import Distances, Ints

_SHIFT = 40
_CELLS = 1 << 22  # keys held at a time


def top_k(
    codes: Codes, queries: Codes, k: int, *, rows: Ints | None = None, threads: int | None = None
) -> tuple[Distances, Ints]:
    """As `fusehash.search.engines.scan.top_k`; one thread whatever ``threads`` says."""
    looked_at = np.arange(len(codes)) if rows is None else rows
    best = np.empty((len(queries), k), np.int64)
    for q, query in enumerate(queries):
        kept = np.empty(0, np.int64)
        for start in range(0, len(looked_at), _CELLS):
            kept = np.concatenate((kept, _keys(codes, looked_at[start : start + _CELLS], query)))
            if k < len(kept):
                kept = np.partition(kept, k)[:k] if k else kept[:0]
        best[q] = np.sort(kept)
    return _split(best)


def within(
    codes: Codes, queries: Codes, radius: int, *, rows: Ints | None = None, threads: int | None = None
) -> tuple[Ints, Distances, Ints]:
    """As `fusehash.search.engines.scan.within`; one thread whatever ``threads`` says."""
    looked_at = np.arange(len(codes)) if rows is None else rows
    found: list[Ints] = []
    offsets = np.zeros(len(queries) + 1, np.int64)
    for q, query in enumerate(queries):
        near = [np.empty(0, np.int64)]
        for start in range(0, len(looked_at), _CELLS):
            keys = _keys(codes, looked_at[start : start + _CELLS], query)
            near.append(keys[keys < (radius + 1) << _SHIFT])
        found.append(np.sort(np.concatenate(near)))
        offsets[q + 1] = offsets[q] + len(found[-1])
    return offsets, *_split(np.concatenate(found) if found else np.empty(0, np.int64))


def warm_up(n_bits: int) -> None:
    """Nothing to compile."""


def _keys(codes: Codes, rows: Ints, query: Codes) -> Ints:
    distances = np.bitwise_count(codes[rows] ^ query).sum(axis=1, dtype=np.int64)
    return distances << _SHIFT | rows


def _split(keys: Ints) -> tuple[Distances, Ints]:
    return (keys >> _SHIFT).astype(np.int32), keys & ((1 << _SHIFT) - 1)
