"""The file of vectors next to an index file: codes.db-vectors-1 belongs to codes.db.

    header   64 bytes: which index it belongs to, its number, bytes per record, two marks, and their checksum
    records  of one size, to which records are only ever appended: a checksum (see kernels.py) and a vector

The index file says in the table `vectors` which file is meant and how many of its records are committed (see state.py),
and in its blocks which record each code has: its slot. New records are written and flushed to the disk before the
transaction that refers to them is committed. So what an interrupted call has written lies beyond the committed records,
where nobody looks, until the next call cuts it off.

Every call that appends draws a random mark. The index file has that of the last committed call, and the header has it
next to the one before or after it. So the vector file of a copy of the index that went its own way is recognized.

A removed or replaced vector stays in the file until the file is rewritten: with the next number, to the disk before the
transaction that refers to it is committed; then the earlier one is removed. Who has that one mapped reads on from it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import FusehashError
from fusehash.files import sync_folder
from fusehash.search.rows import Ints
from fusehash.search.vectors import Records
from fusehash.search.vectors.state import HEADER, MAGIC, VectorState
from fusehash.sqlite import FileKind
from fusehash.trust import open_file

_WRITE_BYTES = 1 << 20  # of records in memory at a time


class OtherFileError(Exception):
    """The file of a state is missing, or is of another state: the index may name another one by now."""

    def __init__(self, reason: FusehashError) -> None:
        self.reason = reason  # to be raised if it does not


@dataclass(frozen=True)
class MappedVectors:
    """The committed records of a file, mapped into memory. It stays readable when the file is removed."""

    state: VectorState
    records: Records
    mapping: mmap.mmap | None

    @classmethod
    def open(cls, index: Path, state: VectorState, kind: FileKind) -> MappedVectors:
        if not state.slots:
            return cls(state, Records(np.empty((0, state.stride), np.uint8), state.seed), None)
        subject = _subject(state.path(index))
        with _opened(index, state, kind) as file:
            try:
                mapping = mmap.mmap(file.fileno(), state.end, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise kind.unavailable(f"{subject} could not be read: {error}.") from error
        if hasattr(mapping, "madvise"):
            mapping.madvise(mmap.MADV_RANDOM)  # reads what is touched, and not what is around it
        rows = np.frombuffer(mapping, np.uint8, state.slots * state.stride, HEADER.size)
        return cls(state, Records(rows.reshape(state.slots, state.stride), state.seed), mapping)

    def holds(self, state: VectorState) -> bool:
        """Whether these are the records of a state, or more."""
        mine = self.state
        return (mine.owner, mine.number) == (state.owner, state.number) and mine.slots >= state.slots

    def check(self, index: Path, kind: FileKind) -> None:
        """Raise if the file was cut off since: touching what is not there would end the process."""
        if self.mapping is not None and (size := self.mapping.size()) < self.state.end:
            raise kind.corrupt(_cut_off(self.state.path(index), size, self.state.end))


class Writer:
    """Appends records to a file; `state` says how many there are with them."""

    def __init__(self, file: BinaryIO, state: VectorState) -> None:
        self._file, self.state = file, state

    def add(self, vectors: Codes, is_whole: NDArray[np.bool_] | None = None) -> Ints:
        """Append vectors, those that are not whole with a wrong checksum; returns their slots."""
        from fusehash.search.vectors.kernels import SUM_BYTES, keys_of, write_sums

        first, stride, n_bytes = self.state.slots, self.state.stride, self.state.form.n_bytes
        height = max(1, _WRITE_BYTES // stride)
        for start in range(0, len(vectors), height):
            part = vectors[start : start + height]
            records = np.zeros((len(part), stride), np.uint8)
            records[:, SUM_BYTES : SUM_BYTES + n_bytes] = part
            write_sums(records.view(np.uint32), keys_of(-(-n_bytes // 4)), self.state.seed, self.state.slots)
            if is_whole is not None:
                records[~is_whole[start : start + height], 0] ^= 1
            self._write(records)
        return np.arange(first, self.state.slots, dtype=np.int64)

    def copy(self, records: Records, places: Ints) -> None:
        """Append records of another file. A damaged one stays damaged."""
        from fusehash.search.vectors.kernels import PLACE

        assert records.seed is not None
        height = max(1, _WRITE_BYTES // self.state.stride)
        for start in range(0, len(places), height):
            part = places[start : start + height]
            copies, slots = records.rows[part], np.arange(len(part)) + self.state.slots
            with np.errstate(over="ignore"):
                moved = self.state.seed - records.seed + (slots - part).astype(np.uint64) * np.uint64(PLACE)
                copies.view(np.uint64)[:, 0] += moved
            self._write(copies)

    def _write(self, records: Codes) -> None:
        data = records.reshape(-1).data
        while data:
            data = data[self._file.write(data) :]
        self.state = replace(self.state, slots=self.state.slots + len(records))


@contextlib.contextmanager
def appending(index: Path, state: VectorState, kind: FileKind) -> Iterator[Writer]:
    """Append records to the file of a state, or to a new one; on the disk when the block ends.

    The caller holds the right to write the index. If something is raised, the file is cut off where it ended.
    """
    if not state.number:
        with creating(index, state, kind) as writer:
            yield writer
        return
    try:
        with _opened(index, state, kind) as found:
            path, identity = state.path(index), os.fstat(found.fileno())
        with path.open("r+b", buffering=0) as file:
            if not os.path.samestat(identity, os.fstat(file.fileno())):
                raise OSError(None, "it was replaced meanwhile")
            marked = state.marked()
            file.write(marked.header(before=state.mark))
            file.truncate(state.end)
            file.seek(state.end)
            try:
                yield Writer(file, marked)
                os.fsync(file.fileno())
            except BaseException:
                with contextlib.suppress(OSError):
                    file.truncate(state.end)
                raise
    except OtherFileError as error:
        raise error.reason from None
    except OSError as error:
        _report(error, state.path(index), kind)


@contextlib.contextmanager
def creating(index: Path, state: VectorState, kind: FileKind) -> Iterator[Writer]:
    """Write the file that follows the one of a state; on the disk when the block ends, else removed."""
    new = _free(index, state).marked()
    path = new.path(index)
    try:
        with path.open("xb", buffering=0) as file:
            try:
                file.write(new.header())
                yield Writer(file, new)
                os.fsync(file.fileno())
            except BaseException:
                with contextlib.suppress(OSError):
                    path.unlink()
                raise
        sync_folder(path.parent)
    except OSError as error:
        _report(error, path, kind)


def remove_earlier(index: Path, state: VectorState) -> None:
    """Remove the file before that of a committed state, which no index names any more."""
    for number in range(state.number - 1, 0, -1):
        if _remove(index, replace(state, number=number)):
            break


def remove_uncommitted(index: Path, state: VectorState) -> None:
    """Remove the file that would have followed that of a state, after a change that was not carried out."""
    _free(index, state)


def _free(index: Path, state: VectorState) -> VectorState:
    """The number after that of a state, under which there is no file (any more); those of other indexes are left."""
    while True:
        state = replace(state, number=state.number + 1, slots=0)
        if _remove(index, state):
            return state


def _remove(index: Path, state: VectorState) -> bool:
    """Remove the file of a number if it belongs to this index; whether it is gone."""
    path = state.path(index)
    try:
        with open_file(path, _subject(path), follow_links=False) as file:
            header = file.read(HEADER.size)
    except FusehashError as error:
        return isinstance(error.__cause__, FileNotFoundError)
    if header and not (
        len(header) == HEADER.size and state.owns(header)
    ):  # empty if a process was killed between creating and filling it
        return False
    with contextlib.suppress(OSError):  # where it is mapped on Windows, or the folder is read-only
        path.unlink()
        return True
    return False


@contextlib.contextmanager
def _opened(index: Path, state: VectorState, kind: FileKind) -> Iterator[BinaryIO]:
    """The file of a state, checked. Raises OtherFileError."""
    path = state.path(index)
    try:
        file = open_file(path, _subject(path), kind.unavailable, follow_links=False)
    except kind.unavailable as error:
        if isinstance(error.__cause__, FileNotFoundError):
            reason = f"{_subject(path)} is missing. It belongs next to {index}."
            raise OtherFileError(kind.unavailable(reason)) from error
        raise
    with file:
        header, size = file.read(HEADER.size), os.fstat(file.fileno()).st_size
        if len(header) == HEADER.size and not state.fits(header):
            damage = kind.corrupt(f"{_subject(path)} is corrupt: {_reason(header)}.")
            raise OtherFileError(damage) if state.owns(header) else damage
        if size < state.end:
            raise kind.corrupt(_cut_off(path, size, state.end))
        yield file


def _subject(path: Path) -> str:
    return f"The vector file {path}"


def _reason(header: bytes) -> str:
    """Why a header is not the one that was expected."""
    *fields, checksum = HEADER.unpack(header)
    if fields[0] != MAGIC:
        return "it was not written by fusehash"
    is_whole = zlib.crc32(HEADER.pack(*fields, 0)) == checksum
    return "it belongs to another index, or to another state of this one" if is_whole else "its header is damaged"


def _cut_off(path: Path, size: int, expected: int) -> str:
    return f"{_subject(path)} is corrupt: it is cut off at {size} of {expected} bytes."


def _report(error: OSError, path: Path, kind: FileKind) -> NoReturn:
    if isinstance(error, FusehashError):
        raise error
    reason = error.strerror or error
    raise kind.unavailable(f"{_subject(path)} could not be written: {reason}; nothing was changed.") from error
