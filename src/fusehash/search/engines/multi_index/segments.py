"""The tables of multi-index hashing, and how they follow the rows of an index without being built again.

A segment has m tables over a set of codes. Table t lists the codes by their t-th substring, of about log2(n) bits, so
that a bucket holds about one random code; an entry is 8 bytes, the number of the code in the segment and 32 more bits
of it, which tell most far codes without reading them. How many tables: as many as make a search within 6 % of the bits
cheapest.

Rows change, segments do not. Codes that were added or replaced since are compared one by one until there are 16,384 of
them; then they become a segment, merged with earlier ones that are not much larger: every code is put into tables about
log4(n) times. A segment notes which of its ids have another code since; ids that are no longer in the index are passed
over. When half of a segment is gone, it is built again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.engines.multi_index.look_up import FIRST_ROW, fill
from fusehash.search.engines.scan import run, workers
from fusehash.search.ids import find
from fusehash.search.rows import NO_IDS, CodeRows, Ids, Ints

LOOSE = 1 << 14  # codes that are compared one by one before they become a segment
_GROWTH = 4  # a segment is merged with an earlier one unless that is so many times larger
_TYPICAL_RADIUS = 0.06  # of the bits; the number of tables is chosen for it
_ENTRY_COST = 0.05  # of comparing an entry, in look-ups
_LONGEST = 28  # bits of a substring


@dataclass(frozen=True, eq=False)
class Segment:
    """Tables over some codes, under ids."""

    n_bits: int
    n_tables: int
    width: int  # bits of a substring
    starts: NDArray[np.uint32]  # (tables, 2^width + 1)
    entries: NDArray[np.uint64]  # (tables, codes)
    ids: Ids  # of the codes; empty if they count up
    first_id: int
    first_row: int  # where the rows were when the tables were built; only a guess
    stale: Ids  # ascending

    @classmethod
    def of(cls, rows: CodeRows, positions: Ints | None = None) -> Segment:
        """Tables over some rows, ascending; over all of them by default."""
        codes = rows.codes if positions is None else rows.codes[positions]
        ids = np.empty(0, np.int64)
        if rows.first_id is None or positions is not None:
            ids = rows.ids if positions is None else rows.ids_at(positions)
        first_id = rows.first_id or 0
        if len(ids) and int(ids[-1]) - int(ids[0]) == len(ids) - 1:
            first_id, ids = int(ids[0]), ids[:0]
        n_bits = codes.shape[1] * 8
        n_tables, width = shape(n_bits, len(codes))
        starts = np.empty((n_tables, (1 << width) + 1), np.uint32)
        entries = np.empty((n_tables, len(codes)), np.uint64)
        words = codes.view(np.uint64) if codes.shape[1] % 8 == 0 else codes
        run(
            lambda table: fill(words, n_bits, n_bits * table // n_tables, width, starts[table], entries[table]),
            [(table,) for table in range(n_tables)],
            workers(None),
        )
        first_row = 0 if positions is None else int(positions[0])
        return cls(n_bits, n_tables, width, starts, entries, ids, first_id, first_row, NO_IDS)

    def __len__(self) -> int:
        return self.entries.shape[1]

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.entries.nbytes + self.ids.nbytes + self.stale.nbytes

    @cached_property
    def columns(self) -> Ints:
        """The segment as `look_up` takes it."""
        starts, entries, ids, stale = (array.ctypes.data for array in (self.starts, self.entries, self.ids, self.stale))
        shape = self.n_tables, self.width, starts, entries, len(self), ids if len(self.ids) else 0
        row = *shape, self.first_id, stale, len(self.stale), self.first_row
        assert len(row) == FIRST_ROW + 1
        return np.array(row, np.int64)

    def holds(self, ids: Ids) -> NDArray[np.bool_]:
        """Which ids the tables list."""
        if len(self.ids):
            return find(self.ids, ids)[0]
        return (ids >= self.first_id) & (ids - self.first_id < len(self))

    def current(self, rows: CodeRows) -> Ints:
        """Rows whose codes the tables list as they are, ascending."""
        ids = self.ids if len(self.ids) else np.arange(self.first_id, self.first_id + len(self))
        ids = ids[~find(self.stale, ids)[0]] if len(self.stale) else ids
        here, positions = rows.find(ids)
        return positions[here].astype(np.int64, copy=False)

    def without(self, ids: Ids) -> Segment:
        """The same tables, in which some ids are stale."""
        stale = ids[self.holds(ids)]
        return replace(self, stale=np.union1d(self.stale, stale)) if len(stale) else self


def shape(n_bits: int, count: int) -> tuple[int, int]:
    """Number of tables and bits of a substring for so many codes."""
    longest = min(_LONGEST, max(1, math.ceil(math.log2(max(2, count))) + 1))
    radius = round(_TYPICAL_RADIUS * n_bits)

    def cost(n_tables: int) -> float:
        width = min(longest, n_bits // n_tables)
        buckets = sum(math.comb(width, r // n_tables) for r in range(radius + 1))
        return buckets * (1 + _ENTRY_COST * count / (1 << width)) + n_tables

    n_tables = min(range(1, max(2, n_bits // 4 + 1)), key=cost)
    return n_tables, min(longest, n_bits // n_tables)


@dataclass(frozen=True, eq=False)
class Segments:
    """All tables of an index, and the rows that are in none of them."""

    parts: tuple[Segment, ...]
    loose: Ints  # rows, ascending
    codes: Codes  # of the loose rows

    @classmethod
    def of(cls, rows: CodeRows) -> Segments:
        return cls((Segment.of(rows),), np.empty(0, np.int64), rows.codes[:0])

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts) + self.loose.nbytes + self.codes.nbytes

    def after(self, rows: CodeRows, loose_ids: Ids, changed: Ids) -> Segments:
        """The tables for later rows.

        `loose_ids` are the ids of the rows that were loose before, `changed` those that were added or got another code
        since (ascending).
        """
        parts = tuple(part.without(changed) for part in self.parts) if len(changed) else self.parts
        here, positions = rows.find(np.union1d(loose_ids, changed))
        loose = positions[here].astype(np.int64, copy=False)
        if len(loose) > LOOSE or len(rows) < len(loose) + sum(map(len, parts)) // 2:
            parts, loose = _merged(parts, rows, loose), loose[:0]
        return Segments(parts, loose, rows.codes[loose])

    @cached_property
    def columns(self) -> Ints:
        return np.array([part.columns for part in self.parts])


def _merged(parts: tuple[Segment, ...], rows: CodeRows, loose: Ints) -> tuple[Segment, ...]:
    """Segments of all rows: the loose ones become one, together with the segments before that are not much larger."""
    kept, merged = list(parts), loose
    half_gone = [part for part in kept if 2 * len(part.current(rows)) < len(part)]
    while kept and (len(kept[-1]) < _GROWTH * len(merged) or half_gone):
        part = kept.pop()
        half_gone = [other for other in half_gone if other is not part]
        merged = np.union1d(merged, part.current(rows))
    if len(merged) == len(rows):
        return (Segment.of(rows),)
    return (*kept, Segment.of(rows, merged)) if len(merged) else tuple(kept)
