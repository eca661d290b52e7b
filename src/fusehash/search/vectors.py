"""Vectors next to codes: how they are stored, and exact cosine distances of the candidates that codes have found.

A vector is stored in as many numbers as it has, as "int8" (divided by its largest entry, times 127, rounded), "float16"
(divided by its largest entry) or "float32" (as it is). The distance of a query to an item is 1 - cos(query, stored
numbers), summed in double precision and rounded to single precision: nothing depends on the lengths of vectors, and the
distance is exactly that of what is stored.

In a file (see file.py) every vector is a row of a table, with a checksum over its id and its bytes:

    vectors   one row: kind and number of dimensions
    vector    id, checksum, numbers

Searches read the vectors of their candidates and no others, so memory stays that of the codes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.search.projections import check_real
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError

KINDS: dict[str, np.dtype[Any]] = {"int8": np.dtype("i1"), "float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
MAX_DIM = 65536
SCHEMA = (
    "CREATE TABLE vectors (only INTEGER PRIMARY KEY, kind TEXT, dim INTEGER)",
    "CREATE TABLE vector (id INTEGER PRIMARY KEY, checksum INTEGER, data BLOB)",
)
_READ_BYTES = 1 << 20  # of vectors in memory at a time
_PAIRS = 1 << 17  # of a query and a candidate that are compared at a time
_FEW_IDS = 1 << 14  # ids in one statement

Fetch = Callable[[Ids], Codes]  # ids, ascending -> their vectors as bytes, one row each


@dataclass(frozen=True)
class VectorFormat:
    """How the vectors of an index are stored."""

    kind: str
    dim: int

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector."""
        return self.dim * KINDS[self.kind].itemsize

    def encoded(self, vectors: ArrayLike, count: int) -> Codes:
        """Vectors as rows of bytes; there must be `count`."""
        real = check_real(vectors, self.dim, "Vectors")
        if len(real) != count:
            raise DataError(f"There must be one vector for each of {count} codes. Got {len(real)} instead.")
        if self.kind != "float32":
            real = real / np.abs(real).max(axis=1, keepdims=True, initial=np.finfo(float).tiny)
        elif np.any(np.abs(real) > np.finfo(np.float32).max):
            raise DataError("Vectors must be finite in single precision. Got larger numbers.")
        stored = (np.rint(127 * real) if self.kind == "int8" else real).astype(KINDS[self.kind])
        if not stored.any(axis=1).all():
            raise DataError("Vectors must not be zero in single precision. Got one that is, which has no direction.")
        return np.ascontiguousarray(stored).view(np.uint8)

    def numbers(self, rows: Codes) -> NDArray[Any]:
        """The stored numbers of rows of bytes, in a type that the kernel takes."""
        stored = np.ascontiguousarray(rows).view(KINDS[self.kind])
        return stored.astype(np.float32) if self.kind == "float16" else stored

    def write(self, connection: Connection) -> None:
        connection.execute("INSERT INTO vectors VALUES (1, ?, ?)", (self.kind, self.dim))

    @classmethod
    def read(cls, connection: Connection) -> VectorFormat:
        row = connection.execute("SELECT kind, dim FROM vectors WHERE only = 1").fetchone()
        if row is None or row[0] not in KINDS or not isinstance(row[1], int) or not 1 <= row[1] <= MAX_DIM:
            raise DamageError("the description of its vectors is damaged")
        return cls(*row)


def rescored(
    form: VectorFormat, queries: NDArray[np.float64], candidates: Ids, k: int, fetch: Fetch
) -> tuple[NDArray[np.float32], Ids]:
    """Distances and ids of the nearest k of the candidates (queries, candidates), in order of (distance, id)."""
    from fusehash.search.cosines import cosines

    k = min(k, candidates.shape[1])
    distances = np.empty((len(queries), k), np.float32)
    ids = np.empty((len(queries), k), np.int64)
    height = max(1, _PAIRS // max(1, candidates.shape[1]))
    for first in range(0, len(queries), height):
        block = slice(first, first + height)
        asked = candidates[block]
        unique, numbers = np.unique(asked, return_inverse=True)
        order = np.argsort(numbers.ravel(), kind="stable")
        sorted_numbers, query_of = numbers.ravel()[order], order // max(1, asked.shape[1])
        values = np.empty(asked.size)
        step = max(1, _READ_BYTES // form.n_bytes)
        for start in range(0, len(unique), step):
            begin, end = np.searchsorted(sorted_numbers, (start, start + step))
            vectors = form.numbers(fetch(unique[start : start + step]))
            pairs = query_of[begin:end], sorted_numbers[begin:end] - start
            values[order[begin:end]] = cosines(vectors, queries[block], *pairs)
        all_distances = (1.0 - values.reshape(asked.shape)).astype(np.float32)
        nearest = np.lexsort((asked, all_distances), axis=1)[:, :k]
        distances[block] = np.take_along_axis(all_distances, nearest, axis=1)
        ids[block] = np.take_along_axis(asked, nearest, axis=1)
    return distances, ids


def read_vectors(connection: Connection, form: VectorFormat, ids: Ids) -> Codes:
    """The vectors of ids (ascending) as rows of bytes, checked."""
    rows = np.empty((len(ids), form.n_bytes), np.uint8)
    for start in range(0, len(ids), _FEW_IDS):
        part = ids[start : start + _FEW_IDS]
        parts: list[bytes] = []
        for expected, (id, checksum, data) in zip(part.tolist(), _select(connection, part), strict=False):
            if id != expected or not isinstance(data, bytes) or len(data) != form.n_bytes:
                raise DamageError(f"the vector of id {expected} is missing or damaged")
            if _checksum(id, data) != checksum:
                raise DamageError(f"the vector of id {id} is damaged")
            parts.append(data)
        if len(parts) < len(part):
            raise DamageError(f"the vector of id {part[len(parts)]} is missing")
        rows[start : start + len(part)] = np.frombuffer(b"".join(parts), np.uint8).reshape(len(part), -1)
    return rows


def _select(connection: Connection, ids: Ids) -> Iterator[tuple[int, int, bytes]]:
    query = "SELECT id, checksum, data FROM vector WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
    return iter(connection.execute(query, (json.dumps(ids.tolist()),)))


def write_vectors(connection: Connection, ids: Ids, rows: Codes) -> None:
    """Add or replace vectors."""
    blobs = ((id, row.tobytes()) for id, row in zip(ids.tolist(), rows, strict=True))
    connection.executemany(
        "INSERT OR REPLACE INTO vector VALUES (?, ?, ?)", ((id, _checksum(id, data), data) for id, data in blobs)
    )


def remove_vectors(connection: Connection, ids: Ids) -> None:
    connection.executemany("DELETE FROM vector WHERE id = ?", ((id,) for id in ids.tolist()))


def _checksum(id: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(b"%d" % id))
