"""Exact search with real-valued queries on several threads: how the work is divided. scores.py does it.

As in scan.py, many queries are divided into blocks that pass over all codes, and with few queries the codes are divided
instead. Neither changes a result. Every engine in memory that has no way of its own uses `search` and `range_search`.
The work of other kernels is divided by `nearest_by` and `within_by`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.engines.scan import cut_evenly, run, workers
from fusehash.search.projections import Projections, Scores
from fusehash.search.rows import Allowed, CodeRows, Ints, Threads

_BLOCK = 128  # queries that share one pass over the codes
_CHUNK_BYTES = 1 << 20  # codes that stay in the second-level cache while a block of queries passes over them
_FEW, _FEW_CHUNK_BYTES = 4, 1 << 18  # queries up to which less is better: what is arranged is soon looked at
_BUFFER_BYTES = 1 << 24  # memory for the buffers of a block of queries
_SHARE_BYTES = 1 << 22  # a thread is started only if it has so much to compare
_SAMPLE = 32  # codes of which a sample has one
_MANY, _SAMPLED_ROWS = 40, 1 << 18  # neighbors and codes from which on a sample pays
_ALL_ROWS = np.empty(0, np.int64)
_NONE = np.empty(0, np.int64)

NearestScores = tuple[Scores, Ints]
InScore = tuple[Ints, Scores, Ints]


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel that keeps the best codes of each query, and what it is told about a block of queries."""

    best: Any
    asked: Callable[[slice], tuple[Any, ...]]
    no_limit: Any  # of the type of its scores, above all of them

    def call(
        self, codes: tuple[Any, ...], block: slice, limits: Any, capacity: int, results: tuple[Any, ...], kept: Any
    ) -> tuple[Any, ...]:
        return (codes, *self.asked(block), limits, capacity, results, kept)


def search(rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads) -> NearestScores:
    """Scores and positions of the k codes with the smallest scores, in order of (score, position)."""
    scores, positions = nearest_by(_kernel(queries), rows, len(queries), k, allowed, threads)
    return scores * queries.steps[:, None], positions


def range_search(rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads) -> InScore:
    """All codes whose score is at most `radius`: offsets, scores, positions."""
    offsets, scores, positions = within_by(_kernel(queries), rows, queries.limits(radius), allowed, threads)
    return offsets, scores * np.repeat(queries.steps, np.diff(offsets)), positions


def _kernel(queries: Projections) -> Kernel:
    from fusehash.search.engines.scores import NO_SCORE, select

    return Kernel(select, lambda block: (queries.weights[block],), np.int64(NO_SCORE))


