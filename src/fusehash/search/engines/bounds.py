"""Exact search with real-valued queries over codes with factors (see factors.py), compiled.

As in scores.py, with one difference: what a code must stay below depends on its factors. A code with scale s and
offset o is nearer than the limit L, the k-th distance so far, only if the sum d of the differing weights is

    d < (T + (L + o) / (s step)) / 2,

which is linear in 1 / s and o / s. These bounds are computed in single precision, rounded up by more than they can be
wrong, for all codes of a stretch at a time; look-ups that reach them are done with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.search.engines.kernel import GROUP, entry, lean, lowest_bit
from fusehash.search.engines.look_ups import ENTRIES, PART, STEP, fill, mark_bounded, score_of
from fusehash.search.engines.scores import cut_to, emit, trim
from fusehash.search.engines.tiles import LANES, QUAD_BYTES, lay_out, matrix, room_for
from fusehash.search.factors import LARGEST

_F = np.float32


@lean
def _invert(factors: Any, rows: Any, first: int, count: int, inverse: Any, ratio: Any) -> None:
    """1 / scale and offset / scale of `count` codes; not finite where a scale is (nearly) 0."""
    for i in range(count):
        row = rows[first + i] if len(rows) else first + i
        inverse[i] = _F(1.0) / factors[row, 0]
        ratio[i] = factors[row, 1] * inverse[i]


@lean
def _bounds(inverse: Any, ratio: Any, step: Any, total: Any, table_step: Any, limit: Any, out: Any) -> None:
    """For each code, what the sum of its look-ups must stay below; 65535, which no sum reaches, if that is unknown."""
    if limit > LARGEST:  # there is none yet
        out[:] = np.uint16(65535)
        return
    unit = 0.5 / (step * table_step)
    a, b, c = _F(0.5 * total / table_step), _F(limit * unit), _F(unit)
    slack, none, most, zero = _F(4e-6), _F(1.0), _F(65535.0), _F(0.0)
    for i in range(len(out)):
        x, y = b * inverse[i], c * ratio[i]
        bound = a + x + y + none + slack * (a + abs(x) + abs(y))
        bound = bound if bound < most else most  # also if it is not a number
        out[i] = np.uint16(np.int32(bound if bound > zero else zero))


@lean
def _accept(marks: Any, pairs: int, codes: Any, factors: Any, rows: Any, first: int, base: int, k: int, limit: Any,
            used: int, near: Any, far: Any, weights: Any, ones: int, total: int, step: Any) -> Any:  # fmt: skip
    """Take the marked codes below the limit into the buffer, or count them if it has no room; returns limit and
    entries."""
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = first + begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            row = rows[i] if len(rows) else i
            product = np.float64(total - 2 * score_of(codes, rows, i, weights, ones)) * step
            estimate = np.float64(factors[row, 0]) * product + np.float64(factors[row, 1])
            distance = min(max(0.0 - estimate, -LARGEST), LARGEST)
            if distance >= limit:
                continue
            if len(near) and used == len(near):
                limit = cut_to(near, far, used, k)
                used = k
                if distance >= limit:
                    continue
            if len(near):
                near[used], far[used] = i - base, distance
            used += 1
    return limit, used


@entry
def nearest(stretch: Any, factors: Any, weights: Any, steps: Any, limits: Any, capacity: int, results: Any,
            kept: Any) -> None:  # fmt: skip
    """Write the codes of the smallest distances for every query; arguments as in `scores.select`, and `factors` of
    all rows, the `steps` of the queries, and `limits` that are distances."""
    codes, rows, start, _, chunk = stretch
    offsets, distances, positions = results
    n_queries, n_bytes = len(weights), codes.shape[1] * codes.itemsize
    n_quads = -(-n_bytes // (QUAD_BYTES * PART)) * PART
    coarse = matrix(n_queries * 4 * n_quads, ENTRIES).reshape(n_queries, 4 * n_quads, ENTRIES)
    marks, bounds = np.empty((GROUP, chunk // LANES + 1, 2), np.int64), np.zeros((GROUP, chunk + STEP), np.uint16)
    inverse, ratio = np.empty(chunk, np.float32), np.empty(chunk, np.float32)
    limit, used = limits.copy(), np.zeros(n_queries, np.int64)
    whole = np.zeros((n_queries, 3), np.int64)  # step of the tables, weight of the ones, weight of all
    for q in range(n_queries):
        for j in range(weights.shape[1]):
            whole[q, 1] += max(np.int64(0), weights[q, j])
            whole[q, 2] += abs(weights[q, j])
        whole[q, 0] = fill(weights[q], whole[q, 2] // 2, coarse[q], False)
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.float64)
    _pass_over(stretch, factors, weights, steps, whole, room_for(codes, n_quads, chunk), coarse, marks, bounds, inverse,
               ratio, offsets, limit, used, near, far)  # fmt: skip
    for q in range(n_queries):
        kept[q] = used[q]
        if capacity:
            kept[q] = emit(rows, start, near[q], far[q], used[q], distances[offsets[q] : offsets[q + 1]],
                           positions[offsets[q] : offsets[q + 1]])  # fmt: skip


@lean
def _pass_over(stretch: Any, factors: Any, weights: Any, steps: Any, whole: Any, room: Any, coarse: Any, marks: Any,
               bounds: Any, inverse: Any, ratio: Any, offsets: Any, limit: Any, used: Any, near: Any,
               far: Any) -> None:  # fmt: skip
    codes, rows, start, stop, chunk = stretch
    n_queries, n_quads, capacity = len(weights), coarse.shape[1] // 4, near.shape[1]
    tile, mark, table = np.intp(room[0].ctypes.data), np.intp(marks.ctypes.data), np.intp(coarse.ctypes.data)
    bound = np.uint64(bounds.ctypes.data)
    next_table, next_mark, next_bound = 4 * n_quads * ENTRIES, marks.shape[1] * 16, 2 * bounds.shape[1]
    marked = (0, 0, 0, 0)
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        lay_out(codes, rows, first, count, room)
        _invert(factors, rows, first, count, inverse, ratio)
        begin, last = 0, -(-count // STEP) * STEP
        while begin < last:
            end = min(last, begin + max(STEP, first - start + begin))
            q = 0
            while q < n_queries:
                n, a = GROUP if q + GROUP <= n_queries else 1, table + q * next_table
                for g in range(n):
                    _bounds(inverse[begin:end], ratio[begin:end], steps[q + g], whole[q + g, 2], whole[q + g, 0],
                            limit[q + g], bounds[g, begin:end])  # fmt: skip
                if n == GROUP:
                    marked = mark_bounded(
                        tile, n_quads, begin, end,
                        (a, a + next_table, a + 2 * next_table, a + 3 * next_table),
                        (bound, bound + np.uint64(next_bound), bound + np.uint64(2 * next_bound),
                         bound + np.uint64(3 * next_bound)),
                        (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark), PART,
                    )  # fmt: skip
                else:
                    (pairs,) = mark_bounded(tile, n_quads, begin, end, (a,), (bound,), (mark,), PART)
                    marked = (pairs, 0, 0, 0)
                for g in range(q, q + n):
                    k = offsets[g + 1] - offsets[g] if capacity else 0
                    limit[g], used[g] = _accept(
                        marks[g - q], trim(marks[g - q], marked[g - q], count), codes, factors, rows, first, start, k,
                        limit[g], used[g], near[g], far[g], weights[g], whole[g, 1], whole[g, 2], steps[g],
                    )  # fmt: skip
                q += n
            begin = end
