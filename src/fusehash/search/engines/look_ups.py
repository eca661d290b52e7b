"""Exact search with real-valued queries, compiled: look-ups that bound scores from below, then exact scores of the few.

The score of a code (see `fusehash.search.projections`) is a sum over its bits, hence over groups of 4 or 6 neighboring
bits, hence a sum of look-ups in one table per group. A processor looks up 16 to 64 bytes at a time in a table that fits
a register (`vpermb`, `pshufb`, `tbl`), so the tables hold bytes:

- An entry is the exact partial score divided by a step of the query, rounded down, at most 255. Bytes are added up to
  255, over all groups of short codes and over eight groups in longer ones, whose sums are added in 16 bits. The sum
  times the step is never more than the score. The step follows the limit of the query, which is a sum of 254 of them,
  or 160 for eight groups; the tables are made again when the limit has fallen by a sixteenth.
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
_LANES = 64  # codes of a tile
_TILES = 4 if "+avx512bw" in _FEATURES else 1  # tiles that share the loads of a table
STEP = _LANES * _TILES
NARROW = 11 if GROUP_BITS == 6 else 8  # quads up to which sums stay bytes: 264 or 128 bits
PART = 2  # quads whose sums are bytes in longer codes
_ENTRIES, _LARGEST = 1 << GROUP_BITS, 255
_NEAR = 160  # steps per part in the limit of longer codes
NO_SCORE = np.int64(1) << np.int64(62)  # above all scores


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
def mark_bounded(
    _: Any, tiles: Any, n_quads: Any, start: Any, stop: Any, tables: Any, limits: Any, marks: Any, quads: Any
) -> Any:
    """Mark the codes from `start` to `stop` whose bound is below the limit of each query.

    All arguments are integers. `tiles` is an address on a boundary of 64 bytes; a tile of 64 codes has four groups per
    quad. `tables` and `marks` are tuples of addresses. `start` is below `stop`, both multiples of STEP. Bytes are added
    up to 255, over all quads if `quads` is None, else over so many, a divisor of `n_quads`, and then in 16 bits;
    `limits` is a tuple of at most 255, or 65535, or with `quads` of unsigned integers: the addresses of one limit per
    code, as 16 bits. Marks and result as in `kernel.mark_closer`.
    """
    n_queries, is_narrow = tables.count, isinstance(quads, types.NoneType)
    has_limit_per_code = limits.dtype == types.uint64
    signature = types.UniTuple(types.intp, n_queries)(tiles, n_quads, start, stop, tables, limits, marks, quads)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tiles, n_quads, start, stop, tables, limits, marks, quads = args
        address, numbers = tiles.type, range(n_queries)
        bytes_, pairs = ir.VectorType(ir.IntType(8), _LANES), ir.VectorType(ir.IntType(16), _LANES // 2)
        kind = bytes_ if is_narrow else pairs  # of sums

        def all_(value: int) -> Any:
            return ir.Constant(pairs, [value] * (_LANES // 2))

        def pointer(base: Any, kind: Any) -> Any:
            return builder.inttoptr(base, kind.as_pointer())

        def repeated(value: Any) -> Any:
            value = builder.trunc(value, kind.element)
            first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
            return builder.shuffle_vector(first, first, zeros)

        saturating = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(bytes_, [bytes_, bytes_]), f"llvm.uadd.sat.v{_LANES}i8"
        )
        zeros = ir.Constant(bytes_, [0] * _LANES)
        limit = [] if has_limit_per_code else [repeated(builder.extract_value(limits, q)) for q in numbers]

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

        first = [builder.extract_value(marks, q) for q in numbers]
        free = [cgutils.alloca_once_value(builder, slot) for slot in first]
        sums = [(q, t) for q in numbers for t in range(_TILES)]
        part = {at: cgutils.alloca_once(builder, bytes_) for at in sums}
        even = {at: cgutils.alloca_once(builder, pairs) for at in sums}  # sums of every second code, in 16 bits
        odd = {at: cgutils.alloca_once(builder, pairs) for at in sums}
        with cgutils.for_range_slice(builder, start, stop, address(STEP), address) as (i, _count):
            tile_bytes = builder.mul(n_quads, address(4 * _LANES))
            tile = builder.add(tiles, builder.mul(i, builder.mul(n_quads, address(4))))

            def add_up(begin: Any, count: Any, tile: Any = tile, tile_bytes: Any = tile_bytes) -> None:
                """The sums of bytes over some quads."""
                for at in sums:
                    builder.store(zeros, part[at])
                with cgutils.for_range_slice(builder, address(0), count, address(1), address) as (step, _count):
                    quad = builder.add(begin, step)
                    offset = builder.add(tile, builder.mul(quad, address(4 * _LANES)))
                    table = [
                        builder.add(builder.extract_value(tables, q), builder.mul(quad, address(4 * _ENTRIES)))
                        for q in numbers
                    ]
                    for g in range(4):
                        place = builder.add(offset, address(g * _LANES))
                        for t in range(_TILES):
                            index = builder.load(pointer(place, bytes_), align=_LANES)
                            place = builder.add(place, tile_bytes)
                            for q in numbers:
                                looked_up = _permute(builder, builder.add(table[q], address(g * _ENTRIES)), index)
                                more = builder.call(saturating, [builder.load(part[q, t]), looked_up])
                                builder.store(more, part[q, t])

            if is_narrow:
                add_up(address(0), n_quads)
            else:
                for at in sums:
                    builder.store(all_(0), even[at])
                    builder.store(all_(0), odd[at])
                with cgutils.for_range_slice(builder, address(0), n_quads, quads, address) as (begin, _count):
                    add_up(begin, quads)
                    for at in sums:
                        words = builder.bitcast(builder.load(part[at]), pairs)
                        low, high = builder.and_(words, all_(255)), builder.lshr(words, all_(8))
                        builder.store(builder.add(builder.load(even[at]), low), even[at])
                        builder.store(builder.add(builder.load(odd[at]), high), odd[at])
            for q, t in sums:
                if is_narrow:
                    closer = builder.icmp_unsigned("<", builder.load(part[q, t]), limit[q])
                else:
                    those = limits_of(q, builder.add(i, address(t * _LANES)))
                    held = (builder.load(each[q, t]) for each in (even, odd))
                    halves = [builder.icmp_unsigned("<", *each) for each in zip(held, those, strict=True)]
                    low, high = (builder.sext(half, pairs) for half in halves)
                    below = builder.or_(builder.and_(low, all_(0x00FF)), builder.and_(high, all_(0xFF00)))
                    closer = builder.icmp_unsigned("!=", builder.bitcast(below, bytes_), zeros)
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
def bytes_of_words(_: Any, words: Any, stride: Any, offsets: Any, word: Any, out: Any) -> Any:
    """Write the bytes of one word of each of 64 codes as eight columns.

    `words` is the address of the word in the first code, `stride` the bytes from code to code. If `offsets` is not None
    it is the address of 64 integers, the bytes from `words` to each. Of `word` only the type is used. Columns past the
    bytes of a word are zeros.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, stride, offsets, _, out = args
        full, byte = ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(8), _LANES)
        held, address = ir.IntType(word_type.bitwidth), words.type

        def shuffled(left: Any, right: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))

        def word_of(place: Any, code: int) -> Any:
            if not in_order:
                slot = builder.add(offsets, address(8 * code))
                place = builder.add(words, builder.load(builder.inttoptr(slot, address.as_pointer()), align=8))
            value = builder.load(builder.inttoptr(place, held.as_pointer()), align=word_type.bitwidth // 8)
            return value if word_type.bitwidth == 64 else builder.zext(value, ir.IntType(64))

        # Bytes of eight words each, sorted by their place in the word; then the columns of an 8 x 8 matrix of those.
        by_place = [8 * word + place for place in range(8) for word in range(8)]
        rows, place = [], words
        for i in range(8):
            row = ir.Constant(full, ir.Undefined)
            for j in range(8):
                row = builder.insert_element(row, word_of(place, 8 * i + j), ir.IntType(32)(j))
                if in_order:
                    place = builder.add(place, stride)
            row = builder.bitcast(row, byte)
            rows.append(builder.bitcast(shuffled(row, row, by_place), full))
        for s in (1, 2, 4):
            for i in (i for i in range(8) if not i & s):
                a, b = rows[i], rows[i + s]
                rows[i] = shuffled(a, b, [8 + j - s if j & s else j for j in range(8)])
                rows[i + s] = shuffled(a, b, [8 + j if j & s else j + s for j in range(8)])
        for i, column in enumerate(rows):
            target = builder.inttoptr(builder.add(out, address(i * _LANES)), byte.as_pointer())
            builder.store(builder.bitcast(column, byte), target, align=1)
        return context.get_dummy_value()

    word_type, in_order = word, isinstance(offsets, types.NoneType)
    return types.none(words, stride, offsets, word, out), generate


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
def _lay_out(codes: Any, rows: Any, first: int, count: int, offsets: Any, columns: Any, tiles: Any) -> None:
    """Arrange `count` codes in tiles of 64: all groups of the codes of a tile, one after the other."""
    size, n_words = codes.itemsize, codes.shape[1]
    n_bytes, n_quads = n_words * size, len(tiles) // 4
    column, tile = np.intp(columns.ctypes.data), np.intp(tiles.ctypes.data)
    code, word = np.intp(codes.ctypes.data), codes[0, 0]
    for begin in range(0, count, _LANES):
        if len(rows) or begin + _LANES > count:
            for i in range(_LANES):
                place = first + min(begin + i, count - 1)  # the last code again, where there is none
                offsets[i] = (rows[place] if len(rows) else place) * n_bytes
            for w in range(n_words):  # what is too much is overwritten
                bytes_of_words(code + w * size, n_bytes, np.intp(offsets.ctypes.data), word, column + w * size * _LANES)
        else:
            for w in range(n_words):
                address = code + (first + begin) * n_bytes + w * size
                bytes_of_words(address, n_bytes, None, word, column + w * size * _LANES)
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
def _fill(weights: Any, limit: int, coarse: Any, is_narrow: bool) -> Any:
    """The tables of a query for scores below a limit; returns the step of their entries.

    Sums of bytes end at 255. Where they are the bound, that of the limit is just below. In longer codes the score of a
    code at the limit is spread over several sums of about 160, so that few parts of near codes are cut.
    """
    most = _LARGEST - 1 if is_narrow else _NEAR * len(coarse) // (4 * PART)
    step = limit // most + 1
    inverse = (1.0 - 1e-12) / step  # a product rounded up must not reach the next integer
    sums = np.empty(_ENTRIES, np.int64)
    for g in range(len(coarse)):
        _partial(weights, g * GROUP_BITS, GROUP_BITS, sums)
        for v in range(_ENTRIES):
            coarse[g, v] = np.uint8(np.int32(min(np.float64(sums[v]) * inverse, 255.0)))
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
    if limit == NO_SCORE and used >= k:
        limit = _cut_to(near, far, used, k)
        used = k
    state[0], state[1] = limit, used


@part
def _refresh(weights: Any, state: Any, coarse: Any, is_narrow: bool) -> None:
    """The bound of the present limit of a query, with new tables if they are made for a much higher one."""
    limit = state[0]
    if limit < state[3] - (state[3] >> 4):
        state[5] = _fill(weights, limit, coarse, is_narrow)
        state[3] = limit
    if limit < NO_SCORE:
        state[2] = (limit - 1) // state[5] + 1  # a score below the limit has a bound below that


@part
def _mark_all(marks: Any, begin: int, end: int) -> int:
    pairs = (end - begin) // _LANES
    for pair in range(pairs):
        marks[pair, 0], marks[pair, 1] = -1, begin + pair * _LANES
    return pairs


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
    codes, rows, start, stop, chunk = stretch
    offsets, scores, positions = results
    n_queries, n_bytes = len(weights), codes.shape[1] * codes.itemsize
    n_quads = -(-n_bytes // QUAD_BYTES)
    is_narrow = n_quads <= NARROW
    if not is_narrow:
        n_quads = -(-n_quads // PART) * PART
    tiles, columns = _matrix(4 * n_quads, chunk), _matrix(n_quads * QUAD_BYTES + 8, _LANES)
    places = np.zeros(_LANES, np.int64)
    coarse = _matrix(n_queries * 4 * n_quads, _ENTRIES).reshape(n_queries, 4 * n_quads, _ENTRIES)
    marks = np.empty((GROUP, chunk // _LANES + 1, 2), np.int64)
    state = np.zeros((n_queries, 6), np.int64)
    for q in range(n_queries):
        state[q, 0], state[q, 3] = limits[q], NO_SCORE
        for j in range(weights.shape[1]):
            state[q, 4] += max(np.int64(0), weights[q, j])
    near, far = np.empty((n_queries, capacity), np.uint32), np.empty((n_queries, capacity), np.int64)
    tile, mark = np.intp(tiles.ctypes.data), np.intp(marks.ctypes.data)
    next_table, next_mark = 4 * n_quads * _ENTRIES, marks.shape[1] * 16
    marked = (0, 0, 0, 0)
    for first in range(start, stop, chunk):
        count = min(chunk, stop - first)
        table = np.intp(coarse.ctypes.data)  # in the loop: numba frees an array after its last use
        _lay_out(codes, rows, first, count, places, columns, tiles)
        begin, last = 0, -(-count // STEP) * STEP
        while begin < last:
            end = min(last, begin + max(STEP, first - start + begin))
            for q in range(0, n_queries, GROUP):
                n = min(GROUP, n_queries - q)
                for g in range(n):
                    _refresh(weights[q + g], state[q + g], coarse[q + g], is_narrow)
                # Past the last query, the last one again, which marks nothing.
                b, c, d = q + min(1, n - 1), q + min(2, n - 1), q + min(3, n - 1)
                addresses = (table + q * next_table, table + b * next_table, table + c * next_table,
                             table + d * next_table)  # fmt: skip
                bounds = (state[q, 2], state[b, 2] * (n > 1), state[c, 2] * (n > 2), state[d, 2] * (n > 3))
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
