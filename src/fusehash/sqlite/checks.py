"""Checks before SQLite may touch a file: its header, and the logs and journals next to it."""

from __future__ import annotations

import stat
import struct
from pathlib import Path

from fusehash.sqlite.held import HeldFile
from fusehash.sqlite.kinds import FileKind

# The fields of SQLite's file header that are checked: magic, page size, change counter, pages, version, application,
# version-valid-for.
_HEADER = struct.Struct(">16s H 6x I I 28x I 4x I 20x I 4x")


def check_header(file: HeldFile, path: Path, kind: FileKind) -> None:
    """Refuse a foreign or truncated file before SQLite opens it."""
    subject, before = kind.name(path), None
    while True:
        header, size = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise kind.corrupt(f"{subject} is corrupt: it is cut off.")
        magic, page_size, changes, pages, version, application, valid_for = _HEADER.unpack(header)
        if magic != b"SQLite format 3\0" or application != kind.application_id:
            raise kind.corrupt(f"{subject} is corrupt: it was not written by fusehash.")
        if version not in (kind.format, *kind.older):
            raise kind.corrupt(f"{subject} has format {version}; this fusehash reads format {kind.format}.")
        expected = pages * (65536 if page_size == 1 else page_size)
        if changes != valid_for or size >= expected or log_size(path):
            return
        if before == (header, size):
            raise kind.corrupt(f"{subject} is corrupt: it is cut off at {size} of {expected} bytes.")
        before = header, size  # another process may just have merged its log: look again


def check_companions(path: Path, kind: FileKind) -> None:
    """Refuse links next to a file, and a rollback journal: it may name any file for SQLite to delete."""
    for companion in companions(path):
        try:
            mode = companion.lstat().st_mode
        except OSError:
            continue
        if not stat.S_ISREG(mode):
            what = f"{companion} is a link, a folder, a pipe or a device"
        elif companion.name.endswith("-journal"):
            what = f"fusehash does not write {companion}"
        else:
            continue
        raise kind.corrupt(f"{kind.name(path)} is corrupt: {what}.")


def check_no_log(path: Path, kind: FileKind) -> None:
    """Refuse to create a file next to the log of another one, which SQLite would merge into it."""
    log, _, journal = companions(path)
    for leftover in (log, journal):
        if _length(leftover) and not path.exists():  # else another process has just made it
            raise kind.unavailable(
                f"{kind.name(path)} could not be created: {leftover} is the log of a file that was moved or removed. "
                "Put that file back, or delete the log."
            )


def companions(path: Path) -> list[Path]:
    """The files that SQLite may make next to a file; next to its target if `path` is a link."""
    path = path.resolve()
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def log_size(path: Path) -> int:
    """Bytes in the write-ahead log of a file; 0 without one."""
    return _length(companions(path)[0])


def _length(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
