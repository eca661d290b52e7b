"""Kernels of rescoring: cosines of queries and stored vectors, the nearest of them, and the checksums of records.

A record is a row of a matrix of bytes: a vector and, in a file, its checksum before it. The checksum is a sum of
products modulo 2^64: every 32-bit word of the vector times an odd key of its own, plus the place of the record times an
odd number, plus a seed. A change of one word always changes it; any other change does but for one in about 2^32.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from fusehash.numerics.compiled import compiled

SUM_BYTES = 8  # of a checksum, before the numbers
PLACE = 0x9E3779B97F4A7C15
FAST = {"reassoc", "contract"}
_LINE, _AHEAD = 64, 4  # bytes of a cache line; candidates whose records are asked for before they are needed

part = compiled(keep=False, boundscheck=False, error_model="numpy", fastmath=FAST)


@cache
def keys_of(n_words: int) -> NDArray[np.uint64]:
    """Odd numbers, one for each word of a vector: the splitmix64 sequence."""
    with np.errstate(over="ignore"):
        z = np.arange(1, n_words + 1, dtype=np.uint64) * np.uint64(PLACE)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) | np.uint64(1)


@intrinsic
def _prefetch(_: Any, address: Any) -> Any:
    """Ask the memory for the cache line at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(args[0], pointer), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(address), generate


@intrinsic
def _number(_: Any, value: Any) -> Any:
    """A stored number in double precision; those of half precision, which numba does not know, come as 16-bit words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if value != types.uint16:
            return context.cast(builder, args[0], value, types.float64)
        i32, double = ir.IntType(32), ir.DoubleType()
        word = builder.zext(args[0], i32)
        sign, rest = (builder.and_(word, i32(mask)) for mask in (0x8000, 0x7FFF))
        single = builder.bitcast(builder.or_(builder.shl(sign, i32(16)), builder.shl(rest, i32(13))), ir.FloatType())
        # The exponent of single precision is biased by 112 more. The product is exact, also of subnormal numbers.
        return builder.fmul(builder.fpext(single, double), double(2.0**112))

    return types.float64(value), generate


@part
def _sum(words: Any, place: int, keys: Any, seed: Any) -> Any:
    """The checksum of a vector."""
    total = np.uint64(0)
    for j in range(len(keys)):
        total += np.uint64(words[j]) * keys[j]
    return total + seed + np.uint64(place) * np.uint64(PLACE)


@part
def _is_whole(words: Any, place: int, keys: Any, seed: Any) -> Any:
    stored = np.uint64(words[place, 0]) | np.uint64(words[place, 1]) << np.uint64(32)
    return stored == _sum(words[place, 2:], place, keys, seed)


@part
def _is_before(distance: Any, position: int, other: Any, other_position: int) -> bool:
    return distance < other or (distance == other and position < other_position)


@part
def _sift_down(distances: Any, positions: Any, distance: Any, position: int, size: int) -> None:
    """Put an entry in the place of the first, and largest, of a heap."""
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(
            distances[child], positions[child], distances[child + 1], positions[child + 1]
        ):
            child += 1
        if not _is_before(distance, position, distances[child], positions[child]):
            break
        distances[hole], positions[hole] = distances[child], positions[child]
        hole = child
    distances[hole], positions[hole] = distance, position


@compiled(boundscheck=False, error_model="numpy", fastmath=FAST)
def nearest(
    numbers: Any, first: int, heads: Any, head: int, center: Any, words: Any, keys: Any, seed: Any, places: Any,
    positions: Any, queries: Any, distances: Any, found: Any,
) -> int:  # fmt: skip
    """Write the nearest of the candidates of every query: 1 - cosine in single precision, in order of (it, position).

    `numbers` and `words` are the records as numbers and as 32-bit words; the vectors begin at number `first`. With a
    center, `heads` are the records in single precision, of which number `head` is the scale of the numbers (negative
    for a vector without the center) and the next one the length of the vector. Checksums are verified if there are
    keys. `places` are the records of the candidates, `positions` what is returned for them. Returns the first pair
    (query * candidates + candidate) whose record is damaged, or -1.
    """
    n_candidates, k, dim = places.shape[1], found.shape[1], queries.shape[1]
    start, stride = numbers.ctypes.data, numbers.shape[1] * numbers.itemsize
    for q in range(len(queries)):
        query, best, chosen = queries[q], distances[q], found[q]
        length = 0.0
        for j in range(dim):
            length += query[j] * query[j]
        length = np.sqrt(length)
        of_center = 0.0
        for j in range(len(center)):
            of_center += query[j] * center[j]
        best[:] = np.inf
        chosen[:] = np.iinfo(np.int64).max
        for c in range(-_AHEAD, n_candidates):
            if c + _AHEAD < n_candidates:
                address = start + places[q, c + _AHEAD] * stride
                for line in range(address, address + stride, _LINE):
                    _prefetch(line)
            if c < 0:
                continue
            place = places[q, c]
            if len(keys) and not _is_whole(words, place, keys, seed):
                return q * n_candidates + c
            vector = numbers[place, first:]  # a slice, since numba would look for negative indices in first + j
            product, square = 0.0, 0.0
            if len(center):
                for j in range(dim):
                    product += query[j] * _number(vector[j])
                scale = np.float64(heads[place, head])
                product = product * scale + (0.0 if scale < 0.0 else of_center)
                norm = np.float64(heads[place, head + 1])
            else:
                for j in range(dim):
                    value = _number(vector[j])
                    product += query[j] * value
                    square += value * value
                norm = np.sqrt(square)
            distance = np.float32(1.0 - product / (length * norm))
            if not np.isfinite(distance):  # of a vector that was forged: zeros or infinity
                return q * n_candidates + c
            if _is_before(distance, positions[q, c], best[0], chosen[0]):
                _sift_down(best, chosen, distance, positions[q, c], k)
        for size in range(k - 1, 0, -1):
            distance, position = best[size], chosen[size]
            best[size], chosen[size] = best[0], chosen[0]
            _sift_down(best, chosen, distance, position, size)
    return -1


@compiled(boundscheck=False, error_model="numpy")
def first_damaged(words: Any, keys: Any, seed: Any, places: Any) -> int:
    """The first entry of `places` whose record has another checksum, or -1."""
    for i in range(len(places)):
        if not _is_whole(words, places[i], keys, seed):
            return i
    return -1


@compiled(boundscheck=False, error_model="numpy")
def write_sums(words: Any, keys: Any, seed: Any, first_place: int) -> None:
    """Put the checksums into new records, which will be in consecutive places."""
    for i in range(len(words)):
        total = _sum(words[i, 2:], first_place + i, keys, seed)
        words[i, 0] = np.uint32(total & np.uint64(0xFFFFFFFF))
        words[i, 1] = np.uint32(total >> np.uint64(32))
