"""The only home of SQLite: files opened with care, one transaction per call, every failure one sentence.

A file is checked before SQLite may touch it: a foreign or truncated file is refused unopened. Files are in WAL mode and
written through to the disk at every commit. New files are made under another name and linked into place whole, so
nobody ever sees a half-made file. Where the file or its folder is read-only, the file can still be read.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fusehash.errors import FusehashError
from fusehash.files import sync_folder

# The fields of SQLite's file header that are checked: magic, page size, change counter, pages, version, application,
# version-valid-for.
_HEADER = struct.Struct(">16s H 6x I I 28x I 4x I 20x I 4x")
# Nothing in a file is trusted.
_SETTINGS = ("trusted_schema=OFF", "cell_size_check=ON", "journal_size_limit=4194304", "foreign_keys=OFF")
_POLL_SECONDS = 0.05

Connection = sqlite3.Connection


class DamageError(Exception):
    """The content of a file contradicts itself; `Database` turns it into the error of its kind of file."""


@dataclass(frozen=True)
class FileKind:
    """One kind of SQLite file: how it is recognized and which errors it raises."""

    name: Callable[[Path], str]  # the subject of error messages, as in "The index file /data/codes.fhi"
    application_id: int  # in the file header, like the format
    format: int
    schema: tuple[str, ...]  # statements that create the tables
    unavailable: type[FusehashError]  # the file cannot be reached or written now; its content is unharmed
    corrupt: type[FusehashError]  # the file is damaged or foreign
    settings: tuple[str, ...] = ("synchronous=FULL",)  # of every connection, in addition to _SETTINGS
    older: tuple[int, ...] = ()  # formats that are read too


class Database:
    """A connection to one SQLite file, shared by the threads of a process, one at a time.

    After a fork, the child opens a connection of its own and never touches that of its parent.
    """

    def __init__(self, path: Path, kind: FileKind, timeout: float = 30.0) -> None:
        self.path, self.kind, self.timeout = path, kind, timeout
        self.lock = threading.RLock()
        self.read_only = False
        self._connection: sqlite3.Connection | None = None
        self._inherited: list[sqlite3.Connection] = []  # connections of a parent process are never closed here
        self._owner, self._opened, self._closed = 0, 0, False
        check_header(path, kind)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent state of the file."""
        with self.lock, self.reporting():
            connection = self.connection()
            if connection.in_transaction:  # inside `writing` on the same thread
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or nothing."""
        with self.lock, self.reporting("written"):
            connection = self.connection()
            if self.read_only:
                reason = "it or its folder is read-only"
                raise self.kind.unavailable(f"{self.kind.name(self.path)} cannot be written: {reason}.")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def data_version(self) -> tuple[int, int]:
        """Changes when another connection has committed, and with every new connection of this object."""
        with self.lock, self.reporting():
            (version,) = self.connection().execute("PRAGMA data_version").fetchone()
            return int(version), self._opened

    def compact(self) -> None:
        """Return unused space to the disk."""
        with self.lock, self.reporting("compacted"):
            self.connection().execute("VACUUM")
            self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def connection(self) -> sqlite3.Connection:
        """The connection of this process, opened when first used."""
        if self._connection is not None and self._owner != os.getpid():
            self._inherited.append(self._connection)
            self._connection = None
        if self._connection is None:
            if self._closed:
                raise self.kind.unavailable(f"{self.kind.name(self.path)} is closed; open it again.")
            self._owner, self._opened = os.getpid(), self._opened + 1
            try:
                self._connection, self.read_only = self._connect("mode=rw"), False
            except sqlite3.OperationalError as error:
                if log_size(self.path) or not _is_about(error, "unable to open", "readonly"):
                    raise
                # The folder cannot be written: read the file as it is, without locks or log.
                self._connection, self.read_only = self._connect("immutable=1"), True
        return self._connection

    @contextlib.contextmanager
    def read_only_connection(self) -> Iterator[sqlite3.Connection]:
        """A second connection that merges no log into the file."""
        with self.reporting(), contextlib.closing(self._connect("mode=ro")) as connection:
            connection.execute("BEGIN")  # one state of the file, also while another process writes
            yield connection

    def disconnect(self) -> None:
        """Close the connection of this process; the next call opens another one."""
        with self.lock:
            if self._connection is not None and self._owner == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    def close(self) -> None:
        """Close the file; the last process to do so merges the log into it."""
        with self.lock:
            self.disconnect()
            self._closed = True

    def identity(self) -> tuple[int, int, int, int]:
        """Device, inode, size and time of the file; the first two tell whether it was replaced."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise self.kind.unavailable(f"{self.kind.name(self.path)} cannot be reached: {error.strerror}.") from error
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _connect(self, mode: str) -> sqlite3.Connection:
        address = f"file:{quote(os.fsencode(self.path.absolute()))}?{mode}"
        options: dict[str, Any] = {"uri": True, "isolation_level": None, "check_same_thread": False}
        connection = sqlite3.connect(address, timeout=self.timeout, **options)
        try:
            for setting in (*self.kind.settings, *_SETTINGS):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def reporting(self, action: str = "read") -> Iterator[None]:
        """Turn what SQLite raises into one sentence about this file, and start the next call with a new connection."""
        try:
            yield
        except (DamageError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes in its messages
            self.disconnect()
            raise self.kind.corrupt(f"{self.kind.name(self.path)} is corrupt: {error}.") from error
        except sqlite3.Error as error:
            self.disconnect()
            raise _explained(error, self.path, self.kind, action, self.timeout) from error


def create(path: Path, kind: FileKind, fill: Callable[[sqlite3.Connection], Any] = lambda connection: None) -> None:
    """Make a file with the tables of its kind, unless another process has made it meanwhile."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA application_id={kind.application_id}")
            connection.execute(f"PRAGMA user_version={kind.format}")
            connection.execute("BEGIN IMMEDIATE")
            for statement in kind.schema:
                connection.execute(statement)
            fill(connection)
            connection.execute("COMMIT")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links on this file system
            if not path.exists():
                draft.rename(path)
        sync_folder(path.parent)
    except (sqlite3.Error, OSError) as error:
        raise kind.unavailable(f"{kind.name(path)} could not be created: {error}.") from error
    finally:
        for leftover in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
            with contextlib.suppress(OSError):
                leftover.unlink()


def check_header(path: Path, kind: FileKind) -> None:
    """Refuse a foreign or truncated file before SQLite opens it."""
    subject = kind.name(path)
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise kind.unavailable(f"{subject} could not be read: {error.strerror}.") from error
    if len(header) < _HEADER.size:
        raise kind.corrupt(f"{subject} is corrupt: it is cut off.")
    magic, page_size, changes, pages, version, application, valid_for = _HEADER.unpack(header)
    if magic != b"SQLite format 3\0" or application != kind.application_id:
        raise kind.corrupt(f"{subject} is corrupt: it was not written by fusehash.")
    if version not in (kind.format, *kind.older):
        raise kind.corrupt(f"{subject} has format {version}; this fusehash reads format {kind.format}.")
    expected = pages * (65536 if page_size == 1 else page_size)
    if changes == valid_for and size < expected and not log_size(path):
        raise kind.corrupt(f"{subject} is corrupt: it is cut off at {size} of {expected} bytes.")


class WriterLock:
    """Held by the one process, and in it the one thread, that writes.

    The operating system releases it when that process ends, however it ends.
    """

    def __init__(self, path: Path, timeout: float, unavailable: type[FusehashError], busy: str) -> None:
        self._path, self._timeout, self._unavailable, self._busy = path, timeout, unavailable, busy
        self._threads = threading.Lock()
        self._file: Any = None

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        if not self._threads.acquire(timeout=max(self._timeout, 0.001)):
            raise self._unavailable(self._busy)
        try:
            try:
                self._file = self._path.open("a+b")
            except OSError as error:
                raise self._unavailable(f"{self._path.parent} cannot be written: {error.strerror}.") from error
            while not _try_lock(self._file.fileno()):
                if time.monotonic() >= deadline:
                    raise self._unavailable(self._busy)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._release()
            raise

    def __exit__(self, *error: object) -> None:
        self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()  # which releases the lock
            self._file = None
        self._threads.release()


def log_size(path: Path) -> int:
    """Bytes in the write-ahead log of a file; 0 without one."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def _try_lock(handle: int) -> bool:
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


def _explained(error: sqlite3.Error, path: Path, kind: FileKind, action: str, timeout: float) -> FusehashError:
    if _is_about(error, "locked", "busy"):
        reason = f"another process has been writing it for {timeout:g} s"
    elif _is_about(error, "full", "disk I/O", "readonly", "unable to open"):
        reason = str(error)
    else:
        return kind.corrupt(f"{kind.name(path)} is corrupt: {error}.")
    return kind.unavailable(f"{kind.name(path)} could not be {action}: {reason}.")


def _is_about(error: sqlite3.Error, *words: str) -> bool:
    return any(word in str(error) for word in words)
