"""Signs <-> packed codes. This is the only module that knows the bit order.

Bit j of a code is bit j % 8 (little-endian) of byte j // 8; +1 is stored as 1 and -1 as 0.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import DataError
from fusehash.numerics.arrays import Array, cast, is_foreign, namespace, zeros

Codes = NDArray[np.uint8]
_FEWEST_TO_COMPARE = 100  # codes whose pattern says something
_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1), axis=1, bitorder="little")[:, 0]


def n_bytes(n_bits: int) -> int:
    """Bytes that a code of ``n_bits`` takes."""
    return -(-n_bits // 8)


def pack(signs: Any) -> Codes:
    """Pack an (n, n_bits) array into (n, ceil(n_bits / 8)) bytes; a bit is 1 where the entry is > 0.

    A tensor on a device is packed there.
    """
    if not is_foreign(signs):
        signs = np.asarray(signs)
    if signs.ndim != 2:
        raise DataError(f"Signs must be a matrix (n, n_bits). Got an array of shape {tuple(signs.shape)} instead.")
    return _pack_foreign(signs) if is_foreign(signs) else np.packbits(signs > 0, axis=1, bitorder="little")


def _pack_foreign(signs: Array) -> Codes:
    xp = namespace(signs)
    n, n_bits = signs.shape
    ones = cast(signs > 0, "uint8")
    if n_bits % 8:
        ones = xp.concat([ones, zeros((n, -n_bits % 8), ones, "uint8")], axis=1)
    return xp.sum(xp.reshape(ones, (n, n_bytes(n_bits), 8)) << _places(signs), axis=2, dtype=xp.uint8)


def _places(like: Array) -> Array:
    """0 to 7, made where they are needed."""
    xp = namespace(like)
    return xp.arange(8, dtype=xp.uint8, device=like.device)


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.int8]:
    """The (n, n_bits) matrix of -1 and +1 behind packed codes."""
    packed = check_codes(codes, n_bits)
    ones = np.unpackbits(packed, axis=1, count=n_bits, bitorder="little")
    return ones.view(np.int8) * np.int8(2) - np.int8(1)


def unpacked(codes: Codes) -> NDArray[np.uint8]:
    """The bits of packed codes as a matrix of 0 and 1."""
    return np.unpackbits(codes, axis=1, bitorder="little")


def unpack_as(codes: Array, n_bits: int, dtype: str) -> Array:
    """The same as a matrix of any library and precision, where the codes are."""
    if not is_foreign(codes):
        return unpack(codes, n_bits).astype(dtype)
    ones = (codes[:, :, None] >> _places(codes)) & 1
    return 2.0 * cast(namespace(codes).reshape(ones, (len(codes), -1)), dtype)[:, :n_bits] - 1.0


def byte_signs() -> NDArray[np.int8]:
    """The eight signs of each byte from 0 to 255, as a matrix (256, 8)."""
    return unpack(np.arange(256, dtype=np.uint8)[:, None], 8)


def other_order(codes: Codes) -> Codes:
    """The same codes with the bits of each byte from high to low, as `np.packbits` orders them by default; and back."""
    return _REVERSED[codes]


def looks_reversed(codes: Codes, like: Codes, sample: int = 20_000) -> bool:
    """Whether codes resemble others only if the bits of every byte are reversed.

    Compares how often each bit is 1, and how often two bits of a code agree. Codes of the same model have the same
    pattern; if both patterns are flat there is nothing to tell, and the answer is False, as it is for fewer than 100.

    Parameters
    ----------
    codes, like : uint8 arrays, shapes (n, bytes) and (m, bytes)
        Codes in question, and codes in the right order.
    sample : int, default 20000
        How many of either are looked at.
    """
    if min(len(codes), len(like)) < _FEWEST_TO_COMPARE or codes.shape[1] != like.shape[1]:
        return False
    codes, like = (X[np.linspace(0, len(X) - 1, min(len(X), sample)).astype(np.int64)] for X in (codes, like))
    expected, straight, reversed_ = _pattern(like), _pattern(codes), _pattern(other_order(codes))
    # What two samples of the same codes differ by: entries scatter by 1 / sqrt(n).
    noise = expected.size * (1 / len(codes) + 1 / len(like))
    far, near = float(np.sum((straight - expected) ** 2)), float(np.sum((reversed_ - expected) ** 2))
    return far > 2 * near and far > 3 * noise


def _pattern(codes: Codes) -> NDArray[np.float32]:
    """The mean of every bit, and the mean product of bits of one code, as signs; at most 128 bits are looked at."""
    signs = unpack(codes[:, :16], min(128, 8 * codes.shape[1])).astype(np.float32)
    products = signs.T @ signs / len(signs)
    return np.concatenate([signs.mean(axis=0), products[np.triu_indices(len(products), 1)]])


def ones_per_bit(codes: Codes) -> NDArray[np.int64]:
    """In how many rows each bit is 1."""
    totals = np.zeros(8 * codes.shape[1], np.int64)
    for start in range(0, len(codes), 65536):
        totals += np.unpackbits(codes[start : start + 65536], axis=1, bitorder="little").sum(axis=0, dtype=np.int64)
    return totals


def distances_to(query: Codes, codes: Codes) -> NDArray[np.int64]:
    """Hamming distances between packed codes, row by row; one query (bytes,) is compared with all rows."""
    return np.bitwise_count(codes ^ query).sum(axis=1, dtype=np.int64)


def balanced(n: int, n_bits: int, rng: np.random.Generator) -> Codes:
    """Random packed codes in which every bit is set in half of the rows (n // 2).

    Coins for all, then the surplus of every bit is flipped in rows drawn from those that have it: no balanced column is
    likelier than another, as if it had been shuffled, which takes ten times as long.
    """
    codes = rng.integers(256, size=(n, n_bits // 8), dtype=np.uint8)
    for bit in range(n_bits):
        column, mask = codes[:, bit // 8], np.uint8(1 << bit % 8)
        is_set = column & mask != 0
        surplus = np.count_nonzero(is_set) - n // 2
        rows = np.flatnonzero(is_set if surplus > 0 else ~is_set)
        column[rng.choice(rows, abs(surplus), replace=False, shuffle=False)] ^= mask
    return codes


def cut(codes: ArrayLike, n_bits: int) -> Codes:
    """The first ``n_bits`` (a multiple of 8) of packed codes: a view, also of a memory map, and nothing is copied."""
    packed = _matrix(codes, "Codes")
    if not isinstance(n_bits, Integral) or n_bits <= 0 or n_bits % 8 or n_bits > 8 * packed.shape[1]:
        raise DataError(
            f"Codes can be cut to a multiple of 8 bits, at most {8 * packed.shape[1]} here. Got {n_bits} instead."
        )
    return packed[:, : n_bits // 8]


def check_codes(codes: ArrayLike, n_bits: int | None = None, *, what: str = "Codes") -> Codes:
    """Return ``codes`` as a C-contiguous (n, bytes) uint8 matrix or raise DataError."""
    packed = _matrix(codes, what)
    if n_bits is not None and packed.shape[1] != n_bytes(n_bits):
        raise DataError(
            f"{what} of {n_bits} bits must have {n_bytes(n_bits)} bytes per row. Got {packed.shape[1]} instead."
        )
    return np.ascontiguousarray(packed)


def _matrix(codes: ArrayLike, what: str) -> Codes:
    try:
        packed = codes if isinstance(codes, np.ndarray) else np.asarray(codes)
        got = "" if packed.dtype == np.uint8 and packed.ndim == 2 else f"{packed.dtype} of shape {packed.shape}"
    except ValueError:
        got = "rows of unequal length"
    if got:
        raise DataError(f"{what} must be a uint8 matrix (n, bytes). Got {got} instead.") from None
    return packed
