"""Documents with metadata, vectors and codes in one SQLite file; what the adapters for vector stores share.

Codes are held in memory and answer searches by Hamming distance; the vectors of the nearest documents are then read
from the file, and the documents are sorted by cosine. A filter is a function of a document: documents are read in order
of distance until enough of them pass, so that a common filter costs little and a rare one a pass over all documents.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fusehash import trust
from fusehash.bits import Codes
from fusehash.errors import DataError
from fusehash.integrations.rows import (
    KIND,
    READ_AT_ONCE,
    SCHEMA,
    DocumentFileError,
    ExistingDocumentError,
    StoredDocument,
    Vector,
    checked_settings,
    insert,
    number_of,
    read,
    write_settings,
)
from fusehash.integrations.vector_codes import VectorCodes, checked_vector, cosine
from fusehash.parameters import check, choice, integer, multiple_of
from fusehash.search import HammingIndex
from fusehash.sqlite import DamageError, Database, create

Accept: TypeAlias = Callable[[StoredDocument], bool] | None
OnExisting: TypeAlias = Literal["replace", "skip", "fail"]
RERANKED, MIN_RERANKED = 10, 50  # documents that are compared by their vectors: so many for each result, at least


class DocumentFile:
    """Documents in a file, found by the similarity of their vectors.

    Parameters
    ----------
    path : path, optional
        The file, which is made if it is not there; by default a temporary one, which ends with this object.
    n_bits : int, default 256
        Length of the codes. An existing file keeps its own.
    model, view : fitted hasher and the name of a view, optional
        Makes the codes; by default the signs of randomly rotated vectors, which needs no training.

    Raises
    ------
    ParameterError, DataError
        If a parameter is out of range, or the file was written with another model.
    DocumentFileError
        If the file cannot be reached or is damaged.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, n_bits: int = 256, model: Any = None,
        view: str | None = None,
    ) -> None:  # fmt: skip
        rules = {"n_bits": multiple_of(8, 1024)}
        check("DocumentFile", rules, {"n_bits": n_bits if model is None else model.n_bits})
        self._codes = VectorCodes(model, view)
        self._temporary = tempfile.TemporaryDirectory() if path is None else None
        self.path = Path(self._temporary.name, "documents.fhd") if self._temporary else Path(path or "").absolute()
        if not self.path.exists():
            create(self.path, KIND)
        self._database = Database(self.path, KIND)
        self._version: tuple[int, int] | None = None
        self._fresh: dict[str, Any] = {"n_bits": n_bits if model is None else model.n_bits, "width": 0}
        self._settings = dict(self._fresh)
        try:
            with self._database.lock:
                self._catch_up()
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT count(*) FROM document").fetchone()[0])

    def __enter__(self) -> DocumentFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._database.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def put(self, documents: Sequence[StoredDocument], on_existing: OnExisting = "replace") -> list[str]:
        """Write documents, all or none, and return the ids of those that were written."""
        choice("replace", "skip", "fail").check("DocumentFile.put", "on_existing", on_existing)
        rows = {document.id: self._checked(document) for document in documents}  # the last of equal ids counts
        vectors = {id: row.vector for id, row in rows.items() if row.vector is not None}
        with self._database.lock:
            self._catch_up()
            version, self._version = self._version, None  # if the call fails, the next one reads everything again
            self._learn_width(vectors)
            codes = self._codes_of(vectors)
            written: dict[str, int] = {}
            with self._database.writing() as connection:
                write_settings(connection, self._settings)
                for id, row in rows.items():
                    number = number_of(connection, id)
                    if number is not None and on_existing == "fail":
                        raise ExistingDocumentError(f"Ids of documents must be new. {id!r} is in {self.path.name}.")
                    if number is None or on_existing == "replace":
                        written[id] = insert(connection, number, row, codes.get(id))
            self._place({number: codes.get(id) for id, number in written.items()})
            self._version = version
            return list(written)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete documents by id, as far as they are there, and return how many were."""
        with self._database.lock:
            self._catch_up()
            with self._database.writing() as connection:
                numbers = [number for id in dict.fromkeys(ids) if (number := number_of(connection, id)) is not None]
                connection.executemany("DELETE FROM document WHERE number = ?", [(number,) for number in numbers])
            self._place(dict.fromkeys(numbers))
            return len(numbers)

    def get(self, ids: Iterable[str]) -> list[StoredDocument]:
        """The documents with these ids, in their order, as far as they are there."""
        with self._database.reading() as connection:
            numbers = [number for id in ids if (number := number_of(connection, id)) is not None]
            return [document for _, document in read(connection, numbers, self._settings["width"])]

    def all(self, accept: Accept = None) -> Iterator[StoredDocument]:
        """Every document that a filter accepts, in the order in which they were first written."""
        with self._database.reading() as connection:
            numbers = [number for (number,) in connection.execute("SELECT number FROM document ORDER BY number")]
        for start in range(0, len(numbers), READ_AT_ONCE):
            with self._database.reading() as connection:
                found = read(connection, numbers[start : start + READ_AT_ONCE], self._settings["width"])
            yield from (document for _, document in found if accept is None or accept(document))

    def search(self, vector: ArrayLike, k: int, accept: Accept = None) -> list[tuple[StoredDocument, float]]:
        """The k documents with the largest cosine among those that are nearest by code, with their cosines."""
        integer(1).check("DocumentFile.search", "k", k)
        query = checked_vector(vector, "The query")
        with self._database.lock:
            self._catch_up()
            if not len(self._index):
                return []
            if len(query) != self._settings["width"]:
                raise DataError(f"The query must have {self._settings['width']} numbers. Got {len(query)} instead.")
            pool, total = max(RERANKED * k, MIN_RERANKED), len(self._index)
            code, done, ask = self._codes.encode(query[None], self._settings["n_bits"]), 0, pool
            found: list[tuple[int, StoredDocument]] = []
            while len(found) < pool and done < total:
                numbers = self._index.search(code, min(ask, total))[1][0]
                with self._database.reading() as connection:
                    nearest = read(connection, numbers[done:].tolist(), self._settings["width"])
                found += [(number, document) for number, document in nearest if accept is None or accept(document)]
                done, ask = len(numbers), 4 * ask
        scored = [(document, cosine(query, document.vector), number) for number, document in found[:pool]]
        return [(document, score) for document, score, _ in sorted(scored, key=lambda item: (-item[1], item[2]))[:k]]

    def _codes_of(self, vectors: Mapping[str, Vector]) -> dict[str, Codes]:
        if not vectors:
            return {}
        codes = self._codes.encode(np.array(list(vectors.values())), self._settings["n_bits"])
        return dict(zip(vectors, codes, strict=True))

    def _learn_width(self, vectors: Mapping[str, Vector]) -> None:
        """Take the width of the first vectors; all others must have it."""
        for id, vector in vectors.items():
            if not self._settings["width"]:
                self._settings["width"] = len(vector)
                self._settings["probe"] = self._codes.probe(len(vector), self._settings["n_bits"])
            if len(vector) != self._settings["width"]:
                expected = f"must have {self._settings['width']} numbers, as the others"
                raise DataError(f"The vector of document {id!r} {expected}. Got {len(vector)} instead.")

    # -- the index in memory -------------------------------------------------------------------------------------

    def _catch_up(self) -> None:
        """Read all codes if another process has written; the caller holds the lock."""
        version = self._database.data_version()
        if version == self._version:
            return
        with self._database.reading() as connection:
            if {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")} != set(SCHEMA):
                raise DamageError("it does not hold the tables of documents")
            row = connection.execute("SELECT content FROM settings WHERE only = 1").fetchone()
            rows = connection.execute("SELECT number, code FROM document WHERE code IS NOT NULL").fetchall()
        self._settings = dict(self._fresh)
        if row is not None:
            self._settings = checked_settings(trust.parse_json(row[0], f"The file {self.path.name}"), self.path.name)
        n_bytes = self._settings["n_bits"] // 8
        if any(not isinstance(code, bytes) or len(code) != n_bytes for _, code in rows):
            raise DocumentFileError(f"The file {self.path.name} is corrupt: codes of another length.")
        if self._settings["width"]:
            self._codes.check(self._settings, self.path.name)
        self._index = HammingIndex(self._settings["n_bits"])
        if rows:
            codes = np.frombuffer(b"".join(code for _, code in rows), np.uint8).reshape(-1, n_bytes)
            self._index.add(codes, [number for number, _ in rows])
        self._version = version

    def _place(self, codes: Mapping[int, Codes | None]) -> None:
        """Take over the codes of documents that were just written; None: it has none, or is deleted."""
        gone = [number for number in codes if number in self._index]
        self._index.remove(gone)
        new = {number: code for number, code in codes.items() if code is not None}
        if new:
            self._index.add(np.stack(list(new.values())), list(new))

    def _checked(self, document: StoredDocument) -> StoredDocument:
        if not isinstance(document.id, str) or not document.id:
            raise DataError(f"The id of a document must be text that is not empty. Got {document.id!r} instead.")
        if document.vector is None:
            return document
        return StoredDocument(
            document.id, document.content, checked_vector(document.vector, f"Document {document.id!r}")
        )
