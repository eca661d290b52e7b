"""Exact search over packed codes, compiled: the nearest k, and all within a radius.

It is fast because Hamming distances are small integers.

- A chunk of codes that fits the cache is arranged in planes (word w of all codes is contiguous), and a block of queries
  passes over it. `mark_closer`, the one loop that numba alone does not vectorize, compares a query with 32 or 64 codes
  at a time: exclusive or, population count, add over the words, compare with the query's limit. The result is one bit
  per code. Codes that meet too few queries to be rearranged stay in rows, whose words are added pair by pair.
- A query's limit is the distance from which on a code can no longer enter its result. A histogram of the distances
  accepted so far gives it: once k codes are closer than d, the limit is at most d. Codes are met in order of position,
  so a later code at the limit loses the tie and is skipped: ties by lowest position cost nothing.
- Accepted codes go to a buffer of about 2 k entries per query; when it is full, codes beyond the limit are dropped.
  The result is sorted by counting. Nothing grows with k times the number of distances.
- The stretch over which a limit stays fixed doubles from 64 codes on, so that the first codes, all of which would be
  accepted while the limit is still unknown, are few.

Positions are rows of the code matrix. rows.py keeps the rows in order of id, so order of position is order of id.
Results do not depend on chunks, blocks or threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fusehash.numerics.compiled import bit_count, compiled

LANES = {8: 64, 16: 64, 32: 64, 64: 32}  # codes per step by bits per word: four 512-bit registers, one 64-bit mask
SAMPLE = 1024  # codes that set the first limit of narrow words, which are cheap to compare and have many ties
GROUP = 4  # queries compared with a vector of codes while it is in a register
AHEAD = 6144  # bytes in front of the codes that are compared, fetched from memory while one query passes over them
_LANES_8, _LANES_64 = LANES[8], LANES[64]

entry = compiled(boundscheck=False, error_model="numpy")  # called from Python
part = compiled(keep=False, boundscheck=False, error_model="numpy", _nrt=True)  # called from compiled functions
# The same for those that make no arrays: references to arrays are not counted, which takes an atomic operation each.
lean = compiled(keep=False, boundscheck=False, error_model="numpy", _nrt=False)


def fetch(builder: Any, base: Any, n_bytes: int) -> None:
    """Ask for what is AHEAD of `base`: processors alone do it late, and not across pages. Any address is allowed."""
    byte, integer = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, integer, integer, integer])
    prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    for line in range(0, n_bytes, 64):
        place = builder.inttoptr(builder.add(base, base.type(AHEAD + line)), byte)
        builder.call(prefetch, [place, integer(0), integer(3), integer(1)])  # to read, into all caches, data


@intrinsic
def mark_closer(
    _: Any, codes: Any, stride: Any, start: Any, stop: Any, queries: Any, limits: Any, marks: Any, word: Any
) -> Any:
    """Mark the codes from `start` to `stop` that are closer to each query than its limit.

    All arguments are integers. `codes`, `queries` (a tuple) and `marks` (a tuple) are addresses; `limits` is a tuple.
    Of `word`, a tuple of zeros, only the type is used: as many as a code has words, of the type of a word. `start` is
    below `stop`, both multiples of the lanes; memory past the last code must be readable. With `stride` None the codes
    are in rows; then nothing is marked unless the number of words per code is a power of two, at most the lanes.

    Writes pairs of 64-bit integers at `marks[q]`: a mask, and the number of the code of its lowest bit. Returns the
    number of pairs per query.

    LLVM turns this into `vpopcnt` on AVX-512, table look-ups on AVX2, `cnt` on ARM. Hits are rare and unpredictable, so
    the loop does not branch on them: it always stores the mask and moves to the next slot only if the mask is not zero.
    """
    n_queries, n_words, bits = queries.count, word.count, word.dtype.bitwidth
    lanes, size, in_rows = LANES[bits], bits // 8, isinstance(stride, types.NoneType)
    signature = types.UniTuple(types.intp, n_queries)(codes, stride, start, stop, queries, limits, marks, word)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if in_rows and (n_words & (n_words - 1) or n_words > lanes):
            return context.get_constant_null(signature.return_type)
        codes, stride, start, stop, queries, limits, marks, _ = args
        lane, address, mask_type = ir.IntType(bits), codes.type, ir.IntType(64)
        vector = ir.VectorType(lane, lanes)
        undefined = ir.Constant(vector, ir.Undefined)

        def shuffled(left: Any, right: Any, order: Iterable[int]) -> Any:
            return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(order)))

        def repeated(values: list[Any]) -> Any:
            filled = undefined
            for i, value in enumerate(values):
                filled = builder.insert_element(filled, value, ir.Constant(ir.IntType(32), i))
            return shuffled(filled, undefined, (i % len(values) for i in range(lanes)))

        def pointer(base: Any, offset: Any, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

        def block(offset: Any) -> Any:
            if n_queries == 1 and (in_rows or n_words == 1):  # not yet in a cache
                fetch(builder, builder.add(codes, offset), lanes * size)
            return builder.load(pointer(codes, offset, vector), align=size)

        def word_of(q: int, w: int) -> Any:
            return builder.load(pointer(builder.extract_value(queries, q), address(w * size), lane), align=size)

        def differences(left: Any, right: Any) -> Any:
            return builder.call(popcount, [builder.xor(left, right)])

        def sum_rows(q: int, offset: Any, first: int, count: int) -> Any:
            """Sums over `count` blocks of rows: n_words / count per code, in the order of the codes."""
            if count == 1:
                return differences(block(builder.add(offset, address(first * lanes * size))), repeats[q][0])
            left = n_words // count
            low = [i // left * 2 * left + i % left for i in range(lanes)]
            high = [i + left for i in low]  # whole registers where many are left, which takes no instruction
            half = count // 2
            sums = sum_rows(q, offset, first, half), sum_rows(q, offset, first + half, half)
            return builder.add(shuffled(*sums, low), shuffled(*sums, high))

        popcount = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{lanes}i{bits}"
        )
        numbers = range(n_queries)
        words = [[word_of(q, w) for w in range(n_words)] for q in numbers]
        repeats = [[repeated(query)] if in_rows else [repeated([word]) for word in query] for query in words]
        limit = [repeated([builder.trunc(builder.extract_value(limits, q), lane)]) for q in numbers]
        first = [builder.extract_value(marks, q) for q in numbers]
        free = [cgutils.alloca_once_value(builder, slot) for slot in first]
        with cgutils.for_range_slice(builder, start, stop, address(lanes), address) as (i, _count):
            distance: list[Any] = []
            if in_rows:
                offset = builder.mul(i, address(n_words * size))
                distance = [sum_rows(q, offset, 0, n_words) for q in numbers]
            else:
                offset = builder.mul(i, address(size))
                for w in range(n_words):
                    part = block(offset)
                    offset = builder.add(offset, stride)
                    counts = [differences(part, repeats[q][w]) for q in numbers]
                    distance = [builder.add(d, c) for d, c in zip(distance, counts, strict=True)] if w else counts
            for q in numbers:
                closer = builder.bitcast(builder.icmp_unsigned("<", distance[q], limit[q]), ir.IntType(lanes))
                mask = builder.zext(closer, mask_type) if lanes < 64 else closer
                slot = builder.load(free[q])
                builder.store(mask, pointer(slot, address(0), mask_type))
                builder.store(i, pointer(slot, address(8), address))
                hit = builder.zext(builder.icmp_unsigned("!=", mask, mask_type(0)), address)
                builder.store(builder.add(slot, builder.shl(hit, address(4))), free[q])
        result = ir.Constant(ir.ArrayType(address, n_queries), ir.Undefined)
        for q in numbers:
            written = builder.lshr(builder.sub(builder.load(free[q]), first[q]), address(4))
            result = builder.insert_value(result, written, q)
        return result

    return signature, generate


@intrinsic
def lowest_bit(_: Any, word: Any) -> Any:
    """Position of the lowest 1 in a 64-bit integer that is not zero."""
    return types.intp(word), lambda context, builder, signature, args: builder.cttz(
        args[0], ir.Constant(ir.IntType(1), 1)
    )


@intrinsic
def word_at(_: Any, address: Any, word: Any) -> Any:
    """The word at an address; `word` as in `mark_closer`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lane = ir.IntType(word.dtype.bitwidth)
        return builder.load(builder.inttoptr(args[0], lane.as_pointer()), align=word.dtype.bitwidth // 8)

    return word.dtype(address, word), generate


@part
def _lanes(size: int) -> int:
    return _LANES_64 if size == 8 else _LANES_8


@part
def _lay_out(codes: Any, rows: Any, first: int, count: int, planes: Any) -> None:
    """Copy `count` codes into planes; codes whose bytes do not fill whole words are padded with zeros."""
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
    """A chunk as (address, bytes from code to code, bytes from word to word, number of codes).

    The codes stay in place if they are planes already (one word) or meet few queries; else they are copied to `planes`.
    """
    n_words, chunk = planes.shape
    size = planes.itemsize
    may_stay = n_words == 1 or (few and n_words & (n_words - 1) == 0 and n_words <= _lanes(size))
    if may_stay and codes.itemsize == size and len(rows) == 0 and count == chunk:
        return np.intp(codes.ctypes.data) + first * n_words * size, n_words * size, size, count
    _lay_out(codes, rows, first, count, planes)
    return np.intp(planes.ctypes.data), size, chunk * size, count


@part
def _distance(chunk: Any, i: int, query: int, word: Any) -> int:
    address, step, stride, _ = chunk
    size = min(step, stride)
    total: Any = 0
    for w in range(len(word)):
        total += np.int64(bit_count(word_at(address + i * step + w * stride, word) ^ word_at(query + w * size, word)))
    return total


@part
def _mark(chunk: Any, begin: int, end: int, query: int, limit: int, marks: Any, lanes: int, word: Any) -> int:
    """Mark the codes of a chunk that are closer to one query than its limit."""
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
    """Unmark what is past the last code of a chunk; only the last mask can reach there."""
    if pairs and marks[pairs - 1, 1] + lanes > count:
        marks[pairs - 1, 0] &= (np.int64(1) << (count - marks[pairs - 1, 1])) - 1


@part
def _count(marks: Any, pairs: int) -> int:
    total: Any = 0
    for pair in range(pairs):
        total += np.int64(bit_count(np.uint64(marks[pair, 0])))
    return total


@part
def _first_limit(chunk: Any, query: int, k: int, limit: int, marks: Any, lanes: int, word: Any) -> int:
    """The lowest limit such that k of the first codes are closer, by bisection."""
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
    """Take the marked codes into the buffer (`near` positions, `far` distances) of one query.

    `state` is (limit, entries in the buffer, accepted codes closer than the limit).
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
                used = drop_overtaken(near, far, used, limit, k - closer)
    state[0], state[1], state[2] = limit, used, closer


@part
def drop_overtaken(near: Any, far: Any, used: int, limit: Any, at_limit: int) -> int:
    """Keep the codes closer than the limit and the first `at_limit` ones at it."""
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


@entry
def select(stretch: Any, queries: Any, limit: int, capacity: int, results: Any) -> None:
    """Write the nearest codes of every query, in order of (distance, position).

    `stretch` is (codes, rows, start, stop, chunk_size, word): the codes as words, or as bytes where the bytes of a code
    do not fill words; the positions to look at, ascending, none meaning all; the part of them that is searched; codes
    per chunk, a multiple of 64; and `word` as in `mark_closer`. `queries` are words. `capacity` is the size of the
    buffer of a query. `results` is (offsets, distances, positions): query q gets `offsets[q + 1] - offsets[q]` of the
    codes closer than `limit`, written from `offsets[q]` on; so many must exist.
    """
    codes, rows, start, stop, chunk_size, word = stretch
    offsets, distances, positions = results
    n_queries, lanes = len(queries), _lanes(queries.itemsize)
    planes = _planes(len(word), chunk_size, queries)
    marks = np.empty((GROUP, chunk_size // lanes + 1, 2), np.int64)
    state = np.zeros((n_queries, 3), np.int64)
    state[:, 0] = limit
    histogram = np.zeros((n_queries, limit + 1), np.int64)
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.int16)
    query, mark = np.intp(queries.ctypes.data), np.intp(marks.ctypes.data)
    next_query, next_mark = len(word) * queries.itemsize, marks.shape[1] * 16
    counts = np.diff(offsets)
    seeded = len(word) == 1 and lanes == 64 and min(chunk_size, stop - start) >= SAMPLE and counts.max() <= SAMPLE // 4
    for first in range(start, stop, chunk_size):
        chunk = _present(codes, rows, first, min(chunk_size, stop - first), planes, n_queries < GROUP)
        if seeded and first == start:
            for q in range(n_queries):
                state[q, 0] = _first_limit(chunk, query + q * next_query, counts[q], limit, marks[0], lanes, word)
        begin, last = 0, -(-chunk[3] // lanes) * lanes
        while begin < last:
            end = min(last, begin + max(SAMPLE if seeded else 64, first - start + begin))
            q = 0
            while q + GROUP <= n_queries:
                a = query + q * next_query
                marked = mark_closer(
                    chunk[0], chunk[2], begin, end, (a, a + next_query, a + 2 * next_query, a + 3 * next_query),
                    (state[q, 0], state[q + 1, 0], state[q + 2, 0], state[q + 3, 0]),
                    (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark), word,
                )  # fmt: skip
                for g in range(GROUP):
                    _trim(marks[g], marked[g], chunk[3], lanes)
                    _accept(marks[g], marked[g], chunk, first - start, a + g * next_query, counts[q + g], state[q + g],
                            histogram[q + g], near[q + g], far[q + g], word)  # fmt: skip
                q += GROUP
            while q < n_queries:
                a = query + q * next_query
                pairs = _mark(chunk, begin, end, a, state[q, 0], marks[0], lanes, word)
                _accept(marks[0], pairs, chunk, first - start, a, counts[q], state[q], histogram[q], near[q], far[q],
                        word)  # fmt: skip
                q += 1
            begin = end
    for q in range(n_queries):
        _emit(rows, start, near[q], far[q], state[q, 1], state[q, 0], histogram[q],
              distances[offsets[q] : offsets[q + 1]], positions[offsets[q] : offsets[q + 1]])  # fmt: skip


@entry
def count_closer(stretch: Any, queries: Any, limit: int, counts: Any) -> None:
    """Add to `counts` how many codes are closer than `limit` to each query; arguments as in `select`."""
    codes, rows, start, stop, chunk_size, word = stretch
    lanes = _lanes(queries.itemsize)
    planes = _planes(len(word), chunk_size, queries)
    marks = np.empty((chunk_size // lanes + 1, 2), np.int64)
    query, next_query = np.intp(queries.ctypes.data), len(word) * queries.itemsize
    for first in range(start, stop, chunk_size):
        chunk = _present(codes, rows, first, min(chunk_size, stop - first), planes, len(queries) < GROUP)
        for q in range(len(queries)):
            pairs = _mark(chunk, 0, -(-chunk[3] // lanes) * lanes, query + q * next_query, limit, marks, lanes, word)
            counts[q] += _count(marks, pairs)
