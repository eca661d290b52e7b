"""Items as rows of a table, each with a checksum."""

from __future__ import annotations

import contextlib
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import product
from pathlib import Path

from fusehash.collection.items import Entry, Item
from fusehash.collection.store.state import CollectionState, Row
from fusehash.sqlite import Connection, DamageError

_COLUMNS = "id, key, text, labels, image, width, height, path, size, mtime, built, trained, problem, taken"  # of Entry
_NAMES = _COLUMNS.split(", ")
_NO = type(None)
_TYPES = frozenset(  # that the columns of an item may have
    (int, str, text, str, image, int, int, path, int, int, int, int, problem, taken)
    for text, image, path, problem, taken in product(
        (str, _NO), (bytes, _NO), (str, bytes, _NO), (str, _NO), (str, _NO)
    )
)
_DAY = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2})?")


def read_rows(database: Connection, condition: str = "ORDER BY id", *values: object) -> list[Row]:
    """Items as tuples of all columns and the checksum, checked; `condition` is the end of the query."""
    rows: list[Row] = database.execute(f"SELECT * FROM item {condition}", values).fetchall()
    others = len(_NAMES) - 1
    if rows and len(rows[0]) == others:  # format 1
        rows = [_with_checksum((*row, None)) for row in rows]
    elif rows and len(rows[0]) == others + 1:  # format 2
        rows = [(*row[:others], None, row[others]) for row in rows]
    else:
        rows = [(*row[:others], row[others + 1], row[others]) for row in rows]
    for row in rows:
        content = row[:-1]
        is_intact = _checksum_of_row(content) == row[-1] and tuple(map(type, content)) in _TYPES
        if not is_intact or not _DAY.fullmatch(content[-1] or ""):
            raise DamageError(f"item {row[0]!r} is damaged")
    return rows


def rows_by_id(database: Connection, ids: Iterable[int]) -> list[Row]:
    """Those of some items that exist, in one query."""
    return read_rows(database, "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", json.dumps(list(ids)))


def read_entries(database: Connection, keys: Iterable[str] | None = None) -> list[Entry]:
    """All entries in order of id, or those of some keys."""
    if keys is None:
        return [_entry(row) for row in read_rows(database)]
    entries = (_entry(row) for key in keys for row in read_rows(database, "WHERE key = ?", key))
    return list(entries)


def read_entries_by_id(database: Connection, ids: Iterable[int | None]) -> list[Entry]:
    """Those of some entries that exist, in order of id."""
    return [_entry(row) for row in rows_by_id(database, [id for id in ids if id is not None])]


def read_item(row: Row) -> Item:
    """An item as readers see it."""
    id, key, text, labels, image, width, height, path = row[:8]
    where = None if path is None else Path(os.fsdecode(path))
    return Item(id, key, text, labels_of(labels), image is not None, width, height, where, day_of(row))


def items_by_id(database: Connection, ids: Iterable[int]) -> dict[int, Item]:
    return {row[0]: read_item(row) for row in rows_by_id(database, ids)}


@lru_cache(maxsize=4096)
def labels_of(text: str) -> tuple[str, ...]:
    """The labels of an item from the JSON in its row."""
    try:
        labels = json.loads(text)
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError
    except (ValueError, RecursionError):
        raise DamageError("labels of an item are damaged") from None
    return tuple(labels)


def day_of(row: Row) -> str:
    """The day of an item, as YYYY-MM-DD: when its picture was taken, else when the file was last changed, else ""."""
    taken, mtime = row[_NAMES.index("taken")], row[_NAMES.index("mtime")]
    if taken:
        return str(taken)
    try:
        return datetime.fromtimestamp(mtime / 1e9).date().isoformat() if mtime > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def write_entries(
    database: Connection, state: CollectionState, entries: Iterable[Entry], restored: Collection[int] = ()
) -> CollectionState:
    """Write items; new ones have no id and get one, `restored` ones have one. Returns the next state."""
    assert state.totals is not None
    listed, highest_id = list(entries), state.totals.highest_id
    replaced = [entry.id for entry in listed if entry.id is not None and entry.id not in restored]
    for entry in listed:
        if entry.id is None:
            highest_id += 1
            entry.id = highest_id
    return _exchange(database, state, replaced, [_row(entry) for entry in listed])


def amend(database: Connection, state: CollectionState, changes: dict[int, dict[str, object]]) -> CollectionState:
    """Write other values into some columns of some items, by id; returns the next state."""
    rows = []
    for row in rows_by_id(database, changes):
        values = {**dict(zip(_NAMES, row, strict=False)), **changes[row[0]]}
        rows.append(_with_checksum(tuple(values.values())))
    return _exchange(database, state, changes, rows)


def remove(database: Connection, state: CollectionState, ids: Iterable[int]) -> CollectionState:
    """Remove items; returns the next state."""
    return _exchange(database, state, ids, [])


def _exchange(database: Connection, state: CollectionState, ids: Iterable[int], rows: list[Row]) -> CollectionState:
    """Remove the items of some ids, which must exist, and write others."""
    assert state.totals is not None
    listed = list(ids)
    gone = rows_by_id(database, listed)
    if len(gone) != len(listed):
        raise DamageError("items are missing from it")
    database.executemany("DELETE FROM item WHERE id = ?", ((id,) for id in listed))
    marks = ", ".join("?" * (len(_NAMES) + 1))
    database.executemany(f"INSERT INTO item ({_COLUMNS}, checksum) VALUES ({marks})", rows)
    return replace(state, totals=state.totals.changed(gone, rows))


def columns_of_file(entry: Entry) -> dict[str, object]:
    """The columns of an item that say where its image file is and what was read from it, for `amend`."""
    values = {"path": _path(entry), "size": entry.size, "mtime": entry.mtime, "built": int(entry.built)}
    return {**values, "taken": entry.taken}


def _entry(row: Row) -> Entry:
    values = dict(zip(_NAMES, row, strict=False))
    values["labels"] = labels_of(values["labels"])
    values["path"] = None if values["path"] is None else Path(os.fsdecode(values["path"]))
    values["built"], values["trained"] = bool(values["built"]), bool(values["trained"])
    return Entry(**values, stored=True)


def _row(entry: Entry) -> Row:
    values = {name: getattr(entry, name) for name in _NAMES}
    values |= {"labels": json.dumps(entry.labels, ensure_ascii=False), "trained": int(entry.trained)}
    return _with_checksum(tuple((values | columns_of_file(entry)).values()))


def _with_checksum(content: Row) -> Row:
    return (*content, _checksum_of_row(content))


def _checksum_of_row(content: Row) -> int:
    """The checksum of all columns of an item; without a date taken, that of formats 1 and 2."""
    return zlib.crc32(ascii(content if content[-1] is not None else content[:-1]).encode())


def _path(entry: Entry) -> str | bytes | None:
    """The path of an image; as bytes if its name is not UTF-8."""
    name = None if entry.path is None else os.fsencode(entry.path)
    with contextlib.suppress(UnicodeDecodeError):
        return None if name is None else name.decode("utf-8")
    return name
