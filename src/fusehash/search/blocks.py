"""The blocks of an index file: codes and ids with checksums, in tables of an SQLite database.

    state    one row: width, revision (counts changes), number of codes, highest id ever used, sum of the checksums
    block    up to 256 KB of codes and their ids, ascending, as two blobs, and the revision that last wrote it
    removal  the ids of the latest removals, so that a reader catches up without reading everything

In a block a code is a wide row (see rows.py): its factors and the slot of its vector follow its bytes, if it has any.

A call that adds codes writes a new block and merges the blocks before it that are no larger, as long as they fit into
one: n codes added one by one are rewritten about log2(n) times, and blocks stay few. A call that removes or replaces
rewrites the blocks that it touches. In the tables, the column of the revision is called `generation`. All functions run
inside a transaction; those that write return the state after it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import reduce

import numpy as np

from fusehash.bits import Codes, check_codes
from fusehash.parameters import MAX_BITS
from fusehash.search import factors
from fusehash.search.ids import find
from fusehash.search.rows import SLOT_BYTES, CodeRows, Edit, Ids, slots_of
from fusehash.sqlite import Connection, DamageError

SCHEMA = (
    "CREATE TABLE state (only INTEGER PRIMARY KEY, n_bits INTEGER, generation INTEGER, count INTEGER, last_id INTEGER, "
    "digest INTEGER, replayable INTEGER, checksum INTEGER)",
    "CREATE TABLE block (number INTEGER PRIMARY KEY, generation INTEGER, first_id INTEGER, last_id INTEGER, "
    "count INTEGER, checksum INTEGER, ids BLOB, codes BLOB)",
    "CREATE TABLE removal (generation INTEGER PRIMARY KEY, checksum INTEGER, ids BLOB)",
)
_BLOCK_BYTES = 1 << 18
_REMOVALS = 256  # revisions that a reader may lag behind and still catch up block by block
_REMOVED_IDS = 1 << 16  # a larger removal is not kept for readers, who then read everything
_DIGEST = (1 << 62) - 1


@dataclass(frozen=True)
class FileState:
    """The one row of the table `state`."""

    n_bits: int
    revision: int = 0
    count: int = 0
    last_id: int = -1
    digest: int = 0
    replayable: int = 0  # the oldest revision from which a reader can catch up
    n_extra: int = 0  # bytes of factors next to a code; not in the row
    slots: int | None = None  # vectors that there are places for, or None if codes have no slots; not in the row

    def write(self, connection: Connection) -> FileState:
        row = astuple(self)[:-2]
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
        """Bytes of a wide row."""
        return self.n_bits // 8 + self.n_extra + (0 if self.slots is None else SLOT_BYTES)

    @property
    def capacity(self) -> int:
        """Codes that fit into a block."""
        return _BLOCK_BYTES // (8 + self.n_bytes)

    def plus(self, count: int, checksum: int) -> FileState:
        """The state with a block added or, if both numbers are negative, taken out."""
        return replace(self, count=self.count + count, digest=self.digest + checksum & _DIGEST)


def load(connection: Connection, state: FileState) -> CodeRows:
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
        options = {"n_extra": state.n_extra, "has_slots": state.slots is not None}
        rows = CodeRows.gathered(state.n_bits // 8, size, blocks(), size + size // 64, **options)
    except ValueError as error:
        raise DamageError("codes are missing from it") from error
    if digest != state.digest:
        raise DamageError("codes are missing from it")
    if rows.first_id is None and np.any(rows.ids[1:] == rows.ids[:-1]):
        raise DamageError("an id occurs twice in it")
    return rows


def catch_up(connection: Connection, state: FileState, rows: CodeRows, revision: int) -> CodeRows:
    """Bring rows of an earlier revision up to date, reading only what has changed where that is less."""
    query = "SELECT coalesce(sum(count), 0) FROM block WHERE generation > ?"
    (changed,) = connection.execute(query, (revision,)).fetchone()
    if revision < state.replayable or 2 * changed > state.count:
        return load(connection, state)
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
    return rows if len(rows) == state.count else load(connection, state)


def _read_blocks(connection: Connection, state: FileState, which: str) -> Iterator[tuple[int, int, Ids, Codes]]:
    """Number, checksum, ids and codes of blocks, checked."""
    columns = "generation, first_id, last_id, count, checksum, ids, codes"
    # Numbers first: SQLite would sort the blocks with all that is in them.
    for (number,) in connection.execute(f"SELECT number FROM block {which}").fetchall():
        query = f"SELECT {columns} FROM block WHERE number = ?"
        *head, checksum, ids, codes = connection.execute(query, (number,)).fetchone()
        is_block = isinstance(ids, bytes) and isinstance(codes, bytes) and all(isinstance(value, int) for value in head)
        if not is_block or _checksum(head, ids, codes) != checksum:
            raise DamageError(f"block {number} is damaged")
        if (len(ids), len(codes)) != (8 * head[3], state.n_bytes * head[3]):
            raise DamageError(f"block {number} is damaged")
        matrix = np.frombuffer(codes, np.uint8).reshape(-1, state.n_bytes)
        n_code = state.n_bits // 8
        if state.n_extra and not np.isfinite(factors.decoded(matrix[:, n_code : n_code + state.n_extra])).all():
            raise DamageError(f"block {number} is damaged")
        if state.slots is not None and len(matrix):
            slots = slots_of(matrix)
            if slots.min() < 0 or slots.max() >= state.slots:  # forged: there is no such vector
                raise DamageError(f"block {number} is damaged")
        yield number, checksum, np.frombuffer(ids, "<i8").astype(np.int64, copy=False), matrix


def write_edit(connection: Connection, state: FileState, edit: Edit) -> FileState:
    state = replace(state, revision=state.revision + 1, last_id=edit.last_id(state.last_id))
    if len(edit.removed):
        state = _rewrite(connection, state, edit)
        state = _note_removal(connection, state, edit.removed if not edit.replaces else edit.removed[:0])
    if len(edit.ids) and not edit.replaces:
        state = _append(connection, state, edit.ids, edit.codes)
    return state.write(connection)


def write_all(connection: Connection, state: FileState, rows: CodeRows) -> FileState:
    """Write all rows again, in as few blocks as possible."""
    revision = state.revision + 1
    connection.execute("DELETE FROM block")
    connection.execute("DELETE FROM removal")
    state = replace(state, revision=revision, replayable=revision, count=0, digest=0)
    for start in range(0, len(rows), state.capacity):
        part = slice(start, start + state.capacity)
        state = _put(connection, state, None, rows.ids_between(part.start, part.stop), rows.wide(part))
    return state.write(connection)


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
