"""A connection to one SQLite file: one transaction per call, every failure one sentence."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from weakref import WeakValueDictionary, finalize

from fusehash.errors import FusehashError
from fusehash.forks import new_lock
from fusehash.sqlite.checks import check_companions, check_header, log_size
from fusehash.sqlite.connections import ClosingConnection
from fusehash.sqlite.held import opening, use_file
from fusehash.sqlite.kinds import DamageError, FileKind, explained, is_about

_LONG_LOG = 1 << 22  # bytes
# Nothing in a file is trusted, and logs are merged by `_merge_log` alone.
_SETTINGS = (
    "trusted_schema=OFF",
    "cell_size_check=ON",
    "foreign_keys=OFF",
    f"journal_size_limit={_LONG_LOG}",
    "wal_autocheckpoint=0",
)


class Database:
    """A connection to one SQLite file, shared by the threads of a process, one at a time.

    `lock` is free for users of the object, to protect what belongs to the file. A fork waits until nobody holds it.
    """

    def __init__(self, path: Path, kind: FileKind, timeout: float = 30.0) -> None:
        self.path, self.kind, self.timeout = path, kind, timeout
        self._name = os.fspath(path)
        self.lock = new_lock()
        self.read_only = False
        self._opened, self._closed = 0, False
        self._seen: tuple[int, int] | None = None  # size and time of a read-only file
        with opening:
            self._use = use_file(path, kind)
            self._end_use = finalize(self, self._use.end)
            self._end_use.atexit = False  # other threads may still be writing
            _databases[id(self)] = self
        try:
            check_header(self._use.file, path, kind)
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
                if connection is self._use.connection and connection.in_transaction:
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
            self._merge_log(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                self.check_place()
                if connection is not self._use.connection:
                    raise self._crossed_a_fork()
                connection.execute("COMMIT")
            except BaseException:
                if connection is self._use.connection and connection.in_transaction:
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
        use = self._use
        if use.connection is not None and use.file.process != os.getpid():  # a fork that Python did not see
            use.leave_to_parent()
        if use.connection is None:
            if self._closed:
                raise self.kind.unavailable(f"{self.kind.name(self.path)} is closed; open it again.")
            self._opened += 1
            try:
                use.connection, self.read_only = self._connect("mode=rw"), False
            except sqlite3.OperationalError as error:
                if log_size(self.path) or not is_about(error, "unable to open", "readonly"):
                    raise
                # The folder cannot be written: read the file as it is, without locks or log.
                use.connection, self.read_only = self._connect("immutable=1"), True
        return use.connection

    @contextlib.contextmanager
    def read_only_connection(self) -> Iterator[sqlite3.Connection]:
        """A second connection that merges no log into the file."""
        with self.lock, self.reporting(), contextlib.closing(self._connect("mode=ro")) as connection:
            connection.execute("BEGIN")  # one state of the file, also while another process writes
            yield connection

    def size(self) -> int:
        """Bytes of the file, without its log."""
        return self._use.file.read(0)[1]

    def disconnect(self) -> None:
        """Close the connection of this process; the next call opens another one."""
        with self.lock:
            self._use.disconnect()

    @property
    def is_connected(self) -> bool:
        return self._use.connection is not None

    def leave_to_parent(self) -> None:
        """Neither use nor close a connection that was in use when this process was forked."""
        self._use.leave_to_parent()

    def close(self) -> None:
        """Close the file; the last process to do so merges the log into it."""
        with self.lock:
            self.disconnect()
            self._closed = True
            self._end_use()

    def check_place(self, consequence: str = "") -> None:
        """Raise if the file was removed, moved or replaced while it is open."""
        try:
            status = os.stat(self._name)  # noqa: PTH116 (before every search)
        except (FileNotFoundError, NotADirectoryError):
            status = None
        except OSError as error:
            reason = f"cannot be reached: {error.strerror}"
            raise self.kind.unavailable(f"{self.kind.name(self.path)} {reason}.") from error
        if status is None or (status.st_dev, status.st_ino) != self._use.file.identity:
            if not (self._closed or self.kind.may_vanish):
                reason = f"was removed or replaced while it was open{consequence}; open it again"
                raise self.kind.unavailable(f"{self.kind.name(self.path)} {reason}.")
        elif self.read_only and self._seen != (status.st_size, status.st_mtime_ns) and not self._in_transaction():
            self._seen = status.st_size, status.st_mtime_ns
            self.disconnect()

    def _merge_log(self, connection: sqlite3.Connection) -> None:
        """Merge a long log of earlier calls into the file, so that the next one starts the log anew.

        SQLite would merge it after any commit. But before its version 3.51.3 a commit may be lost when two processes
        merge the log while a third one starts it anew; that needs the lock for writing, which is held here meanwhile.
        """
        if log_size(self.path) > _LONG_LOG:
            connection.execute("BEGIN IMMEDIATE")
            try:
                with contextlib.suppress(sqlite3.Error), contextlib.closing(self._connect("mode=rw")) as other:
                    other.execute("PRAGMA wal_checkpoint(PASSIVE)")  # what fails is merged later
            finally:
                connection.execute("ROLLBACK")

    def _in_transaction(self) -> bool:
        return self._use.connection is not None and self._use.connection.in_transaction

    def _connect(self, mode: str) -> sqlite3.Connection:
        if self._use.file.process != os.getpid():
            raise self._crossed_a_fork()
        check_companions(self.path, self.kind)
        address = f"file:{quote(os.fsencode(self.path.absolute()))}?{mode}"
        options: dict[str, Any] = {"uri": True, "isolation_level": None, "check_same_thread": False}
        connection = sqlite3.connect(address, timeout=self.timeout, factory=ClosingConnection, **options)
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
            raise explained(error, self.path, self.kind, action, self.timeout) from error

    def _crossed_a_fork(self) -> FusehashError:
        subject = self.kind.name(self.path)
        return self.kind.unavailable(f"{subject} was in use when this process was forked; open it in a new process.")


_databases: WeakValueDictionary[int, Database] = WeakValueDictionary()  # by id()


def open_databases() -> list[Database]:
    """All of this process."""
    return [database for reference in _databases.valuerefs() if (database := reference()) is not None]