def nearest_by(
    kernel: Kernel, rows: CodeRows, n_queries: int, k: int, allowed: Allowed, threads: Threads
) -> tuple[NDArray[Any], Ints]:
    """What the kernel scores lowest: scores and positions of k codes, in order of (score, position)."""
    layout = _CodeWords(rows.codes, allowed, n_queries)
    capacity = min(2 * k + 16, layout.n_rows)
    threads = layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, capacity, threads)
    stretches = cut_evenly(layout.n_rows, min(-(-threads // len(query_blocks)), max(1, layout.n_rows // k)))
    scores = np.empty((len(stretches), n_queries, k), kernel.no_limit.dtype)
    positions = np.empty((len(stretches), n_queries, k), np.int64)
    limits = np.full(n_queries, kernel.no_limit)
    if len(stretches) == 1 and allowed is None and k >= _MANY and len(rows) >= _SAMPLED_ROWS:
        limits = _limits_of_sample(kernel, rows, n_queries, k, threads)
    kept = np.zeros((len(stretches), n_queries), np.int64)

    def call(i: int, block: slice) -> tuple[Any, ...]:
        offsets = np.arange(0, (block.stop - block.start + 1) * k, k)
        results = offsets, scores[i, block].reshape(-1), positions[i, block].reshape(-1)
        return kernel.call(layout.codes(*stretches[i]), block, limits[block], capacity, results, kept[i, block])

    run(kernel.best, [call(i, block) for i in range(len(stretches)) for block in query_blocks], threads)
    if len(stretches) == 1:
        missed = [block for block in query_blocks if kept[0, block].min() < k]  # a sample has misled
        for block in missed:
            limits[block] = kernel.no_limit
        run(kernel.best, [call(0, block) for block in missed], threads)
        return scores[0], positions[0]
    # A stable sort keeps ties in order of position.
    flat_scores, flat_positions = (np.concatenate(list(parts), axis=1) for parts in (scores, positions))
    order = np.argsort(flat_scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(flat_scores, order, axis=1), np.take_along_axis(flat_positions, order, axis=1)


def _limits_of_sample(kernel: Kernel, rows: CodeRows, n_queries: int, k: int, threads: Threads) -> NDArray[Any]:
    """What the best k codes of a query almost certainly score less than, from every 32nd code.

    Codes in no particular order are compared exactly about k (1 + log(n / k)) times, as long as the limit falls; from
    a limit near the last one on it is about k.
    """
    expected = k / _SAMPLE
    rank = int(expected + 4 * np.sqrt(expected)) + 4  # of the sample, with room for bad luck
    sample = np.arange(0, len(rows), _SAMPLE)
    if rank > len(sample):  # of nearly all codes
        return np.full(n_queries, kernel.no_limit)
    scores, _ = nearest_by(kernel, rows, n_queries, rank, sample, threads)
    worst = scores[:, -1]
    return worst + 1 if worst.dtype.kind == "i" else np.nextafter(worst, np.inf)


def within_by(
    kernel: Kernel, rows: CodeRows, limits: NDArray[Any], allowed: Allowed, threads: Threads
) -> tuple[Ints, NDArray[Any], Ints]:
    """All codes below the limit of each query: offsets, scores, positions. Counted first, then collected."""
    n_queries = len(limits)
    layout = _CodeWords(rows.codes, allowed, n_queries)
    threads = layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, 1, threads)
    stretches = cut_evenly(layout.n_rows, -(-threads // len(query_blocks)))
    counts = np.zeros((len(stretches), n_queries), np.int64)
    nothing = _NONE, np.empty(0, kernel.no_limit.dtype), _NONE
    calls = [
        kernel.call(layout.codes(*stretch), block, limits[block], 0, nothing, counts[i, block])
        for i, stretch in enumerate(stretches)
        for block in query_blocks
    ]
    run(kernel.best, calls, threads)
    per_query = counts.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(per_query))).astype(np.int64)
    scores, positions = np.empty(offsets[-1], kernel.no_limit.dtype), np.empty(offsets[-1], np.int64)
    calls = []
    for block in _blocks(n_queries, int(per_query.max(initial=0)), threads):
        begin, end = int(offsets[block.start]), int(offsets[block.stop])
        if begin < end:
            results = offsets[block.start : block.stop + 1] - begin, scores[begin:end], positions[begin:end]
            capacity, kept = int(per_query[block].max()), np.zeros(block.stop - block.start, np.int64)
            calls.append(kernel.call(layout.codes(0, layout.n_rows), block, limits[block], capacity, results, kept))
    run(kernel.best, calls, threads)
    return offsets, scores, positions


class _CodeWords:
    """Codes as the kernel reads them: rows of the largest words that their bytes fill."""

    def __init__(self, codes: Codes, allowed: Ints | None, n_queries: int) -> None:
        n_bytes = codes.shape[1]
        size = next(size for size in (8, 4, 2, 1) if n_bytes % size == 0)
        self.n_rows = len(codes) if allowed is None else len(allowed)
        self._codes, self._rows = codes.view(f"u{size}"), _ALL_ROWS if allowed is None else allowed
        chunk_bytes = min(_CHUNK_BYTES, _FEW_CHUNK_BYTES) if n_queries <= _FEW else _CHUNK_BYTES
        self._chunk = min(1 << 14, max(256, chunk_bytes // (2 * n_bytes) // 256 * 256), -(-self.n_rows // 256) * 256)
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
