"""Codes arranged for look-ups, compiled: tiles of 64 codes, one byte per code and group of 4 or 6 neighboring bits.

In rows, the bits of a code are neighbors; a look-up needs the same bits of many codes. Three steps lead from one to the
other, each for 64 codes: word by word (all first words, all second words, ...), byte by byte within a word, and groups
out of bytes. All of them are shuffles of whole registers, so that arranging codes takes little longer than reading them
from memory. Codes that are not neighbors in memory, or whose bytes do not fill 64-bit words, take the first step one by
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fusehash.search.engines.kernel import fetch, lean, part

FEATURES = set(cpu_target.target_context.codegen().magic_tuple()[2].split(","))
GROUP_BITS = 6 if "+avx512vbmi" in FEATURES else 4  # bits of a look-up: tables of 64 or 16 bytes
QUAD_BYTES = GROUP_BITS // 2  # bytes of a code that four look-ups cover
LANES = 64  # codes of a tile


def _shuffled(builder: Any, left: Any, right: Any, order: list[int]) -> Any:
    return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(ir.IntType(32), len(order)), order))


def _at(builder: Any, base: Any, offset: int, kind: Any) -> Any:
    return builder.inttoptr(builder.add(base, base.type(offset)), kind.as_pointer())


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of an 8 x 8 matrix of 64-bit integers."""
    rows = list(rows)
    for s in (1, 2, 4):
        for i in (i for i in range(8) if not i & s):
            a, b = rows[i], rows[i + s]
            rows[i] = _shuffled(builder, a, b, [8 + j - s if j & s else j for j in range(8)])
            rows[i + s] = _shuffled(builder, a, b, [8 + j if j & s else j + s for j in range(8)])
    return rows


def separated(builder: Any, rows: list[Any]) -> list[Any]:
    """Every second entry of all rows, one after the other, and so on: words of codes that follow one another."""
    if len(rows) == 1:
        return rows
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    even, odd = ([_shuffled(builder, a, b, list(range(i, 16, 2))) for a, b in pairs] for i in (0, 1))
    return [row for both in zip(separated(builder, even), separated(builder, odd), strict=True) for row in both]


@intrinsic
def words_of_codes(_: Any, codes: Any, n_bytes: Any, words: Any, out: Any) -> Any:
    """Write the words of 64 codes of `n_bytes` at `out`, word by word; `codes` and `out` are addresses.

    Of `words`, a tuple, only the length is used: 2 or 4 words per code, or 8 to take so many at a time. These are
    whole registers: up to seven words past the last one of a code are read, and written.
    """
    n_words = words.count

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        codes, n_bytes, _, out = args
        row, address = ir.VectorType(ir.IntType(64), 8), codes.type
        step = n_bytes if n_words == 8 else address(64)
        group_bytes = builder.mul(n_bytes, address(8))
        with cgutils.for_range_slice(builder, address(0), address(8), address(1), address) as (group, _groups):
            first = builder.add(codes, builder.mul(group, group_bytes))
            target = builder.add(out, builder.mul(group, address(64)))
            with cgutils.for_range_slice(builder, address(0), n_bytes, address(8 * n_words), address) as (i, _blocks):
                place, rows = builder.add(first, i), []
                for _row in range(n_words):
                    rows.append(builder.load(_at(builder, place, 0, row), align=8))
                    place = builder.add(place, step)
                columns = transposed(builder, rows) if n_words == 8 else separated(builder, rows)
                into = builder.add(target, builder.mul(i, address(LANES)))
                for w, column in enumerate(columns):
                    builder.store(column, _at(builder, into, w * 8 * LANES, row), align=8)
        return context.get_dummy_value()

    return types.none(codes, n_bytes, words, out), generate


