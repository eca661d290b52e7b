"""zarr arrays in a folder or zip file, read by code of our own.

Formats 2 and 3, with or without shards. The zarr package runs every codec that a file names, one of which is pickle,
and reads a chunk that is missing as zeros. Here a codec is one of those that `trust` lists, and a chunk that is missing
or damaged is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.streams.chunked import in_regular_chunks
from fusehash.streams.stored import Matrix, StoredMatrix, check_dtype, check_exists
from fusehash.streams.zarr.chunks import Shard, chunk_of_format_2, chunk_of_format_3, shard
from fusehash.streams.zarr.codecs import PURPOSE
from fusehash.streams.zarr.metadata import (
    HINT,
    check_name,
    check_separator,
    check_sizes,
    file_name_of_chunk,
    named_codec,
    number_type,
    reporting,
)
from fusehash.streams.zarr.storage import ZarrFolder, ZarrZip
from fusehash.views import check_shape

ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")  # in the folder of an array or a group


def open_zarr(path: Path) -> StoredMatrix:
    """A zarr array in a folder or a zip file."""
    check_exists(path)
    path = path.absolute()  # another process may run in another folder
    source = f"The zarr array {path.name}"
    return in_regular_chunks(ZarrArray(path), source, recipe=(open_zarr, (path,)), is_shared=True)


def open_zarr_array(array: Any) -> StoredMatrix:
    """What the user opened with zarr, which reads it."""
    check_shape("The zarr array", array.shape)
    return in_regular_chunks(array, "The zarr array", recipe=(open_zarr_array, (array,)))


class ZarrArray:
    """A matrix in a zarr folder or zip file; ``array[start:stop]`` reads rows."""

    def __init__(self, path: Path) -> None:
        require("zarr", PURPOSE)
        self.source, self.path = f"The zarr array {path.name}", path
        self._files = ZarrZip(path) if path.is_file() else ZarrFolder(path)
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
        with reporting(self.path.name, name), self._files.open(name) as (file, _):
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
        check_name(self.source, "format", version, (2, 3))
        if version == 3:
            check_name(self.source, "grid of chunks", document["chunk_grid"]["name"], ("regular",))
            check_name(self.source, "storage transformer", document.get("storage_transformers") or None, (None,))
        chunk_shape = document["chunks"] if version == 2 else document["chunk_grid"]["configuration"]["chunk_shape"]
        self.shape = check_sizes(self.source, document["shape"])
        self._grid = check_sizes(f"{self.source}, in its chunks,", chunk_shape)  # of what one file holds
        stored = number_type(self.source, document["data_type" if version == 3 else "dtype"])
        self.dtype = check_dtype(self.source, stored)
        self._shard: Shard | None = None
        if version == 2:
            self._key = f"{{}}{check_separator(document.get('dimension_separator', '.'))}{{}}"
            self._chunk = chunk_of_format_2(self.source, document, self._grid, stored)
        else:
            self._key = file_name_of_chunk(self.source, document["chunk_key_encoding"])
            codecs = [named_codec(codec) for codec in document["codecs"]]
            if codecs[0][0] == "sharding_indexed":
                check_name(self.source, "codec of a shard", [name for name, _ in codecs[1:]], ([],))
                self._shard = shard(self.source, codecs[0][1], self._grid, stored, document["fill_value"])
                self._chunk = self._shard.chunk
            else:
                self._chunk = chunk_of_format_3(self.source, codecs, self._grid, stored)
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
        with reporting(self.source, key), self._files.open(key) as (file, size):
            if self._shard is None:
                chunk = self._chunk.read(file, size, f"{self.source}, chunk {key},")
                part[:] = chunk[first : first + len(part), : part.shape[1]]
            else:
                self._shard.read(file, size, part, first, f"{self.source}, shard {key},")
