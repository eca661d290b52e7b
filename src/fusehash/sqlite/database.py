"""The only home of SQLite: files opened with care, one transaction per call, every failure one sentence.

A file is checked before SQLite may touch it: a foreign or truncated file is refused unopened. Files are in WAL mode and
written through to the disk at every commit. New files are made under another name and linked into place whole, so
nobody ever sees a half-made file. Where the file or its folder is read-only, the file can still be read.

Three facts of SQLite shape this module:
    A child of a fork takes the locks of its parent for its own. All connections are therefore closed before a fork.
    A process that closes any handle on a file loses its locks on it. One handle per file is therefore kept open, which
    also keeps its number (inode) from being used again.
    SQLite goes on writing to a file that was moved away. The file at the path is therefore compared with the open one.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote
from weakref import WeakSet, WeakValueDictionary, finalize

from fusehash.errors import FusehashError
from fusehash.files import create_draft, sync_folder, try_lock, unlock
from fusehash.forks import is_held_here, new_lock
from fusehash.trust import open_file

# The fields of SQLite's file header that are checked: magic, page size, change counter, pages, version, application,
# version-valid-for.
_HEADER = struct.Struct(">16s H 6x I I 28x I 4x I 20x I 4x")
# Nothing in a file is trusted.
_SETTINGS = ("trusted_schema=OFF", "cell_size_check=ON", "journal_size_limit=4194304", "foreign_keys=OFF")
_POLL_SECONDS = 0.05
_FORK_SECONDS = 10.0  # that a fork waits for calls of other threads to end

Connection = sqlite3.Connection
Identity = tuple[int, int]  # device and inode


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
    may_be_link: bool = True  # False for a file inside a folder of data
    may_vanish: bool = False  # True for a cache, which may be deleted or replaced while it is open
    older: tuple[int, ...] = ()  # formats that are read too
    page_size: int = 4096  # bytes, of new files


class Database:
    """A connection to one SQLite file, shared by the threads of a process, one at a time.

    `lock` is free for users of the object, to protect what belongs to the file. A fork waits until nobody holds it.
    """

    def __init__(self, path: Path, kind: FileKind, timeout: float = 30.0) -> None:
        self.path, self.kind, self.timeout = path, kind, timeout
        self._name = os.fspath(path)
        self.lock = new_lock()
        self.read_only = False
        self._connection: sqlite3.Connection | None = None
        self._opened, self._closed = 0, False
        self._seen: tuple[int, int] | None = None  # size and time of a read-only file
        with _opening:
            self._file = _hold_file(path, kind)
            self._release_file = finalize(self, _release_file, self._file)
            self._release_file.atexit = False  # other threads may still be writing
            _databases[id(self)] = self
        try:
            _check_header(self._file, path, kind)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent state of the file."""
        with self.lock, self.reporting():
            if self._in_transaction():  # of the same thread
                yield self.connection()
                return
            self.check_place()
            connection = self.connection()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """All that is written inside, or nothing."""
        with self.lock, self.reporting("written"):
            self.check_place()
            connection = self.connection()
            if self.read_only:
                reason = "it or its folder is read-only"
                raise self.kind.unavailable(f"{self.kind.name(self.path)} cannot be written: {reason}.")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self.check_place()
                if connection is not self._connection:
                    raise self._crossed_a_fork()
                connection.execute("COMMIT")
            except BaseException:
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            self.check_place("; the change is in the file that was there before")

    def data_version(self) -> tuple[int, int]:
        """Changes when another connection has committed, and with every new connection of this object."""
        with self.lock, self.reporting():
            self.check_place()
            (version,) = self.connection().execute("PRAGMA data_version").fetchone()
            return int(version), self._opened

    def compact(self) -> None:
        """Return unused space to the disk."""
        with self.lock, self.reporting("compacted"):
            self.check_place()
            self.connection().execute("VACUUM")
            self.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.check_place()

    def connection(self) -> sqlite3.Connection:
        """The connection of this process, opened when first used."""
        if self._connection is not None and self._file.process != os.getpid():  # a fork that Python did not see
            self.leave_to_parent()
        if self._connection is None:
            if self._closed:
                raise self.kind.unavailable(f"{self.kind.name(self.path)} is closed; open it again.")
            self._opened += 1
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
        with self.lock, self.reporting(), contextlib.closing(self._connect("mode=ro")) as connection:
            connection.execute("BEGIN")  # one state of the file, also while another process writes
            yield connection

    def size(self) -> int:
        """Bytes of the file, without its log."""
        return self._file.read(0)[1]

    def disconnect(self) -> None:
        """Close the connection of this process; the next call opens another one."""
        with self.lock:
            if self._connection is not None and self._file.process == os.getpid():
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    def leave_to_parent(self) -> None:
        """Neither use nor close a connection that was in use when this process was forked."""
        self._file.inherited.append(self._connection)
        self._file.users += 1  # for ever
        self._connection = None

    def close(self) -> None:
        """Close the file; the last process to do so merges the log into it."""
        with self.lock:
            self.disconnect()
            self._closed = True
            self._release_file()

    def check_place(self, consequence: str = "") -> None:
        """Raise if the file was removed, moved or replaced while it is open."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 (before every search)
        except (FileNotFoundError, NotADirectoryError):
            status = None
        except OSError as error:
            reason = f"cannot be reached: {error.strerror}"
            raise self.kind.unavailable(f"{self.kind.name(self.path)} {reason}.") from error
        if status is None or (status.st_dev, status.st_ino) != self._file.identity:
            if not (self._closed or self.kind.may_vanish):
                reason = f"was removed or replaced while it was open{consequence}; open it again"
                raise self.kind.unavailable(f"{self.kind.name(self.path)} {reason}.")
        elif self.read_only and self._seen != (status.st_size, status.st_mtime_ns) and not self._in_transaction():
            self._seen = status.st_size, status.st_mtime_ns
            self.disconnect()

    def _in_transaction(self) -> bool:
        return self._connection is not None and self._connection.in_transaction

    def _connect(self, mode: str) -> sqlite3.Connection:
        if self._file.process != os.getpid():
            raise self._crossed_a_fork()
        _check_companions(self.path, self.kind)
        address = f"file:{quote(os.fsencode(self.path.absolute()))}?{mode}"
        options: dict[str, Any] = {"uri": True, "isolation_level": None, "check_same_thread": False}
        connection = sqlite3.connect(address, timeout=self.timeout, **options)
        try:
            for setting in (*self.kind.settings, *_SETTINGS):
                connection.execute(f"PRAGMA {setting}")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            self.check_place()  # SQLite opens a file and its log one after the other
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

    def _crossed_a_fork(self) -> FusehashError:
        subject = self.kind.name(self.path)
        return self.kind.unavailable(f"{subject} was in use when this process was forked; open it in a new process.")


def create(path: Path, kind: FileKind, fill: Callable[[sqlite3.Connection], Any] = lambda connection: None) -> None:
    """Make a file with the tables of its kind, unless another process has made it meanwhile."""
    try:
        with _opening:
            _check_no_log(path, kind)
            file = create_draft(path)
            draft = Path(file.name)
            try:
                _fill_draft(draft, kind, fill)
                try:
                    os.link(draft, path)
                except FileExistsError:
                    pass
                except OSError:  # no hard links on this file system
                    if not path.exists():
                        draft.rename(path)
                sync_folder(path.parent)
            finally:
                for leftover in (draft, *_companions(draft)):
                    with contextlib.suppress(OSError):
                        leftover.unlink()
                file.close()
    except (sqlite3.Error, OSError, ValueError) as error:
        if isinstance(error, FusehashError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise kind.unavailable(f"{kind.name(path)} could not be created: {reason}.") from error


def _fill_draft(draft: Path, kind: FileKind, fill: Callable[[sqlite3.Connection], Any]) -> None:
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA page_size={kind.page_size}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA application_id={kind.application_id}")
        connection.execute(f"PRAGMA user_version={kind.format}")
        connection.execute("BEGIN IMMEDIATE")
        for statement in kind.schema:
            connection.execute(statement)
        fill(connection)
        connection.execute("COMMIT")


def _check_no_log(path: Path, kind: FileKind) -> None:
    """Refuse to create a file next to the log of another one, which SQLite would merge into it."""
    log, _, journal = _companions(path)
    for leftover in (log, journal):
        if _length(leftover) and not path.exists():  # else another process has just made it
            raise kind.unavailable(
                f"{kind.name(path)} could not be created: {leftover} is the log of a file that was moved or removed. "
                "Put that file back, or delete the log."
            )


def _check_companions(path: Path, kind: FileKind) -> None:
    """Refuse links next to a file, and a rollback journal: it may name any file for SQLite to delete."""
    for companion in _companions(path):
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


def _companions(path: Path) -> list[Path]:
    """The files that SQLite may make next to a file; next to its target if `path` is a link."""
    path = path.resolve()
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def _check_header(file: HeldFile, path: Path, kind: FileKind) -> None:
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


# -- what the whole process shares -------------------------------------------------------------------------------


@dataclass(eq=False)
class HeldFile:
    """The handle of this process on a file, as long as a `Database` uses the file."""

    identity: Identity
    process: int = field(default_factory=os.getpid)  # the one whose connections SQLite counts; no other may connect
    handles: list[BinaryIO] = field(default_factory=list)
    inherited: list[Any] = field(default_factory=list)  # connections of a parent process, which are never closed here
    users: int = 0

    def read(self, size: int) -> tuple[bytes, int]:
        """The first bytes of the file, and its length."""
        with _opening:
            self.handles[0].seek(0)
            return self.handles[0].read(size), os.fstat(self.handles[0].fileno()).st_size


_opening = new_lock()  # held while a file is created, opened or closed
_files: dict[Identity, HeldFile] = {}
_databases: WeakValueDictionary[int, Database] = WeakValueDictionary()  # by id()
_held_for_fork: list[Any] = []
_crossing: list[Database] = []  # in use during the fork


def _hold_file(path: Path, kind: FileKind) -> HeldFile:
    """The handle on a file; the caller holds `_opening`."""
    held = None
    with contextlib.suppress(OSError, ValueError):  # opening it says what is wrong
        held = _files.get(_identity(path.stat() if kind.may_be_link else path.lstat()))
    if held is None:
        file = open_file(path, kind.name(path), kind.unavailable, follow_links=kind.may_be_link)
        identity = _identity(os.fstat(file.fileno()))
        held = _files.setdefault(identity, HeldFile(identity))
        held.handles.append(file)
    held.users += 1
    return held


def _release_file(held: HeldFile) -> None:
    with _opening:
        held.users -= 1
        if not held.users:
            del _files[held.identity]
            for file in held.handles:
                file.close()


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino


def _open_databases() -> list[Database]:
    return [database for reference in _databases.valuerefs() if (database := reference()) is not None]


def _before_fork() -> None:
    """Close all connections, except those that are in use for too long or by the very call that forks."""
    databases = _open_databases()
    in_use = [database for database in databases if is_held_here(database.lock)]
    locks = [_opening, *(database.lock for database in databases)]
    deadline = time.monotonic() + _FORK_SECONDS
    first = _opening
    while True:  # who waits for one lock holds no other, so that nobody waits for ever
        held = [first] if first.acquire(timeout=max(0.0, deadline - time.monotonic())) else []
        held += [lock for lock in locks if lock is not first and lock.acquire(blocking=False)]
        if len(held) == len(locks) or time.monotonic() >= deadline:
            break
        for lock in held:
            lock.release()
        first = next(lock for lock in locks if lock not in held)
    _held_for_fork[:] = held
    _crossing[:] = [database for database in databases if database in in_use or database.lock not in held]
    for database in databases:
        if database not in _crossing:
            database.disconnect()


def _after_fork_in_parent() -> None:
    _crossing.clear()
    while _held_for_fork:
        _held_for_fork.pop().release()


def _after_fork_in_child() -> None:
    connected = (database for database in _open_databases() if database.is_connected)
    for database in dict.fromkeys([*_crossing, *connected]):
        database.leave_to_parent()
    for held in _files.values():
        if not held.inherited:
            held.process = os.getpid()
    for lock in _writer_locks:
        lock.leave_to_parent()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


# -- one writer at a time ----------------------------------------------------------------------------------------


class WriterLock:
    """Held by the one process, and in it the one thread, that writes.

    The operating system releases it when that process ends, however it ends.
    """

    def __init__(self, path: Path, timeout: float, unavailable: type[FusehashError], busy: str) -> None:
        self._path, self._timeout, self._unavailable, self._busy = path, timeout, unavailable, busy
        self._threads: Any = threading.Lock()
        self._file: Any = None
        _writer_locks.add(self)

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        if not self._threads.acquire(timeout=max(self._timeout, 0.001)):
            raise self._unavailable(self._busy)
        try:
            try:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # a link could lead anywhere
                self._file = os.fdopen(os.open(self._path, flags, 0o666), "r+b", buffering=0)
            except OSError as error:
                raise self._unavailable(f"{self._path.parent} cannot be written: {error.strerror}.") from error
            while not try_lock(self._file.fileno()):
                if time.monotonic() >= deadline:
                    raise self._unavailable(self._busy)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._release()
            raise

    def __exit__(self, *error: object) -> None:
        self._release()

    def leave_to_parent(self) -> None:
        """Forget the lock in a forked child; a child that unlocked it would unlock it for its parent too."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._threads._at_fork_reinit()

    def _release(self) -> None:
        if self._file is not None:
            unlock(self._file.fileno())  # closing alone would leave it to a forked child
            self._file.close()
            self._file = None
        if self._threads.locked():  # not in a child that was forked meanwhile
            self._threads.release()


_writer_locks: WeakSet[WriterLock] = WeakSet()


def log_size(path: Path) -> int:
    """Bytes in the write-ahead log of a file; 0 without one."""
    return _length(_companions(path)[0])


def _length(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _explained(error: sqlite3.Error, path: Path, kind: FileKind, action: str, timeout: float) -> FusehashError:
    if _is_about(error, "locked", "locking protocol", "busy"):
        reason = f"another process has been writing it for {timeout:g} s"
    elif _is_about(error, "full", "disk I/O", "readonly", "unable to open", "interrupted", "access permission"):
        reason = str(error)
    else:
        return kind.corrupt(f"{kind.name(path)} is corrupt: {error}.")
    return kind.unavailable(f"{kind.name(path)} could not be {action}: {reason}.")


def _is_about(error: sqlite3.Error, *words: str) -> bool:
    return any(word in str(error) for word in words)
