"""One SQLite file of a collection: opened with care, one transaction a call, every failure one sentence.

`Database` is used by several threads, one at a time. `WriterLock` lets one process write at a time; the operating
system gives it back when that process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from fusehash.errors import FusehashError

_HEADER = struct.Struct(">16s 44x I 4x I 28x")  # SQLite's file header: its name, user version, application id
_SETTINGS = ("trusted_schema=OFF", "cell_size_check=ON", "journal_size_limit=4194304", "foreign_keys=OFF")
_POLL_SECONDS = 0.05


class CollectionError(FusehashError, OSError):
    """A collection cannot be reached or written just now; what it holds is unharmed."""


class CorruptCollectionError(FusehashError):
    """A folder is not an intact fusehash collection."""


class Database:
    """A connection to one file. Where the file or its folder is read-only it can still be read."""

    def __init__(self, path: Path, *, synchronous: str = "FULL", timeout: float = 30.0) -> None:
        self.path, self._timeout, self._synchronous = path, timeout, synchronous
        self.lock = threading.RLock()
        self.read_only = False
        self._connection: sqlite3.Connection | None = None
        with self.told():
            try:
                self._connection = self._connect("mode=rw")
            except sqlite3.OperationalError as error:
                if _log_size(path) or not _is_about(error, "unable to open", "readonly"):
                    raise
                self._connection, self.read_only = self._connect("immutable=1"), True

    @classmethod
    def create(cls, path: Path, schema: Sequence[str], application: int, version: int) -> Database:
        """Make a file with empty tables; the caller sees to it that nobody else sees the file yet."""
        with _told(path, "created"), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"PRAGMA application_id={application}")
            database.execute(f"PRAGMA user_version={version}")
            database.execute("BEGIN IMMEDIATE")
            for table in schema:
                database.execute(table)
            database.execute("COMMIT")
        return cls(path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent state of the file."""
        with self.lock, self.told():
            connection = self._open()
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
        with self.lock, self.told("written"):
            if self.read_only:
                raise CollectionError(f"{self.path} cannot be written: it or its folder is read-only.")
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def data_version(self) -> int:
        """Changes when another connection has committed something."""
        with self.lock, self.told():
            (version,) = self._open().execute("PRAGMA data_version").fetchone()
            return int(version)

    def close(self) -> None:
        """Let go of the file; the last one to do so merges the log into it."""
        with self.lock:
            if self._connection is not None:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    def told(self, doing: str = "read") -> contextlib.AbstractContextManager[None]:
        """What SQLite says, as one sentence about this file."""
        return _told(self.path, doing, self._timeout)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise CollectionError(f"The collection {self.path.parent} is closed; open it again.")
        return self._connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path.absolute()))}?{mode}",
            uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        try:
            for setting in (f"synchronous={self._synchronous}", *_SETTINGS):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
        return connection


def check_header(path: Path, application: int, version: int) -> None:
    """Refuse what is no database of ours before SQLite opens it."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except OSError as error:
        raise CollectionError(f"The file {path} could not be read: {error.strerror}.") from error
    if len(header) < _HEADER.size:
        raise CorruptCollectionError(f"The collection {path.parent} is corrupt: {path.name} is cut off.")
    magic, found, kind = _HEADER.unpack(header)
    if magic != b"SQLite format 3\0" or kind != application:
        raise CorruptCollectionError(f"The file {path} does not belong to a fusehash collection.")
    if found != version:
        raise CorruptCollectionError(f"The file {path} has format {found}; this fusehash reads format {version}.")


class WriterLock:
    """Held by the one process, and in it the one thread, that writes to a collection (or does what ``doing`` says)."""

    def __init__(self, path: Path, timeout: float, doing: str = "writing to") -> None:
        self._path, self._timeout, self._doing = path, timeout, doing
        self._threads = threading.Lock()
        self._file: Any = None

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        if not self._threads.acquire(timeout=max(self._timeout, 0.001)):
            raise self._busy()
        try:
            try:
                self._file = self._path.open("a+b")
            except OSError as error:
                raise CollectionError(
                    f"The collection {self._path.parent} cannot be written: {error.strerror}."
                ) from error
            while not _try_lock(self._file.fileno()):
                if time.monotonic() >= deadline:
                    raise self._busy()
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.close()  # which gives the lock back
            self._file = None
        self._threads.release()

    def _busy(self) -> CollectionError:
        return CollectionError(
            f"Another process is {self._doing} the collection {self._path.parent}; try again when it is done."
        )


def sync_folder(path: Path) -> None:
    """See to it that files which were renamed into a folder are there after a loss of power."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        if os.name == "nt":  # pragma: no cover
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _told(path: Path, doing: str, timeout: float = 0.0) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite quotes damaged bytes in its messages
        raise CorruptCollectionError(f"The collection {path.parent} is corrupt: {path.name} is damaged.") from error
    except sqlite3.Error as error:
        if _is_about(error, "locked", "busy"):
            reason = f"another process has been writing it for {timeout:g} s"
        elif _is_about(error, "full", "disk I/O", "readonly", "unable to open"):
            reason = str(error)
        else:
            raise CorruptCollectionError(f"The collection {path.parent} is corrupt: {path.name}: {error}.") from error
        raise CollectionError(f"{path} could not be {doing}: {reason}.") from error


def _log_size(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def _is_about(error: sqlite3.Error, *words: str) -> bool:
    return any(word in str(error) for word in words)
