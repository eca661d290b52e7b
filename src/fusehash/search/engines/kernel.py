"""Exact search over packed codes, compiled: the nearest k, and all within a radius.

What makes it fast is what Hamming distances are: small integers.

- A chunk of codes that fits the cache is laid out in planes, one word after the other, and a block of queries passes
  over it. vector.py compares a query with 32 or 64 codes at a time and leaves one bit a code.
- A query's limit is the distance from which on a code can no longer enter its result. A histogram of the distances
  accepted so far gives it: once k codes are closer than d, the limit is at most d. Codes are met in order of position,
  so a later code at the limit loses the tie and need not be looked at: ties by lowest position cost nothing.
- Accepted codes go to a buffer of about 2 k entries a query; when it is full, what the limit has overtaken is dropped.
  The result is sorted by counting. Nothing grows with k times the number of distances.
- The stretch over which a limit stays fixed doubles from 64 codes on, so that the first codes, all of which would be
  accepted by a limit that knows nothing, are few.

Positions here are rows of the code matrix; index.py keeps the rows in order of id, so that order of position is order
of id. Results depend on neither chunks nor blocks nor threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.search.engines.compiled import Kernel, part
from fusehash.search.engines.vector import LANES, bit_count, lowest_bit, mark_closer, word_at

#: Of compiled.py and vector.py: numba's cache looks only at this file, which therefore must change when they do.
SOURCES = "ae661f4232de6321"

SAMPLE = 1024  # codes of which narrow words, cheap to compare and with many ties, take their first limit
GROUP = 4  # queries compared with a vector of codes while it is in a register
_LANES_8, _LANES_64 = LANES[8], LANES[64]


@part
def _lanes(size: int) -> int:
    return _LANES_64 if size == 8 else _LANES_8


@part
def _lay_out(codes: Any, rows: Any, first: int, count: int, planes: Any) -> None:
    """Copy ``count`` codes into planes; codes whose bytes do not fill whole words are padded with zeros."""
    n_words, size = planes.shape[0], planes.itemsize
    for i in range(count):
        row = rows[first + i] if len(rows) else first + i
        if codes.itemsize == size:
            for w in range(n_words):
                planes[w, i] = codes[row, w]
        else:
            for w in range(n_words):
                value = np.uint64(0)
                for b in range(min(size, codes.shape[1] - w * size)):
                    value |= np.uint64(codes[row, w * size + b]) << np.uint64(8 * b)
                planes[w, i] = value


@part
def _planes(n_words: int, chunk: int, queries: Any) -> Any:
    """Room for a chunk, on a boundary of 64 bytes."""
    raw = np.empty(n_words * chunk + 64, queries.dtype)
    skip = (-np.intp(raw.ctypes.data) % 64) // raw.itemsize
    return raw[skip : skip + n_words * chunk].reshape(n_words, chunk)


@part
def _present(codes: Any, rows: Any, first: int, count: int, planes: Any, few: bool) -> Any:
    """A chunk as (address, bytes from code to code, bytes from word to word, codes).

    In place where the codes are planes as they lie (one word) or meet few queries, else laid out in ``planes``.
    """
    n_words, chunk = planes.shape
    size = planes.itemsize
    may_stay = n_words == 1 or (few and n_words & (n_words - 1) == 0)
    if may_stay and codes.itemsize == size and len(rows) == 0 and count == chunk:
        return np.intp(codes.ctypes.data) + first * n_words * size, n_words * size, size, count
    _lay_out(codes, rows, first, count, planes)
    return np.intp(planes.ctypes.data), size, chunk * size, count


@part
def _distance(chunk: Any, i: int, query: int, word: Any) -> int:
    address, step, stride, _ = chunk
    size = min(step, stride)
    total = 0
    for w in range(len(word)):
        total += np.int64(bit_count(word_at(address + i * step + w * stride, word) ^ word_at(query + w * size, word)))
    return total


@part
def _mark(chunk: Any, begin: int, end: int, query: int, limit: int, marks: Any, lanes: int, word: Any) -> int:
    """Mark the codes of a chunk that are closer to one query than its limit; see vector.py."""
    address, step, stride, count = chunk
    mark = np.intp(marks.ctypes.data)
    if step > stride:
        (pairs,) = mark_closer(address, None, begin, end, (query,), (limit,), (mark,), word)
    else:
        (pairs,) = mark_closer(address, stride, begin, end, (query,), (limit,), (mark,), word)
    _trim(marks, pairs, count, lanes)
    return pairs


@part
def _trim(marks: Any, pairs: int, count: int, lanes: int) -> None:
    """Unmark what lies past the last code of a chunk; only the last mask can reach there."""
    if pairs and marks[pairs - 1, 1] + lanes > count:
        marks[pairs - 1, 0] &= (np.int64(1) << (count - marks[pairs - 1, 1])) - 1


@part
def _count(marks: Any, pairs: int) -> int:
    total = 0
    for pair in range(pairs):
        total += np.int64(bit_count(np.uint64(marks[pair, 0])))
    return total


@part
def _first_limit(chunk: Any, query: int, k: int, limit: int, marks: Any, lanes: int, word: Any) -> int:
    """The lowest limit that k of the first codes lie below, found by bisection."""
    too_low = 0
    while too_low + 1 < limit:
        middle = (too_low + limit) // 2
        pairs = _mark(chunk, 0, SAMPLE, query, middle, marks, lanes, word)
        if _count(marks, pairs) >= k:
            limit = middle
        else:
            too_low = middle
    return limit


@part
def _accept(marks: Any, pairs: int, chunk: Any, first: int, query: int, k: int, state: Any, histogram: Any, near: Any,
            far: Any, word: Any) -> None:  # fmt: skip
    """Take the marked codes into the buffer (``near`` positions, ``far`` distances) of one query.

    ``state`` is (limit, entries in the buffer, accepted codes closer than the limit).
    """
    limit, used, closer = state[0], state[1], state[2]
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            d = _distance(chunk, i, query, word)
            if d >= limit:
                continue
            near[used], far[used] = first + i, d
            used += 1
            closer += 1
            histogram[d] += 1
            while closer >= k:
                limit -= 1
                closer -= histogram[limit]
            if used == len(near):
                used = _drop_overtaken(near, far, used, limit, k - closer)
    state[0], state[1], state[2] = limit, used, closer


@part
def _drop_overtaken(near: Any, far: Any, used: int, limit: int, at_limit: int) -> int:
    """Keep the codes closer than the limit and the first ``at_limit`` ones that lie at it."""
    kept = 0
    for i in range(used):
        if far[i] < limit or (far[i] == limit and at_limit > 0):
            at_limit -= far[i] == limit
            near[kept], far[kept] = near[i], far[i]
            kept += 1
    return kept


@part
def _emit(
    rows: Any, start: int, near: Any, far: Any, used: int, limit: int, histogram: Any, distances: Any, positions: Any
) -> None:
    """Write the buffer in order of (distance, position): a counting sort, which keeps the order it meets."""
    slot = 0
    for d in range(limit + 1):  # below the limit the histogram is exact; from here on it holds the next free slots
        count = histogram[d]
        histogram[d] = slot
        slot += count
    for i in range(used):
        d = far[i]
        if d <= limit and histogram[d] < len(positions):
            slot = histogram[d]
            histogram[d] += 1
            distances[slot] = d
            position = start + np.int64(near[i])
            positions[slot] = rows[position] if len(rows) else position


@Kernel
def select(codes: Any, rows: Any, start: int, stop: int, queries: Any, n_bits: int, limit: int, capacity: int,
           chunk_size: int, word: Any, offsets: Any, distances: Any, positions: Any) -> None:  # fmt: skip
    """The nearest codes of every query, in order of (distance, position).

    Query q gets ``offsets[q + 1] - offsets[q]`` of the codes closer than ``limit``, written from ``offsets[q]`` on;
    so many must exist. ``codes`` are words, or bytes where the bytes of a code do not fill words; ``queries`` always
    words. ``rows`` are the positions to look at, ascending, none meaning all; ``start`` to ``stop`` is the stretch of
    them (or of all positions) that is searched. ``chunk_size`` is a multiple of 64. ``word`` as in vector.py.
    """
    n_queries, lanes = len(queries), _lanes(queries.itemsize)
    planes = _planes(len(word), chunk_size, queries)
    marks = np.empty((GROUP, chunk_size // lanes + 1, 2), np.int64)
    state = np.zeros((n_queries, 3), np.int64)
    state[:, 0] = limit
    histogram = np.zeros((n_queries, n_bits + 2), np.int64)
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.int16)
    query, mark = np.intp(queries.ctypes.data), np.intp(marks.ctypes.data)
    next_query, next_mark = len(word) * queries.itemsize, marks.shape[1] * 16
    wanted = np.diff(offsets)
    seeded = len(word) == 1 and lanes == 64 and min(chunk_size, stop - start) >= SAMPLE and wanted.max() <= SAMPLE // 4
    for first in range(start, stop, chunk_size):
        chunk = _present(codes, rows, first, min(chunk_size, stop - first), planes, n_queries < GROUP)
        if seeded and first == start:
            for q in range(n_queries):
                state[q, 0] = _first_limit(chunk, query + q * next_query, wanted[q], limit, marks[0], lanes, word)
        begin, last = 0, -(-chunk[3] // lanes) * lanes
        while begin < last:
            end = min(last, begin + max(SAMPLE if seeded else 64, first - start + begin))
            q = 0
            while q + GROUP <= n_queries:
                a = query + q * next_query
                found = mark_closer(
                    chunk[0], chunk[2], begin, end, (a, a + next_query, a + 2 * next_query, a + 3 * next_query),
                    (state[q, 0], state[q + 1, 0], state[q + 2, 0], state[q + 3, 0]),
                    (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark), word,
                )  # fmt: skip
                for g in range(GROUP):
                    _trim(marks[g], found[g], chunk[3], lanes)
                    _accept(marks[g], found[g], chunk, first - start, a + g * next_query, wanted[q + g], state[q + g],
                            histogram[q + g], near[q + g], far[q + g], word)  # fmt: skip
                q += GROUP
            while q < n_queries:
                a = query + q * next_query
                pairs = _mark(chunk, begin, end, a, state[q, 0], marks[0], lanes, word)
                _accept(marks[0], pairs, chunk, first - start, a, wanted[q], state[q], histogram[q], near[q], far[q],
                        word)  # fmt: skip
                q += 1
            begin = end
    for q in range(n_queries):
        _emit(rows, start, near[q], far[q], state[q, 1], state[q, 0], histogram[q],
              distances[offsets[q] : offsets[q + 1]], positions[offsets[q] : offsets[q + 1]])  # fmt: skip


@Kernel
def count_closer(codes: Any, rows: Any, start: int, stop: int, queries: Any, limit: int, chunk_size: int, word: Any,
                 counts: Any) -> None:  # fmt: skip
    """Add to ``counts`` how many codes are closer than ``limit`` to each query; arguments as in `select`."""
    lanes = _lanes(queries.itemsize)
    planes = _planes(len(word), chunk_size, queries)
    marks = np.empty((chunk_size // lanes + 1, 2), np.int64)
    query, next_query = np.intp(queries.ctypes.data), len(word) * queries.itemsize
    for first in range(start, stop, chunk_size):
        chunk = _present(codes, rows, first, min(chunk_size, stop - first), planes, len(queries) < GROUP)
        for q in range(len(queries)):
            pairs = _mark(chunk, 0, -(-chunk[3] // lanes) * lanes, query + q * next_query, limit, marks, lanes, word)
            counts[q] += _count(marks, pairs)
