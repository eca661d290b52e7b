"""An index file: SQLite in WAL mode, one transaction a call, written through to the disk before the call returns.

A file is looked at before SQLite may touch it: what is foreign or truncated is refused unopened. Where a log of an
interrupted process lies beside the file, everything is first read through a read-only connection, so that a damaged
file is refused without the log being merged into it. New files are made under another name and linked into place
whole, so that no half-made index is ever seen.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fusehash.errors import CorruptIndexError, FusehashError, ParameterError
from fusehash.search import blocks
from fusehash.search.blocks import APPLICATION_ID, FORMAT, Change, DamageError, State
from fusehash.search.rows import Rows

_HEADER = struct.Struct(">16s H 6x I I 28x I 4x I 20x I 4x")  # SQLite's file header, the fields that are looked at


#: Written through at every commit; a small cache, since the codes are held in memory; nothing in a file is trusted.
_SETTINGS = (
    "synchronous=FULL",
    "journal_size_limit=4194304",
    "cache_size=-512",
    "trusted_schema=OFF",
    "cell_size_check=ON",
)


class IndexFileError(FusehashError, OSError):
    """An index file cannot be reached or written just now; what it holds is unharmed."""


class Storage:
    """One open index file. Not for use by several threads at a time; index.py sees to that."""

    def __init__(self, path: str | os.PathLike[str], n_bits: int | None, timeout: float) -> None:
        self.path = Path(path).absolute()
        self._timeout = timeout
        self._database: sqlite3.Connection | None = None
        self._inherited: list[sqlite3.Connection | None] = []  # connections of a parent process are never closed here
        self._read_only = False
        self._owner, self._version = 0, (None, 0)  # type: int, tuple[int | None, int]
        self.state = State(0, -1)
        if not self.path.exists():
            if n_bits is None:
                raise IndexFileError(f"There is no index at {self.path}; to create one, say of how many bits (n_bits).")
            _create(self.path, n_bits)
        self._identity = self._look()
        _check_header(self.path)
        if _log_size(self.path):
            with self._told(), contextlib.closing(self._connect("mode=ro")) as database:
                self._load(database)
        self.rows = self._reading(self._load)
        if n_bits is not None and n_bits != self.state.n_bits:
            self.close()
            raise ParameterError(
                "HammingIndex.open", "n_bits", f"{self.state.n_bits}, the width of {self.path}", n_bits
            )

    def refresh(self) -> Rows:
        """The rows as last committed by anyone."""
        seen = self._look()
        if seen[:2] != self._identity[:2]:
            raise IndexFileError(
                f"The index file {self.path} was removed or replaced while it was open; open it again."
            )
        if self._read_only and seen != self._identity:
            self._disconnect()
        self._identity = seen
        with self._told():
            (version,) = self._connection().execute("PRAGMA data_version").fetchone()
        if (version, os.getpid()) != self._version:
            self.rows = self._reading(self._catch_up)
        return self.rows

    def change(self, plan: Callable[[Rows, State], tuple[Change, int]]) -> Rows:
        """Carry out what ``plan`` makes of the rows as they are now (the change, highest id ever used), or nothing."""

        def write(database: sqlite3.Connection) -> tuple[Rows, State]:
            change, last_id = plan(self.rows, self.state)
            rows = change.apply(self.rows)
            return rows, blocks.write(database, replace(self.state, last_id=last_id), change)

        return self._writing(write)

    def compact(self) -> Rows:
        """Write everything anew in full blocks and give the space that is left over back to the disk."""
        self._writing(lambda database: (self.rows, blocks.write_all(database, self.state, self.rows)))
        with self._told("compacted"):
            self._connection().execute("VACUUM")
            self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.rows

    def stats(self) -> dict[str, Any]:
        """Size and shape of the file."""
        with self._told():
            (count,) = self._connection().execute("SELECT count(*) FROM block").fetchone()
        sizes = {"file_bytes": self._look()[2], "log_bytes": _log_size(self.path), "blocks": count}
        return {"path": str(self.path), "generation": self.state.generation, **sizes}

    def close(self) -> None:
        """Let go of the file. The last one to do so merges the log into it."""
        self._disconnect()

    def _load(self, database: sqlite3.Connection) -> Rows:
        blocks.check_schema(database)
        state = State.read(database)
        rows = blocks.load(database, state)
        self.state = state
        return rows

    def _catch_up(self, database: sqlite3.Connection) -> Rows:
        state = State.read(database)
        if state.generation == self.state.generation:
            return self.rows
        rows = blocks.catch_up(database, state, self.rows, self.state.generation)
        self.state = state
        return rows

    def _reading(self, read: Callable[[sqlite3.Connection], Rows]) -> Rows:
        with self._told():
            database = self._connection()
            (version,) = database.execute("PRAGMA data_version").fetchone()
            database.execute("BEGIN")
            try:
                rows = read(database)
            finally:
                database.execute("ROLLBACK")
            self._version = version, os.getpid()
            return rows

    def _writing(self, write: Callable[[sqlite3.Connection], tuple[Rows, State]]) -> Rows:
        self.refresh()
        if self._read_only:
            raise IndexFileError(f"The index file {self.path} cannot be written: it or its folder is read-only.")
        with self._told("written"):
            database = self._connection()
            version, self._version = self._version, (None, 0)  # a call that is cut short reads the file anew
            database.execute("BEGIN IMMEDIATE")
            try:
                self.rows = self._catch_up(database)
                rows, state = write(database)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        self.rows, self.state, self._version = rows, state, version
        return rows

    def _look(self) -> tuple[int, int, int, int]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise IndexFileError(f"The index file {self.path} cannot be reached: {error.strerror}.") from error
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _connection(self) -> sqlite3.Connection:
        if self._database is not None and self._owner != os.getpid():
            self._inherited.append(self._database)
            self._database = None
        if self._database is None:
            self._owner, self._version = os.getpid(), (None, 0)
            try:
                self._database, self._read_only = self._connect("mode=rw"), False
            except sqlite3.OperationalError as error:
                if _log_size(self.path) or not _is_about(error, "unable to open", "readonly"):
                    raise
                # The folder is not ours to write into: read the file as it is, without locks or log.
                self._database, self._read_only = self._connect("immutable=1"), True
        return self._database

    def _connect(self, mode: str) -> sqlite3.Connection:
        database = sqlite3.connect(
            f"file:{quote(os.fsencode(self.path))}?{mode}",
            uri=True, timeout=self._timeout, isolation_level=None, check_same_thread=False,
        )  # fmt: skip
        try:
            for setting in _SETTINGS:
                database.execute(f"PRAGMA {setting}")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            database.close()
            raise
        return database

    def _disconnect(self) -> None:
        if self._database is not None and self._owner == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    @contextlib.contextmanager
    def _told(self, doing: str = "read") -> Iterator[None]:
        """Turn what SQLite says into one sentence about this file, and begin the next call with a new connection."""
        try:
            yield
        except (DamageError, UnicodeDecodeError) as error:  # SQLite quotes damaged bytes in its messages
            self._disconnect()
            raise CorruptIndexError(f"The index file {self.path} is corrupt: {error}.") from error
        except sqlite3.Error as error:
            self._disconnect()
            if _is_about(error, "locked", "busy"):
                reason = f"another process has been writing it for {self._timeout:g} s"
            elif _is_about(error, "full", "disk I/O", "readonly", "unable to open"):
                reason = str(error)
            else:
                raise CorruptIndexError(f"The index file {self.path} is corrupt: {error}.") from error
            raise IndexFileError(f"The index file {self.path} could not be {doing}: {reason}.") from error


def _create(path: Path, n_bits: int) -> None:
    """Make an empty index at ``path`` unless one has come there meanwhile."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(6)}.new")
    try:
        with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={FORMAT}")
            database.execute("BEGIN IMMEDIATE")
            for table in blocks.SCHEMA:
                database.execute(table)
            State(n_bits).write(database)
            database.execute("COMMIT")
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links on this file system
            if not path.exists():
                draft.rename(path)
        if os.name == "posix":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except (sqlite3.Error, OSError) as error:
        raise IndexFileError(f"The index file {path} could not be created: {error}.") from error
    finally:
        for leftover in (draft, draft.with_name(draft.name + "-wal"), draft.with_name(draft.name + "-shm")):
            with contextlib.suppress(OSError):
                leftover.unlink()


def _check_header(path: Path) -> None:
    """Refuse what is no index, or cut off, before SQLite opens it."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise IndexFileError(f"The index file {path} could not be read: {error.strerror}.") from error
    if len(header) < _HEADER.size:
        raise CorruptIndexError(f"The index file {path} is corrupt: it is cut off.")
    magic, page_size, changes, pages, version, application, valid_for = _HEADER.unpack(header)
    if magic != b"SQLite format 3\0" or application != APPLICATION_ID:
        raise CorruptIndexError(f"The file {path} is not a fusehash index.")
    if version != FORMAT:
        raise CorruptIndexError(f"The index file {path} has format {version}; this fusehash reads format {FORMAT}.")
    expected = pages * (65536 if page_size == 1 else page_size)
    if changes == valid_for and size < expected and not _log_size(path):
        raise CorruptIndexError(f"The index file {path} is corrupt: it is cut off at {size} of {expected} bytes.")


def _log_size(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def _is_about(error: sqlite3.Error, *words: str) -> bool:
    return any(word in str(error) for word in words)
