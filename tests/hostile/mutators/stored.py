"""What fusehash writes: safetensors files and SQLite databases, with checksums that fit."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from fusehash.files import CHECKSUM, checksum_of
from hostile.mutators.documents import changed_document, dumps
from hostile.mutators.plain import flip
from hostile.mutators.values import NUMBERS, VALUES


def change_safetensors(data: bytes, rng: Random) -> bytes:
    """The header of a safetensors file, also inside its JSON documents."""
    if len(data) < 8:
        return data
    length = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + length])
    except ValueError:
        return flip(data, rng)
    body, part = data[8 + length :], rng.random()
    if part < 0.05:
        return (rng.choice(NUMBERS) & (1 << 64) - 1).to_bytes(8, "little") + data[8:]
    tensors = [name for name in header if name != "__metadata__"]
    if part < 0.3 and tensors:  # another dtype or shape of the same bytes
        tensor = header[rng.choice(tensors)]
        size = tensor["data_offsets"][1] - tensor["data_offsets"][0]
        tensor["dtype"], width = rng.choice(
            (("F64", 8), ("F32", 4), ("I64", 8), ("U8", 1), ("BOOL", 1), ("F16", 2), ("BF16", 2), ("I8", 1))
        )
        tensor["shape"] = rng.choice(
            (
                [size // width],
                [size // width, 1],
                [1, size // width, 1],
                [1] * 70 + [size // width],
                [0, 2**60],
                [2**32, 2**32, 0],
            )
        )
    elif part < 0.45 and tensors:  # absurd numbers
        name = rng.choice(tensors)
        start, stop = header[name]["data_offsets"]
        values = np.frombuffer(body[start:stop], np.uint8).copy()
        fill = rng.choice(
            (struct.pack("<d", float("nan")), struct.pack("<f", float("inf")) * 2, b"\xff" * 8, b"\0" * 8)
        )
        if len(values) >= 8:
            at = 8 * rng.randrange(len(values) // 8)
            values[at : at + 8] = np.frombuffer(fill, np.uint8)
        body = body[:start] + values.tobytes() + body[stop:]
    elif part < 0.5 and len(tensors) > 1:
        one, two = rng.sample(tensors, 2)
        header[one], header[two] = header[two], header[one]
    else:
        header = changed_document(header, rng)
    return _safetensors(header, body)


TENSOR_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U64": "<u8",
    "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def _safetensors(header: Any, body: bytes) -> bytes:
    """A file with this header; a checksum that fusehash wrote into it fits again."""
    with contextlib.suppress(Exception):  # where the content makes no sense, no checksum fits
        entries = header["__metadata__"]
        arrays = {
            name: np.frombuffer(body[slice(*tensor["data_offsets"])], TENSOR_TYPES[tensor["dtype"]]).reshape(
                tensor["shape"]
            )
            for name, tensor in header.items()
            if name != "__metadata__"
        }
        if CHECKSUM in entries:
            entries[CHECKSUM] = checksum_of({key: entries[key] for key in entries if key != CHECKSUM}, arrays)
    text = dumps(header)
    return len(text).to_bytes(8, "little") + text + body


def change_sqlite(data: bytes, rng: Random, workshop: Path) -> bytes:
    """A value in a table changed with SQL, so that every page is intact; states get a fitting checksum."""
    path = workshop / "changed.db"
    path.write_bytes(data)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = bytes
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("PRAGMA writable_schema=ON")
        tables = [
            name.decode() for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        _change_rows(connection, tables, rng)
    except (sqlite3.Error, OverflowError, ValueError):
        pass
    finally:
        connection.close()
    content = bytearray(path.read_bytes())
    path.unlink()
    if len(content) > 20:
        content[18:20] = b"\x02\x02"  # the log mode that fusehash writes
    return bytes(content)


def _change_rows(connection: sqlite3.Connection, tables: list[str], rng: Random) -> None:
    table = rng.choice(tables)
    columns = [row[1].decode() for row in connection.execute(f"PRAGMA table_info('{table}')")]
    column = rng.choice(columns)
    part = rng.random()
    rows = rng.choice(("1", f"rowid IN (SELECT rowid FROM {table} ORDER BY random() LIMIT 1)"))
    if table in ("state", "generation") and part < 0.6:
        for only, content in connection.execute(f"SELECT rowid, content FROM {table}").fetchall():
            text = dumps(changed_document(json.loads(content), rng))
            values = (text.decode("utf-8", "replace"), zlib.crc32(text), only)
            connection.execute(f"UPDATE {table} SET content = ?, checksum = ? WHERE rowid = ?", values)
    elif part < 0.5:
        value = rng.choice(
            (
                *(v for v in VALUES if not isinstance(v, list | dict)),
                rng.randbytes(16),
                b"",
                b"\0" * 10**5,
                "[" * 10**5,
                '["a"]',
                '{"a": 1}',
                "[[1]]",
                '"x"',
                "null",
            )
        )
        if isinstance(value, int):
            value = max(-(2**63), min(2**63 - 1, value))
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {rows}", (value,))
    elif part < 0.6:
        connection.execute(f"UPDATE {table} SET {column} = CAST({column} AS {rng.choice(('TEXT', 'BLOB', 'INTEGER'))})")
    elif part < 0.7:
        connection.execute(f"DELETE FROM {table} WHERE {rows}")
    elif part < 0.8:
        connection.execute(f"UPDATE {table} SET {column} = {rng.choice(columns)} WHERE {rows}")
    elif part < 0.85:
        connection.execute(rng.choice(_SCHEMAS).format(table=table, column=column))
    elif part < 0.9:
        sql = rng.choice(_SCHEMAS).format(table=table, column=column)
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, table))
    elif part < 0.95:
        connection.execute(
            "UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (rng.choice((0, 1, 2, 3, 10**6)), table)
        )
    else:
        connection.execute(f"PRAGMA {rng.choice(('user_version', 'application_id'))} = {rng.choice((0, 1, 2, 99, -1))}")


_SCHEMAS = (
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "CREATE TRIGGER t AFTER UPDATE ON {table} BEGIN UPDATE {table} SET {column} = randomblob(1000000000); END",
    "CREATE VIEW v AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c",
    "CREATE TABLE extra (a, b GENERATED ALWAYS AS (hex(zeroblob(500000000))))",
    "CREATE INDEX i ON {table} ({column})",
    "CREATE VIRTUAL TABLE f USING fts5(x)",
    "CREATE TABLE {table} (x)",
    "ALTER TABLE {table} ADD COLUMN extra",
    "ALTER TABLE {table} RENAME COLUMN {column} TO extra",
    "CREATE VIEW {table} AS SELECT 1",
)


def change_pages(data: bytes, rng: Random) -> bytes:
    """Headers of SQLite's pages and their cells."""
    size = int.from_bytes(data[16:18], "big") if len(data) > 100 else 0
    size = 65536 if size == 1 else size
    if size < 512 or len(data) < size:
        return flip(data, rng)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        page = rng.randrange(max(1, len(data) // size)) * size
        at = page + (100 if page == 0 else 0) + (rng.randrange(40) if rng.random() < 0.7 else rng.randrange(size))
        if at < len(changed):
            changed[at] = rng.choice((0, 1, 2, 5, 10, 13, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(changed)
