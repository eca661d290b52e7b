"""Thumbnails, by the hash of an image's content, each with a checksum."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from fusehash.collection.items import Saved
from fusehash.sqlite import Connection, DamageError, Database


def read_thumbnail(database: Connection, image: bytes | None) -> tuple[int, int, bytes] | None:
    """Width, height and thumbnail of an image, by the hash of its content; None if there is none."""
    row = database.execute("SELECT * FROM thumbnail WHERE image = ?", (image,)).fetchone()
    if row is None:
        return None
    types = tuple(map(type, row[:4]))
    if types != (bytes, int, int, bytes) or (len(row) > 4 and row[4] != thumbnail_checksum(*row[:4])):
        raise DamageError("a thumbnail is damaged")
    return row[1], row[2], row[3]


def keep_thumbnails(items: Database, kept: Iterable[Saved]) -> None:
    """Store the thumbnails of saved items again, which a removal has deleted."""
    rows = [(each.entry.image, *each.thumbnail) for each in kept if each.thumbnail and each.entry.image]
    with items.writing() as database:
        checked = [(*row, thumbnail_checksum(*row)) for row in rows]
        database.executemany("INSERT OR IGNORE INTO thumbnail VALUES (?, ?, ?, ?, ?)", checked)


def thumbnail_checksum(image: bytes, width: int, height: int, jpeg: bytes) -> int:
    return zlib.crc32(jpeg, zlib.crc32(ascii((image, width, height)).encode()))
