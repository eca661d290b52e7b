"""The one loop of the exact search that numba alone does not vectorize, written as portable LLVM vector instructions.

A query is compared with a whole vector of codes at a time: exclusive or, population count, add over the words of a
code, compare with the query's limit. The outcome is one bit a code. LLVM turns this into ``vpopcnt`` on AVX-512,
table look-ups on AVX2, ``cnt`` on ARM. Hits are rare and unpredictable, so the loop does not branch on them: it always
stores the bit mask and moves on to the next slot only where the mask is not zero.

The codes lie in planes (word w of all codes is contiguous, plane w begins ``stride`` bytes after plane w - 1) or, where
a block of codes meets too few queries to be laid out anew, in rows, whose words are then added pair by pair.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Codes compared in one step, by the bits of a word: four 512-bit registers, and at most the 64 bits of a mask.
LANES = {8: 64, 16: 64, 32: 64, 64: 32}


@intrinsic
def mark_closer(
    _: Any, codes: Any, stride: Any, start: Any, stop: Any, queries: Any, limits: Any, marks: Any, word: Any
) -> Any:
    """Mark the codes ``start`` to ``stop`` that lie closer to each query than its limit.

    All integers. ``codes``, ``queries`` (a tuple) and ``marks`` (a tuple) are addresses; ``limits`` is a tuple;
    ``word`` is a tuple of zeros whose type alone counts: as many as a code has words, of the type of a word.
    ``start`` is below ``stop``, both multiples of the lanes; what lies past the last code must be readable.
    ``stride`` None means rows; nothing is marked then unless a code has a power of two of words.

    At ``marks[q]`` come pairs of 64-bit integers (mask, number of the code behind its lowest bit). Returns a tuple
    with the number of pairs written for each query.
    """
    n_queries, n_words, bits = queries.count, word.count, word.dtype.bitwidth
    lanes, size, in_rows = LANES[bits], bits // 8, isinstance(stride, types.NoneType)
    signature = types.UniTuple(types.intp, n_queries)(codes, stride, start, stop, queries, limits, marks, word)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if in_rows and n_words & (n_words - 1):
            return context.get_constant_null(signature.return_type)
        codes, stride, start, stop, queries, limits, marks, _ = args
        lane, address, mask_type = ir.IntType(bits), codes.type, ir.IntType(64)
        vector = ir.VectorType(lane, lanes)
        undefined = ir.Constant(vector, ir.Undefined)

        def shuffled(one: Any, two: Any, order: Iterable[int]) -> Any:
            return builder.shuffle_vector(one, two, ir.Constant(ir.VectorType(ir.IntType(32), lanes), list(order)))

        def repeated(values: list[Any]) -> Any:
            some = undefined
            for i, value in enumerate(values):
                some = builder.insert_element(some, value, ir.Constant(ir.IntType(32), i))
            return shuffled(some, undefined, (i % len(values) for i in range(lanes)))

        def pointer(base: Any, offset: Any, kind: Any) -> Any:
            return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

        def block(offset: Any) -> Any:
            return builder.load(pointer(codes, offset, vector), align=size)

        def word_of(q: int, w: int) -> Any:
            return builder.load(pointer(builder.extract_value(queries, q), address(w * size), lane), align=size)

        def differences(one: Any, two: Any) -> Any:
            return builder.call(popcount, [builder.xor(one, two)])

        popcount = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector]), f"llvm.ctpop.v{lanes}i{bits}"
        )
        numbers = range(n_queries)
        words = [[word_of(q, w) for w in range(n_words)] for q in numbers]
        wanted = [[repeated(own)] if in_rows else [repeated([word]) for word in own] for own in words]
        limit = [repeated([builder.trunc(builder.extract_value(limits, q), lane)]) for q in numbers]
        first = [builder.extract_value(marks, q) for q in numbers]
        free = [cgutils.alloca_once_value(builder, slot) for slot in first]
        with cgutils.for_range_slice(builder, start, stop, address(lanes), address) as (i, _count):
            distance: list[Any] = []
            if in_rows:
                offset = builder.mul(i, address(n_words * size))
                blocks = [block(builder.add(offset, address(w * lanes * size))) for w in range(n_words)]
                for q in numbers:
                    sums = [differences(part, wanted[q][0]) for part in blocks]
                    while len(sums) > 1:
                        halves = list(zip(sums[::2], sums[1::2], strict=True))
                        even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
                        sums = [builder.add(shuffled(*half, even), shuffled(*half, odd)) for half in halves]
                    distance += sums
            else:
                offset = builder.mul(i, address(size))
                for w in range(n_words):
                    part = block(offset)
                    offset = builder.add(offset, stride)
                    counts = [differences(part, wanted[q][w]) for q in numbers]
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
def bit_count(_: Any, word: Any) -> Any:
    """Number of ones in an integer."""
    return word(word), lambda context, builder, signature, args: builder.ctpop(args[0])


@intrinsic
def lowest_bit(_: Any, word: Any) -> Any:
    """Number of the lowest one in a 64-bit integer that is not zero."""
    return types.intp(word), lambda context, builder, signature, args: builder.cttz(
        args[0], ir.Constant(ir.IntType(1), 1)
    )


@intrinsic
def word_at(_: Any, address: Any, word: Any) -> Any:
    """The word at an address; ``word`` as in `mark_closer`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lane = ir.IntType(word.dtype.bitwidth)
        return builder.load(builder.inttoptr(args[0], lane.as_pointer()), align=word.dtype.bitwidth // 8)

    return word.dtype(address, word), generate
