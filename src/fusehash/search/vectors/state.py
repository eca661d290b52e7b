"""What an index file says of the file of its vectors: the one row of the table `vectors`.

Formats 2 and 3 have another table of this name, see earlier.py. Format 4 knows neither marks nor centers.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.search.vectors import KINDS, MAX_DIM, Center, VectorFormat
from fusehash.sqlite import Connection, DamageError

SCHEMA = (
    "CREATE TABLE vectors (only INTEGER PRIMARY KEY, kind TEXT, dim INTEGER, owner BLOB, file INTEGER, slots INTEGER, "
    "mark INTEGER, center BLOB, checksum INTEGER)",
)
WITHOUT_MARKS = (
    "CREATE TABLE vectors (only INTEGER PRIMARY KEY, kind TEXT, dim INTEGER, owner BLOB, file INTEGER, slots INTEGER, "
    "checksum INTEGER)",
)
MAGIC, _FORMAT = b"FHVECTOR", 1
HEADER = struct.Struct("<8sII16sQQQ4xI")  # magic, format, bytes per record, owner, number, two marks, checksum
_CENTERED = "centered int8"  # in the column `kind`
_MOST_BYTES = 1 << 62


@dataclass(frozen=True)
class VectorState:
    """The one row of the table `vectors`."""

    form: VectorFormat
    owner: bytes = b""  # random, of the index
    number: int = 0  # of the file; 0 before there is one
    slots: int = 0  # committed records
    mark: int = 0  # random, of the last call that appended; 0 before there are marks
    center: Center | None = None
    has_marks: bool = True  # False where format 4 describes it

    @classmethod
    def new(cls, form: VectorFormat) -> VectorState:
        return cls(form, secrets.token_bytes(16))

    @classmethod
    def of_earlier(cls, form: VectorFormat, index: Any) -> VectorState:
        """For an index of an earlier version; always the same, so that what a killed process has left is recognized."""
        return cls(form, hashlib.sha256(repr(index).encode()).digest()[:16])

    @property
    def stride(self) -> int:
        """Bytes of a record."""
        from fusehash.search.vectors.kernels import SUM_BYTES

        return SUM_BYTES + -(-self.form.n_bytes // 8) * 8

    @property
    def end(self) -> int:
        """Bytes of the file up to the last committed record."""
        return HEADER.size + self.slots * self.stride

    @property
    def seed(self) -> np.uint64:
        """Of the checksums: a record of another file does not pass for one of this file."""
        digest = hashlib.sha256(self.owner + self.number.to_bytes(8, "little")).digest()
        return np.uint64(int.from_bytes(digest[:8], "little"))

    def marked(self) -> VectorState:
        """The state with a new mark."""
        return replace(self, mark=1 + secrets.randbelow((1 << 62) - 1))

    def header(self, before: int = 0) -> bytes:
        """The header of the file, with the mark before this one."""
        fields = *self._identity, self.mark, before
        return HEADER.pack(*fields, zlib.crc32(HEADER.pack(*fields, 0)))

    def owns(self, header: bytes) -> bool:
        """Whether a file with this header has the name and the number of this one, whatever its marks."""
        *fields, checksum = HEADER.unpack(header)
        return tuple(fields[:-2]) == self._identity and zlib.crc32(HEADER.pack(*fields, 0)) == checksum

    def fits(self, header: bytes) -> bool:
        """Whether the file is also of this state, or of the one before the next."""
        return self.owns(header) and self.mark in HEADER.unpack(header)[-3:-1]

    @property
    def _identity(self) -> tuple[Any, ...]:
        return MAGIC, _FORMAT, self.stride, self.owner, self.number

    def path(self, index: Path) -> Path:
        """The file, next to that of the index itself if `index` is a link."""
        index = index.resolve()
        return index.with_name(f"{index.name}-vectors-{self.number}")

    def write(self, connection: Connection) -> VectorState:
        kind = _CENTERED if self.form.has_center else self.form.kind
        center = None if self.center is None else self.center.astype("<f4").tobytes()
        row = kind, self.form.dim, self.owner, self.number, self.slots, self.mark, center
        values = ", ".join("?" * (len(row) + 1))
        connection.execute(f"INSERT OR REPLACE INTO vectors VALUES (1, {values})", (*row, _checksum(row)))
        return self

    def with_marks(self, connection: Connection) -> VectorState:
        """Write a state that format 4 describes as it is described now."""
        connection.execute("DROP TABLE vectors")
        for statement in SCHEMA:
            connection.execute(statement)
        return replace(self, has_marks=True).write(connection)

    @classmethod
    def read(cls, connection: Connection, has_marks: bool = True) -> VectorState:
        columns = "kind, dim, owner, file, slots, mark, center" if has_marks else "kind, dim, owner, file, slots"
        row = connection.execute(f"SELECT {columns}, checksum FROM vectors WHERE only = 1").fetchone()
        if row is None or not isinstance(row[2], bytes) or _checksum(row[:-1]) != row[-1]:
            raise DamageError("the description of its vectors is damaged")
        kind, dim, owner, number, slots, mark, blob = row[:-1] if has_marks else (*row[:-1], 0, None)
        whole = all(isinstance(value, int) for value in (dim, number, slots, mark)) and len(owner) == 16
        if not whole or kind not in (*KINDS, _CENTERED) or not 1 <= dim <= MAX_DIM or not 0 <= number < 1 << 62:
            raise DamageError("the description of its vectors is damaged")
        form = VectorFormat("int8", dim, True) if kind == _CENTERED else VectorFormat(kind, dim)
        center = _center(blob, form)
        state = cls(form, owner, number, slots, mark, center, has_marks)
        if slots < 0 or state.end > _MOST_BYTES or (slots and not number) or not 0 <= mark < 1 << 62:
            raise DamageError("the description of its vectors is damaged")
        if form.has_center and slots and center is None:
            raise DamageError("the description of its vectors is damaged")
        return state


def _center(blob: Any, form: VectorFormat) -> Center | None:
    """A center as it is stored."""
    if blob is None:
        return None
    is_one = form.has_center and isinstance(blob, bytes) and len(blob) == 4 * form.dim
    center = np.frombuffer(blob, "<f4").astype(np.float32) if is_one else np.full(1, np.nan)
    if not np.isfinite(center).all():
        raise DamageError("the description of its vectors is damaged")
    return center


def _checksum(row: Any) -> int:
    return zlib.crc32(repr(tuple(row)).encode())
