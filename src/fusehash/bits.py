"""Signs <-> packed codes. Nothing else in fusehash knows the bit order.

Bit j of a code is bit j % 8 (little-endian) of byte j // 8; +1 is stored as 1 and -1 as 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.errors import DataError

Codes = NDArray[np.uint8]


def n_bytes(n_bits: int) -> int:
    """Bytes that a code of ``n_bits`` takes."""
    return -(-n_bits // 8)


def pack(signs: ArrayLike) -> Codes:
    """Pack an (n, n_bits) array into (n, ceil(n_bits / 8)) bytes; a bit is 1 where the entry is > 0."""
    signs = np.asarray(signs)
    if signs.ndim != 2:
        raise DataError(f"Signs must be a matrix (n, n_bits). Got an array of shape {signs.shape} instead.")
    return np.packbits(signs > 0, axis=1, bitorder="little")


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.int8]:
    """The (n, n_bits) matrix of -1 and +1 behind packed codes."""
    packed = check_codes(codes, n_bits)
    ones = np.unpackbits(packed, axis=1, count=n_bits, bitorder="little")
    return ones.view(np.int8) * np.int8(2) - np.int8(1)


def check_codes(codes: ArrayLike, n_bits: int | None = None, *, what: str = "Codes") -> Codes:
    """Return ``codes`` as a C-contiguous (n, bytes) uint8 matrix or say why it is none."""
    packed = np.asarray(codes)
    if packed.dtype != np.uint8 or packed.ndim != 2:
        raise DataError(
            f"{what} must be a uint8 matrix (n, bytes). Got {packed.dtype} of shape {packed.shape} instead."
        )
    if n_bits is not None and packed.shape[1] != n_bytes(n_bits):
        raise DataError(
            f"{what} of {n_bits} bits must have {n_bytes(n_bits)} bytes a row. Got {packed.shape[1]} instead."
        )
    return np.ascontiguousarray(packed)
