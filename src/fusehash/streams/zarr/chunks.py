"""Chunks of zarr arrays, each an encoded matrix, and shards, which are files of chunks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.streams.stored import Matrix
from fusehash.streams.zarr.codecs import PURPOSE, decompress, without_checksum
from fusehash.streams.zarr.metadata import check_name, check_sizes, named_codec, number_type

Step = Callable[[Any], Any]  # of decoding, from bytes to bytes
ABSENT = 2**64 - 1  # in the index of a shard: this chunk holds only the fill value


@dataclass(frozen=True)
class Chunk:
    """One encoded matrix; every chunk of an array has the same shape, those at its edges too."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    by_columns: bool
    steps: tuple[Step, ...]
    max_bytes: int  # of values at any step

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, file: BinaryIO, size: int, subject: str) -> Matrix:
        """Decode `size` bytes from the position of a file."""
        trust.check_expansion(subject, self.n_bytes, size)
        if size > 2 * self.max_bytes + 2**16:  # what cannot be compressed becomes a little longer
            raise DataError(f"{subject} must have at most twice the bytes of its values. Got {size:,} instead.")
        data: Any = file.read(size)
        for step in self.steps:
            data = step(data)
        values = np.frombuffer(data, np.uint8)
        if len(values) != self.n_bytes:
            raise DataError(f"{subject} must have {self.n_bytes:,} bytes of values. Got {len(values):,} instead.")
        matrix = values.view(self.dtype)
        return matrix.reshape(self.shape[::-1]).T if self.by_columns else matrix.reshape(self.shape)


def chunk_of_format_2(source: str, document: dict[str, Any], shape: tuple[int, int], dtype: np.dtype[Any]) -> Chunk:
    """A chunk of format 2: an order, filters and a compressor."""
    check_name(source, "order", document["order"], ("C", "F"))
    filters, compressor = document.get("filters") or [], document.get("compressor")
    max_bytes = math.prod(shape) * (8 if filters else dtype.itemsize)
    steps: list[Step] = []
    if compressor is not None:
        check_name(source, "compressor", compressor["id"], trust.COMPRESSORS)
        steps.append(partial(decompress, compressor["id"], max_bytes))
    steps += [_filter(source, dict(entry), math.prod(shape)) for entry in reversed(filters)]
    return Chunk(shape, dtype, document["order"] == "F", tuple(steps), max_bytes)


def _filter(source: str, settings: dict[str, Any], n_values: int) -> Step:
    name = settings["id"]
    check_name(source, "filter", name, trust.ZARR_FILTERS)
    for key in {"dtype", "astype"} & settings.keys():
        number_type(source, settings[key])
    if name == "shuffle":
        check_name(source, "elementsize", settings.get("elementsize", 4), (1, 2, 4, 8))
    if not all(isinstance(value, str | int | float) for value in settings.values()):
        raise DataError(f"{source} must have filters of simple settings. Got {name} with others.")
    codec = require("numcodecs.registry", PURPOSE).get_codec(settings)
    n_bytes = n_values * np.dtype(codec.astype).itemsize if hasattr(codec, "astype") else None

    def decode(data: Any) -> Any:
        if n_bytes is not None and memoryview(data).nbytes != n_bytes:
            raise ValueError(f"filter {name} must get {n_bytes:,} bytes")
        return codec.decode(data)

    return decode


def chunk_of_format_3(
    source: str, codecs: list[tuple[str, Any]], shape: tuple[int, int], dtype: np.dtype[Any]
) -> Chunk:
    """A chunk of format 3: transpose, bytes, one compressor and checksums."""
    rest, by_columns, n_bytes = list(codecs), False, math.prod(shape) * dtype.itemsize
    while rest and rest[0][0] == "transpose":
        order = rest.pop(0)[1]["order"]
        check_name(source, "order", order, ([0, 1], [1, 0]))
        by_columns ^= order == [1, 0]
    check_name(source, "codec", rest[0][0] if rest else None, ("bytes",))
    endian = (rest.pop(0)[1] or {}).get("endian", "little")
    check_name(source, "byte order", endian, ("little", "big"))
    steps: list[Step] = []
    for position, (name, _) in enumerate(rest):
        kind = name.removeprefix("numcodecs.")
        if name != "crc32c":
            check_name(source, "codec", kind, trust.COMPRESSORS if position == 0 else ("crc32c",))
        steps.insert(0, without_checksum if name == "crc32c" else partial(decompress, kind, n_bytes))
    stored = dtype.newbyteorder("<" if endian == "little" else ">")
    return Chunk(shape, stored, by_columns, tuple(steps), n_bytes)


@dataclass(frozen=True)
class Shard:
    """Chunks in one file, with an index of where they are."""

    grid: tuple[int, int]  # of chunks
    chunk: Chunk
    fill: Any
    at_start: bool
    has_checksum: bool

    def read(self, file: BinaryIO, size: int, part: Matrix, first: int, subject: str) -> None:
        """Fill `part` with the rows from `first` on."""
        index_bytes = 16 * math.prod(self.grid) + 4 * self.has_checksum
        trust.check_size(f"The index of {subject}", index_bytes, size)
        file.seek(0 if self.at_start else size - index_bytes)
        index = file.read(index_bytes)
        if self.has_checksum:
            index = without_checksum(index)
        places = np.frombuffer(index, "<u8").reshape(*self.grid, 2)
        height, width = self.chunk.shape
        for i in range(first // height, math.ceil((first + len(part)) / height)):
            top = i * height - first
            skipped = max(-top, 0)
            for j in range(math.ceil(part.shape[1] / width)):
                target = part[max(top, 0) : top + height, j * width : (j + 1) * width]
                start, length = map(int, places[i, j])
                if start == length == ABSENT:
                    target[:] = self.fill
                    continue
                trust.check_size(subject, start + length, size)
                file.seek(start)
                matrix = self.chunk.read(file, length, subject)
                target[:] = matrix[skipped:][: len(target), : target.shape[1]]


def shard(source: str, settings: dict[str, Any], shape: tuple[int, int], dtype: np.dtype[Any], fill: Any) -> Shard:
    inner = check_sizes(f"{source}, inside its shards,", settings["chunk_shape"])
    if any(whole % size for whole, size in zip(shape, inner, strict=True)):
        raise DataError(f"{source} must have shards of whole chunks. Got {inner} in {shape}.")
    chunk = chunk_of_format_3(source, [named_codec(codec) for codec in settings["codecs"]], inner, dtype)
    codecs = [named_codec(codec) for codec in settings["index_codecs"]]
    names = [name for name, _ in codecs]
    check_name(source, "codecs of its index", names, (["bytes"], ["bytes", "crc32c"]))
    check_name(source, "byte order of its index", (codecs[0][1] or {}).get("endian", "little"), ("little",))
    location = settings.get("index_location", "end")
    check_name(source, "place of its index", location, ("start", "end"))
    if isinstance(fill, str) and fill.startswith("0x"):
        value = np.frombuffer(bytes.fromhex(fill[2:]), dtype.newbyteorder(">"))[0]
    else:
        value = np.array(fill, dtype)
    return Shard((shape[0] // inner[0], shape[1] // inner[1]), chunk, value, location == "start", len(names) == 2)
