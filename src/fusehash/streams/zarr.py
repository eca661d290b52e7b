"""zarr arrays in a folder or zip file, read by code of our own.

Formats 2 and 3, with or without shards. The zarr package runs every codec that a file names, one of which is pickle,
and reads a chunk that is missing as zeros. Here a codec is one of those that `trust` lists, and a chunk that is missing
or damaged is an error.
"""

from __future__ import annotations

import bz2
import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError, FusehashError
from fusehash.extras import require
from fusehash.streams.stored import Matrix, check_dtype
from fusehash.views import check_shape

Step = Callable[[Any], Any]  # of decoding, from bytes to bytes
ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")  # in the folder of an array or a group
ABSENT = 2**64 - 1  # in the index of a shard: this chunk holds only the fill value
PURPOSE = "Reading zarr arrays"
HINT = "If you trust it, open it with zarr.open_array(path) and pass the array instead of the path."


class ZarrArray:
    """A matrix in a zarr folder or zip file; ``array[start:stop]`` reads rows."""

    def __init__(self, path: Path) -> None:
        require("zarr", PURPOSE)
        self.source, self.path = f"The zarr array {path.name}", path
        self._files = _Zip(path) if path.is_file() else _Folder(path)
        document = self._metadata()
        try:
            self._parse(document)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, DataError):
                raise
            reason = "its metadata is damaged"
            raise DataError(f"{path.name} must be a zarr array. It could not be read: {reason}.") from error
        self._check_files()

    def __getitem__(self, rows: slice) -> Matrix:
        try:
            return self._read(rows)
        except DataError:
            if self.path.exists():
                raise
            gone = f"It is gone from {self.path}"
            raise DataError(f"{self.source} must stay where it is while it is read. {gone}.") from None

    def _read(self, rows: slice) -> Matrix:
        n_bytes = (rows.stop - rows.start) * self.shape[1] * self.dtype.itemsize
        if n_bytes > trust.MODEST_BYTES:
            trust.check_expansion(self.source, n_bytes, sum(map(self._files.size, self._keys(rows.start, rows.stop))))
        block = np.empty((rows.stop - rows.start, self.shape[1]), self.dtype)
        height, width = self._grid
        for i in range(rows.start // height, math.ceil(rows.stop / height)):
            first, last = max(rows.start, i * height), min(rows.stop, (i + 1) * height)
            for j in range(math.ceil(self.shape[1] / width)):
                part = block[first - rows.start : last - rows.start, j * width : (j + 1) * width]
                self._read_file(self._key.format(i, j), part, first - i * height)
        return block

    def _metadata(self) -> dict[str, Any]:
        """The document that describes the array; raises if there is none or it is a group."""
        name = next((name for name in ZARR_FILES if name in self._files.names), None)
        if name is None:
            raise DataError(f"{self.path.name} must be a zarr array. It could not be read: it has no metadata.")
        subject = f"The metadata {name} of {self.path.name}"
        with _reporting(self.path.name, name), self._files.open(name) as (file, _):
            document = trust.parse_json(file.read(trust.MAX_DOCUMENT_BYTES + 1), subject)
        if not isinstance(document, dict):
            raise DataError(f"{subject} must be a JSON object. Got {type(document).__name__} instead.")
        if name == ".zgroup" or document.get("node_type") == "group":
            inner = {key.partition("/")[0] for key in self._files.names if key.partition("/")[2] in ZARR_FILES[:2]}
            inside = ", ".join(sorted(inner)) or "none"
            raise DataError(f"{self.path.name} must be one zarr array. Got a group with the arrays: {inside}.")
        return document

    def _parse(self, document: dict[str, Any]) -> None:
        version = document["zarr_format"]
        _check_name(self.source, "format", version, (2, 3))
        if version == 3:
            _check_name(self.source, "grid of chunks", document["chunk_grid"]["name"], ("regular",))
            _check_name(self.source, "storage transformer", document.get("storage_transformers") or None, (None,))
        chunk_shape = document["chunks"] if version == 2 else document["chunk_grid"]["configuration"]["chunk_shape"]
        self.shape = _sizes(self.source, document["shape"])
        self._grid = _sizes(f"{self.source}, in its chunks,", chunk_shape)  # of what one file holds
        stored = _number_type(self.source, document["data_type" if version == 3 else "dtype"])
        self.dtype = check_dtype(self.source, stored)
        self._shard: _Shard | None = None
        if version == 2:
            self._key = f"{{}}{_separator(document.get('dimension_separator', '.'))}{{}}"
            self._chunk = _old_chunk(self.source, document, self._grid, stored)
        else:
            self._key = _key(self.source, document["chunk_key_encoding"])
            codecs = [_named(codec) for codec in document["codecs"]]
            if codecs[0][0] == "sharding_indexed":
                _check_name(self.source, "codec of a shard", [name for name, _ in codecs[1:]], ([],))
                self._shard = _shard(self.source, codecs[0][1], self._grid, stored, document["fill_value"])
                self._chunk = self._shard.chunk
            else:
                self._chunk = _chunk(self.source, codecs, self._grid, stored)
        self.chunks = self._chunk.shape

    def _keys(self, start: int, stop: int) -> Iterator[str]:
        """The files of some rows."""
        for i in range(start // self._grid[0], math.ceil(stop / self._grid[0])):
            for j in range(math.ceil(self.shape[1] / self._grid[1])):
                yield self._key.format(i, j)

    def _check_files(self) -> None:
        """Raise if the file of a chunk is missing, or if the shards are too small for what they claim to hold."""
        missing = next((key for key in self._keys(0, self.shape[0]) if key not in self._files.names), None)
        if missing is not None:
            raise DataError(
                f"{self.source} must have a file for every chunk. {missing} is missing. zarr leaves out chunks that "
                f"hold only the fill value, unless the array is made with config={{'write_empty_chunks': True}}. {HINT}"
            )
        total = math.prod(self.shape) * self.dtype.itemsize
        if self._shard is not None and total > trust.MODEST_BYTES:
            size = sum(map(self._files.size, self._keys(0, self.shape[0])))
            trust.check_size(self.source, total, size, compressed=True)

    def _read_file(self, key: str, part: Matrix, first: int) -> None:
        """Fill `part` with the rows of a chunk or shard from its row `first` on."""
        with _reporting(self.source, key), self._files.open(key) as (file, size):
            if self._shard is None:
                chunk = self._chunk.read(file, size, f"{self.source}, chunk {key},")
                part[:] = chunk[first : first + len(part), : part.shape[1]]
            else:
                self._shard.read(file, size, part, first, f"{self.source}, shard {key},")


@contextmanager
def _reporting(source: str, name: str) -> Iterator[None]:
    """Turn what decoders of foreign bytes raise, which can be anything, into one sentence."""
    try:
        yield
    except FusehashError:
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise DataError(f"{source} could not be read: {name} is damaged ({reason}).") from error


# -- files -----------------------------------------------------------------------------------------------------------


class _Folder:
    """The files below a folder, none of which may be a link."""

    def __init__(self, path: Path) -> None:
        self._path, self.names = path, trust.check_folder(path, f"The zarr folder {path.name}")

    def size(self, name: str) -> int:
        return (self._path / name).stat().st_size

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        with trust.open_file(self._path / name, f"The file {name} of {self._path.name}", follow_links=False) as file:
            yield file, os.fstat(file.fileno()).st_size


class _Zip:
    """The members of a zip file, stored or deflated."""

    def __init__(self, path: Path) -> None:
        file = io.BufferedReader(trust.open_file(path, f"The file {path.name}"))  # type: ignore[type-var]
        try:
            self._archive = zipfile.ZipFile(file)
            self.names = {member.filename: member for member in self._archive.infolist() if not member.is_dir()}
        except Exception as error:  # zipfile raises all sorts of errors
            file.close()
            reason = "it is no intact zip file"
            raise DataError(f"{path.name} must be a zarr array. It could not be read: {reason}.") from error
        for name in self.names:
            if name.startswith("/") or ".." in name.split("/"):
                raise DataError(f"The names in {path.name} must be relative and below its top. Got {name!r}.")

    def size(self, name: str) -> int:
        return self.names[name].compress_size

    @contextmanager
    def open(self, name: str) -> Iterator[tuple[BinaryIO, int]]:
        member = self.names[name]
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"Members of a zarr zip file must be stored or deflated. {name} is not.")
        trust.check_expansion(f"The member {name}", member.file_size, member.compress_size)
        with self._archive.open(member) as file:
            # A compressed member is read as a whole: to go back in it would mean to begin again.
            content: Any = file if member.compress_type == zipfile.ZIP_STORED else io.BytesIO(file.read())
            yield content, member.file_size


# -- chunks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chunk:
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


def _old_chunk(source: str, document: dict[str, Any], shape: tuple[int, int], dtype: np.dtype[Any]) -> _Chunk:
    """A chunk of format 2: an order, filters and a compressor."""
    _check_name(source, "order", document["order"], ("C", "F"))
    filters, compressor = document.get("filters") or [], document.get("compressor")
    max_bytes = math.prod(shape) * (8 if filters else dtype.itemsize)
    steps: list[Step] = []
    if compressor is not None:
        _check_name(source, "compressor", compressor["id"], trust.COMPRESSORS)
        steps.append(partial(_decompress, compressor["id"], max_bytes))
    steps += [_filter(source, dict(entry), math.prod(shape)) for entry in reversed(filters)]
    return _Chunk(shape, dtype, document["order"] == "F", tuple(steps), max_bytes)


def _filter(source: str, settings: dict[str, Any], n_values: int) -> Step:
    name = settings["id"]
    _check_name(source, "filter", name, trust.ZARR_FILTERS)
    for key in {"dtype", "astype"} & settings.keys():
        _number_type(source, settings[key])
    if name == "shuffle":
        _check_name(source, "elementsize", settings.get("elementsize", 4), (1, 2, 4, 8))
    if not all(isinstance(value, str | int | float) for value in settings.values()):
        raise DataError(f"{source} must have filters of simple settings. Got {name} with others.")
    codec = require("numcodecs.registry", PURPOSE).get_codec(settings)
    n_bytes = n_values * np.dtype(codec.astype).itemsize if hasattr(codec, "astype") else None

    def decode(data: Any) -> Any:
        if n_bytes is not None and memoryview(data).nbytes != n_bytes:
            raise ValueError(f"filter {name} must get {n_bytes:,} bytes")
        return codec.decode(data)

    return decode


def _chunk(source: str, codecs: list[tuple[str, Any]], shape: tuple[int, int], dtype: np.dtype[Any]) -> _Chunk:
    """A chunk of format 3: transpose, bytes, one compressor and checksums."""
    rest, by_columns, n_bytes = list(codecs), False, math.prod(shape) * dtype.itemsize
    while rest and rest[0][0] == "transpose":
        order = rest.pop(0)[1]["order"]
        _check_name(source, "order", order, ([0, 1], [1, 0]))
        by_columns ^= order == [1, 0]
    _check_name(source, "codec", rest[0][0] if rest else None, ("bytes",))
    endian = (rest.pop(0)[1] or {}).get("endian", "little")
    _check_name(source, "byte order", endian, ("little", "big"))
    steps: list[Step] = []
    for position, (name, _) in enumerate(rest):
        kind = name.removeprefix("numcodecs.")
        if name != "crc32c":
            _check_name(source, "codec", kind, trust.COMPRESSORS if position == 0 else ("crc32c",))
        steps.insert(0, _without_checksum if name == "crc32c" else partial(_decompress, kind, n_bytes))
    stored = dtype.newbyteorder("<" if endian == "little" else ">")
    return _Chunk(shape, stored, by_columns, tuple(steps), n_bytes)


@dataclass(frozen=True)
class _Shard:
    """Chunks in one file, with an index of where they are."""

    grid: tuple[int, int]  # of chunks
    chunk: _Chunk
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
            index = _without_checksum(index)
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


def _shard(source: str, settings: dict[str, Any], shape: tuple[int, int], dtype: np.dtype[Any], fill: Any) -> _Shard:
    inner = _sizes(f"{source}, inside its shards,", settings["chunk_shape"])
    if any(whole % size for whole, size in zip(shape, inner, strict=True)):
        raise DataError(f"{source} must have shards of whole chunks. Got {inner} in {shape}.")
    chunk = _chunk(source, [_named(codec) for codec in settings["codecs"]], inner, dtype)
    codecs = [_named(codec) for codec in settings["index_codecs"]]
    names = [name for name, _ in codecs]
    _check_name(source, "codecs of its index", names, (["bytes"], ["bytes", "crc32c"]))
    _check_name(source, "byte order of its index", (codecs[0][1] or {}).get("endian", "little"), ("little",))
    location = settings.get("index_location", "end")
    _check_name(source, "place of its index", location, ("start", "end"))
    if isinstance(fill, str) and fill.startswith("0x"):
        value = np.frombuffer(bytes.fromhex(fill[2:]), dtype.newbyteorder(">"))[0]
    else:
        value = np.array(fill, dtype)
    return _Shard((shape[0] // inner[0], shape[1] // inner[1]), chunk, value, location == "start", len(names) == 2)


# -- parts of the metadata -------------------------------------------------------------------------------------------


def _check_name(source: str, what: str, name: Any, allowed: tuple[Any, ...]) -> None:
    if name not in allowed:
        expected = ", ".join(map(str, allowed))
        raise DataError(f"{source} must have one of these as {what}: {expected}. Got {repr(name)[:80]} instead. {HINT}")


def _named(codec: Any) -> tuple[str, Any]:
    return (codec, None) if isinstance(codec, str) else (str(codec["name"]), codec.get("configuration"))


def _sizes(source: str, shape: Any) -> tuple[int, int]:
    if not all(type(size) is int and 0 <= size < 2**63 for size in shape):
        raise DataError(f"{source} must have whole numbers as shape. Got {repr(shape)[:80]} instead.")
    return check_shape(source, shape)


def _number_type(source: str, name: Any) -> np.dtype[Any]:
    """A dtype of numbers by its name, as in "float32" or "<f4"."""
    if not isinstance(name, str) or not trust.NUMBER_TYPE.fullmatch(name):
        raise DataError(f"{source} must hold real numbers. Got dtype {name!r} instead.")
    return np.dtype(name)


def _separator(separator: Any) -> str:
    if separator not in ("/", "."):
        raise DataError(f"The separator of zarr chunks must be '/' or '.'. Got {separator!r} instead.")
    return str(separator)


def _key(source: str, encoding: Any) -> str:
    """How the file of chunk (i, j) is called."""
    name, settings = _named(encoding)
    _check_name(source, "names of chunks", name, ("default", "v2"))
    separator = _separator((settings or {}).get("separator", "/" if name == "default" else "."))
    return f"c{separator}{{}}{separator}{{}}" if name == "default" else f"{{}}{separator}{{}}"


# -- codecs ----------------------------------------------------------------------------------------------------------


def _without_checksum(data: bytes) -> bytes:
    """The bytes before a CRC32C, which must be theirs."""
    crc32c = require("google_crc32c", PURPOSE)
    if len(data) < 4 or crc32c.value(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise ValueError("its checksum is that of other bytes")
    return data[:-4]


def _decompress(kind: str, max_bytes: int, data: bytes) -> Any:
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
