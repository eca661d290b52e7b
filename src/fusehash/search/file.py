"""An index file: codes in blocks (blocks.py) in an SQLite database, and vectors in a file next to it.

    state, block, removal   see blocks.py; a file with nothing else has format 1
    factors                 where codes have factors, see factors.py; format 3, or that of vectors, too
    vectors                 where vectors are kept: in which file, see vectors/state.py; format 5, or 4 without marks
    vectors, vector         the same as earlier versions wrote it, see vectors/earlier.py; formats 2 and 3

One transaction per call. The first change of an index with vectors as earlier versions wrote them gives it the present
format; those in a table are moved into a file of their own.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fusehash.errors import CorruptIndexError, FusehashError, ParameterError
from fusehash.search import blocks, factors
from fusehash.search.blocks import FileState
from fusehash.search.engines import Engine
from fusehash.search.rows import CodeRows, Edit, Ids, Ints, slot_bytes
from fusehash.search.store import MemoryStore
from fusehash.search.vectors import Locate, Records, VectorFormat, earlier
from fusehash.search.vectors import file as vector_file
from fusehash.search.vectors import state as vector_state
from fusehash.search.vectors.file import MappedVectors, OtherFileError
from fusehash.search.vectors.state import VectorState
from fusehash.sqlite import Connection, DamageError, Database, FileKind, create, log_size

logger = logging.getLogger(__name__)


class IndexFileError(FusehashError, OSError):
    """An index file cannot be reached or written now; its content is unharmed."""


_KIND = FileKind(
    name=lambda path: f"The index file {path}",
    application_id=0x46484958,  # "FHIX"
    format=1,
    schema=blocks.SCHEMA,
    unavailable=IndexFileError,
    corrupt=CorruptIndexError,
    settings=("synchronous=FULL", "cache_size=-512"),  # a small cache: the codes are in memory
)
_WITH_FACTORS = replace(_KIND, format=3, schema=(*blocks.SCHEMA, *factors.SCHEMA))
_WITH_VECTORS = replace(_KIND, format=5, older=(1, 2, 3, 4), schema=(*blocks.SCHEMA, *vector_state.SCHEMA))
_WITH_BOTH = replace(_WITH_VECTORS, schema=(*_WITH_VECTORS.schema, *factors.SCHEMA))
_VECTOR_SCHEMAS = ((), vector_state.SCHEMA, vector_state.WITHOUT_MARKS, earlier.SCHEMA)
_SCHEMAS = [{*kind.schema, *schema} for kind in (_KIND, _WITH_FACTORS) for schema in _VECTOR_SCHEMAS]
_UNUSED_BYTES = 1 << 24  # of vectors no longer used; with more, and more than are used, the file is written again
_MOVED_AT_ONCE = 1 << 12  # vectors

T = TypeVar("T")


@dataclass(frozen=True)
class IndexContent:
    """What one revision of a file holds, but for the vectors themselves."""

    rows: CodeRows
    state: FileState
    has_factors: bool
    form: VectorFormat | None
    vectors: VectorState | None  # None without vectors, and with vectors as earlier versions stored them


class FileStore(MemoryStore):
    """The rows of one index in memory, with a file behind them."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        n_bits: int | None,
        engine: Engine,
        timeout: float,
        form: VectorFormat | None = None,
        has_factors: bool = False,
    ) -> None:
        super().__init__(0, engine)
        path = Path(path).absolute()
        if not path.exists():
            if n_bits is None:
                raise IndexFileError(f"There is no index at {path}; pass n_bits to create one.")
            _create(path, FileState(n_bits), form, has_factors)
        self._database = Database(path, _WITH_BOTH, timeout)
        self._mapped: MappedVectors | None = None
        self._lock = self._database.lock  # one lock, so that a fork never copies half of a change
        self._version: tuple[int, int] | None
        self._is_open = False
        try:
            if log_size(path):  # of an interrupted process: a damaged file is refused before the log is merged into it
                with self._database.read_only_connection() as connection:
                    _read(connection)
            self._version = self._database.data_version()
            with self._database.reading() as connection:
                self._content = _read(connection)
            content, _ = self._current_vectors()
            self.n_bits, self.form, self.has_factors = content.state.n_bits, content.form, content.has_factors
            if n_bits is not None and n_bits != self.n_bits:
                raise ParameterError("HammingIndex.open", "n_bits", f"{self.n_bits}, the width of {path}", n_bits)
            if form is not None and (self.form is None or (form.kind, form.dim) != (self.form.kind, self.form.dim)):
                expected = "None" if self.form is None else f"{self.form.kind!r} with dim={self.form.dim}"
                got = f"{form.kind} with dim={form.dim}"
                raise ParameterError("HammingIndex.open", "vectors", f"{expected}, as stored in {path}", got)
            if has_factors and not self.has_factors:
                raise ParameterError("HammingIndex.open", "factors", f"False: {path} has none", has_factors)
            self._is_open = True
            self._resume_tables()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"in {self._database.path}"

    def compact(self) -> None:
        """Write all rows again in full blocks, and vectors in their order; return the unused space to the disk."""

        def write(connection: Connection, content: IndexContent) -> IndexContent:
            vectors = content.vectors
            if vectors is not None and not (content.rows.has_ordered_slots and vectors.slots == len(content.rows)):
                return self._with_vectors_in_order(connection, content)
            return replace(content, state=blocks.write_all(connection, content.state, content.rows))

        with self._lock:
            self._write(write)
            self._database.compact()
            self._content = replace(self._content, rows=self._content.rows.trimmed())

    def stats(self) -> dict[str, Any]:
        with self._lock:
            stats, path, content = super().stats(), self._database.path, self._content
            with self._database.reading() as connection:
                (count,) = connection.execute("SELECT count(*) FROM block").fetchone()
            sizes = {"file_bytes": self._database.size(), "log_bytes": log_size(path), "blocks": count}
            if content.vectors is not None:
                sizes["vector_file_bytes"] = content.vectors.end if content.vectors.number else 0
            return {**stats, "path": str(path), "revision": content.state.revision, **sizes}

    def close(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._keep_tables()
            self._mapped = None
            self._database.close()

    def _resume_tables(self) -> None:
        """Hand the engine the tables that it has kept next to the file; without them it builds new ones."""
        if (resume := getattr(self.engine, "resume", None)) is None:
            return
        with _tables_are_optional(self._database.path, "read"), self._database.reading() as connection:
            self._content = _read(connection, self._content)
            resume(self._database.path, self._content.rows, partial(_ids_outside, connection))

    def _keep_tables(self) -> None:
        """Let the engine write its tables next to the file, if they are of the rows that are in it now."""
        if (keep := getattr(self.engine, "keep", None)) is None:
            return
        with _tables_are_optional(self._database.path, "written"):
            with self._database.reading() as connection:
                self._content = _read(connection, self._content)
                known = np.array(connection.execute("SELECT number, checksum FROM block").fetchall(), np.int64)
            keep(self._database.path, self._content.rows, known.reshape(-1, 2))

    def _current(self) -> CodeRows:
        """The rows as last committed by any process."""
        return self._current_content().rows

    def _current_content(self) -> IndexContent:
        with self._lock:
            version = self._database.data_version()
            if version != self._version:
                with self._database.reading() as connection:
                    self._content = _read(connection, self._content)
                self._version = version
            return self._content

    def _current_vectors(self) -> tuple[IndexContent, MappedVectors | None]:
        """The current content and its vectors, if they are in a file of their own."""
        path, kind = self._database.path, self._database.kind
        with self._lock:
            while True:
                content = self._current_content()
                if content.vectors is None:
                    return content, None
                try:
                    if self._mapped is None or not self._mapped.holds(content.vectors):
                        self._mapped = MappedVectors.open(path, content.vectors, kind)
                except OtherFileError as error:  # another process may have changed it meanwhile
                    self._version = None
                    if self._current_content() is content:
                        raise error.reason from None
                    continue
                self._mapped.check(path, kind)
                return content, self._mapped

    def _with_vectors(self, use: Callable[[CodeRows, Locate], T], form: VectorFormat) -> T:
        content, mapped = self._current_vectors()
        if mapped is None:  # one state of the file for all of it
            with self._database.reading() as connection:
                content = _read(connection, content)
                return use(content.rows, partial(earlier.located, connection, form, content.rows))
        assert content.vectors is not None
        records, rows = replace(mapped.records, center=content.vectors.center), content.rows

        def locate(positions: Ints) -> tuple[Records, Ints]:
            return records, rows.slots_at(positions)

        with self._database.reporting():
            return use(rows, locate)

    def _change(self, plan: Callable[[CodeRows, int], Edit]) -> Edit:
        edit: Edit

        def write(connection: Connection, content: IndexContent) -> IndexContent:
            nonlocal edit
            edit = plan(content.rows, content.state.last_id)
            vectors, stored = self._stored(connection, content, edit)
            state = replace(content.state, slots=None if vectors is None else vectors.slots)
            rows, state = stored.apply(content.rows), blocks.write_edit(connection, state, stored)
            content = replace(content, rows=rows, state=state, vectors=vectors)
            is_sparse = vectors is not None and vectors.slots > 2 * len(rows) + _UNUSED_BYTES // vectors.stride
            return self._with_vectors_in_order(connection, content) if is_sparse else content

        with self._lock:
            self._write(write)
            return edit

    def _stored(self, connection: Connection, content: IndexContent, edit: Edit) -> tuple[VectorState | None, Edit]:
        """Write the vectors of an edit; returns it with the slots of its rows."""
        vectors = content.vectors
        if vectors is None or not len(edit.ids):
            return vectors, edit
        if edit.vectors is None:  # they stay
            slots = content.rows.slots_at(content.rows.positions(edit.ids))
        else:
            if not len(content.rows):
                vectors = replace(vectors, center=vectors.form.center_of(edit.vectors))
            stored = vectors.form.encoded(edit.vectors, vectors.center)
            with vector_file.appending(self._database.path, vectors, self._database.kind) as writer:
                slots = writer.add(stored)
            vectors = writer.state.write(connection)
        return vectors, replace(edit, codes=np.hstack([edit.codes, slot_bytes(slots)]))

    def _with_vectors_in_order(self, connection: Connection, content: IndexContent) -> IndexContent:
        """Write all rows again, and their vectors into a new file in the same order."""
        assert content.vectors is not None
        path, kind, rows = self._database.path, self._database.kind, content.rows
        try:
            records = MappedVectors.open(path, content.vectors, kind).records
        except OtherFileError as error:
            raise error.reason from None
        with vector_file.creating(path, content.vectors, kind) as writer:
            for start in range(0, len(rows), _MOVED_AT_ONCE):
                writer.copy(records, rows.slots_at(np.arange(start, min(start + _MOVED_AT_ONCE, len(rows)))))
        return _written_with(connection, content, writer.state)

    def _with_own_file(self, connection: Connection, content: IndexContent, vectors: VectorState) -> IndexContent:
        """Move vectors that an earlier version stored in a table into a file of their own."""
        rows = content.rows
        with vector_file.creating(self._database.path, vectors, self._database.kind) as writer:
            for start in range(0, len(rows), _MOVED_AT_ONCE):
                ids = rows.ids_between(start, start + _MOVED_AT_ONCE)
                writer.add(*earlier.read_vectors(connection, vectors.form, ids))
        earlier.drop(connection)
        for statement in vector_state.SCHEMA:
            connection.execute(statement)
        return _written_with(connection, content, writer.state)

    def _write(self, write: Callable[[Connection, IndexContent], IndexContent]) -> None:
        """Carry out `write` in one transaction, after catching up with other processes."""
        self._current()
        version, self._version = self._version, None  # if the call is interrupted, the next one catches up again
        path = self._database.path
        with self._database.writing() as connection:
            content = _read(connection, self._content)
            vectors = content.vectors
            try:
                if content.form is not None and (vectors is None or not vectors.has_marks):
                    connection.execute(f"PRAGMA user_version={_WITH_BOTH.format}")
                    if vectors is None:
                        vectors = VectorState.of_earlier(content.form, content.state)
                        content = self._with_own_file(connection, content, vectors)
                    else:
                        content = replace(content, vectors=vectors.with_marks(connection))
                content = write(connection, content)
            except BaseException:
                if vectors is not None:
                    vector_file.remove_uncommitted(path, vectors)
                raise
        self._content, self._version = content, version
        if content.vectors is not None:
            vector_file.remove_earlier(path, content.vectors)


def _read(connection: Connection, before: IndexContent | None = None) -> IndexContent:
    """The content of the file, with what is known of an earlier revision."""
    state = FileState.read(connection)
    if before is not None and state.revision == before.state.revision:
        return before
    tables = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
    if tables not in _SCHEMAS:
        raise DamageError("it does not hold the tables of an index")
    has_factors, vectors, form = tables.issuperset(factors.SCHEMA), None, None
    if not tables.isdisjoint((*vector_state.SCHEMA, *vector_state.WITHOUT_MARKS)):
        vectors = VectorState.read(connection, has_marks=tables.issuperset(vector_state.SCHEMA))
        form = vectors.form
    elif tables.issuperset(earlier.SCHEMA):
        form = earlier.read_format(connection)
    slots = None if vectors is None else vectors.slots
    state = replace(state, n_extra=factors.N_BYTES * has_factors, slots=slots)
    if before is None or (before.vectors is None) != (vectors is None):
        rows = blocks.load(connection, state)
    else:
        rows = blocks.catch_up(connection, state, before.rows, before.state.revision)
    return IndexContent(rows, state, has_factors, form, vectors)


def _written_with(connection: Connection, content: IndexContent, vectors: VectorState) -> IndexContent:
    """Write all rows again, the slots of which are now their positions."""
    rows = content.rows.with_slots()
    state = blocks.write_all(connection, replace(content.state, slots=len(rows)), rows)
    return replace(content, rows=rows, state=state, vectors=vectors.write(connection))


@contextlib.contextmanager
def _tables_are_optional(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except (FusehashError, OSError, MemoryError) as error:
        logger.warning("the tables of %s could not be %s: %s", path, action, error)


def _ids_outside(connection: Connection, blocks: Ints) -> Ids:
    """The ids in all blocks but these, by number and checksum."""
    known, ids = set(map(tuple, blocks.tolist())), [np.empty(0, np.int64)]
    for number, checksum in connection.execute("SELECT number, checksum FROM block").fetchall():
        if (number, checksum) not in known:
            ((blob,),) = connection.execute("SELECT ids FROM block WHERE number = ?", (number,))
            ids.append(np.frombuffer(blob, "<i8").astype(np.int64))
    return np.concatenate(ids)


def _create(path: Path, state: FileState, form: VectorFormat | None, has_factors: bool) -> None:
    def fill(connection: Connection) -> None:
        state.write(connection)
        if form is not None:
            VectorState.new(form).write(connection)
        if has_factors:
            connection.execute("INSERT INTO factors VALUES (1, 2)")

    plain, with_vectors = (_WITH_FACTORS, _WITH_BOTH) if has_factors else (_KIND, _WITH_VECTORS)
    create(path, plain if form is None else with_vectors, fill)
