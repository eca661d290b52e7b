"""Kinds of SQLite files: how each is recognized, and what it raises when SQLite does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fusehash.errors import FusehashError

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
    may_be_link: bool = True  # False for a file inside a folder of data
    may_vanish: bool = False  # True for a cache, which may be deleted or replaced while it is open
    older: tuple[int, ...] = ()  # formats that are read too
    page_size: int = 4096  # bytes, of new files


def explained(error: sqlite3.Error, path: Path, kind: FileKind, action: str, timeout: float) -> FusehashError:
    if is_about(error, "locked", "locking protocol", "busy"):
        reason = f"another process has been writing it for {timeout:g} s"
    elif is_about(error, "full", "disk I/O", "readonly", "unable to open", "interrupted", "access permission"):
        reason = str(error)
    else:
        return kind.corrupt(f"{kind.name(path)} is corrupt: {error}.")
    return kind.unavailable(f"{kind.name(path)} could not be {action}: {reason}.")


def is_about(error: sqlite3.Error, *words: str) -> bool:
    return any(word in str(error) for word in words)
