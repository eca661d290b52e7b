"""Look-ups that bound the scores of codes from below, compiled; and exact scores.

The score of a code (see `fusehash.search.projections`) is a sum over its bits, hence over groups of 4 or 6 neighboring
bits, hence a sum of look-ups in one table per group. A processor looks up 16 to 64 bytes at a time in a table that fits
a register (`vpermb`, `pshufb`, `tbl`), so the tables hold bytes:

- An entry is the exact partial score divided by a step of the query, rounded down, at most 255. The sum of entries
  times the step is never more than the score. The step follows the limit that a score must stay below.
- In short codes bytes are added up to 255, over all groups; the limit is a sum of 254. In longer ones that is done over
  eight groups, in which the limit is 160 on average, and these sums are added in 16 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fusehash.search.engines.kernel import lean, part
from fusehash.search.engines.tiles import FEATURES, GROUP_BITS, LANES

_TILES = 4 if "+avx512bw" in FEATURES else 1  # tiles that share the loads of a table
STEP = LANES * _TILES
NARROW = 11 if GROUP_BITS == 6 else 8  # quads up to which sums stay bytes: 264 or 128 bits
PART = 2  # quads whose sums are bytes in longer codes
_STEPS, _QUADS = 8, 16  # steps and quads, a multiple of PART, that longer codes look up at a time
ENTRIES, _LARGEST = 1 << GROUP_BITS, 255
_NEAR = 160  # steps per part in the limit of longer codes
_IS_ONE = np.array([[float(v >> j & 1) for v in range(ENTRIES)] for j in range(GROUP_BITS)])


def _permute(builder: Any, table: Any, index: Any) -> Any:
    """table[index] for 64 indices; `table` is the address of its first byte."""
    byte, i32 = ir.IntType(8), ir.IntType(32)

    def call(name: str, lanes: int) -> Any:
        vector = ir.VectorType(byte, lanes)
        held = builder.load(builder.inttoptr(table, ir.VectorType(byte, min(ENTRIES, lanes)).as_pointer()), align=16)
        if lanes > ENTRIES:
            order = ir.Constant(ir.VectorType(i32, lanes), [i % ENTRIES for i in range(lanes)])
            held = builder.shuffle_vector(held, held, order)
        function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector, vector]), name)
        parts = []
        for start in range(0, LANES, lanes):
            order = ir.Constant(ir.VectorType(i32, lanes), list(range(start, start + lanes)))
            parts.append(builder.call(function, [held, builder.shuffle_vector(index, index, order)]))
        while len(parts) > 1:
            width = 2 * LANES // len(parts)
            order = ir.Constant(ir.VectorType(i32, width), list(range(width)))
            parts = [builder.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    if GROUP_BITS == 6:
        return call("llvm.x86.avx512.permvar.qi.512", 64)
    if "+avx512bw" in FEATURES:
        return call("llvm.x86.avx512.pshuf.b.512", 64)
    if "+avx2" in FEATURES:
        return call("llvm.x86.avx2.pshuf.b", 32)
    if "+ssse3" in FEATURES:
        return call("llvm.x86.ssse3.pshuf.b.128", 16)
    if "+neon" in FEATURES and cpu_target.target_context.codegen().magic_tuple()[0].startswith(("aarch64", "arm64")):
        return call("llvm.aarch64.neon.tbl1.v16i8", 16)
    values = ir.Constant(ir.VectorType(byte, LANES), ir.Undefined)
    for lane in range(LANES):
        position = builder.zext(builder.extract_element(index, i32(lane)), table.type)
        position = builder.and_(position, table.type(ENTRIES - 1))
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
        tiles, n_quads, start, stop, tables, limits, marks, _ = args
        address, numbers = tiles.type, range(n_queries)
        bytes_, pairs = ir.VectorType(ir.IntType(8), LANES), ir.VectorType(ir.IntType(16), LANES // 2)
        kind = bytes_ if is_narrow else pairs  # of sums

        def all_(value: int) -> Any:
            return ir.Constant(pairs, [value] * (LANES // 2))

        def pointer(base: Any, kind: Any) -> Any:
            return builder.inttoptr(base, kind.as_pointer())

        def repeated(value: Any) -> Any:
            value = builder.trunc(value, kind.element)
            first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.IntType(32)(0))
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
            return builder.shuffle_vector(first, first, zeros)

        saturating = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(bytes_, [bytes_, bytes_]), f"llvm.uadd.sat.v{LANES}i8"
        )
        zeros = ir.Constant(bytes_, [0] * LANES)
        limit = [] if has_limit_per_code else [repeated(builder.extract_value(limits, q)) for q in numbers]

        def limits_of(q: int, i: Any) -> tuple[Any, Any]:
            """The limits of 64 codes: those of even and of odd number."""
            if not has_limit_per_code:
                return limit[q], limit[q]
            at = builder.add(builder.extract_value(limits, q), builder.mul(i, address(2)))
            values = builder.load(pointer(at, ir.VectorType(ir.IntType(16), LANES)), align=2)
            halves = (list(range(first, LANES, 2)) for first in (0, 1))
            kind = ir.VectorType(ir.IntType(32), LANES // 2)
            even, odd = (builder.shuffle_vector(values, values, ir.Constant(kind, half)) for half in halves)
            return even, odd

        first = [builder.extract_value(marks, q) for q in numbers]
        free = [cgutils.alloca_once_value(builder, slot) for slot in first]
        sums = [(q, t) for q in numbers for t in range(_TILES)]
        part = {at: cgutils.alloca_once(builder, bytes_) for at in sums}
        tile_bytes = builder.mul(n_quads, address(4 * LANES))

        def look_up(i: Any, quad: Any, is_first: bool) -> None:
            """Add the look-ups of a quad of the codes from `i` on to the sums of bytes."""
            offset = builder.add(
                builder.mul(i, builder.mul(n_quads, address(4))), builder.mul(quad, address(4 * LANES))
            )
            offset = builder.add(tiles, offset)
            table = {
                q: builder.add(builder.extract_value(tables, q), builder.mul(quad, address(4 * ENTRIES)))
                for q in numbers
            }
            for g in range(4):
                place = builder.add(offset, address(g * LANES))
                for t in range(_TILES):
                    index = builder.load(pointer(place, bytes_), align=LANES)
                    place = builder.add(place, tile_bytes)
                    for q in numbers:
                        looked_up = _permute(builder, builder.add(table[q], address(g * ENTRIES)), index)
                        if not is_first or g:
                            looked_up = builder.call(saturating, [builder.load(part[q, t]), looked_up])
                        builder.store(looked_up, part[q, t])

        def mark(i: Any, q: int, t: int, closer: Any) -> None:
            mask = builder.bitcast(closer, ir.IntType(64))
            slot = builder.load(free[q])
            builder.store(mask, pointer(slot, ir.IntType(64)))
            builder.store(builder.add(i, address(t * LANES)), pointer(builder.add(slot, address(8)), address))
            hit = builder.zext(builder.icmp_unsigned("!=", mask, ir.IntType(64)(0)), address)
            builder.store(builder.add(slot, builder.shl(hit, address(4))), free[q])

        def mark_narrow() -> None:
            with cgutils.for_range_slice(builder, start, stop, address(STEP), address) as (i, _count):
                look_up(i, address(0), True)
                with cgutils.for_range_slice(builder, address(1), n_quads, address(1), address) as (quad, _count):
                    look_up(i, quad, False)
                for q, t in sums:
                    mark(i, q, t, builder.icmp_unsigned("<", builder.load(part[q, t]), limit[q]))

        def smaller(left: Any, right: Any) -> Any:
            return builder.select(builder.icmp_signed("<", left, right), left, right)

        def mark_wide() -> None:
            """Some steps and some quads at a time, so that their tables stay in the first-level cache."""
            # In 16 bits: pairs of bytes as one number, modulo 2^16, and those of the second code.
            both = {at: cgutils.alloca_once(builder, pairs) for at in sums}
            odd = {at: cgutils.alloca_once(builder, pairs) for at in sums}
            slots = [each[at] for at in sums for each in (both, odd)]
            room = cgutils.alloca_once(builder, ir.ArrayType(pairs, _STEPS * len(slots)))
            room.align = LANES
            kept = builder.ptrtoint(room, address)

            def places(i: Any, first: Any) -> list[Any]:
                base = builder.add(kept, builder.mul(builder.sub(i, first), address(len(slots) * LANES // STEP)))
                return [pointer(builder.add(base, address(n * LANES)), pairs) for n in range(len(slots))]

            with cgutils.for_range_slice(builder, start, stop, address(_STEPS * STEP), address) as (first_step, _count):
                end = smaller(builder.add(first_step, address(_STEPS * STEP)), stop)
                with cgutils.for_range_slice(builder, first_step, end, address(STEP), address) as (i, _count):
                    for place in places(i, first_step):
                        builder.store(all_(0), place, align=LANES)
                with cgutils.for_range_slice(builder, address(0), n_quads, address(_QUADS), address) as (quad, _count):
                    last = smaller(builder.add(quad, address(_QUADS)), n_quads)
                    with cgutils.for_range_slice(builder, first_step, end, address(STEP), address) as (i, _count):
                        for place, slot in zip(places(i, first_step), slots, strict=True):
                            builder.store(builder.load(place, align=LANES), slot)
                        with cgutils.for_range_slice(builder, quad, last, address(PART), address) as (begin, _count):
                            for n in range(PART):
                                look_up(i, builder.add(begin, address(n)), n == 0)
                            for at in sums:
                                words = builder.bitcast(builder.load(part[at]), pairs)
                                builder.store(builder.add(builder.load(both[at]), words), both[at])
                                second = builder.lshr(words, all_(8))
                                builder.store(builder.add(builder.load(odd[at]), second), odd[at])
                        for place, slot in zip(places(i, first_step), slots, strict=True):
                            builder.store(builder.load(slot), place, align=LANES)
                with cgutils.for_range_slice(builder, first_step, end, address(STEP), address) as (i, _count):
                    held = [builder.load(place, align=LANES) for place in places(i, first_step)]
                    for n, (q, t) in enumerate(sums):
                        those = limits_of(q, builder.add(i, address(t * LANES)))
                        second = held[2 * n + 1]
                        both_sums = builder.sub(held[2 * n], builder.shl(second, all_(8))), second
                        halves = [builder.icmp_unsigned("<", *each) for each in zip(both_sums, those, strict=True)]
                        low, high = (builder.sext(half, pairs) for half in halves)
                        below = builder.or_(builder.and_(low, all_(0x00FF)), builder.and_(high, all_(0xFF00)))
                        mark(i, q, t, builder.icmp_unsigned("!=", builder.bitcast(below, bytes_), zeros))

        if is_narrow:
            mark_narrow()
        else:
            mark_wide()
        result = ir.Constant(ir.ArrayType(address, n_queries), ir.Undefined)
        for q in numbers:
            written = builder.lshr(builder.sub(builder.load(free[q]), first[q]), address(4))
            result = builder.insert_value(result, written, q)
        return result

    return signature, generate


@intrinsic
def sum_of_ones(_: Any, weights: Any, code: Any, n_bytes: Any) -> Any:
    """The sum of the 64-bit weights of the bits that are 1 in a code; `weights` and `code` are addresses."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        weights, code, n_bytes = args
        address, word = weights.type, ir.VectorType(ir.IntType(64), 8)
        zeros = ir.Constant(word, [0] * 8)
        totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(4)]  # so that sums need not wait

        def add_up(start: Any, stop: Any, step: int) -> None:
            with cgutils.for_range_slice(builder, start, stop, address(step), address) as (i, _count):
                for j in range(step):
                    place, total = builder.add(i, address(j)), totals[j % len(totals)]
                    held = builder.load(builder.inttoptr(builder.add(code, place), ir.IntType(8).as_pointer()), align=1)
                    offset = builder.add(weights, builder.mul(place, address(64)))
                    values = builder.load(builder.inttoptr(offset, word.as_pointer()), align=8)
                    ones = builder.select(builder.bitcast(held, ir.VectorType(ir.IntType(1), 8)), values, zeros)
                    builder.store(builder.add(builder.load(total), ones), total)

        whole = builder.and_(n_bytes, address(-8))
        add_up(address(0), whole, 8)
        add_up(whole, n_bytes, 1)
        held = builder.load(totals[0])
        for total in totals[1:]:
            held = builder.add(held, builder.load(total))
        result = builder.extract_element(held, ir.IntType(32)(0))
        for lane in range(1, 8):
            result = builder.add(result, builder.extract_element(held, ir.IntType(32)(lane)))
        return result

    return types.int64(weights, code, n_bytes), generate


