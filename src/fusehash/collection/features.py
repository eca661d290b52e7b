"""features.db, the cache of features: what an encoder made of a content, each row with a checksum."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusehash import sqlite
from fusehash.collection.items import CollectionError, CorruptCollectionError
from fusehash.sqlite import Database

Floats32 = NDArray[np.float32]
SMALLEST_HALF, LARGEST_HALF = 1e-2, 6e4  # rows whose largest number is between them are stored in half precision
QUERY_CONTENTS = 500  # contents per SQL query
FEATURES = sqlite.FileKind(
    name=lambda path: f"The feature cache {path}",
    application_id=0x46484645,  # "FHFE"
    format=3,  # rows may be compressed
    older=(1, 2),
    schema=(
        "CREATE TABLE feature (number INTEGER PRIMARY KEY, encoder TEXT NOT NULL, content BLOB NOT NULL, row BLOB, "
        "checksum INTEGER)",
        "CREATE UNIQUE INDEX by_content ON feature (encoder, content)",
    ),
    unavailable=CollectionError,
    corrupt=CorruptCollectionError,
    settings=("synchronous=NORMAL",),
    may_be_link=False,
    may_vanish=True,
    page_size=16384,  # rows have about 2 kB: in smaller pages, a fifth would be empty
)


class FeatureCache:
    """features.db: (encoder, content) -> features, or nothing if the encoder cannot read the content.

    Only writers use it. It may be deleted at any time. Every batch is committed by itself. Features whose checksum is
    wrong are made again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None

    def missing(self, encoder: str, contents: Iterable[bytes]) -> set[bytes]:
        """The contents that the encoder has not encoded yet."""
        asked = set(contents)
        try:
            return asked - self._rows(encoder, asked).keys()
        except CorruptCollectionError:
            self._recreate()
            return asked

    def put(self, encoder: str, contents: Sequence[bytes], rows: Floats32) -> None:
        """Store the features of one batch; a row of NaN is content that cannot be read."""
        blobs = [_packed(row) for row in rows]
        values = [
            (encoder, content, blob, _feature_checksum(encoder, content, blob))
            for content, blob in zip(contents, blobs, strict=True)
        ]
        with self._emptied_if_damaged(), self._open().writing() as database:
            database.executemany("INSERT OR REPLACE INTO feature VALUES (NULL, ?, ?, ?, ?)", values)

    def matrix(self, encoder: str, contents: Sequence[bytes | None], width: int) -> Floats32:
        """One row of features per content; NaN without content or features."""
        matrix = np.full((len(contents), width), np.nan, dtype=np.float32)
        with self._emptied_if_damaged():
            rows = self._rows(encoder, {content for content in contents if content is not None})
        for i, content in enumerate(contents):
            blob = None if content is None else rows.get(content)
            row = None if blob is None else _unpacked(blob, width)
            if row is not None:
                matrix[i] = row
        return matrix

    def keep_only(self, encoders: set[str]) -> None:
        """Delete the features of all other encoders."""
        marks = ", ".join("?" * len(encoders))
        try:
            with contextlib.suppress(CollectionError), self._open().writing() as database:
                database.execute(f"DELETE FROM feature WHERE encoder NOT IN ({marks})", tuple(encoders))
        except CorruptCollectionError:  # the change is committed, and this is a cache
            with contextlib.suppress(CollectionError):
                self._recreate()

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _rows(self, encoder: str, contents: set[bytes]) -> dict[bytes, bytes | None]:
        """Features by content, without those whose checksum is wrong."""
        asked, rows = sorted(contents), {}
        with self._open().reading() as database:
            for start in range(0, len(asked), QUERY_CONTENTS):
                part = asked[start : start + QUERY_CONTENTS]
                marks = ", ".join("?" * len(part))
                query = f"SELECT content, row, checksum FROM feature WHERE encoder = ? AND content IN ({marks})"
                for content, row, checksum in database.execute(query, (encoder, *part)):
                    is_row = isinstance(content, bytes) and isinstance(row, bytes | None)
                    if is_row and _feature_checksum(encoder, content, row) == checksum:
                        rows[content] = row
        return rows

    @contextlib.contextmanager
    def _emptied_if_damaged(self) -> Iterator[None]:
        """Once features are relied on, damage ends the call: an empty cache would give other codes."""
        try:
            yield
        except CorruptCollectionError as error:
            self._recreate()
            raise CollectionError(f"{self._path} was damaged and has been emptied; try again.") from error

    def _open(self) -> Database:
        """The open file; a missing or damaged one is made again, since nothing in it is the only copy."""
        if self._database is not None:
            return self._database
        if self._path.exists() and not self._path.is_symlink():
            with contextlib.suppress(CorruptCollectionError):
                self._database = Database(self._path, FEATURES)
                self._upgrade(self._database)
                with self._database.reading() as database:
                    tables = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
                if tables == set(FEATURES.schema):
                    return self._database
        return self._recreate()

    def _upgrade(self, features: Database) -> None:
        """Take the current format; add the checksums that format 1 does not have."""
        with features.reading() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == FEATURES.format:
            return
        with features.writing() as database:
            (version,) = database.execute("PRAGMA user_version").fetchone()  # another process may have been faster
            if version == 1:
                database.execute("ALTER TABLE feature ADD COLUMN checksum INTEGER")
                for (number,) in database.execute("SELECT number FROM feature").fetchall():
                    query = "SELECT encoder, content, row FROM feature WHERE number = ?"
                    encoder, content, row = database.execute(query, (number,)).fetchone()
                    if not (isinstance(content, bytes) and isinstance(row, bytes | None)):
                        raise sqlite.DamageError("features are damaged")
                    checksum = _feature_checksum(encoder, content, row)
                    database.execute("UPDATE feature SET checksum = ? WHERE number = ?", (checksum, number))
            database.execute(f"PRAGMA user_version = {FEATURES.format}")

    def _recreate(self) -> Database:
        self.close()
        try:
            for suffix in ("", "-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            raise CollectionError(f"{self._path} could not be replaced: {error.strerror}.") from error
        sqlite.create(self._path, FEATURES)
        self._database = Database(self._path, FEATURES)
        return self._database


def _packed(row: Floats32) -> bytes | None:
    """Features in half precision, compressed, or in single precision if they are too large or too small for that."""
    if not np.isfinite(row).all():
        return None
    largest = float(np.abs(row).max(initial=0.0))
    if not (largest == 0.0 or SMALLEST_HALF < largest < LARGEST_HALF):
        return np.ascontiguousarray(row, "<f4").tobytes()
    half = np.ascontiguousarray(row, "<f2").tobytes()
    packed = zlib.compress(half)  # shorter if many features are 0
    return packed if len(packed) < len(half) else half


def _unpacked(blob: bytes, width: int) -> Floats32 | None:
    """The features that `_packed` packed; None if they have another width."""
    if len(blob) < 2 * width:
        with contextlib.suppress(zlib.error):
            unpacker = zlib.decompressobj()
            blob = unpacker.decompress(blob, 2 * width + 1)
    kind = {2 * width: "<f2", 4 * width: "<f4"}.get(len(blob))
    return None if kind is None else np.frombuffer(blob, kind).astype(np.float32)


def _feature_checksum(encoder: str, content: bytes, row: bytes | None) -> int:
    return zlib.crc32(row or b"", zlib.crc32(ascii((encoder, content, row is None)).encode()))
