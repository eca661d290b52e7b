"""Exact search with real-valued queries, compiled: look-ups that bound scores from below, then exact scores of the few.

The score of a code (see `fusehash.search.projections`) is a sum over its bits, hence over groups of 4 or 6 neighboring
bits, hence a sum of look-ups in one table per group. A processor looks up 16 to 64 bytes at a time in a table that fits
a register (`vpermb`, `pshufb`, `tbl`), so the tables hold bytes:

- An entry is the exact partial score divided by a step of the query, rounded down and cut to 63. Four of them fit into
  a byte; such bytes are added in 16 bits. The sum times the step is never more than the score.
- A code whose bound reaches the query's limit, the k-th smallest score so far, is done with. The others, about one in a
  thousand, get their exact score, as a sum of 64-bit integers.
- Accepted codes go to a buffer. When it is full, the k-th smallest score becomes the limit, and the rest is dropped.
  Codes are met in order of position, so a later code at the limit loses the tie.

Codes are arranged in tiles of 64, one byte per code and group, chunk by chunk; a block of queries passes over a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fusehash.search.engines.kernel import GROUP, entry, lowest_bit, part

_FEATURES = set(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
GROUP_BITS = 6 if "+avx512vbmi" in _FEATURES else 4  # bits of a look-up: tables of 64 or 16 bytes
QUAD_BYTES = GROUP_BITS // 2  # bytes of a code that four look-ups cover
_LANES, _TILES = 64, 2  # codes of a tile, and tiles that share the loads of a table
STEP = _LANES * _TILES
_ENTRIES, _LARGEST, _UNLIMITED = 1 << GROUP_BITS, 63, 65535
_NO_SCORE = np.int64(1) << np.int64(62)  # above all scores


def _permute(builder: Any, table: Any, index: Any) -> Any:
    """table[index] for 64 indices; `table` is the address of its first byte."""
    byte, i32 = ir.IntType(8), ir.IntType(32)

    def call(name: str, lanes: int) -> Any:
        vector = ir.VectorType(byte, lanes)
        held = builder.load(builder.inttoptr(table, ir.VectorType(byte, min(_ENTRIES, lanes)).as_pointer()), align=16)
        if lanes > _ENTRIES:
            order = ir.Constant(ir.VectorType(i32, lanes), [i % _ENTRIES for i in range(lanes)])
            held = builder.shuffle_vector(held, held, order)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), name)
        parts = []
        for start in range(0, _LANES, lanes):
            order = ir.Constant(ir.VectorType(i32, lanes), list(range(start, start + lanes)))
            parts.append(builder.call(function, [held, builder.shuffle_vector(index, index, order)]))
        while len(parts) > 1:
            width = 2 * _LANES // len(parts)
            order = ir.Constant(ir.VectorType(i32, width), list(range(width)))
            parts = [builder.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    if GROUP_BITS == 6:
        return call("llvm.x86.avx512.permvar.qi.512", 64)
    if "+avx512bw" in _FEATURES:
        return call("llvm.x86.avx512.pshuf.b.512", 64)
    if "+avx2" in _FEATURES:
        return call("llvm.x86.avx2.pshuf.b", 32)
    if "+ssse3" in _FEATURES:
        return call("llvm.x86.ssse3.pshuf.b.128", 16)
    if "+neon" in _FEATURES and cpu_target.target_context.codegen().magic_tuple()[0].startswith(("aarch64", "arm64")):
        return call("llvm.aarch64.neon.tbl1.v16i8", 16)
    values = ir.Constant(ir.VectorType(byte, _LANES), ir.Undefined)
    for lane in range(_LANES):
        position = builder.zext(builder.extract_element(index, i32(lane)), table.type)
        position = builder.and_(position, table.type(_ENTRIES - 1))
        value = builder.load(builder.inttoptr(builder.add(table, position), byte.as_pointer()), align=1)
        values = builder.insert_element(values, value, i32(lane))
    return values


@intrinsic
def mark_bounded(_: Any, tiles: Any, n_quads: Any, start: Any, stop: Any, tables: Any, limits: Any, marks: Any) -> Any:
    """Mark the codes from `start` to `stop` whose bound is below the limit of each query.

    All arguments are integers. `tiles` is an address on a boundary of 64 bytes; a tile of 64 codes has four groups per
    quad. `tables` and `marks` are tuples of addresses, `limits` a tuple of at most 65535, or of unsigned integers: the
    addresses of one such limit per code, as 16 bits. `start` is below `stop`, both multiples of 128. Marks and result
    as in `kernel.mark_closer`.
    """
    n_queries, has_limit_per_code = tables.count, limits.dtype == types.uint64
    signature = types.UniTuple(types.intp, n_queries)(tiles, n_quads, start, stop, tables, limits, marks)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tiles, n_quads, start, stop, tables, limits, marks = args
        address, numbers = tiles.type, range(n_queries)
        bytes_, pairs = ir.VectorType(ir.IntType(8), _LANES), ir.VectorType(ir.IntType(16), _LANES // 2)

        def all_(value: int) -> Any:
            return ir.Constant(pairs, [value] * (_LANES // 2))

        def pointer(base: Any, kind: Any) -> Any:
            return builder.inttoptr(base, kind.as_pointer())

        def repeated(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(pairs, ir.Undefined), value, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES // 2), [0] * (_LANES // 2))
            return builder.shuffle_vector(first, first, zeros)

        def limits_of(q: int, i: Any) -> tuple[Any, Any]:
            """The limits of 64 codes: those of even and of odd number."""
            if not has_limit_per_code:
                return limit[q], limit[q]
            at = builder.add(builder.extract_value(limits, q), builder.mul(i, address(2)))
            values = builder.load(pointer(at, ir.VectorType(ir.IntType(16), _LANES)), align=2)
            halves = (list(range(first, _LANES, 2)) for first in (0, 1))
            kind = ir.VectorType(ir.IntType(32), _LANES // 2)
            even, odd = (builder.shuffle_vector(values, values, ir.Constant(kind, half)) for half in halves)
            return even, odd

        limit = [] if has_limit_per_code else [
            repeated(builder.trunc(builder.extract_value(limits, q), ir.IntType(16))) for q in numbers
        ]  # fmt: skip
        first = [builder.extract_value(marks, q) for q in numbers]
        free = [cgutils.alloca_once_value(builder, slot) for slot in first]
        sums = [(q, t) for q in numbers for t in range(_TILES)]
        both = {at: cgutils.alloca_once(builder, pairs) for at in sums}  # of two neighboring codes: low + 256 high
        high = {at: cgutils.alloca_once(builder, pairs) for at in sums}
        with cgutils.for_range_slice(builder, start, stop, address(STEP), address) as (i, _count):
            for at in sums:
                builder.store(all_(0), both[at])
                builder.store(all_(0), high[at])
            tile_bytes = builder.mul(n_quads, address(4 * _LANES))
            tile = builder.add(tiles, builder.mul(i, builder.mul(n_quads, address(4))))
            with cgutils.for_range_slice(builder, address(0), n_quads, address(1), address) as (quad, _count):
                offset, indices = builder.add(tile, builder.mul(quad, address(4 * _LANES))), []
                for _ in range(_TILES):
                    slots = [builder.add(offset, address(g * _LANES)) for g in range(4)]
                    indices.append([builder.load(pointer(slot, bytes_), align=_LANES) for slot in slots])
                    offset = builder.add(offset, tile_bytes)
                for q in numbers:
                    table = builder.add(builder.extract_value(tables, q), builder.mul(quad, address(4 * _ENTRIES)))
                    for t in range(_TILES):
                        total = None
                        for g, index in enumerate(indices[t]):
                            looked_up = _permute(builder, builder.add(table, address(g * _ENTRIES)), index)
                            total = looked_up if total is None else builder.add(total, looked_up)
                        words = builder.bitcast(total, pairs)
                        builder.store(builder.add(builder.load(both[q, t]), words), both[q, t])
                        builder.store(builder.add(builder.load(high[q, t]), builder.lshr(words, all_(8))), high[q, t])
            for q, t in sums:
                upper = builder.load(high[q, t])
                lower = builder.sub(builder.load(both[q, t]), builder.shl(upper, all_(8)))
                even, odd = limits_of(q, builder.add(i, address(t * _LANES)))
                below = builder.or_(
                    builder.and_(builder.sext(builder.icmp_unsigned("<", lower, even), pairs), all_(0x00FF)),
                    builder.and_(builder.sext(builder.icmp_unsigned("<", upper, odd), pairs), all_(0xFF00)),
                )
                closer = builder.icmp_unsigned("!=", builder.bitcast(below, bytes_), ir.Constant(bytes_, [0] * _LANES))
                mask = builder.bitcast(closer, ir.IntType(64))
                slot = builder.load(free[q])
                builder.store(mask, pointer(slot, ir.IntType(64)))
                builder.store(builder.add(i, address(t * _LANES)), pointer(builder.add(slot, address(8)), address))
                hit = builder.zext(builder.icmp_unsigned("!=", mask, ir.IntType(64)(0)), address)
                builder.store(builder.add(slot, builder.shl(hit, address(4))), free[q])
        result = ir.Constant(ir.ArrayType(address, n_queries), ir.Undefined)
        for q in numbers:
            written = builder.lshr(builder.sub(builder.load(free[q]), first[q]), address(4))
            result = builder.insert_value(result, written, q)
        return result

    return signature, generate


@intrinsic
def bytes_of_words(_: Any, words: Any, out: Any) -> Any:
    """Write the eight bytes of each of 64 words of 64 bits as eight columns; both are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, out = args
        word, byte = ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(8), _LANES)

        def shuffled(left: Any, right: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))

        def at(base: Any, i: int, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, base.type(i * _LANES)), kind.as_pointer())

        # Bytes of eight words each, sorted by their place in the word; then the columns of an 8 x 8 matrix of those.
        rows = [builder.load(at(words, i, byte), align=8) for i in range(8)]
        by_place = [8 * word + place for place in range(8) for word in range(8)]
        rows = [builder.bitcast(shuffled(row, row, by_place), word) for row in rows]
        for s in (1, 2, 4):
            for i in (i for i in range(8) if not i & s):
                a, b = rows[i], rows[i + s]
                rows[i] = shuffled(a, b, [8 + j - s if j & s else j for j in range(8)])
                rows[i + s] = shuffled(a, b, [8 + j if j & s else j + s for j in range(8)])
        for i, column in enumerate(rows):
            builder.store(builder.bitcast(column, byte), at(out, i, byte), align=1)
        return context.get_dummy_value()

    return types.none(words, out), generate


