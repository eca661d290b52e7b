"""Exact search with real-valued queries over codes with factors (see factors.py), compiled.

As in look_ups.py, with one difference: what a code must stay below depends on its factors. A code with scale s and
offset o is nearer than the limit L, the k-th distance so far, only if the sum d of the differing weights is

    d < (T + (L + o) / (s step)) / 2,

which is linear in 1 / s and o / s. These bounds are computed in single precision, rounded up by more than they can be
wrong, for all codes of a stretch at a time; look-ups that reach them are done with.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.search.engines import look_ups
from fusehash.search.engines.kernel import GROUP, entry, lowest_bit, part
from fusehash.search.engines.look_ups import PART, mark_bounded
from fusehash.search.factors import LARGEST

_lay_out, _matrix, _fill, _score = look_ups._lay_out, look_ups._matrix, look_ups._fill, look_ups._score
_cut_to, _emit, _trim = look_ups._cut_to, look_ups._emit, look_ups._trim
_ENTRIES, _LANES, _STEP, _QUAD_BYTES = look_ups._ENTRIES, look_ups._LANES, look_ups.STEP, look_ups.QUAD_BYTES
_F = np.float32


@part
def _invert(factors: Any, rows: Any, first: int, count: int, inverse: Any, ratio: Any) -> None:
    """1 / scale and offset / scale of `count` codes; not finite where a scale is (nearly) 0."""
    for i in range(count):
        row = rows[first + i] if len(rows) else first + i
        inverse[i] = _F(1.0) / factors[row, 0]
        ratio[i] = factors[row, 1] * inverse[i]


@part
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


@part
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
            product = np.float64(total - 2 * _score(codes, rows, i, weights, ones)) * step
            estimate = np.float64(factors[row, 0]) * product + np.float64(factors[row, 1])
            distance = min(max(0.0 - estimate, -LARGEST), LARGEST)
            if distance >= limit:
                continue
            if len(near) and used == len(near):
                limit = _cut_to(near, far, used, k)
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
    """Write the codes of the smallest distances for every query; arguments as in `look_ups.select`, and `factors` of
    all rows, the `steps` of the queries, and `limits` that are distances."""
    codes, rows, start, stop, chunk = stretch
    offsets, distances, positions = results
    n_queries, n_bytes = len(weights), codes.shape[1] * codes.itemsize
    n_quads = -(-n_bytes // (_QUAD_BYTES * PART)) * PART
    tiles, columns = _matrix(4 * n_quads, chunk), _matrix(n_quads * _QUAD_BYTES + 8, _LANES)
    places = np.zeros(_LANES, np.int64)
    coarse = _matrix(n_queries * 4 * n_quads, _ENTRIES).reshape(n_queries, 4 * n_quads, _ENTRIES)
    marks, bounds = np.empty((GROUP, chunk // _LANES + 1, 2), np.int64), np.zeros((GROUP, chunk + _STEP), np.uint16)
    inverse, ratio = np.empty(chunk, np.float32), np.empty(chunk, np.float32)
    limit, used = limits.copy(), np.zeros(n_queries, np.int64)
    table_steps, ones, totals = (
        np.empty(n_queries, np.int64),
        np.zeros(n_queries, np.int64),
        np.zeros(n_queries, np.int64),
    )
    for q in range(n_queries):
        for j in range(weights.shape[1]):
            ones[q] += max(np.int64(0), weights[q, j])
            totals[q] += abs(weights[q, j])
        table_steps[q] = _fill(weights[q], totals[q] // 2, coarse[q], False)
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.float64)
    next_table, next_mark, next_bound = 4 * n_quads * _ENTRIES, marks.shape[1] * 16, 2 * bounds.shape[1]
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        # Addresses are taken in the loop: numba frees an array after its last use.
        tile, mark, table = np.intp(tiles.ctypes.data), np.intp(marks.ctypes.data), np.intp(coarse.ctypes.data)
        bound = np.uint64(bounds.ctypes.data)
        _lay_out(codes, rows, first, count, places, columns, tiles)
        _invert(factors, rows, first, count, inverse, ratio)
        begin, last = 0, -(-count // _STEP) * _STEP
        while begin < last:
            end = min(last, begin + max(_STEP, first - start + begin))
            for q in range(0, n_queries, GROUP):
                n = min(GROUP, n_queries - q)
                for g in range(n):
                    _bounds(inverse[begin:end], ratio[begin:end], steps[q + g], totals[q + g], table_steps[q + g],
                            limit[q + g], bounds[g, begin:end])  # fmt: skip
                a = table + q * next_table
                if n == GROUP:
                    marked = mark_bounded(
                        tile, n_quads, begin, end,
                        (a, a + next_table, a + 2 * next_table, a + 3 * next_table),
                        (bound, bound + np.uint64(next_bound), bound + np.uint64(2 * next_bound),
                         bound + np.uint64(3 * next_bound)),
                        (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark), PART,
                    )  # fmt: skip
                    for g in range(GROUP):
                        k = offsets[q + g + 1] - offsets[q + g] if capacity else 0
                        limit[q + g], used[q + g] = _accept(
                            marks[g], _trim(marks[g], marked[g], count), codes, factors, rows, first, start, k,
                            limit[q + g], used[q + g], near[q + g], far[q + g], weights[q + g], ones[q + g],
                            totals[q + g], steps[q + g],
                        )  # fmt: skip
                else:
                    for g in range(n):
                        (pairs,) = mark_bounded(tile, n_quads, begin, end, (a + g * next_table,),
                                                (bound + np.uint64(g * next_bound),), (mark,), PART)  # fmt: skip
                        k = offsets[q + g + 1] - offsets[q + g] if capacity else 0
                        limit[q + g], used[q + g] = _accept(
                            marks[0], _trim(marks[0], pairs, count), codes, factors, rows, first, start, k,
                            limit[q + g], used[q + g], near[q + g], far[q + g], weights[q + g], ones[q + g],
                            totals[q + g], steps[q + g],
                        )  # fmt: skip
            begin = end
    for q in range(n_queries):
        kept[q] = used[q]
        if capacity:
            kept[q] = _emit(rows, start, near[q], far[q], used[q], distances[offsets[q] : offsets[q + 1]],
                            positions[offsets[q] : offsets[q + 1]])  # fmt: skip
