"""Exact search with real-valued queries over codes with factors, on several threads: how the work is divided.

As in weighted.py; bounds.py does the work.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fusehash.search.engines.scan import cut_evenly, run
from fusehash.search.engines.weighted import InScore, NearestScores, _blocks, _CodeWords
from fusehash.search.factors import factors_of
from fusehash.search.projections import Projections
from fusehash.search.rows import Allowed, CodeRows, Threads

_NONE, _NO_SCORES = np.empty(0, np.int64), np.empty(0)


def search(rows: CodeRows, queries: Projections, k: int, allowed: Allowed, threads: Threads) -> NearestScores:
    """Distances and positions of the k codes with the smallest distances, in order of (distance, position)."""
    from fusehash.search.engines.bounds import nearest

    layout, n_queries = _CodeWords(rows.codes, allowed), len(queries)
    capacity, factors = min(2 * k + 16, layout.n_rows), factors_of(rows)
    threads = layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, capacity, threads)
    stretches = cut_evenly(layout.n_rows, min(-(-threads // len(query_blocks)), max(1, layout.n_rows // k)))
    distances = np.empty((len(stretches), n_queries, k))
    positions = np.empty((len(stretches), n_queries, k), np.int64)
    calls: list[tuple[Any, ...]] = []
    for i, stretch in enumerate(stretches):
        for block in query_blocks:
            size = block.stop - block.start
            offsets = np.arange(0, (size + 1) * k, k)
            results = offsets, distances[i, block].reshape(-1), positions[i, block].reshape(-1)
            asked = queries.weights[block], queries.steps[block], np.full(size, np.inf)
            calls.append((layout.codes(*stretch), factors, *asked, capacity, results, np.zeros(size, np.int64)))
    run(nearest, calls, threads)
    if len(stretches) == 1:
        return distances[0], positions[0]
    # A stable sort keeps ties in order of position.
    flat_distances, flat_positions = (np.concatenate(list(parts), axis=1) for parts in (distances, positions))
    order = np.argsort(flat_distances, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(flat_distances, order, axis=1), np.take_along_axis(flat_positions, order, axis=1)


def range_search(rows: CodeRows, queries: Projections, radius: float, allowed: Allowed, threads: Threads) -> InScore:
    """All codes whose distance is at most `radius`: offsets, distances, positions. Counted first, then collected."""
    from fusehash.search.engines.bounds import nearest

    layout, n_queries, factors = _CodeWords(rows.codes, allowed), len(queries), factors_of(rows)
    limits, threads = np.full(n_queries, math.nextafter(radius, math.inf)), layout.worthwhile(n_queries, threads)
    query_blocks = _blocks(n_queries, 1, threads)
    stretches = cut_evenly(layout.n_rows, -(-threads // len(query_blocks)))
    counts = np.zeros((len(stretches), n_queries), np.int64)
    nothing = _NONE, _NO_SCORES, _NONE
    calls: list[tuple[Any, ...]] = [
        (layout.codes(*stretch), factors, *_asked(queries, limits, block), 0, nothing, counts[i, block])
        for i, stretch in enumerate(stretches)
        for block in query_blocks
    ]
    run(nearest, calls, threads)
    per_query = counts.sum(axis=0)
    offsets = np.concatenate(([0], np.cumsum(per_query))).astype(np.int64)
    distances, positions = np.empty(offsets[-1]), np.empty(offsets[-1], np.int64)
    calls = []
    for block in _blocks(n_queries, int(per_query.max(initial=0)), threads):
        begin, end = int(offsets[block.start]), int(offsets[block.stop])
        if begin < end:
            results = offsets[block.start : block.stop + 1] - begin, distances[begin:end], positions[begin:end]
            capacity, kept = int(per_query[block].max()), np.zeros(block.stop - block.start, np.int64)
            everything = layout.codes(0, layout.n_rows)
            calls.append((everything, factors, *_asked(queries, limits, block), capacity, results, kept))
    run(nearest, calls, threads)
    return offsets, distances, positions


def _asked(queries: Projections, limits: Any, block: slice) -> tuple[Any, Any, Any]:
    return queries.weights[block], queries.steps[block], limits[block]
