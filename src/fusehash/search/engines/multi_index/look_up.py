"""Look-ups in the tables of multi-index hashing, compiled. segments.py describes the tables.

Step r of a query looks up, in table r % m, every substring at distance r // m from its own. After step r every code at
distance r or less has been met. The step in which a code is met first follows from the code alone, so that a code which
is met again is recognized without a list of what was seen.

The nearest k are looked for within a small distance, then, if there are fewer, again within a larger one. So the
fingerprints dismiss nearly all entries of codes that are far away.

A step is done in four stages, each of which asks the memory for what the next one reads: the starts of its buckets,
their entries, the codes of entries whose fingerprints are near, and then their distances.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fusehash.numerics.compiled import bit_count
from fusehash.search.engines.kernel import entry, part, word_at
from fusehash.search.engines.numpy import SHIFT

FINGERPRINT = 32  # bits of a code that an entry holds next to its slot
_BUCKETS = 256  # looked up in one go
_AHEAD = 64  # codes whose places are asked for before they are needed
_GIVEN_UP = -1
_U32, _U64, _I64 = (np.uint32(0),), (np.uint64(0),), (np.int64(0),)  # kinds of words in memory
# Columns of a segment: numbers and addresses, so that any number of segments is of one type.
N_TABLES, WIDTH, STARTS, ENTRIES, COUNT, IDS, FIRST_ID, STALE, N_STALE, FIRST_ROW = range(10)


@intrinsic
def _prefetch(_: Any, address: Any) -> Any:
    """Ask the memory for the cache line at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, *[ir.IntType(32)] * 3])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        i32 = ir.IntType(32)
        builder.call(function, [builder.inttoptr(args[0], pointer), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(address), generate


@part
def _word(codes: Any, row: int, w: int) -> Any:
    """Word `w` of a code; codes whose bytes do not fill words come as bytes."""
    if codes.itemsize == 8:
        return np.uint64(codes[row, w])
    value = np.uint64(0)
    for b in range(min(8, codes.shape[1] - w * 8)):
        value |= np.uint64(codes[row, w * 8 + b]) << np.uint64(8 * b)
    return value


@part
def _bits(codes: Any, row: int, first: int, count: int) -> Any:
    """`count` bits (at most 32) of a code from bit `first` on."""
    w, shift = first >> 6, first & 63
    value = _word(codes, row, w) >> np.uint64(shift)
    if shift + count > 64:
        value |= _word(codes, row, w + 1) << np.uint64(64 - shift)
    return value & ((np.uint64(1) << np.uint64(count)) - np.uint64(1))


@part
def _fingerprint(codes: Any, row: int, first: int, n_bits: int, width: int) -> Any:
    """The bits after a substring that ends at bit `first`, from the start again at the end of the code."""
    count = min(FINGERPRINT, n_bits - width)
    if count <= 0:
        return np.uint64(0)
    first = first % n_bits
    inside = min(count, n_bits - first)
    value = _bits(codes, row, first, inside)
    if inside < count:
        value |= _bits(codes, row, 0, count - inside) << np.uint64(inside)
    return value


@entry
def fill(codes: Any, n_bits: int, first: int, width: int, starts: Any, entries: Any) -> None:
    """Build one table, a counting sort: `starts[s]` to `starts[s + 1]` are the entries of codes with substring s.

    An entry is the row of the code, and its fingerprint in the upper 32 bits.
    """
    starts[:] = 0
    values = np.empty(_AHEAD, np.int64)  # of some codes, whose buckets come from memory meanwhile
    start_address, entry_address = np.intp(starts.ctypes.data), np.intp(entries.ctypes.data)
    for begin in range(0, len(codes), _AHEAD):
        count = min(_AHEAD, len(codes) - begin)
        for i in range(count):
            values[i] = _bits(codes, begin + i, first, width)
            _prefetch(start_address + 4 * values[i])
        for i in range(count):
            starts[values[i] + 1] += np.uint32(1)
    for s in range(1, len(starts)):
        starts[s] += starts[s - 1]
    for begin in range(0, len(codes), _AHEAD):
        count = min(_AHEAD, len(codes) - begin)
        for i in range(count):
            values[i] = _bits(codes, begin + i, first, width)
            _prefetch(start_address + 4 * values[i])
        for i in range(count):
            _prefetch(entry_address + 8 * np.intp(starts[values[i]]))
        for i in range(count):
            row, s = begin + i, values[i]
            bits = _fingerprint(codes, row, first + width, n_bits, width)
            entries[starts[s]] = bits << np.uint64(32) | np.uint64(row)
            starts[s] += np.uint32(1)
    for s in range(len(starts) - 1, 0, -1):  # every start has moved to the next one
        starts[s] = starts[s - 1]
    starts[0] = 0


@part
def _next_combination(bits: int) -> int:
    """The next larger integer with as many ones (Gosper)."""
    lowest = bits & -bits
    carried = bits + lowest
    return carried | (((bits ^ carried) >> 2) // lowest)


@part
def _find(address: int, count: int, value: int) -> int:
    """The position of a value among ascending ones in memory, or -1."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if word_at(address + 8 * middle, _I64) < value:
            low = middle + 1
        else:
            high = middle
    return low if low < count and word_at(address + 8 * low, _I64) == value else -1


@part
def _row(slot: int, segment: Any, ids: Any, first_id: int, n_rows: int) -> int:
    """The row that the code of a slot is in now; -1 if it was removed or has another code since."""
    id = segment[FIRST_ID] + slot
    if segment[IDS]:
        id = word_at(segment[IDS] + 8 * slot, _I64)
    if segment[N_STALE] and _find(segment[STALE], segment[N_STALE], id) >= 0:
        return -1
    if len(ids) == 0:
        return id - first_id if first_id <= id < first_id + n_rows else -1
    guess = segment[FIRST_ROW] + slot
    return guess if guess < n_rows and ids[guess] == id else _find(np.intp(ids.ctypes.data), n_rows, id)


@part
def cut(table: int, n_tables: int, n_bits: int) -> int:
    """The first bit of a substring."""
    return n_bits * table // n_tables


@part
def _first_step(codes: Any, row: int, queries: Any, q: int, n_bits: int, n_tables: int, width: int) -> int:
    """The step in which the tables of a segment meet a code first."""
    step: Any = 1 << 30
    for table in range(n_tables):
        first = cut(table, n_tables, n_bits)
        differing = _bits(codes, row, first, width) ^ _bits(queries, q, first, width)
        step = min(step, np.int64(bit_count(differing)) * n_tables + table)
    return step


@part
def _step(r: int, codes: Any, n_bits: int, ids: Any, first_id: int, queries: Any, q: int, segment: Any, limit: int,
          buckets: Any, near: Any) -> Any:  # fmt: skip
    """Look up one step of a query in one segment: what it cost, `near` with the rows it met, and how many."""
    n_tables, width, count = segment[N_TABLES], segment[WIDTH], segment[COUNT]
    table, distance = r % n_tables, r // n_tables
    cost, n_near = 0, 0
    if distance > width:
        return cost, near, n_near
    first = cut(table, n_tables, n_bits)
    value = np.int64(_bits(queries, q, first, width))
    mine = _fingerprint(queries, q, first + width, n_bits, width)
    last = np.int64(1) << np.int64(width)
    starts, entries = segment[STARTS] + 4 * table * (last + 1), segment[ENTRIES] + 8 * table * count
    flips = (np.int64(1) << np.int64(distance)) - 1
    while flips < last:
        n_buckets = 0
        while flips < last and n_buckets < _BUCKETS:
            buckets[n_buckets, 0] = starts + 4 * (value ^ flips)
            _prefetch(buckets[n_buckets, 0])
            n_buckets += 1
            flips = last if flips == 0 else _next_combination(flips)
        for b in range(n_buckets):
            slot = buckets[b, 0]
            buckets[b, 0], buckets[b, 1] = word_at(slot, _U32), word_at(slot + 4, _U32)
            _prefetch(entries + 8 * buckets[b, 0])
        cost += n_buckets
        for b in range(n_buckets):
            begin, end = buckets[b, 0], buckets[b, 1]
            cost += (end - begin) >> 4
            for i in range(begin, end):
                packed = word_at(entries + 8 * i, _U64)
                if distance + np.int64(bit_count((packed >> np.uint64(32)) ^ mine)) <= limit:
                    row = _row(np.int64(packed & np.uint64(0xFFFFFFFF)), segment, ids, first_id, len(codes))
                    if row >= 0:
                        if n_near == len(near):
                            near = np.concatenate((near, np.empty(len(near), np.int64)))
                        near[n_near] = row
                        n_near += 1
    base, size = np.intp(codes.ctypes.data), codes.shape[1] * codes.itemsize
    for i in range(n_near):
        _prefetch(base + near[i] * size)
    return cost, near, n_near


@entry
def look_up(codes: Any, ids: Any, first_id: int, queries: Any, segments: Any, given: Any, k: int, limits: Any,
            counts: Any) -> Any:  # fmt: skip
    """Keys of the results of all queries, one after the other, sorted; how many each has in `counts`.

    The nearest `k`, or with `k` 0 all within the reach. `codes` are words, or bytes where their bytes do not fill
    words; `queries` are words. `ids` of the rows are empty if they count up from `first_id`. `segments` has the columns
    above. `given` is (offsets, keys): what is known of each query from codes that are in no segment. `limits` is
    (bits of a code, reach, budget). A count of -1: the nearest k are not within the reach, or the query was too costly.
    """
    offsets, given_keys = given
    n_bits, reach, budget = limits
    keys, near = np.empty(256, np.int64), np.empty(256, np.int64)
    out, used = np.empty(max(256, len(queries) * k), np.int64), 0
    histogram = np.empty(n_bits + 1, np.int64)
    buckets = np.empty((_BUCKETS, 2), np.int64)
    n_tables = np.int64(1)
    for s in range(len(segments)):
        n_tables = max(n_tables, segments[s, N_TABLES])
    for q in range(len(queries)):
        cost, n_keys, limit = 0, 0, reach
        done: Any = False
        # The nearest k are looked for within a small distance first: fewer entries are near enough to be compared.
        last = min(reach, 2 * n_tables - 1) if k else reach
        while True:
            n_keys, limit = 0, last
            histogram[:] = 0
            for i in range(offsets[q], offsets[q + 1]):
                if n_keys == len(keys):
                    keys = np.concatenate((keys, np.empty(len(keys), np.int64)))
                keys[n_keys] = given_keys[i]
                histogram[keys[n_keys] >> np.int64(SHIFT)] += 1
                n_keys += 1
            for r in range(last + 1):
                for s in range(len(segments)):
                    segment = segments[s]
                    spent, near, n_near = _step(
                        r, codes, n_bits, ids, first_id, queries, q, segment, limit, buckets, near
                    )
                    cost += spent
                    for i in range(n_near):
                        row, d = near[i], np.int64(0)
                        for w in range(queries.shape[1]):
                            d += np.int64(bit_count(_word(codes, row, w) ^ queries[q, w]))
                        if d > limit:
                            continue
                        if _first_step(codes, row, queries, q, n_bits, segment[N_TABLES], segment[WIDTH]) != r:
                            continue
                        if n_keys == len(keys):
                            keys = np.concatenate((keys, np.empty(len(keys), np.int64)))
                        keys[n_keys] = d << np.int64(SHIFT) | row
                        n_keys += 1
                        histogram[d] += 1
                done = r == reach and k == 0
                if k:  # a code farther than the k-th so far cannot enter the result
                    total: Any = 0
                    for distance in range(limit + 1):
                        total += histogram[distance]
                        if total >= k:
                            limit, done = distance, distance <= r
                            break
                if done or cost > budget:
                    break
            if done or cost > budget or last >= reach:
                break
            last = min(reach, last + n_tables)
        counts[q] = _GIVEN_UP
        if done:
            kept = 0
            for i in range(n_keys):
                if keys[i] >> np.int64(SHIFT) <= limit:
                    keys[kept] = keys[i]
                    kept += 1
            keys[:kept].sort()
            counts[q] = min(k, kept) if k else kept
            while used + counts[q] > len(out):
                out = np.concatenate((out, np.empty(len(out), np.int64)))
            out[used : used + counts[q]] = keys[: counts[q]]
            used += counts[q]
    return out[:used]
