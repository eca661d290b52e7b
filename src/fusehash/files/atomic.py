"""Atomic writes: drafts next to their target, locked until they are renamed, and flushed to the disk."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from fusehash.errors import DataError


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing, that replaces `path` when the block ends without an error.

    The file is written next to `path`, flushed to disk, then renamed; an error leaves `path` as it was.
    """
    if not path.parent.is_dir():
        raise DataError(f"The folder of '{path}' must exist. '{path.parent}' does not.")
    try:
        file = create_draft(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"'{path}' cannot be written: {reason}.") from error
    draft = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # an open file cannot be renamed there
            draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(f"'{path}' could not be written ({error.strerror}); nothing was changed.") from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise DataError(f"'{path}' was written, but may not survive a loss of power ({error.strerror}).") from error


def write_atomically(path: Path, fill: Callable[[Any], Any]) -> None:
    """Replace a file by what `fill(file)` writes, or leave it as it was."""
    with replacing(path) as file:
        fill(file)


def create_draft(path: Path) -> BinaryIO:
    """A new file under a hidden name next to `path`, locked until it is closed; its `name` is a path.

    Stale drafts of the same path are removed. Raises OSError.
    """
    remove_stale_drafts(path)
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(6)}.draft").open("x+b")
        _lock_draft(file.fileno())
        with suppress(FileNotFoundError):  # another process took it for stale before it was locked
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):  # noqa: PTH116 (a name)
                return file
        file.close()


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """A new folder under a hidden name next to `path`, locked in the block; removed after it, unless it was renamed."""
    remove_stale_drafts(path)
    draft, handle = path.with_name(f".{path.name}.{secrets.token_hex(6)}.draft"), None
    draft.mkdir()
    try:
        if os.name == "posix":
            handle = os.open(draft, os.O_RDONLY)
            _lock_draft(handle)
            if not draft.is_dir():
                raise FileNotFoundError(None, "another process removed its draft; try again")
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _lock_draft(handle: int) -> None:
    """Lock a new draft; a process that takes it for stale holds it only until it has removed it."""
    if os.name == "nt":
        try_lock(handle)
        return
    import fcntl

    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)


def remove_stale_drafts(path: Path) -> None:
    """Remove what writers of `path` left behind when they were killed: drafts, files or folders, that nobody locks."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.draft")
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(path.parent) if pattern.fullmatch(entry.name)]
        for draft in map(path.with_name, names):
            with suppress(OSError):
                handle = os.open(draft, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
                try:
                    if not try_lock(handle):
                        continue
                    for name in (draft.name + suffix for suffix in ("-wal", "-shm", "-journal")):  # of SQLite
                        draft.with_name(name).unlink(missing_ok=True)
                    shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
                finally:
                    os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file or folder, unless another process holds it; closing it, or the end of a process, unlocks it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(handle: int) -> None:
    """Unlock a file at once; closing it would wait for copies of the handle in forked processes."""
    if os.name != "nt":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


def make_folder(path: Path) -> None:
    """Make a folder and those above it where they are missing, to be there after a loss of power, too."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder, so that files which were renamed into it are there after a loss of power."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
