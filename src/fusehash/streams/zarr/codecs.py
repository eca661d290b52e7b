"""Codecs of zarr: the compressors that `trust` lists, never taking more memory than the values need, and checksums."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.extras import require

PURPOSE = "Reading zarr arrays"


def without_checksum(data: bytes) -> bytes:
    """The bytes before a CRC32C, which must be theirs."""
    crc32c = require("google_crc32c", PURPOSE)
    if len(data) < 4 or crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("its checksum is that of other bytes")
    return data[:-4]


def decompress(kind: str, max_bytes: int, data: bytes) -> Any:
    """What was compressed; takes no memory for more than `max_bytes`, whatever the data claims."""
    if kind in ("blosc", "lz4", "zstd"):
        claimed = {"blosc": _blosc_size, "lz4": _lz4_size, "zstd": _zstd_size}[kind](data)
        if claimed is not None and claimed > max_bytes:
            raise ValueError(f"it claims {claimed:,} bytes instead of {max_bytes:,}")
        target = np.empty(max_bytes, np.uint8) if claimed is None else None
        return require(f"numcodecs.{kind}", PURPOSE).decompress(data, target)
    if kind == "bz2":
        stream: Any = bz2.BZ2Decompressor()
    elif kind == "lzma":
        stream = lzma.LZMADecompressor(memlimit=trust.MODEST_BYTES)  # its largest preset needs half of it
    else:
        stream = zlib.decompressobj(wbits=31 if kind == "gzip" else 15)
    content = stream.decompress(data, max_bytes + 1)
    if len(content) > max_bytes or not stream.eof:
        raise ValueError(f"it does not end after {max_bytes:,} bytes")
    return content


def _blosc_size(data: bytes) -> int:
    n_bytes, _, n_compressed = struct.unpack_from("<III", data, 4)
    if n_compressed != len(data):
        raise ValueError(f"it has {len(data):,} bytes instead of {n_compressed:,}")
    return int(n_bytes)


def _lz4_size(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0])


def _zstd_size(data: bytes) -> int | None:
    """The size of the content that a Zstandard frame declares in its first bytes, if it does (RFC 8878, 3.1.1.1)."""
    magic, descriptor = struct.unpack_from("<IB", data)
    if magic != 0xFD2FB528:
        raise ValueError("it is no Zstandard frame")
    is_single = descriptor >> 5 & 1
    n_bytes = (is_single, 2, 4, 8)[descriptor >> 6]
    start = 6 - is_single + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + n_bytes], "little") + (256 if n_bytes == 2 else 0)
    return size if n_bytes else None