@intrinsic
def groups_of_bytes(_: Any, columns: Any, out: Any) -> Any:
    """Write the four groups of bits of 64 codes, from the columns of a quad; both are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        columns, out = args
        byte = ir.VectorType(ir.IntType(8), _LANES)

        def all_(value: int) -> Any:
            return ir.Constant(byte, [value] * _LANES)

        def at(base: Any, i: int) -> Any:
            return builder.inttoptr(builder.add(base, base.type(i * _LANES)), byte.as_pointer())

        low, *_, high = held = [builder.load(at(columns, i), align=1) for i in range(QUAD_BYTES)]
        if GROUP_BITS == 6:
            parts = [
                low,
                builder.or_(builder.lshr(low, all_(6)), builder.shl(held[1], all_(2))),
                builder.or_(builder.lshr(held[1], all_(4)), builder.shl(high, all_(4))),
                builder.lshr(high, all_(2)),
            ]
        else:
            parts = [low, builder.lshr(low, all_(4)), high, builder.lshr(high, all_(4))]
        for i, group in enumerate(parts):
            builder.store(builder.and_(group, all_(_ENTRIES - 1)), at(out, i), align=1)
        return context.get_dummy_value()

    return types.none(columns, out), generate


@intrinsic
def sum_of_ones(_: Any, weights: Any, code: Any, n_bytes: Any) -> Any:
    """The sum of the 64-bit weights of the bits that are 1 in a code; `weights` and `code` are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights, code, n_bytes = args
        address, word = weights.type, ir.VectorType(ir.IntType(64), 8)
        zeros = ir.Constant(word, [0] * 8)
        total = cgutils.alloca_once_value(builder, zeros)
        with cgutils.for_range_slice(builder, address(0), n_bytes, address(1), address) as (i, _count):
            held = builder.load(builder.inttoptr(builder.add(code, i), ir.IntType(8).as_pointer()), align=1)
            offset = builder.add(weights, builder.mul(i, address(64)))
            values = builder.load(builder.inttoptr(offset, word.as_pointer()), align=8)
            ones = builder.select(builder.bitcast(held, ir.VectorType(ir.IntType(1), 8)), values, zeros)
            builder.store(builder.add(builder.load(total), ones), total)
        held = builder.load(total)
        result = builder.extract_element(held, ir.IntType(32)(0))
        for lane in range(1, 8):
            result = builder.add(result, builder.extract_element(held, ir.IntType(32)(lane)))
        return result

    return types.int64(weights, code, n_bytes), generate


