"""Numbers that lie in a file as they are: `.npy` files and memory maps.

Rows are read with positioned reads instead of through a memory map. They run at the speed of the page cache, several
threads can read at once, and what has been read does not count as memory of this process. Files in column order are
mapped for each read.
"""

from __future__ import annotations

import math
import mmap
import os
import threading
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fusehash.errors import DataError
from fusehash.streams.base import Block, StoredMatrix, reopen

_READ_BYTES = 2**30  # Linux reads at most 2 GiB at a time


class RawMatrix(StoredMatrix):
    """A matrix of one dtype that begins at byte ``offset`` of a file; ``owner`` keeps a temporary file alive."""

    owner: Any = None
    _has_header = False

    def __init__(self, path: Path, offset: int, shape: tuple[int, ...], dtype: Any, *, columns_first: bool) -> None:
        super().__init__(f"The file {path.name}", shape, dtype)
        self.path = path.absolute()  # another process may stand in another folder
        self._offset, self._stored, self._columns_first = offset, np.dtype(dtype), columns_first
        self._lock = threading.Lock()
        self._file = _open(path)
        needed = offset + math.prod(shape) * self._stored.itemsize
        size = os.fstat(self._file.fileno()).st_size
        if size < needed:
            raise DataError(f"{self.source} must have {needed} bytes for its shape {self.shape}. It ends after {size}.")

    def __reduce__(self) -> Any:
        if self._has_header:
            return reopen, (open_npy, (self.path,), self.shape)
        return reopen, (_raw, (self.path, self._offset, self.shape, self._stored, self._columns_first), self.shape)

    def _read(self, start: int, stop: int) -> Block:
        if self._columns_first:
            try:
                whole = np.memmap(self._file, self._stored, "r", self._offset, self.shape, order="F")
            except ValueError:
                raise self._shortened(os.fstat(self._file.fileno()).st_size) from None
            return np.array(whole[start:stop], dtype=self.dtype, order="C")
        block = np.empty((stop - start, self.shape[1]), self._stored)
        self._fill(block, self._offset + start * self.row_bytes)
        return block.astype(self.dtype, copy=False)

    def _fill(self, block: Block, position: int) -> None:
        rest = block.view(np.uint8).reshape(-1).data
        while len(rest):
            if hasattr(os, "preadv"):
                got = os.preadv(self._file.fileno(), [rest[:_READ_BYTES]], position)
            else:  # no positioned reads on this platform
                with self._lock:
                    self._file.seek(position)
                    got = self._file.readinto(rest[:_READ_BYTES])  # type: ignore[attr-defined]
            if got == 0:
                raise self._shortened(position)
            rest, position = rest[got:], position + got

    def _shortened(self, end: int) -> DataError:
        return DataError(f"{self.source} must not become shorter while it is read. It ends at byte {end}.")


def _raw(path: Path, offset: int, shape: tuple[int, int], dtype: Any, columns_first: bool) -> RawMatrix:
    return RawMatrix(path, offset, shape, dtype, columns_first=columns_first)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise DataError(f"The matrix was looked for at {path}, where there is no file.") from None
    except OSError as error:
        raise DataError(f"The file {path} could not be read: {error.strerror or error}.") from error


def open_npy(path: Path) -> RawMatrix:
    """A `.npy` file, never unpickled."""
    with _open(path) as file:
        try:
            version = np.lib.format.read_magic(file)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, columns_first, dtype = read(file)
        except (ValueError, EOFError, TypeError) as error:
            reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
            raise DataError(
                f"The file {path.name} must be an intact .npy file. It could not be read: {reason}."
            ) from error
        offset = file.tell()
    by_columns = columns_first and len(shape) == 2 and shape[1] > 1  # a single column lies the same in both orders
    matrix = RawMatrix(path, offset, shape, dtype, columns_first=by_columns)
    matrix._has_header = True
    return matrix


def open_memmap(array: np.memmap[Any, Any]) -> Any:
    """The file behind a memory map; the map itself where it is not simply the rows of a file."""
    root: Any = array
    while isinstance(root.base, np.memmap):  # a cut of a map remembers the offset of the whole map
        root = root.base
    if not isinstance(root.base, mmap.mmap) or root.filename is None or array.ndim != 2 or array.mode == "c":
        return array  # "c": what was written into the map is not in the file
    if not (array.flags.c_contiguous or array.flags.f_contiguous) or array.dtype.kind not in "fiub" or not array.size:
        return array
    offset = root.offset + array.ctypes.data - root.ctypes.data
    if array.mode != "r":
        root.flush()
    try:
        return RawMatrix(
            Path(root.filename), offset, array.shape, array.dtype, columns_first=not array.flags.c_contiguous
        )
    except DataError:  # the file was moved or removed; the map still has it
        return array
