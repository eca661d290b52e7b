"""Generations other than the current one, in tables that are created when first needed."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from fusehash.collection.store.state import CollectionState, Row
from fusehash.sqlite import Connection, DamageError

GENERATION_TABLES = (
    "CREATE TABLE generation (number INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE generation_code (number INTEGER, id INTEGER, content BLOB, code BLOB, trained INTEGER, "
    "PRIMARY KEY (number, id)) WITHOUT ROWID",
)


def has_generations(database: Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'generation'"
    return bool(database.execute(query).fetchone()[0])


def kept_states(database: Connection) -> list[CollectionState]:
    """The generations other than the current one, in order."""
    states = []
    if has_generations(database):
        query = "SELECT content, checksum FROM generation ORDER BY number"
        states = [CollectionState.unpack(row) for row in database.execute(query)]
    numbers = CollectionState.read(database).kept
    if numbers is not None and numbers != [state.generation for state in states]:
        raise DamageError("generations are missing from it")
    return states


def kept_rows(database: Connection, state: CollectionState) -> list[Row]:
    """Id, content, code and trained of all items in a kept generation."""
    query = "SELECT id, content, code, trained FROM generation_code WHERE number = ? ORDER BY id"
    return database.execute(query, (state.generation,)).fetchall()


def kept_digest(rows: Iterable[Row]) -> int:
    """The sum of the checksums of rows of a kept generation."""
    return sum(zlib.crc32(ascii(row).encode()) for row in rows)