@part
def fill(weights: Any, limit: int, coarse: Any, is_narrow: bool) -> Any:
    """The tables of a query for scores below a limit; returns the step of their entries.

    Sums of bytes end at 255. Where they are the bound, that of the limit is just below. In longer codes the score of a
    code at the limit is spread over several sums of about 160, so that few parts of near codes are cut.
    """
    most = _LARGEST - 1 if is_narrow else _NEAR * len(coarse) // (4 * PART)
    step = limit // most + 1
    inverse = (1.0 - 1e-12) / step  # a product rounded up must not reach the next integer
    sums = np.empty(ENTRIES, np.float64)  # whole numbers that doubles hold exactly
    for g in range(len(coarse)):
        sums[:] = 0.0
        for j in range(GROUP_BITS):
            if g * GROUP_BITS + j < len(weights):  # no weights past the last bit
                weight = np.float64(weights[g * GROUP_BITS + j])
                missing = max(weight, 0.0)
                for v in range(ENTRIES):
                    sums[v] += missing - weight * _IS_ONE[j, v]
        for v in range(ENTRIES):
            coarse[g, v] = np.uint8(np.int32(min(sums[v] * inverse, 255.0)))
    return step


@lean
def score_of(codes: Any, rows: Any, i: int, weights: Any, ones: int) -> int:
    """The score of a code: what the query's ones weigh, less the weights of all bits that are 1 in the code."""
    n_bytes = codes.shape[1] * codes.itemsize
    row = rows[i] if len(rows) else i
    return ones - sum_of_ones(np.intp(weights.ctypes.data), np.intp(codes.ctypes.data) + row * n_bytes, n_bytes)
