"""New SQLite files: made under another name and linked into place whole."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusehash.errors import FusehashError
from fusehash.files import create_draft, sync_folder
from fusehash.sqlite.checks import check_no_log, companions
from fusehash.sqlite.held import opening
from fusehash.sqlite.kinds import FileKind


def create(path: Path, kind: FileKind, fill: Callable[[sqlite3.Connection], Any] = lambda connection: None) -> None:
    """Make a file with the tables of its kind, unless another process has made it meanwhile."""
    try:
        with opening:
            check_no_log(path, kind)
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
                for leftover in (draft, *companions(draft)):
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
