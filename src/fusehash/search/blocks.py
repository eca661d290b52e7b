"""What an index file holds: blocks of codes in an SQLite database, with a checksum each.

    state    one row: width, generation (counts the changes), number of codes, highest id ever used, sum of checksums
    block    up to 256 KB of codes and their ids, ascending, as two blobs; `generation` tells when it was last written
    removal  the ids of the latest removals, so that a reader catches up without reading everything

A call that adds codes writes a new block and takes in the blocks before it that are no larger, as long as they fit into
one: n codes added one by one are rewritten about log2(n) times, and blocks stay few. A call that removes or replaces
rewrites the blocks that it touches. The functions here run inside a transaction that storage.py has begun.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace

import numpy as np

from fusehash.bits import Codes, check_codes
from fusehash.search.rows import Ids, Rows

APPLICATION_ID = 0x46484958  # "FHIX"
FORMAT = 1
SCHEMA = (
    "CREATE TABLE state (only INTEGER PRIMARY KEY, n_bits INTEGER, generation INTEGER, count INTEGER, last_id INTEGER, "
    "digest INTEGER, replayable INTEGER, checksum INTEGER)",
    "CREATE TABLE block (number INTEGER PRIMARY KEY, generation INTEGER, first_id INTEGER, last_id INTEGER, "
    "count INTEGER, checksum INTEGER, ids BLOB, codes BLOB)",
    "CREATE TABLE removal (generation INTEGER PRIMARY KEY, checksum INTEGER, ids BLOB)",
)
_BLOCK_BYTES = 1 << 18
_REMOVALS = 256  # generations that a reader may lag behind and still catch up block by block
_REMOVED_IDS = 1 << 16  # a larger removal is not kept for readers, who then read everything
_DIGEST = (1 << 62) - 1


class DamageError(Exception):
    """What a file says contradicts itself; storage.py turns this into an error that names the file."""


@dataclass(frozen=True)
class State:
    """The one row of `state`."""

    n_bits: int
    generation: int = 0
    count: int = 0
    last_id: int = -1
    digest: int = 0
    replayable: int = 0  # the oldest generation from which a reader can catch up

    def write(self, database: sqlite3.Connection) -> None:
        row = astuple(self)
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?, ?)", (*row, _checksum(row)))

    @classmethod
    def read(cls, database: sqlite3.Connection) -> State:
        found = database.execute(
            "SELECT n_bits, generation, count, last_id, digest, replayable, checksum FROM state WHERE only = 1"
        ).fetchone()
        if found is None or not all(isinstance(value, int) for value in found) or _checksum(found[:-1]) != found[-1]:
            raise DamageError("its state is damaged")
        return cls(*found[:-1])


@dataclass(frozen=True)
class Change:
    """What a call changes: ids that go, codes that come. The same ids in both mean other codes for them."""

    removed: Ids
    ids: Ids
    codes: Codes

    @property
    def replaces(self) -> bool:
        return len(self.removed) > 0 and len(self.ids) > 0

    def apply(self, rows: Rows) -> Rows:
        """The rows after the change; ids that go must be there, ids that come must not."""
        _, positions = rows.find(self.removed)
        if self.replaces:
            return rows.with_codes(positions, self.codes)
        if len(self.removed):
            return rows.without(positions)
        return rows.with_added(self.ids, self.codes) if len(self.ids) else rows


def check_schema(database: sqlite3.Connection) -> None:
    """Nothing but our own tables may be in the file."""
    found = {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master")}
    if found != set(SCHEMA):
        raise DamageError("it does not hold the tables of an index")


def load(database: sqlite3.Connection, state: State) -> Rows:
    """All rows of the file, checked."""
    rows = Rows(state.n_bits // 8, *_sizes(database, state))
    filled, digest = 0, 0
    for _, checksum, ids, codes in _read(database, state, "ORDER BY first_id"):
        end = filled + len(ids)
        if end > len(rows):
            raise DamageError("it holds more codes than it should")
        rows.ids[filled:end], rows.codes[filled:end] = ids, codes
        filled, digest = end, (digest + checksum) & _DIGEST
    if filled != len(rows) or digest != state.digest:
        raise DamageError("codes are missing from it")
    if np.any(rows.ids[1:] <= rows.ids[:-1]):
        order = np.argsort(rows.ids, kind="stable")
        ordered = Rows(state.n_bits // 8, len(rows))
        np.take(rows.ids, order, out=ordered.ids)
        np.take(rows.codes, order, axis=0, out=ordered.codes)
        rows = ordered
        if np.any(rows.ids[1:] <= rows.ids[:-1]):
            raise DamageError("an id occurs twice in it")
    return rows


def catch_up(database: sqlite3.Connection, state: State, rows: Rows, generation: int) -> Rows:
    """Bring rows of an earlier generation up to date, reading only what has changed where that is less."""
    query = "SELECT coalesce(sum(count), 0) FROM block WHERE generation > ?"
    (changed,) = database.execute(query, (generation,)).fetchone()
    if generation < state.replayable or 2 * changed > state.count:
        return load(database, state)
    for checksum, blob in database.execute("SELECT checksum, ids FROM removal WHERE generation > ?", (generation,)):
        if zlib.crc32(blob) != checksum:
            raise DamageError("a removal is damaged")
        removed = np.frombuffer(blob, "<i8").astype(np.int64)
        here, positions = rows.find(removed)
        rows = rows.without(positions[here]) if here.any() else rows
    for _, _, ids, codes in _read(database, state, f"WHERE generation > {generation} ORDER BY first_id"):
        here, positions = rows.find(ids)
        if here.any() and np.any(rows.codes[positions[here]] != codes[here]):
            rows = rows.with_codes(positions[here], codes[here])
        rows = rows.with_added(ids[~here], codes[~here]) if not here.all() else rows
    return rows if len(rows) == state.count else load(database, state)


def write(database: sqlite3.Connection, state: State, change: Change) -> State:
    """Write a change that `Change.apply` accepts, and the state after it."""
    state = replace(state, generation=state.generation + 1)
    if len(change.removed):
        state = _rewrite(database, state, change)
        state = _remember(database, state, change.removed if not change.replaces else change.removed[:0])
    if len(change.ids) and not change.replaces:
        state = _append(database, state, change.ids, change.codes)
    state.write(database)
    return state


def write_all(database: sqlite3.Connection, state: State, rows: Rows) -> State:
    """Write all rows anew, in as few blocks as possible."""
    generation = state.generation + 1
    database.execute("DELETE FROM block")
    database.execute("DELETE FROM removal")
    state = replace(state, generation=generation, replayable=generation, count=0, digest=0)
    state = _insert(database, state, rows.ids, rows.codes)
    state.write(database)
    return state


def _sizes(database: sqlite3.Connection, state: State) -> tuple[int, int]:
    """Rows to make room for; taken from the blobs, since a damaged count must not allocate the memory it claims."""
    (size,) = database.execute("SELECT coalesce(sum(length(ids)), 0) / 8 FROM block").fetchone()
    if size != state.count:
        raise DamageError("codes are missing from it")
    return size, size + size // 64


def _read(database: sqlite3.Connection, state: State, which: str) -> Iterator[tuple[int, int, Ids, Codes]]:
    """Number, checksum, ids and codes of blocks, checked."""
    columns = "number, generation, first_id, last_id, count, checksum, ids, codes"
    for number, *head, checksum, ids, codes in database.execute(f"SELECT {columns} FROM block {which}"):
        if not (isinstance(ids, bytes) and isinstance(codes, bytes)) or _checksum(head, ids, codes) != checksum:
            raise DamageError(f"block {number} is damaged")
        yield (
            number,
            checksum,
            np.frombuffer(ids, "<i8").astype(np.int64, copy=False),
            np.frombuffer(codes, np.uint8).reshape(-1, state.n_bits // 8),
        )


def _append(database: sqlite3.Connection, state: State, ids: Ids, codes: Codes) -> State:
    """Write new rows, together with the last blocks where those are no larger and all fit into one block."""
    room = _capacity(state)
    absorbed: list[int] = []
    size = len(ids)
    for number, count in database.execute("SELECT number, count FROM block ORDER BY number DESC"):
        if count > size or size + count > room:
            break
        absorbed.append(number)
        size += count
    if absorbed:
        parts = list(_read(database, state, f"WHERE number >= {absorbed[-1]}"))
        ids, codes = (
            np.concatenate(columns) for columns in ((ids, *(p[2] for p in parts)), (codes, *(p[3] for p in parts)))
        )
        order = np.argsort(ids, kind="stable")
        ids, codes = ids[order], codes[order]
        database.execute("DELETE FROM block WHERE number >= ?", (absorbed[-1],))
        gone = sum(part[1] for part in parts)
        state = replace(
            state, count=state.count - sum(len(part[2]) for part in parts), digest=state.digest - gone & _DIGEST
        )
    return _insert(database, state, ids, codes)


def _insert(database: sqlite3.Connection, state: State, ids: Ids, codes: Codes) -> State:
    room = _capacity(state)
    for start in range(0, len(ids), room):
        part = slice(start, start + room)
        row, checksum = _block(state, ids[part], codes[part])
        database.execute("INSERT INTO block VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)
        state = replace(state, count=state.count + len(ids[part]), digest=state.digest + checksum & _DIGEST)
    return state


def _rewrite(database: sqlite3.Connection, state: State, change: Change) -> State:
    """Remove ids from the blocks that hold them, or give them other codes there."""
    missing = len(change.removed)
    for number, first, last in database.execute("SELECT number, first_id, last_id FROM block").fetchall():
        begin, end = np.searchsorted(change.removed, first), np.searchsorted(change.removed, last, side="right")
        if begin == end:
            continue
        ((_, old, ids, codes),) = _read(database, state, f"WHERE number = {number}")
        wanted = change.removed[begin:end]
        spots = np.searchsorted(ids, wanted)
        here = ids[np.minimum(spots, len(ids) - 1)] == wanted
        if not here.any():
            continue
        missing -= np.count_nonzero(here)
        state = replace(state, count=state.count - len(ids), digest=state.digest - old & _DIGEST)
        if change.replaces:
            codes = codes.copy()
            codes[spots[here]] = change.codes[begin:end][here]
        else:
            ids, codes = np.delete(ids, spots[here]), np.delete(codes, spots[here], axis=0)
        database.execute("DELETE FROM block WHERE number = ?", (number,))
        if len(ids):
            row, checksum = _block(state, ids, codes)
            database.execute("INSERT INTO block VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (number, *row))
            state = replace(state, count=state.count + len(ids), digest=state.digest + checksum & _DIGEST)
    if missing:
        raise DamageError("codes are missing from it")
    return state


def _remember(database: sqlite3.Connection, state: State, removed: Ids) -> State:
    """Note a removal for readers that have yet to catch up, and forget the oldest ones."""
    oldest = state.generation - _REMOVALS
    if len(removed) > _REMOVED_IDS:
        oldest = state.generation
    elif len(removed):
        blob = removed.astype("<i8").tobytes()
        database.execute("INSERT INTO removal VALUES (?, ?, ?)", (state.generation, zlib.crc32(blob), blob))
    database.execute("DELETE FROM removal WHERE generation <= ?", (oldest,))
    return replace(state, replayable=max(state.replayable, oldest))


def _block(state: State, ids: Ids, codes: Codes) -> tuple[tuple[object, ...], int]:
    """The columns of a block but for its number, and its checksum."""
    blobs = ids.astype("<i8", copy=False).tobytes(), check_codes(codes, state.n_bits).tobytes()
    head = state.generation, int(ids[0]), int(ids[-1]), len(ids)
    checksum = _checksum(head, *blobs)
    return (*head, checksum, *blobs), checksum


def _checksum(head: tuple[int, ...] | list[int], *blobs: bytes) -> int:
    checksum = zlib.crc32(repr(tuple(head)).encode())
    for blob in blobs:
        checksum = zlib.crc32(blob, checksum)
    return checksum


def _capacity(state: State) -> int:
    return _BLOCK_BYTES // (8 + state.n_bits // 8)
