"""Vectors as earlier versions stored them: in a table of the index file, one row each.

Such indexes are read as they are. The first change moves their vectors into a file of their own.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.rows import CodeRows, Ids, Ints
from fusehash.search.vectors import KINDS, MAX_DIM, Records, VectorFormat
from fusehash.sqlite import Connection, DamageError

SCHEMA = (
    "CREATE TABLE vectors (only INTEGER PRIMARY KEY, kind TEXT, dim INTEGER)",
    "CREATE TABLE vector (id INTEGER PRIMARY KEY, checksum INTEGER, data BLOB)",
)
_FEW_IDS = 1 << 14  # ids in one statement


def read_format(connection: Connection) -> VectorFormat:
    row = connection.execute("SELECT kind, dim FROM vectors WHERE only = 1").fetchone()
    if row is None or row[0] not in KINDS or not isinstance(row[1], int) or not 1 <= row[1] <= MAX_DIM:
        raise DamageError("the description of its vectors is damaged")
    return VectorFormat(*row)


def located(connection: Connection, form: VectorFormat, rows: CodeRows, positions: Ints) -> tuple[Records, Ints]:
    """The vectors of some rows, read and checked."""
    unique, places = np.unique(rows.ids_at(positions), return_inverse=True)
    found, is_whole = read_vectors(connection, form, unique)
    if not is_whole.all():
        raise DamageError(f"the vector of id {unique[np.argmin(is_whole)]} is missing or damaged")
    found.flags.writeable = False
    return Records(found), places.reshape(positions.shape).astype(np.int64, copy=False)


def read_vectors(connection: Connection, form: VectorFormat, ids: Ids) -> tuple[Codes, NDArray[np.bool_]]:
    """The vectors of ids (ascending) as rows of bytes, and whether each is there as it was written."""
    rows, is_whole = np.zeros((len(ids), form.n_bytes), np.uint8), np.zeros(len(ids), bool)
    for start in range(0, len(ids), _FEW_IDS):
        part = ids[start : start + _FEW_IDS]
        for id, checksum, data in _select(connection, part):
            if isinstance(data, bytes) and len(data) == form.n_bytes and _checksum(id, data) == checksum:
                place = start + int(np.searchsorted(part, id))
                rows[place], is_whole[place] = np.frombuffer(data, np.uint8), True
    return rows, is_whole


def _select(connection: Connection, ids: Ids) -> Iterator[tuple[int, int, bytes]]:
    query = "SELECT id, checksum, data FROM vector WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
    return iter(connection.execute(query, (json.dumps(ids.tolist()),)))


def drop(connection: Connection) -> None:
    """Remove the tables."""
    connection.execute("DROP TABLE vectors")
    connection.execute("DROP TABLE vector")


def _checksum(id: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%d" % id))
