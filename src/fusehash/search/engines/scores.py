"""Exact search with real-valued queries, compiled: look-ups that bound scores from below, then exact scores of the few.

Codes are arranged in tiles (tiles.py) chunk by chunk, and a block of queries passes over a chunk. For one query they
stay as they are (row_look_ups.py), if the processor can look them up.

- Look-ups (look_ups.py) bound the scores of all codes. A code whose bound reaches the query's limit, the k-th smallest
  score so far, is done with. The others, about one in a thousand, get their exact score, as a sum of 64-bit integers.
- Accepted codes go to a buffer: in order if k is small, so that the limit is always the k-th smallest score, else until
  it is full and all but k are dropped. Codes are met in order of position, so a later code at the limit loses the tie.
- The tables are made again when the limit has fallen by a sixteenth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.search.engines.kernel import GROUP, drop_overtaken, entry, lean, lowest_bit, part
from fusehash.search.engines.look_ups import ENTRIES, NARROW, PART, STEP, fill, mark_bounded, score_of
from fusehash.search.engines.row_look_ups import CAN_LOOK_UP_ROWS, WORD_TABLES, fill_rows, mark_rows
from fusehash.search.engines.tiles import LANES, QUAD_BYTES, lay_out, matrix, room_for

_FEW = 64  # results up to which the buffer is kept in order
_IN_ROWS = 1  # queries up to which codes are not arranged
NO_SCORE = np.int64(1) << np.int64(62)  # above all scores


@entry
def select(stretch: Any, weights: Any, limits: Any, capacity: int, results: Any, kept: Any) -> None:
    """Write the codes of the smallest scores for every query, in order of (score, position).

    `stretch` is (codes, rows, start, stop, chunk): rows of words or bytes; the positions to look at, ascending, none
    meaning all; the part of them that is searched; codes per chunk, a multiple of 256. `weights` and `limits` as in
    `Projections`; NO_SCORE is no limit. `capacity` is the size of the buffer of a query. `results` is (offsets, scores,
    positions): query q gets at most `offsets[q + 1] - offsets[q]` codes below its limit, written from `offsets[q]` on,
    and `kept[q]` is their number. With a capacity of 0 nothing is written, and `kept[q]` is the number of codes below
    the limit.
    """
    codes, rows, start, _, chunk = stretch
    offsets, scores, positions = results
    n_queries, n_words = len(weights), codes.shape[1]
    marks = np.empty((GROUP, chunk // LANES + 1, 2), np.int64)
    state = np.zeros((n_queries, 6), np.int64)
    for q in range(n_queries):
        state[q, 0], state[q, 3] = limits[q], NO_SCORE
        for j in range(weights.shape[1]):
            state[q, 4] += max(np.int64(0), weights[q, j])
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.int64)
    may_stay = codes.itemsize == 8 and (n_words in (1, 2, 4) or n_words % 8 == 0)
    if CAN_LOOK_UP_ROWS and n_queries <= _IN_ROWS and may_stay and len(rows) == 0:
        tables = matrix(n_queries * n_words, WORD_TABLES).reshape(n_queries, n_words, WORD_TABLES)
        _pass_over_rows(stretch, weights, tables, marks, state, offsets, near, far, kept)
    else:
        n_quads = -(-n_words * codes.itemsize // QUAD_BYTES)
        is_narrow = n_quads <= NARROW
        if not is_narrow:
            n_quads = -(-n_quads // PART) * PART
        coarse = matrix(n_queries * 4 * n_quads, ENTRIES).reshape(n_queries, 4 * n_quads, ENTRIES)
        room = room_for(codes, n_quads, chunk)
        _pass_over(stretch, weights, is_narrow, room, coarse, marks, state, offsets, near, far, kept)
    if capacity:
        for q in range(n_queries):
            kept[q] = emit(rows, start, near[q], far[q], state[q, 1], scores[offsets[q] : offsets[q + 1]],
                           positions[offsets[q] : offsets[q + 1]])  # fmt: skip


@lean
def _pass_over(stretch: Any, weights: Any, is_narrow: bool, room: Any, coarse: Any, marks: Any, state: Any,
               offsets: Any, near: Any, far: Any, kept: Any) -> None:  # fmt: skip
    codes, rows, start, stop, chunk = stretch
    n_queries, n_quads = len(weights), coarse.shape[1] // 4
    tile, mark, table = np.intp(room[0].ctypes.data), np.intp(marks.ctypes.data), np.intp(coarse.ctypes.data)
    next_table, next_mark = 4 * n_quads * ENTRIES, marks.shape[1] * 16
    marked = (0, 0, 0, 0)
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        lay_out(codes, rows, first, count, room)
        begin, last = 0, -(-count // STEP) * STEP
        while begin < last:
            end = min(last, begin + max(STEP, first - start + begin))
            for q in range(0, n_queries, GROUP):
                n = min(GROUP, n_queries - q)
                for g in range(n):
                    _refresh(weights[q + g], state[q + g], coarse[q + g], is_narrow)
                if n == 1:
                    one, bound = table + q * next_table, state[q, 2]
                    if is_narrow:
                        pairs = mark_bounded(tile, n_quads, begin, end, (one,), (bound,), (mark,), None)[0]
                    else:
                        pairs = mark_bounded(tile, n_quads, begin, end, (one,), (bound,), (mark,), PART)[0]
                    marked = (pairs, 0, 0, 0)
                else:
                    # Past the last query, the last one again, which marks nothing.
                    b, c, d = q + 1, q + min(2, n - 1), q + min(3, n - 1)
                    addresses = (table + q * next_table, table + b * next_table, table + c * next_table,
                                 table + d * next_table)  # fmt: skip
                    bounds = (state[q, 2], state[b, 2], state[c, 2] * (n > 2), state[d, 2] * (n > 3))
                    into = (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark)
                    if is_narrow:
                        marked = mark_bounded(tile, n_quads, begin, end, addresses, bounds, into, None)
                    else:
                        marked = mark_bounded(tile, n_quads, begin, end, addresses, bounds, into, PART)
                for g in range(n):
                    pairs = marked[g] if state[q + g, 0] < NO_SCORE else _mark_all(marks[g], begin, end)
                    _take(marks[g], pairs, count, codes, rows, first, start, offsets, q + g, state, near, far,
                          weights, kept)  # fmt: skip
            begin = end


@lean
def _pass_over_rows(stretch: Any, weights: Any, tables: Any, marks: Any, state: Any, offsets: Any, near: Any, far: Any,
                    kept: Any) -> None:  # fmt: skip
    codes, rows, start, stop, chunk = stretch
    n_words, n_bytes = codes.shape[1], codes.shape[1] * 8
    mark, table = np.intp(marks.ctypes.data), np.intp(tables.ctypes.data)
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        code = np.intp(codes.ctypes.data) + first * n_bytes
        begin = 0
        while begin < count:
            end = min(count, begin + max(LANES, first - start + begin))
            end = max(end // LANES * LANES, min(count, begin + LANES))  # a last tile that is not full is marked
            for q in range(len(weights)):
                limit, own = state[q, 0], table + q * n_words * WORD_TABLES
                if _is_much_lower(state[q]):
                    state[q, 5] = fill_rows(weights[q], limit, tables[q])
                    state[q, 3] = limit
                if limit == NO_SCORE or end % LANES:
                    pairs = _mark_all(marks[0], begin, begin - (begin - end) // LANES * LANES)
                else:
                    bound = np.uint64((limit - 1) // state[q, 5] + 1)
                    if n_words == 1:
                        pairs = mark_rows(code, n_bytes, begin, end, own, bound, mark, (0,))
                    elif n_words == 2:
                        pairs = mark_rows(code, n_bytes, begin, end, own, bound, mark, (0, 0))
                    elif n_words == 4:
                        pairs = mark_rows(code, n_bytes, begin, end, own, bound, mark, (0, 0, 0, 0))
                    else:
                        pairs = mark_rows(code, n_bytes, begin, end, own, bound, mark, (0, 0, 0, 0, 0, 0, 0, 0))
                _take(marks[0], pairs, count, codes, rows, first, start, offsets, q, state, near, far, weights, kept)
            begin = end


@lean
def _is_much_lower(state: Any) -> Any:
    """Whether the limit of a query has fallen by a sixteenth since its tables were made."""
    return state[0] < state[3] - (state[3] >> 4)


@lean
def _refresh(weights: Any, state: Any, coarse: Any, is_narrow: bool) -> None:
    """The bound of the present limit of a query, with new tables if they are made for a much higher one."""
    limit = state[0]
    if _is_much_lower(state):
        state[5] = fill(weights, limit, coarse, is_narrow)
        state[3] = limit
    if limit < NO_SCORE:
        state[2] = (limit - 1) // state[5] + 1  # a score below the limit has a bound below that


@lean
def _mark_all(marks: Any, begin: int, end: int) -> int:
    pairs = (end - begin) // LANES
    for pair in range(pairs):
        marks[pair, 0], marks[pair, 1] = -1, begin + pair * LANES
    return pairs


@lean
def trim(marks: Any, pairs: int, count: int) -> int:
    """Unmark what is past the last code of a chunk; how many pairs are left."""
    while pairs and marks[pairs - 1, 1] >= count:
        pairs -= 1
    if pairs and marks[pairs - 1, 1] + LANES > count:
        marks[pairs - 1, 0] &= (np.int64(1) << (count - marks[pairs - 1, 1])) - 1
    return pairs


@lean
def _take(marks: Any, pairs: int, count: int, codes: Any, rows: Any, first: int, start: int, offsets: Any, q: int,
          state: Any, near: Any, far: Any, weights: Any, kept: Any) -> None:  # fmt: skip
    """What becomes of the marked codes of query q: into its buffer, or counted."""
    pairs = trim(marks, pairs, count)
    if near.shape[1]:
        k = offsets[q + 1] - offsets[q]
        _accept(marks, pairs, codes, rows, first, start, k, state[q], near[q], far[q], weights[q])
        return
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = first + begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            kept[q] += score_of(codes, rows, i, weights[q], state[q, 4]) < state[q, 0]


@lean
def _accept(marks: Any, pairs: int, codes: Any, rows: Any, first: int, base: int, k: int, state: Any, near: Any,
            far: Any, weights: Any) -> None:  # fmt: skip
    """Take the marked codes below the limit into the buffer; `state` is (limit, entries, bound, limit of the tables,
    weight of the ones of the query, step of the tables)."""
    limit, used = state[0], state[1]
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = first + begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            score = score_of(codes, rows, i, weights, state[4])
            if score >= limit:
                continue
            if k <= _FEW:
                used = _insert(near, far, used, k, i - base, score)
                limit = far[k - 1] if used == k else limit
                continue
            if used == len(near):
                limit = cut_to(near, far, used, k)
                used = k
                if score >= limit:
                    continue
            near[used], far[used] = i - base, score
            used += 1
    if limit == NO_SCORE and used >= k:
        limit = cut_to(near, far, used, k)
        used = k
    state[0], state[1] = limit, used


@lean
def _insert(near: Any, far: Any, used: int, k: int, place: int, score: int) -> int:
    """Put a code behind those with smaller or equal scores; the k-th one is dropped. How many there are."""
    slot = min(used, k - 1)
    while slot > 0 and far[slot - 1] > score:
        near[slot], far[slot] = near[slot - 1], far[slot - 1]
        slot -= 1
    near[slot], far[slot] = place, score
    return min(used + 1, k)


@part
def cut_to(near: Any, far: Any, used: int, k: int) -> Any:
    """Keep the k smallest scores of the buffer, in the order they came; the first ones among equals."""
    limit = np.partition(far[:used], k - 1)[k - 1]
    at_limit = np.int64(k)
    for i in range(used):
        at_limit -= far[i] < limit
    drop_overtaken(near, far, used, limit, at_limit)
    return limit


@part
def emit(rows: Any, start: int, near: Any, far: Any, used: int, scores: Any, positions: Any) -> int:
    """Write the smallest of the buffer in order of (score, position); how many there are."""
    order = np.argsort(far[:used], kind="mergesort")[: len(scores)]
    for slot in range(len(order)):
        i = order[slot]
        position = start + np.int64(near[i])
        scores[slot] = far[i]
        positions[slot] = rows[position] if len(rows) else position
    return len(order)
