"""`.npy` files and memory maps, read with positioned reads, which do not count as memory of this process as maps do."""

from __future__ import annotations

import math
import mmap
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.streams.stored import Matrix, Recipe, RowReader, StoredMatrix, check_dtype, check_exists, unreadable
from fusehash.streams.writers import NpyWriter
from fusehash.views import check_shape

MAX_DIMENSIONS = 32  # of an array; NumPy takes 64, older versions 32
READ_BYTES = 2**30  # Linux reads at most 2 GiB at a time


class FileReader(RowReader):
    """Rows of one dtype from byte `offset` of a file; `owner` keeps a temporary file alive."""

    owner: Any = None

    def __init__(self, path: Path, offset: int, shape: Sequence[int], dtype: np.dtype[Any], by_columns: bool) -> None:
        self.source, self._offset, self._shape, self._dtype = f"The file {path.name}", offset, tuple(shape), dtype
        self._by_columns, self._lock, self._file = by_columns, threading.Lock(), _open_file(path)
        size, needed = os.fstat(self._file.fileno()).st_size, offset + math.prod(shape) * dtype.itemsize
        if size < needed:
            content = f"{needed} bytes for its shape {self._shape}"
            raise DataError(f"{self.source} must have {content}. It ends after {size}.")

    def read(self, start: int, stop: int) -> Matrix:
        if self._by_columns:
            try:
                whole = np.memmap(self._file, self._dtype, "r", self._offset, self._shape, order="F")
            except ValueError:
                raise self._shortened(os.fstat(self._file.fileno()).st_size) from None
            return np.array(whole[start:stop], order="C")
        block = np.empty((stop - start, self._shape[1]), self._dtype)
        self._fill(block, self._offset + start * self._shape[1] * self._dtype.itemsize)
        return block

    def _fill(self, block: Matrix, position: int) -> None:
        rest = block.view(np.uint8).reshape(-1).data
        while len(rest):
            if hasattr(os, "preadv"):
                count = os.preadv(self._file.fileno(), [rest[:READ_BYTES]], position)
            else:  # no positioned reads on this platform
                with self._lock:
                    self._file.seek(position)
                    count = self._file.readinto(rest[:READ_BYTES])  # type: ignore[attr-defined]
            if count == 0:
                raise self._shortened(position)
            rest, position = rest[count:], position + count

    def _shortened(self, end: int) -> DataError:
        return DataError(f"{self.source} must not become shorter while it is read. It ends at byte {end}.")


def _open_file(path: Path) -> BinaryIO:
    check_exists(path)
    return trust.open_file(path, f"The file {path}")


def read_npy_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order (by columns or not) and dtype of a `.npy` file that is large enough for them."""
    if not os.fstat(file.fileno()).st_size:
        raise DataError(f"The file {name} must be an intact .npy file. It is empty.")
    if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
        raise DataError(f"The file {name} must be an intact .npy file. It is something else.")
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except Exception as error:  # a header is parsed as Python, in which anything can be wrong
        raise unreadable(f"The file {name} must be an intact .npy file. It", error) from error
    if len(shape) > MAX_DIMENSIONS or not all(type(length) is int and 0 <= length < 2**63 for length in shape):
        raise DataError(f"The file {name} must be an intact .npy file. It has the shape {repr(shape)[:80]}.")
    size, needed = os.fstat(file.fileno()).st_size, file.tell() + math.prod(shape) * dtype.itemsize
    if size < needed and not dtype.hasobject:
        raise DataError(f"The file {name} must have {needed} bytes for its shape {shape}. It ends after {size}.")
    return shape, by_columns, dtype


def open_npy(path: Path, owner: Any = None) -> StoredMatrix:
    """A `.npy` file, never unpickled; `owner` removes a temporary file."""
    with _open_file(path) as file:
        shape, by_columns, dtype = read_npy_header(file, path.name)
        offset = file.tell()
    path = path.absolute()  # another process may run in another folder
    matrix = _open_raw(path, offset, shape, dtype, by_columns and len(shape) == 2 and shape[1] > 1, (open_npy, (path,)))
    matrix.reader.owner, matrix.is_shared = owner, owner is None  # type: ignore[attr-defined]
    return matrix


def _open_raw(
    path: Path, offset: int, shape: Sequence[int], dtype: Any, by_columns: bool, recipe: Recipe | None = None
) -> StoredMatrix:
    """A matrix that begins at byte `offset` of a file."""
    source = f"The file {path.name}"
    check_shape(source, shape)
    check_dtype(source, dtype)
    reader = FileReader(path, offset, shape, np.dtype(dtype), by_columns)
    recipe = recipe or (_open_raw, (path, offset, shape, dtype, by_columns))
    return StoredMatrix(source, shape, dtype, reader, recipe=recipe, is_shared=True)


def open_memmap(array: np.memmap[Any, Any]) -> Any:
    """The file behind a memory map; the map itself if it is not simply the rows of a file."""
    root: Any = array
    while isinstance(root.base, np.memmap):  # a cut of a map has the offset of the whole map
        root = root.base
    if not isinstance(root.base, mmap.mmap) or root.filename is None or array.ndim != 2 or array.mode == "c":
        return array  # "c": changes to the map are not in the file
    if not (array.flags.c_contiguous or array.flags.f_contiguous) or array.dtype.kind not in "fiub" or not array.size:
        return array
    offset = root.offset + array.ctypes.data - root.ctypes.data
    if array.mode != "r":
        root.flush()
    try:
        path = Path(root.filename).absolute()
        return _open_raw(path, offset, array.shape, array.dtype, not array.flags.c_contiguous)
    except DataError:  # the file was moved or removed; the map still has it
        return array


def spool(blocks: Iterable[Mapping[str, Matrix]], source: str) -> dict[str, StoredMatrix]:
    """Copy blocks of paired rows to one `.npy` file per view; the files are removed with the last of the views."""
    folder = Path(tempfile.mkdtemp(prefix="fusehash-"))
    owner = TemporaryFolder(folder)
    writers: dict[str, NpyWriter] = {}
    with ExitStack() as stack:
        for block in blocks:
            for name, part in block.items():
                if name not in writers:
                    path = folder / f"{len(writers)}.npy"
                    writers[name] = stack.enter_context(NpyWriter(path, None, part.shape[1], part.dtype))
                writers[name].write(part)
        if not writers:
            raise DataError(f"{source} must hold rows. It was empty.")
    return {name: open_npy(writer.path, owner) for name, writer in writers.items()}


class TemporaryFolder:
    """Removes a folder when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