@part
def _lay_out(codes: Any, rows: Any, first: int, count: int, words: Any, columns: Any, tiles: Any) -> None:
    """Arrange `count` codes in tiles of 64: all groups of the codes of a tile, one after the other."""
    size, n_words = codes.itemsize, codes.shape[1]
    n_quads = -(-n_words * size // QUAD_BYTES)
    word, column, tile = np.intp(words.ctypes.data), np.intp(columns.ctypes.data), np.intp(tiles.ctypes.data)
    for begin in range(0, count, _LANES):
        for i in range(min(_LANES, count - begin)):
            row = rows[first + begin + i] if len(rows) else first + begin + i
            for w in range(n_words):
                words[w, i] = codes[row, w]
        for w in range(n_words):
            bytes_of_words(word + w * 8 * _LANES, column + w * size * _LANES)  # what is too much is overwritten
        columns[n_words * size :] = 0
        for quad in range(n_quads):
            groups_of_bytes(column + quad * QUAD_BYTES * _LANES, tile + (begin * n_quads + quad * _LANES) * 4)


@part
def _matrix(n_rows: int, n_columns: int) -> Any:
    """Bytes, every row on a boundary of 64; `n_columns` is a multiple of that. Zeros, since the last rows may be
    padding."""
    raw = np.zeros(n_rows * n_columns + 64, np.uint8)
    skip = -np.intp(raw.ctypes.data) % 64
    return raw[skip : skip + n_rows * n_columns].reshape(n_rows, n_columns)


@part
def _partial(weights: Any, first: int, n_bits: int, sums: Any) -> None:
    """The score of every value of bits `first` to `first + n_bits`; no weights past the last bit."""
    sums[0] = 0
    for j in range(n_bits):
        weight = weights[first + j] if first + j < len(weights) else np.int64(0)
        size = 1 << j
        if weight > 0:
            for v in range(size):
                sums[size + v] = sums[v]
                sums[v] += weight
        else:
            for v in range(size):
                sums[size + v] = sums[v] - weight


@part
def _step(weights: Any, n_groups: int) -> Any:
    """The step with the least loss: a large one loses by rounding, a small one by cutting the largest entries."""
    most = np.int64(1)
    for g in range(n_groups):
        most = max(most, _total(weights, g))
    best, least = np.int64(0), np.inf
    for divisor in (_LARGEST, 2 * _LARGEST, 4 * _LARGEST, 8 * _LARGEST):
        step = most // divisor + 1
        loss = 0.5 * step * n_groups
        for g in range(n_groups):
            loss += max(0, _total(weights, g) - _LARGEST * step) * 0.5
        if loss < least:
            best, least = step, loss
    return best


@part
def _total(weights: Any, group: int) -> Any:
    total = np.int64(0)
    for j in range(group * GROUP_BITS, min(len(weights), (group + 1) * GROUP_BITS)):
        total += abs(weights[j])
    return total


@part
def _fill(weights: Any, coarse: Any) -> int:
    """The tables of a query; returns the step of their entries."""
    step = _step(weights, len(coarse))
    inverse = (1.0 - 1e-12) / step  # a product rounded up must not reach the next integer
    sums = np.empty(_ENTRIES, np.int64)
    for g in range(len(coarse)):
        _partial(weights, g * GROUP_BITS, GROUP_BITS, sums)
        for v in range(_ENTRIES):
            coarse[g, v] = np.uint8(min(np.int32(_LARGEST), np.int32(min(np.float64(sums[v]) * inverse, 64.0))))
    return step


@part
def _score(codes: Any, rows: Any, i: int, weights: Any, ones: int) -> int:
    """The score of a code: what the query's ones weigh, less the weights of all bits that are 1 in the code."""
    n_bytes = codes.shape[1] * codes.itemsize
    row = rows[i] if len(rows) else i
    return ones - sum_of_ones(np.intp(weights.ctypes.data), np.intp(codes.ctypes.data) + row * n_bytes, n_bytes)


@part
def _cut_to(near: Any, far: Any, used: int, k: int) -> Any:
    """Keep the k smallest scores of the buffer, in the order they came; the first ones among equals."""
    limit = np.partition(far[:used], k - 1)[k - 1]
    at_limit = np.int64(k)
    for i in range(used):
        at_limit -= far[i] < limit
    kept = 0
    for i in range(used):
        if far[i] < limit or (far[i] == limit and at_limit > 0):
            at_limit -= far[i] == limit
            near[kept], far[kept] = near[i], far[i]
            kept += 1
    return limit


@part
def _bound(limit: int, step: int) -> Any:
    """The bound from which on a code cannot be below the limit."""
    return min(np.int64(_UNLIMITED), (limit - 1) // step + 1)


@part
def _accept(marks: Any, pairs: int, codes: Any, rows: Any, first: int, base: int, k: int, state: Any, near: Any,
            far: Any, weights: Any) -> None:  # fmt: skip
    """Take the marked codes below the limit into the buffer; `state` is (limit, entries, step, bound,
    weight of the ones of the query)."""
    limit, used = state[0], state[1]
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = first + begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            score = _score(codes, rows, i, weights, state[4])
            if score >= limit:
                continue
            if used == len(near):
                limit = _cut_to(near, far, used, k)
                used = k
                if score >= limit:
                    continue
            near[used], far[used] = i - base, score
            used += 1
    if limit < state[0]:
        state[3] = _bound(limit, state[2])
    state[0], state[1] = limit, used


@entry
def select(stretch: Any, weights: Any, limits: Any, capacity: int, results: Any, kept: Any) -> None:
    """Write the codes of the smallest scores for every query, in order of (score, position).

    `stretch` is (codes, rows, start, stop, chunk): rows of words or bytes; the positions to look at, ascending, none
    meaning all; the part of them that is searched; codes per chunk, a multiple of 128. `weights` and `limits` as in
    `Projections`. `capacity` is the size of the buffer of a query. `results` is (offsets, scores, positions): query q
    gets at most `offsets[q + 1] - offsets[q]` codes below its limit, written from `offsets[q]` on, and `kept[q]` is
    their number. With a capacity of 0 nothing is written, and `kept[q]` is the number of codes below the limit.
    """
    codes, rows, start, stop, chunk = stretch
    offsets, scores, positions = results
    n_queries, n_bytes = len(weights), codes.shape[1] * codes.itemsize
    n_quads = -(-n_bytes // QUAD_BYTES)
    tiles, columns = _matrix(4 * n_quads, chunk), _matrix(n_bytes + 8, _LANES)
    words = np.zeros((codes.shape[1], _LANES), np.uint64)
    coarse = _matrix(n_queries * 4 * n_quads, _ENTRIES).reshape(n_queries, 4 * n_quads, _ENTRIES)
    marks = np.empty((GROUP, chunk // _LANES + 1, 2), np.int64)
    state = np.zeros((n_queries, 5), np.int64)
    for q in range(n_queries):
        state[q, 0], state[q, 2] = limits[q], _fill(weights[q], coarse[q])
        state[q, 3] = _bound(limits[q], state[q, 2])
        for j in range(weights.shape[1]):
            state[q, 4] += max(np.int64(0), weights[q, j])
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.int64)
    tile, mark = np.intp(tiles.ctypes.data), np.intp(marks.ctypes.data)
    next_table, next_mark = 4 * n_quads * _ENTRIES, marks.shape[1] * 16
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        table = np.intp(coarse.ctypes.data)  # in the loop: numba frees an array after its last use
        _lay_out(codes, rows, first, count, words, columns, tiles)
        begin, last = 0, -(-count // STEP) * STEP
        while begin < last:
            end = min(last, begin + max(STEP, first - start + begin))
            for q in range(0, n_queries, GROUP):
                a, n = table + q * next_table, min(GROUP, n_queries - q)
                if n == GROUP:
                    marked = mark_bounded(
                        tile, n_quads, begin, end,
                        (a, a + next_table, a + 2 * next_table, a + 3 * next_table),
                        (state[q, 3], state[q + 1, 3], state[q + 2, 3], state[q + 3, 3]),
                        (mark, mark + next_mark, mark + 2 * next_mark, mark + 3 * next_mark),
                    )  # fmt: skip
                    for g in range(GROUP):
                        _take(marks[g], marked[g], count, codes, rows, first, start, offsets, q + g, state, near, far,
                              weights, kept)  # fmt: skip
                else:
                    for g in range(n):
                        (pairs,) = mark_bounded(tile, n_quads, begin, end, (a + g * next_table,),
                                                (state[q + g, 3],), (mark,))  # fmt: skip
                        _take(marks[0], pairs, count, codes, rows, first, start, offsets, q + g, state, near, far,
                              weights, kept)  # fmt: skip
            begin = end
    if capacity:
        for q in range(n_queries):
            kept[q] = _emit(rows, start, near[q], far[q], state[q, 1], scores[offsets[q] : offsets[q + 1]],
                            positions[offsets[q] : offsets[q + 1]])  # fmt: skip


@part
def _trim(marks: Any, pairs: int, count: int) -> int:
    """Unmark what is past the last code of a chunk; how many pairs are left."""
    while pairs and marks[pairs - 1, 1] >= count:
        pairs -= 1
    if pairs and marks[pairs - 1, 1] + _LANES > count:
        marks[pairs - 1, 0] &= (np.int64(1) << (count - marks[pairs - 1, 1])) - 1
    return pairs


@part
def _take(marks: Any, pairs: int, count: int, codes: Any, rows: Any, first: int, start: int, offsets: Any, q: int,
          state: Any, near: Any, far: Any, weights: Any, kept: Any) -> None:  # fmt: skip
    """What becomes of the marked codes of query q: into its buffer, or counted."""
    pairs = _trim(marks, pairs, count)
    if near.shape[1]:
        k = offsets[q + 1] - offsets[q]
        _accept(marks, pairs, codes, rows, first, start, k, state[q], near[q], far[q], weights[q])
        return
    for pair in range(pairs):
        mask, begin = np.uint64(marks[pair, 0]), marks[pair, 1]
        while mask != 0:
            i = first + begin + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            kept[q] += _score(codes, rows, i, weights[q], state[q, 4]) < state[q, 0]


@part
def _emit(rows: Any, start: int, near: Any, far: Any, used: int, scores: Any, positions: Any) -> int:
    """Write the smallest of the buffer in order of (score, position); how many there are."""
    order = np.argsort(far[:used], kind="mergesort")[: len(scores)]
    for slot in range(len(order)):
        i = order[slot]
        position = start + np.int64(near[i])
        scores[slot] = far[i]
        positions[slot] = rows[position] if len(rows) else position
    return len(order)
