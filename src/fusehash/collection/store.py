"""items.db, the truth about a collection: its items, their codes, and which model and encoders made these.

    state      one row: what is in force, and how many codes there are
    item       one row each; `image` is the hash of the image's content
    code       the codes alone, so that opening a collection reads little
    label      (name, id), for narrowing a search
    thumbnail  by the hash of the image; one that no item points to is invisible and harmless
    generation, generation_code    made when first needed: what is kept beside the codes in force (generations.py)

The functions that write run inside a transaction that collection.py has begun.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.bits import Codes
from fusehash.collection.database import CorruptCollectionError
from fusehash.collection.entries import Entry
from fusehash.collection.items import Item
from fusehash.search.rows import Ids

APPLICATION_ID = 0x4648434F  # "FHCO"
FORMAT = 1
SCHEMA = (
    "CREATE TABLE state (only INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, text TEXT, labels TEXT, "
    "image BLOB, width INTEGER, height INTEGER, path TEXT, size INTEGER, mtime INTEGER, built INTEGER, "
    "trained INTEGER, problem TEXT)",
    "CREATE TABLE code (id INTEGER PRIMARY KEY, code BLOB NOT NULL)",
    "CREATE TABLE label (name TEXT, id INTEGER, PRIMARY KEY (name, id)) WITHOUT ROWID",
    "CREATE TABLE thumbnail (image BLOB PRIMARY KEY, width INTEGER, height INTEGER, jpeg BLOB)",
)
# What is kept beside what is in force; only where something is.
GENERATIONS = (
    "CREATE TABLE generation (number INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE generation_code (number INTEGER, id INTEGER, content BLOB, code BLOB, trained INTEGER, "
    "PRIMARY KEY (number, id)) WITHOUT ROWID",
)
_COLUMNS = "id, key, text, labels, image, width, height, path, size, mtime, built, trained, problem"
_DIGEST = (1 << 62) - 1


@dataclass(frozen=True)
class State:
    """What is in force, or kept beside it. The names of files are fingerprints of what they were made from; empty: none
    yet."""

    n_bits: int
    generation: int = 0  # counts the changes that readers must see
    codes: int = 0
    digest: int = 0  # sum of the checksums of all codes
    model: str = ""
    image_encoder: str = ""
    text_encoder: str = ""
    images_fitted: int = 0  # images that the image encoder was fitted on
    number: int = 1  # of this generation of codes
    before: int = 0  # the number that was in force before this one
    newest: int = 1  # the highest number ever given
    made: str = ""  # when it was learned
    quality: float | None = None  # pair AUC on held-out pairs
    settings: dict[str, Any] | None = None  # what it was made with; None: as in collection.json

    def write(self, database: sqlite3.Connection) -> None:
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?)", self.packed())

    def packed(self) -> tuple[str, int]:
        """As it is stored: JSON and its checksum."""
        content = json.dumps(asdict(self))
        return content, zlib.crc32(content.encode())

    @classmethod
    def read(cls, database: sqlite3.Connection, where: Path) -> State:
        return cls.unpacked(database.execute("SELECT content, checksum FROM state WHERE only = 1").fetchone(), where)

    @classmethod
    def unpacked(cls, found: Any, where: Path) -> State:
        """What `packed` gave, checked."""
        try:
            if found is None or zlib.crc32(found[0].encode()) != found[1]:
                raise ValueError
            return cls(**json.loads(found[0]))
        except (ValueError, TypeError, AttributeError):
            raise CorruptCollectionError(f"The collection {where} is corrupt: its state is damaged.") from None


def check_schema(database: sqlite3.Connection, where: Path) -> None:
    """Nothing but our own tables may be in the file."""
    query = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    if {sql for (sql,) in database.execute(query)} not in (set(SCHEMA), {*SCHEMA, *GENERATIONS}):
        raise CorruptCollectionError(f"The collection {where} is corrupt: it does not hold the tables of a collection.")


def read_codes(database: sqlite3.Connection, state: State, where: Path) -> tuple[Ids, Codes]:
    """All ids and codes, ascending by id, checked."""
    width, rows = state.n_bits // 8, database.execute("SELECT id, code FROM code ORDER BY id").fetchall()
    codes = b"".join(code for _, code in rows if isinstance(code, bytes))
    digest = digest_of((id, code) for id, code in rows if isinstance(code, bytes))
    if len(rows) != state.codes or len(codes) != width * len(rows) or digest != state.digest:
        raise CorruptCollectionError(f"The collection {where} is corrupt: codes are missing from it or damaged.")
    ids = np.fromiter((id for id, _ in rows), np.int64, len(rows))
    return ids, np.frombuffer(codes, np.uint8).reshape(-1, width)


def insert(database: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write new items; each entry learns its id."""
    for entry in entries:
        row = (None, *_row(entry))
        entry.id = database.execute(f"INSERT INTO item ({_COLUMNS}) VALUES ({_marks(13)})", row).lastrowid
        _label(database, entry)


