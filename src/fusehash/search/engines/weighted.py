"""Exact search with real-valued queries on several threads: how the work is divided. look_ups.py does it.

As in scan.py, many queries are divided into blocks that pass over all codes, and with few queries the codes are divided
instead. Neither changes a result. Every engine in memory that has no way of its own uses these two functions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.search.engines.scan import cut_evenly, run, workers
from fusehash.search.projections import Projections, Scores
from fusehash.search.rows import Allowed, CodeRows, Ints, Threads

_BLOCK = 128  # queries that share one pass over the codes
_CHUNK_BYTES = 1 << 20  # codes that stay in the second-level cache while a block of queries passes over them
_BUFFER_BYTES = 1 << 24  # memory for the buffers of a block of queries
_SHARE_BYTES = 1 << 22  # a thread is started only if it has so much to compare
_NO_LIMIT = 1 << 62  # look_ups.NO_SCORE
_ALL_ROWS = np.empty(0, np.int64)
_NONE = np.empty(0, np.int64)

NearestScores = tuple[Scores, Ints]
InScore = tuple[Ints, Scores, Ints]


def search(rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads) -> NearestScores:
    """Scores and positions of the k codes with the smallest scores, in order of (score, position)."""
    from fusehash.search.engines.look_ups import select

    layout, n_queries = _CodeWords(rows.codes, allowed), len(queries)
    capacity = min(2 * k + 16, layout.n_rows)
    threads = layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, capacity, threads)
    stretches = cut_evenly(layout.n_rows, min(-(-threads // len(query_blocks)), max(1, layout.n_rows // k)))
    scores = np.empty((len(stretches), n_queries, k), np.int64)
    positions = np.empty((len(stretches), n_queries, k), np.int64)
    calls: list[tuple[Any, ...]] = []
    for i, stretch in enumerate(stretches):
        for block in query_blocks:
            size = block.stop - block.start
            offsets = np.arange(0, (size + 1) * k, k)
            results = offsets, scores[i, block].reshape(-1), positions[i, block].reshape(-1)
            limits, kept = np.full(size, _NO_LIMIT), np.zeros(size, np.int64)
            calls.append((layout.codes(*stretch), queries.weights[block], limits, capacity, results, kept))
    run(select, calls, threads)
    if len(stretches) == 1:
        return _scaled(scores[0], queries), positions[0]
    # A stable sort keeps ties in order of position.
    flat_scores, flat_positions = (np.concatenate(list(parts), axis=1) for parts in (scores, positions))
    order = np.argsort(flat_scores, axis=1, kind="stable")[:, :k]
    nearest = np.take_along_axis(flat_scores, order, axis=1), np.take_along_axis(flat_positions, order, axis=1)
    return _scaled(nearest[0], queries), nearest[1]


def range_search(rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads) -> InScore:
    """All codes whose score is at most `radius`: offsets, scores, positions. Counted first, then collected."""
    from fusehash.search.engines.look_ups import select

    layout, n_queries = _CodeWords(rows.codes, allowed), len(queries)
    limits, threads = queries.limits(radius), layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, 1, threads)
    stretches = cut_evenly(layout.n_rows, -(-threads // len(query_blocks)))
    counts = np.zeros((len(stretches), n_queries), np.int64)
    nothing = _NONE, _NONE, _NONE
    calls: list[tuple[Any, ...]] = [
        (layout.codes(*stretch), queries.weights[block], limits[block], 0, nothing, counts[i, block])
        for i, stretch in enumerate(stretches)
        for block in query_blocks
    ]
    run(select, calls, threads)
    per_query = counts.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(per_query))).astype(np.int64)
    scores, positions = np.empty(offsets[-1], np.int64), np.empty(offsets[-1], np.int64)
    calls = []
    for block in _blocks(n_queries, int(per_query.max(initial=0)), threads):
        begin, end = int(offsets[block.start]), int(offsets[block.stop])
        if begin < end:
            results = offsets[block.start : block.stop + 1] - begin, scores[begin:end], positions[begin:end]
            capacity, kept = int(per_query[block].max()), np.zeros(block.stop - block.start, np.int64)
            everything = layout.codes(0, layout.n_rows)
            calls.append((everything, queries.weights[block], limits[block], capacity, results, kept))
    run(select, calls, threads)
    return offsets, scores * np.repeat(queries.steps, per_query), positions


class _CodeWords:
    """Codes as the kernel reads them: rows of the largest words that their bytes fill."""

    def __init__(self, codes: Codes, allowed: Ints | None) -> None:
        n_bytes = codes.shape[1]
        size = next(size for size in (8, 4, 2, 1) if n_bytes % size == 0)
        self.n_rows = len(codes) if allowed is None else len(allowed)
        self._codes, self._rows = codes.view(f"u{size}"), _ALL_ROWS if allowed is None else allowed
        self._chunk = min(1 << 14, max(256, _CHUNK_BYTES // (2 * n_bytes) // 256 * 256), -(-self.n_rows // 256) * 256)
        self._n_bytes = n_bytes

    def codes(self, start: int, stop: int) -> tuple[Any, ...]:
        return self._codes, self._rows, start, stop, self._chunk

    def worthwhile(self, n_queries: int, threads: Threads) -> int:
        """How many threads have enough work to be worth starting."""
        return max(1, min(workers(threads), self.n_rows * n_queries * self._n_bytes // _SHARE_BYTES))


def _blocks(n_queries: int, capacity: int, threads: int) -> list[slice]:
    """Blocks of queries whose buffers fit into memory, and enough of them for all threads."""
    count = -(-n_queries // max(1, min(_BLOCK, _BUFFER_BYTES // (12 * max(1, capacity)))))
    if count > 1 or n_queries >= 8 * threads:
        count = -(-count // threads) * threads
    return [slice(start, stop) for start, stop in cut_evenly(n_queries, min(count, n_queries))]


def _scaled(scores: Ints, queries: Projections) -> Scores:
    return scores * queries.steps[:, None]
