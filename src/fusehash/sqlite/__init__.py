"""The only home of SQLite: files opened with care, one transaction per call, every failure one sentence.

A file is checked before SQLite may touch it: a foreign or truncated file is refused unopened. Files are in WAL mode and
written through to the disk at every commit. New files are made under another name and linked into place whole, so
nobody ever sees a half-made file. Where the file or its folder is read-only, the file can still be read.

Four facts of SQLite shape these files:
    A child of a fork takes the locks of its parent for its own. All connections are therefore closed before a fork.
    A process that closes any handle on a file loses its locks on it. One handle per file is therefore kept open, which
    also keeps its number (inode) from being used again.
    A connection that ends without its locks may delete the log that another process writes. Every connection therefore
    ends before that handle, however it ends: closed, forgotten, or with its process (connections.py).
    SQLite goes on writing to a file that was moved away. The file at the path is therefore compared with the open one.
"""

from __future__ import annotations

from fusehash.sqlite import crossing as crossing  # what happens at a fork is registered
from fusehash.sqlite.checks import log_size
from fusehash.sqlite.creation import create
from fusehash.sqlite.database import Database
from fusehash.sqlite.kinds import Connection, DamageError, FileKind
from fusehash.sqlite.writers import WriterLock

__all__ = ["Connection", "DamageError", "Database", "FileKind", "WriterLock", "create", "log_size"]
