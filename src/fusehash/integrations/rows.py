"""The rows of a file of documents: id, content, vector and code of each, with a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash import trust
from fusehash.bits import Codes
from fusehash.errors import DataError, FusehashError
from fusehash.parameters import integer, multiple_of
from fusehash.sqlite import Connection, DamageError, FileKind

READ_AT_ONCE = 500
SCHEMA = (
    "CREATE TABLE settings (only INTEGER PRIMARY KEY, content TEXT)",
    "CREATE TABLE document (number INTEGER PRIMARY KEY, id TEXT, content TEXT, vector BLOB, code BLOB, "
    "checksum INTEGER)",
    "CREATE UNIQUE INDEX document_id ON document (id)",
)


class DocumentFileError(FusehashError, OSError):
    """A file of documents cannot be reached or written now, or is damaged; the sentence says which."""


class ExistingDocumentError(DataError):
    """A document has an id that is in the file already."""


KIND = FileKind(
    name=lambda path: f"The file of documents {path}",
    application_id=0x46484443,  # "FHDC"
    format=1,
    schema=SCHEMA,
    unavailable=DocumentFileError,
    corrupt=DocumentFileError,
)


Vector: TypeAlias = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True)
class StoredDocument:
    """A document: its id, anything that JSON can hold, and its vector (None: it is not found by similarity)."""

    id: str
    content: dict[str, Any]
    vector: Vector | None = field(default=None, compare=False)


def checked_settings(content: Any, name: str) -> dict[str, Any]:
    """The settings that were read; raises if they are damaged."""
    rules = {"n_bits": multiple_of(8, 1024), "width": integer(0, 1 << 20)}
    if not isinstance(content, dict) or not all(rule.accepts(content.get(key)) for key, rule in rules.items()):
        raise DocumentFileError(f"The file {name} is corrupt: its settings are damaged.")
    return content


def write_settings(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Write the code length, the width of vectors and the codes of the probe."""
    connection.execute("INSERT OR REPLACE INTO settings VALUES (1, ?)", (json.dumps(settings),))


def number_of(connection: Connection, id: str) -> int | None:
    """The number of a document; None if it is not there."""
    row = connection.execute("SELECT number FROM document WHERE id = ?", (id,)).fetchone()
    return None if row is None else int(row[0])


def insert(connection: Connection, number: int | None, row: StoredDocument, code: Codes | None) -> int:
    """Write a document under a number, or under the next one, and return its number."""
    try:
        content = json.dumps(row.content, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"Document {row.id!r} must hold what JSON can hold. It does not: {error}.") from error
    vector = None if row.vector is None else row.vector.astype(row.vector.dtype.newbyteorder("<")).tobytes()
    packed = None if code is None else code.tobytes()
    values = (row.id, content, vector, packed)
    statement = "INSERT OR REPLACE INTO document VALUES (?, ?, ?, ?, ?, ?)"
    cursor = connection.execute(statement, (number, *values, _crc(*values)))
    return int(cursor.lastrowid or 0)


def read(connection: Connection, numbers: Sequence[int], width: int) -> list[tuple[int, StoredDocument]]:
    """Documents by number, in this order; those that are gone are left out."""
    found: dict[int, StoredDocument] = {}
    for start in range(0, len(numbers), READ_AT_ONCE):
        some = numbers[start : start + READ_AT_ONCE]
        query = f"SELECT * FROM document WHERE number IN ({','.join('?' * len(some))})"
        for number, id, content, vector, code, checksum in connection.execute(query, list(some)):
            if _crc(id, content, vector, code) != checksum:
                raise DamageError(f"document {number} is damaged")
            found[number] = StoredDocument(id, trust.parse_json(content, f"Document {id!r}"), _vector(vector, width))
    return [(number, found[number]) for number in numbers if number in found]


def _vector(blob: bytes | None, width: int) -> Vector | None:
    """A vector in single or double precision, whichever it was written in."""
    if blob is None:
        return None
    if not width or len(blob) not in (4 * width, 8 * width):
        raise DamageError("a vector has another length than the others")
    size = len(blob) // width
    return np.frombuffer(blob, f"<f{size}").astype(f"f{size}")


def _crc(*parts: Any) -> int:
    total = 0
    for part in parts:
        total = zlib.crc32(b"" if part is None else part.encode() if isinstance(part, str) else bytes(part), total)
    return total
