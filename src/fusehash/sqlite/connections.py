"""Connections that end when they are closed, not some time later.

SQLite keeps a closed connection, with its files and locks, until the last cursor is gone, and Python keeps a forgotten
one until the garbage collector finds it. A connection that ends after its process has lost its locks on the file may
delete the log that another process writes meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import sqlite3
from typing import Any
from weakref import WeakSet


class ClosingConnection(sqlite3.Connection):
    """A connection whose cursors end with it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._cursors: WeakSet[sqlite3.Cursor] = WeakSet()
        super().__init__(*arguments, **options)

    def cursor(self, factory: type[sqlite3.Cursor] = sqlite3.Cursor) -> sqlite3.Cursor:  # type: ignore[override]
        cursor = super().cursor(factory)
        self._cursors.add(cursor)
        return cursor

    def execute(self, *statement: Any) -> sqlite3.Cursor:
        return self.cursor().execute(*statement)

    def executemany(self, *statement: Any) -> sqlite3.Cursor:
        return self.cursor().executemany(*statement)

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # nothing is left that could fail to be stored
            for cursor in list(self._cursors):
                cursor.close()
        with contextlib.suppress(sqlite3.Error):
            super().close()


def keep_forever(connection: sqlite3.Connection) -> None:
    """Let this process never close a connection, not even when it ends: it belongs to the process that forked."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