@intrinsic
def columns_of_words(_: Any, words: Any, out: Any, codes: Any) -> Any:
    """Write the bytes of 64 neighboring words as eight columns; both are addresses.

    Meanwhile as many bytes are fetched that follow on `codes`: memory should not be idle while shuffles are not.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        words, out, codes = args
        row, byte = ir.VectorType(ir.IntType(64), 8), ir.VectorType(ir.IntType(8), LANES)
        fetch(builder, codes, 8 * LANES)

        def load(i: int, kind: Any) -> Any:
            return builder.load(_at(builder, words, 8 * i, kind), align=8)

        if "+avx512vbmi" in FEATURES:
            # Bytes of eight words each, by their place in the word; then the columns of an 8 x 8 matrix of those.
            by_place = [8 * word + place for place in range(8) for word in range(8)]
            held = [builder.bitcast(load(i, row), byte) for i in range(0, LANES, 8)]
            rows = [builder.bitcast(_shuffled(builder, h, h, by_place), row) for h in held]
            columns = [builder.bitcast(r, byte) for r in transposed(builder, rows)]
        else:
            # Only shuffles within 16 bytes: bytes of two registers in turn, four times. Every load takes the words
            # from four places, so that the codes are in order in the end.
            columns = []
            for i in range(0, 16, 2):
                two = [load(i + j, ir.VectorType(ir.IntType(64), 2)) for j in (0, 16, 32, 48)]
                low, high = (_shuffled(builder, a, b, [0, 1, 2, 3]) for a, b in (two[:2], two[2:]))
                columns.append(builder.bitcast(_shuffled(builder, low, high, list(range(8))), byte))
            in_turn = [[16 * (i // 16) + h * 8 + i % 16 // 2 + i % 2 * LANES for i in range(LANES)] for h in (0, 1)]
            # Registers stand for three bits of the number of a code, lowest last. Each pass replaces one of them by a
            # bit of the place in the word (the first pass by the lowest bit of the number, which the last one takes).
            for bit in (4, 2, 1, 4):
                pairs = [(columns[i], columns[i + bit], i) for i in range(8) if not i & bit]
                for a, b, i in pairs:
                    columns[i], columns[i + bit] = (_shuffled(builder, a, b, order) for order in in_turn)
            # Now the bits of a register's number are bits 0, 2 and 1 of the place in the word.
            columns = [columns[(p & 1) << 2 | (p >> 2 & 1) << 1 | (p >> 1 & 1)] for p in range(8)]
        for i, column in enumerate(columns):
            builder.store(column, _at(builder, out, i * LANES, byte), align=1)
        return context.get_dummy_value()

    return types.none(words, out, codes), generate


@intrinsic
def groups_of_bytes(_: Any, columns: Any, out: Any) -> Any:
    """Write the four groups of bits of 64 codes, from the columns of a quad; both are addresses. Groups of six bits
    have others above them, which a look-up does not heed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        columns, out = args
        # There are no shifts of bytes: those of pairs of bytes bring in bits of the other byte.
        pair = ir.VectorType(ir.IntType(16), LANES // 2)

        def all_(value: int) -> Any:
            return ir.Constant(pair, [value] * (LANES // 2))

        def masked(value: Any, mask: int) -> Any:
            return builder.and_(value, all_(mask * 257))

        held = [builder.load(_at(builder, columns, i * LANES, pair), align=1) for i in range(QUAD_BYTES)]
        if GROUP_BITS == 6:
            low, middle, high = held
            parts = [
                low,
                builder.or_(masked(builder.lshr(low, all_(6)), 3), masked(builder.shl(middle, all_(2)), 252)),
                builder.or_(masked(builder.lshr(middle, all_(4)), 15), masked(builder.shl(high, all_(4)), 240)),
                builder.lshr(high, all_(2)),
            ]
        else:
            parts = [part for byte in held for part in (masked(byte, 15), masked(builder.lshr(byte, all_(4)), 15))]
        for i, group in enumerate(parts):
            builder.store(group, _at(builder, out, i * LANES, pair), align=1)
        return context.get_dummy_value()

    return types.none(columns, out), generate


@part
def room_for(codes: Any, n_quads: int, chunk: int) -> Any:
    """Room for `chunk` codes as (tiles, columns, words)."""
    words = np.zeros((codes.shape[1] + 7, LANES), np.uint64)
    return matrix(4 * n_quads, chunk), matrix(n_quads * QUAD_BYTES + 8, LANES), words


@part
def matrix(n_rows: int, n_columns: int) -> Any:
    """Bytes, every row on a boundary of 64; `n_columns` is a multiple of that. Zeros, since the last rows may be
    padding."""
    raw = np.zeros(n_rows * n_columns + 64, np.uint8)
    skip = -np.intp(raw.ctypes.data) % 64
    return raw[skip : skip + n_rows * n_columns].reshape(n_rows, n_columns)


@lean
def lay_out(codes: Any, rows: Any, first: int, count: int, room: Any) -> None:
    """Arrange `count` codes in tiles of 64: all groups of the codes of a tile, one after the other."""
    tiles, columns, words = room
    size, n_words = codes.itemsize, codes.shape[1]
    n_bytes, n_quads = n_words * size, len(tiles) // 4
    column, tile, word = np.intp(columns.ctypes.data), np.intp(tiles.ctypes.data), np.intp(words.ctypes.data)
    code, readable = np.intp(codes.ctypes.data), len(codes) * n_bytes - 8 * (-n_words % 8)
    for begin in range(0, count, LANES):
        start = (first + begin) * n_bytes
        in_order = begin + LANES <= count and start + LANES * n_bytes <= readable
        if size == 8 and len(rows) == 0 and in_order:
            if n_words == 1:
                columns_of_words(code + start, column, code + start)
            elif n_words == 2:
                words_of_codes(code + start, n_bytes, (0, 0), word)
            elif n_words == 4:
                words_of_codes(code + start, n_bytes, (0, 0, 0, 0), word)
            else:
                words_of_codes(code + start, n_bytes, (0, 0, 0, 0, 0, 0, 0, 0), word)
        else:
            _gather(codes, rows, first + begin, count - begin, words)
        if n_words > 1 or not in_order or size < 8 or len(rows):
            for w in range(n_words):  # of narrower words, columns that are too many are zeros, and then overwritten
                columns_of_words(word + w * 8 * LANES, column + w * size * LANES, code + start + w * 8 * LANES)
        for quad in range(n_quads):
            groups_of_bytes(column + quad * QUAD_BYTES * LANES, tile + (begin * n_quads + quad * LANES) * 4)


@lean
def _gather(codes: Any, rows: Any, first: int, count: int, words: Any) -> None:
    """Words of 64 codes, one by one; the last code again, where there is none."""
    for i in range(LANES):
        place = first + min(i, count - 1)
        row = rows[place] if len(rows) else place
        for w in range(codes.shape[1]):
            words[w, i] = codes[row, w]
