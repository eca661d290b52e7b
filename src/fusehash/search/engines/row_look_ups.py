"""Look-ups in codes as they are in memory, compiled: for one query, for which arranging codes in tiles does not pay.

A register of eight words, each of another code, has bytes of eight places in 64 lanes. `vpermi2b` looks up 64 bytes at
a time in a table of 128: eight tables of 16, one for the half of a byte at each place. So nothing needs to be arranged
but words, and a query reads codes about as fast as memory delivers them. As in look_ups.py, entries are partial scores
divided by a step and rounded down, so that the sum of entries times the step is never more than the score.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fusehash.search.engines.kernel import fetch, part
from fusehash.search.engines.tiles import FEATURES, LANES, separated, transposed

CAN_LOOK_UP_ROWS = {"+avx512vbmi", "+avx512bw"} <= FEATURES
WORD_TABLES = 256  # bytes: for the low and for the high half of a byte, 16 entries at eight places
_BLOCK = 8  # words whose look-ups are added in bytes
_SHORT, _NEAR = 254, 160  # steps in the limit: of all codes at least, and per word


@intrinsic
def mark_rows(
    _: Any, codes: Any, n_bytes: Any, start: Any, stop: Any, table: Any, limit: Any, marks: Any, words: Any
) -> Any:
    """Mark the codes from `start` to `stop`, multiples of 64, whose bound is below the limit of a query.

    `codes`, `table` (on a boundary of 64 bytes) and `marks` are addresses. Of `words`, a tuple, only the length is
    used: 1, 2 or 4 words per code, or 8 for a multiple of 8; a code has `n_bytes`. Marks as in `kernel.mark_closer`;
    returns the number of pairs. Without the instruction nothing is marked.
    """
    n_words = words.count

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if not CAN_LOOK_UP_ROWS:
            return context.get_constant_null(signature.return_type)
        codes, n_bytes, start, stop, table, limit, marks, _ = args
        address, integer = codes.type, ir.IntType(64)
        byte, pair, row = (ir.VectorType(ir.IntType(n), 512 // n) for n in (8, 16, 64))
        half, fours = ir.Constant(byte, [15] * LANES), ir.Constant(pair, [4] * (LANES // 2))
        places = ir.Constant(byte, [16 * (i % 8) for i in range(LANES)])

        def function(name: str, result: Any, *arguments: Any) -> Any:
            return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)

        permute = function("llvm.x86.avx512.vpermi2var.qi.512", byte, byte, byte, byte)
        saturating = function("llvm.uadd.sat.v64i8", byte, byte, byte)
        sum_of_eights = function("llvm.x86.avx512.psad.bw.512", row, byte, byte)

        def at(base: Any, offset: int, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, address(offset)), kind.as_pointer())

        def concatenated(parts: list[Any]) -> Any:
            while len(parts) > 1:
                width = 2 * parts[0].type.count
                order = ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(width)))
                parts = [builder.shuffle_vector(a, b, order) for a, b in zip(parts[::2], parts[1::2], strict=True)]
            return parts[0]

        def tables_of(base: Any) -> list[Any]:
            return [builder.load(at(base, i * LANES, byte), align=LANES) for i in range(4)]

        def looked_up(word: Any, tables: list[Any]) -> list[Any]:
            """The entries of the low and of the high half of every byte."""
            high = builder.bitcast(builder.lshr(builder.bitcast(word, pair), fours), byte)
            indices = (builder.or_(builder.and_(x, half), places) for x in (builder.bitcast(word, byte), high))
            both = zip(indices, tables[::2], tables[1::2], strict=True)
            return [builder.call(permute, [low, index, up]) for index, low, up in both]

        def load(place: Any) -> Any:
            fetch(builder, place, 64)
            return builder.load(at(place, 0, row), align=8)

        first = builder.insert_element(ir.Constant(row, ir.Undefined), limit, ir.IntType(32)(0))
        limits = builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), 8), [0] * 8))

        def columns_of(place: Any) -> list[Any]:
            """Words of eight codes that begin at an address, or the next eight words of them."""
            if n_words < _BLOCK:
                return separated(builder, [load(builder.add(place, address(64 * w))) for w in range(n_words)])
            return transposed(builder, [load(builder.add(place, builder.mul(n_bytes, address(j)))) for j in range(8)])

        def sums_of(columns: list[Any], table: Any) -> list[Any]:
            """The sums of look-ups of eight codes each, from their words."""
            entries: list[list[Any]] = [[] for _ in columns]
            for w in range(n_words):
                own = tables_of(builder.add(table, address(w * WORD_TABLES)))
                for words, each in zip(columns, entries, strict=True):
                    each += looked_up(words[w], own)
            zeros = ir.Constant(byte, [0] * LANES)
            added = (reduce(lambda a, b: builder.call(saturating, [a, b]), each) for each in entries)
            return [builder.call(sum_of_eights, [total, zeros]) for total in added]

        def mask_of(i: Any) -> Any:
            """One bit for each of 64 codes, a few at a time, so that registers suffice."""
            mask = cgutils.alloca_once(builder, integer)
            builder.store(integer(0), mask)
            with cgutils.for_range_slice(builder, address(0), address(LANES), address(together), address) as (
                j,
                _count,
            ):
                begin = builder.add(codes, builder.mul(builder.add(i, j), n_bytes))
                starts = [builder.add(begin, builder.mul(n_bytes, address(g))) for g in range(0, together, 8)]
                if n_words < _BLOCK:
                    sums = sums_of([columns_of(place) for place in starts], table)
                else:
                    totals = [cgutils.alloca_once(builder, row) for _ in starts]
                    for total in totals:
                        builder.store(ir.Constant(row, [0] * 8), total)
                    with cgutils.for_range_slice(builder, address(0), n_bytes, address(64), address) as (b, _count):
                        own = builder.add(table, builder.mul(b, address(WORD_TABLES // 8)))
                        columns = [columns_of(builder.add(place, b)) for place in starts]
                        for total, added in zip(totals, sums_of(columns, own), strict=True):
                            builder.store(builder.add(builder.load(total), added), total)
                    sums = [builder.load(total) for total in totals]
                below = concatenated([builder.icmp_unsigned("<", each, limits) for each in sums])
                bits = builder.zext(builder.bitcast(below, ir.IntType(together)), integer)
                builder.store(builder.or_(builder.load(mask), builder.shl(bits, j)), mask)
            return builder.load(mask)

        together = {1: 64, 2: 32}.get(n_words, 16)  # codes
        free = cgutils.alloca_once_value(builder, marks)
        with cgutils.for_range_slice(builder, start, stop, address(LANES), address) as (i, _count):
            mask = mask_of(i)
            slot = builder.load(free)
            builder.store(mask, at(slot, 0, integer))
            builder.store(i, at(slot, 8, address))
            hit = builder.zext(builder.icmp_unsigned("!=", mask, integer(0)), address)
            builder.store(builder.add(slot, builder.shl(hit, address(4))), free)
        return builder.lshr(builder.sub(builder.load(free), marks), address(4))

    return types.intp(codes, n_bytes, start, stop, table, limit, marks, words), generate


@part
def fill_rows(weights: Any, limit: int, table: Any) -> Any:
    """The tables of a query for scores below a limit, (words, 256); returns the step of their entries."""
    n_words = len(table)
    most = max(_SHORT, _NEAR * n_words)
    step = limit // most + 1
    inverse = (1.0 - 1e-12) / step  # a product rounded up must not reach the next integer
    sums = np.empty(16, np.float64)  # whole numbers that doubles hold exactly
    for g in range(16 * n_words):
        sums[0] = 0.0
        for j in range(4):
            weight = np.float64(weights[4 * g + j])
            missing, wrong = max(weight, 0.0), max(-weight, 0.0)  # of a bit that is 0, and 1
            for v in range(1 << j):
                sums[v + (1 << j)] = sums[v] + wrong
                sums[v] += missing
        into, begin = table[g // 16], g % 2 * 128 + g % 16 // 2 * 16
        for v in range(16):
            into[begin + v] = np.uint8(np.int32(min(sums[v] * inverse, 255.0)))
    return step
