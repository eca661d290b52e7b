"""The cache of features: what an encoder makes of an image or a text, by content. It may be deleted at any time.

Every batch is committed by itself, so that a build that was cut off goes on where it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fusehash.collection.database import CollectionError, CorruptCollectionError, Database, check_header

APPLICATION_ID = 0x46484645  # "FHFE"
FORMAT = 1
SCHEMA = (
    "CREATE TABLE feature (number INTEGER PRIMARY KEY, encoder TEXT NOT NULL, content BLOB NOT NULL, row BLOB)",
    "CREATE UNIQUE INDEX by_content ON feature (encoder, content)",
)
_ASK = 500  # contents a query

Floats32 = NDArray[np.float32]


class Features:
    """features.db: (encoder, content) -> a row of numbers, or nothing where the encoder could not read the content.

    Only for the one who writes to the collection; those who search do without it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database: Database | None = None

    def missing(self, encoder: str, contents: Iterable[bytes]) -> set[bytes]:
        """Those contents of which the encoder's features are not known."""
        wanted = set(contents)
        return wanted - self._rows(encoder, wanted, "content, NULL").keys()

    def put(self, encoder: str, contents: Sequence[bytes], rows: Floats32) -> None:
        """Keep the features of one batch; a row of NaN stands for content that could not be read."""
        known = [bool(np.isfinite(row).all()) for row in rows]
        blobs = (
            np.ascontiguousarray(row, "<f4").tobytes() if ok else None for row, ok in zip(rows, known, strict=True)
        )
        entries = [(encoder, content, blob) for content, blob in zip(contents, blobs, strict=True)]
        with self._open().writing() as database:
            database.executemany("INSERT OR REPLACE INTO feature VALUES (NULL, ?, ?, ?)", entries)

    def matrix(self, encoder: str, contents: Sequence[bytes | None], width: int) -> Floats32:
        """One row for each content; NaN where there is no content or nothing is known of it."""
        matrix = np.full((len(contents), width), np.nan, dtype=np.float32)
        found = self._rows(encoder, {content for content in contents if content is not None}, "content, row")
        for place, content in enumerate(contents):
            blob = None if content is None else found.get(content)
            if blob is not None and len(blob) == 4 * width:
                matrix[place] = np.frombuffer(blob, "<f4")
        return matrix

    def keep_only(self, encoders: set[str]) -> None:
        """Forget what other encoders have made."""
        marks = ", ".join("?" * len(encoders))
        with contextlib.suppress(CollectionError), self._open().writing() as database:
            database.execute(f"DELETE FROM feature WHERE encoder NOT IN ({marks})", tuple(encoders))

    def close(self) -> None:
        """Let go of the file."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _rows(self, encoder: str, contents: set[bytes], columns: str) -> dict[bytes, bytes | None]:
        asked: list[bytes] = sorted(contents)
        found: dict[bytes, bytes | None] = {}
        try:
            with self._open().reading() as database:
                for start in range(0, len(asked), _ASK):
                    some = asked[start : start + _ASK]
                    marks = ", ".join("?" * len(some))
                    query = f"SELECT {columns} FROM feature WHERE encoder = ? AND content IN ({marks})"
                    found.update(dict(database.execute(query, (encoder, *some)).fetchall()))
        except CorruptCollectionError:
            self._make_anew()
            return {}
        return found

    def _open(self) -> Database:
        """The open file; one that is missing or damaged is made anew, since nothing in it is the only copy."""
        if self._database is None:
            try:
                if self._path.exists():
                    check_header(self._path, APPLICATION_ID, FORMAT)
                    self._database = Database(self._path, synchronous="NORMAL")
                    with self._database.reading() as database:
                        found = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
                    if found == set(SCHEMA):
                        return self._database
            except CorruptCollectionError:
                pass
            return self._make_anew()
        return self._database

    def _make_anew(self) -> Database:
        self.close()
        try:
            for name in (self._path.name, f"{self._path.name}-wal", f"{self._path.name}-shm"):
                self._path.with_name(name).unlink(missing_ok=True)
        except OSError as error:
            raise CollectionError(f"{self._path} could not be replaced: {error.strerror}.") from error
        self._database = Database.create(self._path, SCHEMA, APPLICATION_ID, FORMAT)
        return self._database
