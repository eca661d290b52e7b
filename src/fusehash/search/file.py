"""An index file: codes in blocks, each with a checksum, in an SQLite database. One transaction per call.

    state    one row: width, revision (counts changes), number of codes, highest id ever used, sum of the checksums
    block    up to 256 KB of codes and their ids, ascending, as two blobs, and the revision that last wrote it
    removal  the ids of the latest removals, so that a reader catches up without reading everything
    vectors, vector   where vectors are kept, see vectors.py; such files have format 2
    factors  where codes have factors, see factors.py; such files have format 3, all others format 1

In a block the factors of a code follow its bytes.

A call that adds codes writes a new block and merges the blocks before it that are no larger, as long as they fit into
one: n codes added one by one are rewritten about log2(n) times, and blocks stay few. A call that removes or replaces
rewrites the blocks that it touches. In the tables, the column of the revision is called `generation`. The functions at
the end run inside a transaction; those that write return the state after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fusehash.bits import Codes, check_codes
from fusehash.errors import CorruptIndexError, FusehashError, ParameterError
from fusehash.parameters import MAX_BITS
from fusehash.search import factors, vectors
from fusehash.search.engines import Engine
from fusehash.search.rows import CodeRows, Edit, Ids, Ints, find
from fusehash.search.store import MemoryStore
from fusehash.search.vectors import Fetch, VectorFormat
from fusehash.sqlite import Connection, DamageError, Database, FileKind, create, log_size

logger = logging.getLogger(__name__)


class IndexFileError(FusehashError, OSError):
    """An index file cannot be reached or written now; its content is unharmed."""


_SCHEMA = (
    "CREATE TABLE state (only INTEGER PRIMARY KEY, n_bits INTEGER, generation INTEGER, count INTEGER, last_id INTEGER, "
    "digest INTEGER, replayable INTEGER, checksum INTEGER)",
    "CREATE TABLE block (number INTEGER PRIMARY KEY, generation INTEGER, first_id INTEGER, last_id INTEGER, "
    "count INTEGER, checksum INTEGER, ids BLOB, codes BLOB)",
    "CREATE TABLE removal (generation INTEGER PRIMARY KEY, checksum INTEGER, ids BLOB)",
)
_KIND = FileKind(
    name=lambda path: f"The index file {path}",
    application_id=0x46484958,  # "FHIX"
    format=1,
    schema=_SCHEMA,
    unavailable=IndexFileError,
    corrupt=CorruptIndexError,
    settings=("synchronous=FULL", "cache_size=-512"),  # a small cache: the codes are in memory
)
_WITH_VECTORS = replace(_KIND, format=2, older=(1,), schema=(*_SCHEMA, *vectors.SCHEMA))
_WITH_FACTORS = replace(_WITH_VECTORS, format=3, older=(1, 2), schema=(*_SCHEMA, *factors.SCHEMA))
_WITH_BOTH = replace(_WITH_FACTORS, schema=(*_WITH_VECTORS.schema, *factors.SCHEMA))
_BLOCK_BYTES = 1 << 18
_REMOVALS = 256  # revisions that a reader may lag behind and still catch up block by block
_REMOVED_IDS = 1 << 16  # a larger removal is not kept for readers, who then read everything
_DIGEST = (1 << 62) - 1
_ATTEMPTS = 3  # to read vectors of the codes that were searched, while others write

T = TypeVar("T")


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
        self._database = Database(path, _WITH_FACTORS, timeout)
        self._lock = self._database.lock  # one lock, so that a fork never copies half of a change
        self._version: tuple[int, int] | None
        self._is_open = False
        try:
            if log_size(path):  # of an interrupted process: a damaged file is refused before the log is merged into it
                with self._database.read_only_connection() as connection:
                    self._load(connection)
            self._version = self._database.data_version()
            with self._database.reading() as connection:
                self._load(connection)
            self.n_bits = self._state.n_bits
            if n_bits is not None and n_bits != self.n_bits:
                raise ParameterError("HammingIndex.open", "n_bits", f"{self.n_bits}, the width of {path}", n_bits)
            if form is not None and form != self.form:
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
        """Write all rows again in full blocks and return the unused space to the disk."""
        with self._lock:
            self._write(lambda connection: (self._rows, _write_all(connection, self._state, self._rows)))
            self._database.compact()
            self._rows = self._rows.trimmed()

    def stats(self) -> dict[str, Any]:
        with self._lock:
            stats, path = super().stats(), self._database.path
            with self._database.reading() as connection:
                (blocks,) = connection.execute("SELECT count(*) FROM block").fetchone()
            sizes = {"file_bytes": self._database.size(), "log_bytes": log_size(path), "blocks": blocks}
            return {**stats, "path": str(path), "revision": self._state.revision, **sizes}

    def close(self) -> None:
        with self._lock:
            if self._is_open:
                self._is_open = False
                self._keep_tables()
            self._database.close()

    def _resume_tables(self) -> None:
        """Hand the engine the tables that it has kept next to the file; without them it builds new ones."""
        if (resume := getattr(self.engine, "resume", None)) is None:
            return
        with _tables_are_optional(self._database.path, "read"), self._database.reading() as connection:
            self._catch_up(connection)
            resume(self._database.path, self._rows, partial(_ids_outside, connection))

    def _keep_tables(self) -> None:
        """Let the engine write its tables next to the file, if they are of the rows that are in it now."""
        if (keep := getattr(self.engine, "keep", None)) is None:
            return
        with _tables_are_optional(self._database.path, "written"):
            with self._database.reading() as connection:
                self._catch_up(connection)
                blocks = np.array(connection.execute("SELECT number, checksum FROM block").fetchall(), np.int64)
            keep(self._database.path, self._rows, blocks.reshape(-1, 2))

    def _current(self) -> CodeRows:
        """The rows as last committed by any process."""
        with self._lock:
            version = self._database.data_version()
            if version != self._version:
                with self._database.reading() as connection:
                    self._catch_up(connection)
                self._version = version
            return self._rows

    def _change(self, plan: Callable[[CodeRows, int], Edit]) -> Edit:
        edit: Edit

        def write(connection: Connection) -> tuple[CodeRows, FileState]:
            nonlocal edit
            edit = plan(self._rows, self._state.last_id)
            if self.form is not None:
                _write_vectors(connection, edit)
            return edit.apply(self._rows), _write_edit(connection, self._state, edit)

        with self._lock:
            self._write(write)
            return edit

    def _with_vectors(self, use: Callable[[CodeRows, Fetch], T], form: VectorFormat) -> T:
        """`use` is called again if another process has changed the file before the vectors were read."""
        for _ in range(_ATTEMPTS):
            with self._lock:
                rows, revision = self._current(), self._state.revision

            def fetch(ids: Ids, revision: int = revision) -> Codes:
                with self._database.reading() as connection:
                    if FileState.read(connection).revision != revision:
                        raise _ChangedError
                    return vectors.read_vectors(connection, form, ids)

            with contextlib.suppress(_ChangedError):
                return use(rows, fetch)
        with self._database.reading() as connection:  # which keeps one state of the file for all of it
            self._catch_up(connection)
            self._version = None
            return use(self._rows, lambda ids: vectors.read_vectors(connection, form, ids))

    def _write(self, write: Callable[[Connection], tuple[CodeRows, FileState]]) -> None:
        """Carry out `write` in one transaction, after catching up with other processes."""
        self._current()
        version, self._version = self._version, None  # if the call is interrupted, the next one catches up again
        with self._database.writing() as connection:
            self._catch_up(connection)
            rows, state = write(connection)
        self._rows, self._state, self._version = rows, state, version

    def _load(self, connection: Connection) -> None:
        tables = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master")}
        if tables not in [set(kind.schema) for kind in (_KIND, _WITH_VECTORS, _WITH_FACTORS, _WITH_BOTH)]:
            raise DamageError("it does not hold the tables of an index")
        self.form = VectorFormat.read(connection) if tables.issuperset(vectors.SCHEMA) else None
        self.has_factors = tables.issuperset(factors.SCHEMA)
        state = self._read_state(connection)
        self._rows, self._state = _load(connection, state), state

    def _catch_up(self, connection: Connection) -> None:
        state = self._read_state(connection)
        if state.revision != self._state.revision:
            self._rows, self._state = _catch_up(connection, state, self._rows, self._state.revision), state

    def _read_state(self, connection: Connection) -> FileState:
        return replace(FileState.read(connection), n_extra=factors.N_BYTES * self.has_factors)


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


class _ChangedError(Exception):
    """The file has changed since its codes were searched."""


def _create(path: Path, state: FileState, form: VectorFormat | None, has_factors: bool) -> None:
    def fill(connection: Connection) -> None:
        state.write(connection)
        if form is not None:
            form.write(connection)
        if has_factors:
            connection.execute("INSERT INTO factors VALUES (1, 2)")

    plain, with_vectors = (_WITH_FACTORS, _WITH_BOTH) if has_factors else (_KIND, _WITH_VECTORS)
    create(path, plain if form is None else with_vectors, fill)


def _write_vectors(connection: Connection, edit: Edit) -> None:
    if len(edit.removed) and not edit.replaces:
        vectors.remove_vectors(connection, edit.removed)
    if edit.vectors is not None:
        vectors.write_vectors(connection, edit.ids, edit.vectors)


@dataclass(frozen=True)
class FileState:
    """The one row of the table `state`."""

    n_bits: int
    revision: int = 0
    count: int = 0
    last_id: int = -1
    digest: int = 0
    replayable: int = 0  # the oldest revision from which a reader can catch up
    n_extra: int = 0  # bytes next to a code; not in the row

    def write(self, connection: Connection) -> FileState:
        row = astuple(self)[:-1]
        connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(row)))
        return self

    @classmethod
    def read(cls, connection: Connection) -> FileState:
        row = connection.execute(
            "SELECT n_bits, generation, count, last_id, digest, replayable, checksum FROM state WHERE only = 1"
        ).fetchone()
        if row is None or not all(isinstance(value, int) for value in row) or _checksum(row[:-1]) != row[-1]:
            raise DamageError("its state is damaged")
        if row[0] not in range(8, MAX_BITS + 1, 8) or not 0 <= row[1] < 1 << 62:  # a forged width or revision
            raise DamageError("its state is damaged")
        return cls(*row[:-1])

    @property
    def n_bytes(self) -> int:
        """Bytes of a code and its extras."""
        return self.n_bits // 8 + self.n_extra

    @property
    def capacity(self) -> int:
        """Codes that fit into a block."""
        return _BLOCK_BYTES // (8 + self.n_bytes)

    def plus(self, count: int, checksum: int) -> FileState:
        """The state with a block added or, if both numbers are negative, taken out."""
        return replace(self, count=self.count + count, digest=self.digest + checksum & _DIGEST)


def _load(connection: Connection, state: FileState) -> CodeRows:
    """All rows of the file, checked."""
    # The size is taken from the blobs: a damaged count must not allocate the memory that it claims.
    (size,) = connection.execute("SELECT coalesce(sum(length(ids)), 0) / 8 FROM block").fetchone()
    if size != state.count:
        raise DamageError("codes are missing from it")
    digest = 0

    def blocks() -> Iterator[tuple[Ids, Codes]]:
        nonlocal digest
        for _, checksum, ids, codes in _read_blocks(connection, state, "ORDER BY first_id"):
            digest = (digest + checksum) & _DIGEST
            yield ids, codes

    try:
        rows = CodeRows.gathered(state.n_bits // 8, size, blocks(), size + size // 64, state.n_extra)
    except ValueError as error:
        raise DamageError("codes are missing from it") from error
    if digest != state.digest:
        raise DamageError("codes are missing from it")
    if rows.first_id is None and np.any(rows.ids[1:] == rows.ids[:-1]):
        raise DamageError("an id occurs twice in it")
    return rows


def _catch_up(connection: Connection, state: FileState, rows: CodeRows, revision: int) -> CodeRows:
    """Bring rows of an earlier revision up to date, reading only what has changed where that is less."""
    query = "SELECT coalesce(sum(count), 0) FROM block WHERE generation > ?"
    (changed,) = connection.execute(query, (revision,)).fetchone()
    if revision < state.replayable or 2 * changed > state.count:
        return _load(connection, state)
    for checksum, blob in connection.execute("SELECT checksum, ids FROM removal WHERE generation > ?", (revision,)):
        if not isinstance(blob, bytes) or len(blob) % 8 or zlib.crc32(blob) != checksum:
            raise DamageError("a removal is damaged")
        here, positions = rows.find(np.frombuffer(blob, "<i8").astype(np.int64))
        rows = rows.without(positions[here]) if here.any() else rows
    for _, _, ids, codes in _read_blocks(connection, state, f"WHERE generation > {revision} ORDER BY first_id"):
        here, positions = rows.find(ids)
        if here.any() and np.any(rows.wide(positions[here]) != codes[here]):
            rows = rows.with_codes(positions[here], codes[here])
        rows = rows.with_added(ids[~here], codes[~here]) if not here.all() else rows
    return rows if len(rows) == state.count else _load(connection, state)


def _read_blocks(connection: Connection, state: FileState, which: str) -> Iterator[tuple[int, int, Ids, Codes]]:
    """Number, checksum, ids and codes of blocks, checked."""
    columns = "number, generation, first_id, last_id, count, checksum, ids, codes"
    for number, *head, checksum, ids, codes in connection.execute(f"SELECT {columns} FROM block {which}"):
        is_block = isinstance(ids, bytes) and isinstance(codes, bytes) and all(isinstance(value, int) for value in head)
        if not is_block or _checksum(head, ids, codes) != checksum:
            raise DamageError(f"block {number} is damaged")
        if (len(ids), len(codes)) != (8 * head[3], state.n_bytes * head[3]):
            raise DamageError(f"block {number} is damaged")
        matrix = np.frombuffer(codes, np.uint8).reshape(-1, state.n_bytes)
        if state.n_extra and not np.isfinite(factors.decoded(matrix[:, -state.n_extra :])).all():
            raise DamageError(f"block {number} is damaged")
        yield number, checksum, np.frombuffer(ids, "<i8").astype(np.int64, copy=False), matrix


def _write_edit(connection: Connection, state: FileState, edit: Edit) -> FileState:
    state = replace(state, revision=state.revision + 1, last_id=edit.last_id(state.last_id))
    if len(edit.removed):
        state = _rewrite(connection, state, edit)
        state = _note_removal(connection, state, edit.removed if not edit.replaces else edit.removed[:0])
    if len(edit.ids) and not edit.replaces:
        state = _append(connection, state, edit.ids, edit.codes)
    return state.write(connection)


def _write_all(connection: Connection, state: FileState, rows: CodeRows) -> FileState:
    """Write all rows again, in as few blocks as possible."""
    revision = state.revision + 1
    connection.execute("DELETE FROM block")
    connection.execute("DELETE FROM removal")
    state = replace(state, revision=revision, replayable=revision, count=0, digest=0)
    return _insert(connection, state, rows.ids, rows.wide()).write(connection)


def _append(connection: Connection, state: FileState, ids: Ids, codes: Codes) -> FileState:
    """Write new rows, merged with the last blocks where those are no larger and all fit into one block."""
    size, first = len(ids), None
    for number, count in connection.execute("SELECT number, count FROM block ORDER BY number DESC"):
        if count > size or size + count > state.capacity:
            break
        first, size = number, size + count
    if first is not None:
        for _, checksum, earlier_ids, earlier_codes in _read_blocks(connection, state, f"WHERE number >= {first}"):
            ids, codes = np.concatenate((ids, earlier_ids)), np.concatenate((codes, earlier_codes))
            state = state.plus(-len(earlier_ids), -checksum)
        order = np.argsort(ids, kind="stable")
        ids, codes = ids[order], codes[order]
        connection.execute("DELETE FROM block WHERE number >= ?", (first,))
    return _insert(connection, state, ids, codes)


def _insert(connection: Connection, state: FileState, ids: Ids, codes: Codes) -> FileState:
    for start in range(0, len(ids), state.capacity):
        part = slice(start, start + state.capacity)
        state = _put(connection, state, None, ids[part], codes[part])
    return state


def _rewrite(connection: Connection, state: FileState, edit: Edit) -> FileState:
    """Remove ids from the blocks that hold them, or replace their codes there."""
    missing = len(edit.removed)
    for number, first, last in connection.execute("SELECT number, first_id, last_id FROM block").fetchall():
        begin, end = np.searchsorted(edit.removed, first), np.searchsorted(edit.removed, last, side="right")
        if begin == end:
            continue
        ((_, checksum, ids, codes),) = _read_blocks(connection, state, f"WHERE number = {number}")
        here, positions = find(ids, edit.removed[begin:end])
        if not here.any():
            continue
        missing -= int(np.count_nonzero(here))
        state = state.plus(-len(ids), -checksum)
        if edit.replaces:
            codes = codes.copy()
            codes[positions[here]] = edit.codes[begin:end][here]
        else:
            ids, codes = np.delete(ids, positions[here]), np.delete(codes, positions[here], axis=0)
        connection.execute("DELETE FROM block WHERE number = ?", (number,))
        if len(ids):
            state = _put(connection, state, number, ids, codes)
    if missing:
        raise DamageError("codes are missing from it")
    return state


def _put(connection: Connection, state: FileState, number: int | None, ids: Ids, codes: Codes) -> FileState:
    """Write one block under a number, or under the next one."""
    blobs = ids.astype("<i8", copy=False).tobytes(), check_codes(codes, 8 * state.n_bytes).tobytes()
    head = state.revision, int(ids[0]), int(ids[-1]), len(ids)
    checksum = _checksum(head, *blobs)
    connection.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (number, *head, checksum, *blobs))
    return state.plus(len(ids), checksum)


def _note_removal(connection: Connection, state: FileState, removed: Ids) -> FileState:
    """Keep the ids of a removal for readers that have yet to catch up, and delete the oldest ones."""
    oldest = state.revision - _REMOVALS
    if len(removed) > _REMOVED_IDS:
        oldest = state.revision
    elif len(removed):
        blob = removed.astype("<i8").tobytes()
        connection.execute("INSERT INTO removal VALUES (?, ?, ?)", (state.revision, zlib.crc32(blob), blob))
    connection.execute("DELETE FROM removal WHERE generation <= ?", (oldest,))
    return replace(state, replayable=max(state.replayable, oldest))


def _checksum(head: Sequence[int], *blobs: bytes) -> int:
    return reduce(lambda checksum, blob: zlib.crc32(blob, checksum), blobs, zlib.crc32(repr(tuple(head)).encode()))