def update(database: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Write items that are there already anew."""
    for entry in entries:
        _unlabel(database, entry.id)
        row = (entry.id, *_row(entry))
        database.execute(f"INSERT OR REPLACE INTO item ({_COLUMNS}) VALUES ({_marks(13)})", row)
        _label(database, entry)


def touch(database: sqlite3.Connection, entries: Iterable[Entry]) -> None:
    """Note where the images of unchanged items lie now."""
    rows = ((_path(entry), entry.size, entry.mtime, entry.built, entry.id) for entry in entries)
    database.executemany("UPDATE item SET path = ?, size = ?, mtime = ?, built = ? WHERE id = ?", rows)


def remove(database: sqlite3.Connection, ids: Iterable[int]) -> None:
    """Remove items."""
    for id in ids:
        _unlabel(database, id)
        database.execute("DELETE FROM item WHERE id = ?", (id,))


def write_codes(database: sqlite3.Connection, state: State, gone: Iterable[int], codes: dict[int, bytes]) -> State:
    """Remove the codes of some ids, write others (new or in place of old ones); the state after it."""
    digest, count = state.digest, state.codes
    for id in {*gone, *codes}:
        old = database.execute("SELECT code FROM code WHERE id = ?", (id,)).fetchone()
        if old is not None:
            digest, count = digest - _checksum(id, old[0]), count - 1
            database.execute("DELETE FROM code WHERE id = ?", (id,))
    database.executemany("INSERT INTO code VALUES (?, ?)", codes.items())
    digest += sum(_checksum(id, code) for id, code in codes.items())
    return replace(state, generation=state.generation + 1, codes=count + len(codes), digest=digest & _DIGEST)


def sweep_thumbnails(database: sqlite3.Connection) -> None:
    """Remove thumbnails that no item points to."""
    database.execute("DELETE FROM thumbnail WHERE image NOT IN (SELECT image FROM item WHERE image IS NOT NULL)")


def entries(database: sqlite3.Connection, keys: Iterable[str] | None = None) -> list[Entry]:
    """What is stored, all of it or some keys, in order of id."""
    if keys is None:
        return [_entry(row) for row in database.execute(f"SELECT {_COLUMNS} FROM item ORDER BY id")]
    found = (database.execute(f"SELECT {_COLUMNS} FROM item WHERE key = ?", (key,)).fetchone() for key in keys)
    return [_entry(row) for row in found if row is not None]


def items(database: sqlite3.Connection, where: str, values: Iterable[object]) -> list[Item]:
    """Items as their readers see them; ``where`` is the end of a query."""
    query = f"SELECT id, key, text, labels, image, width, height FROM item {where}"
    return [
        Item(id, key, text, tuple(json.loads(labels)), image is not None, width, height)
        for id, key, text, labels, image, width, height in database.execute(query, tuple(values))
    ]


def _entry(row: tuple[Any, ...]) -> Entry:
    id, key, text, labels, image, width, height, path, size, mtime, built, trained, problem = row
    return Entry(
        key=str(key), text=text, labels=tuple(json.loads(str(labels))),
        path=None if path is None else Path(os.fsdecode(path)),
        image=image, width=width, height=height, size=size, mtime=mtime, id=id, built=bool(built),
        trained=bool(trained), problem=problem, stored=True,
    )  # fmt: skip


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        entry.key, entry.text, json.dumps(entry.labels, ensure_ascii=False), entry.image, entry.width, entry.height,
        _path(entry), entry.size, entry.mtime, entry.built, entry.trained, entry.problem,
    )  # fmt: skip


def _path(entry: Entry) -> str | bytes | None:
    """Where an image lies; as bytes where its name is not UTF-8."""
    if entry.path is None:
        return None
    name = os.fsencode(entry.path)
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name


def _label(database: sqlite3.Connection, entry: Entry) -> None:
    database.executemany("INSERT INTO label VALUES (?, ?)", [(name, entry.id) for name in entry.labels])


def _unlabel(database: sqlite3.Connection, id: int | None) -> None:
    found = database.execute("SELECT labels FROM item WHERE id = ?", (id,)).fetchone()
    names = [] if found is None else json.loads(found[0])
    database.executemany("DELETE FROM label WHERE name = ? AND id = ?", [(name, id) for name in names])


def digest_of(codes: Iterable[tuple[int, bytes]]) -> int:
    """The sum of the checksums of codes, in any order."""
    return sum(_checksum(id, code) for id, code in codes) & _DIGEST


def _checksum(id: int, code: bytes) -> int:
    return zlib.crc32(code, id & 0xFFFFFFFF)


def _marks(count: int) -> str:
    return ", ".join("?" * count)
