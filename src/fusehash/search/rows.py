"""Codes and their ids in memory, in order of id.

A `CodeRows` never changes once a search may use it: adding and removing return a new one. Appending (new ids above all
others) writes into spare room past the end, which no earlier `CodeRows` sees. The room is 1/64 of the size: a million
codes of 64 bits take 8 MB and at most 2 % more. Ids without gaps (0, 1, 2, ...) are not stored; others take 8 bytes per
code. Membership is a binary search; there is no dictionary.

A code may have a few more bytes next to it, `extras` (see factors.py), and a slot, which says where its vector is (see
vectors). Where codes come and go, those are appended to them: a wide row is a code, its extras and its slot in eight
bytes. Slots are not stored as long as they count up from row to row, as they do while codes are only added in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.search.counting import Counting
from fusehash.search.ids import check_here, find, selected

Ids = NDArray[np.int64]
Ints = NDArray[np.int64]
Reals = NDArray[np.floating[Any]]
Distances = NDArray[np.int32]
Nearest = tuple[Distances, Ids]  # (queries, k) each
InRange = tuple[Ints, Distances, Ids]  # offsets (queries + 1), and the results of all queries one after the other
Allowed: TypeAlias = "NDArray[Any] | None"  # what may be returned; None for all
Threads: TypeAlias = "int | None"  # None for all cores

NO_IDS: Ids = np.empty(0, np.int64)
SLOT_BYTES = 8  # of a slot in a wide row


class Changes:
    """The ids that successive `CodeRows` added or gave another code, so that tables over earlier rows can follow.

    If more was noted than following would be worth, it `is_over`, and tables must be built again.
    """

    def __init__(self) -> None:
        self.ids: list[Ids] = []  # one entry per change; `CodeRows.n_changes` says how many have happened
        self.is_over = False
        self._noted = 0

    def note(self, number: int, ids: Ids, n_rows: int) -> None:
        """Note change `number`. Later ones that were noted before were not committed."""
        self.ids[number:] = [ids]
        self._noted += len(ids) + 16  # about the memory of an array
        if self._noted > 4 * n_rows + (1 << 20):
            self.ids, self.is_over = [], True


class CodeRows:
    """`ids`, ascending and without repetition, and one row of `codes` and one of `extras` for each."""

    __slots__ = (
        "__weakref__", "_codes", "_extras", "_ids", "_slots", "changes", "codes", "extras", "n_changes",
    )  # fmt: skip

    def __init__(
        self,
        n_bytes: int,
        size: int = 0,
        capacity: int = 0,
        *,
        first_id: int | None = None,
        n_extra: int = 0,
        has_slots: bool = False,
    ) -> None:
        """Room for rows; ids count up from `first_id`, or are stored if it is None and there are any."""
        capacity = max(size, capacity)
        raw = np.empty(capacity * n_bytes + 64, np.uint8)
        skip = -raw.ctypes.data % 64  # on a boundary of 64 bytes no vector straddles two cache lines
        self._codes = raw[skip : skip + capacity * n_bytes].reshape(capacity, n_bytes)
        self._ids = Counting(first_id or 0, np.empty(capacity, np.int64) if size and first_id is None else None)
        self._slots = Counting() if has_slots else None
        self._extras: Codes = np.empty((capacity, n_extra), np.uint8)
        self.codes: Codes = self._codes[:size]
        self.extras: Codes = self._extras[:size]
        self.changes: Changes | None = None
        self.n_changes = 0

    @classmethod
    def numbered(cls, codes: Codes) -> CodeRows:
        """Codes under the ids 0, 1, 2, ..."""
        rows = cls(codes.shape[1], len(codes), first_id=0)
        rows.codes[:] = codes
        return rows

    @classmethod
    def gathered(
        cls, n_bytes: int, size: int, blocks: Iterable[tuple[Ids, Codes]], capacity: int = 0, **options: Any
    ) -> CodeRows:
        """Rows from blocks of wide rows, each in order of id; there must be `size` of them.

        Raises ValueError if there are more or fewer.
        """
        rows, filled = cls(n_bytes, size, capacity, first_id=0, **options), 0
        for ids, wide in blocks:
            end = filled + len(ids)
            if end > size:
                raise ValueError("there are more rows than expected")
            rows._put(slice(filled, end), wide)
            rows._put_numbers(filled, ids, wide)
            filled = end
        if filled != size:
            raise ValueError("there are fewer rows than expected")
        return rows._sorted()

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, spare room included."""
        slots = 0 if self._slots is None else self._slots.nbytes
        return self._codes.nbytes + self._extras.nbytes + self._ids.nbytes + slots

    @property
    def ids(self) -> Ids:
        """All ids; made when asked for if they are not stored."""
        return self.ids_between(0, len(self))

    @property
    def first_id(self) -> int | None:
        """The first id if all of them count up from it, else None."""
        return None if self._ids.is_stored else self._ids.first

    @property
    def has_ordered_slots(self) -> bool:
        """Whether the slot of every row is its position."""
        return self._slots is not None and not self._slots.is_stored and self._slots.first == 0

    def ids_between(self, start: int, stop: int) -> Ids:
        """The ids of some consecutive rows."""
        return self._ids.between(start, min(stop, len(self)))

    def ids_at(self, positions: NDArray[Any]) -> Ids:
        """The ids of the rows at some positions."""
        return self._ids.at(positions)

    def slots_at(self, positions: NDArray[Any]) -> Ints:
        """The slots of the rows at some positions."""
        assert self._slots is not None
        return self._slots.at(positions)

    def find(self, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Whether each id is here, and its position (or the position at which it would be)."""
        if self._ids.is_stored:
            return find(self.ids, ids)
        first_id, last_id = self._ids.first, self._ids.first + len(self) - 1
        here = (ids >= first_id) & (ids <= last_id)
        # Clipped before the subtraction, which could overflow.
        return here, (np.clip(ids, first_id, last_id + 1) - first_id).astype(np.intp, copy=False)

    def positions(self, ids: Ids) -> NDArray[np.intp]:
        """Positions of ids, all of which must be here."""
        here, positions = self.find(ids)
        check_here(ids, here)
        return positions

    def allowed(self, allowed: Allowed) -> Ints | None:
        """Positions of ids, as far as they are here, or of a mask over all ids; None for None."""
        if allowed is None:
            return None
        if allowed.dtype == bool:
            return selected(allowed, len(self))
        here, positions = self.find(allowed)
        return positions[here].astype(np.int64, copy=False)

    def wide(self, positions: Any = slice(None)) -> Codes:
        """Some rows (positions, or a slice of step 1), each with its extras and its slot appended.

        The codes themselves if there are none.
        """
        parts = [self.codes[positions]]
        if self.extras.shape[1]:
            parts.append(self.extras[positions])
        if self._slots is not None:
            is_slice = isinstance(positions, slice)
            slots = self._slots.between(*positions.indices(len(self))[:2]) if is_slice else self._slots.at(positions)
            parts.append(slot_bytes(slots))
        return parts[0] if len(parts) == 1 else np.hstack(parts)

    def with_added(self, ids: Ids, wide: Codes) -> CodeRows:
        """These rows and new wide ones; `ids` ascending, none of them here yet.

        Call it at most once per object: the results of two calls would share the spare room.
        """
        size, total = len(self), len(self) + len(ids)
        if not len(ids):
            return self
        if size and ids[0] < self.ids_between(size - 1, size)[0]:
            positions = self.find(ids)[1] + np.arange(len(ids))
            is_old = np.ones(total, bool)
            is_old[positions] = False
            added = self._like(total)
            added._put(positions, wide)
            added.codes[is_old], added.extras[is_old] = self.codes, self.extras
            all_ids = np.empty(total, np.int64)
            all_ids[positions], all_ids[is_old] = ids, self.ids
            added._ids.put(0, all_ids, total)
            if self._slots is not None and added._slots is not None:
                all_slots = np.empty(total, np.int64)
                all_slots[positions], all_slots[is_old] = slots_of(wide), self._slots.between(0, size)
                added._slots.put(0, all_slots, total)
            return added._after(self, ids)
        added = CodeRows.__new__(CodeRows)
        added._codes, added._extras = self._codes, self._extras
        added._ids, added._slots = self._ids.copy(), None if self._slots is None else self._slots.copy()
        if total > len(self._codes):
            room = self._like(0, total + total // 64 if size else total)
            added._codes, added._extras = room._codes, room._extras
            added._codes[:size], added._extras[:size] = self.codes, self.extras
        added.codes, added.extras = added._codes[:total], added._extras[:total]
        added._put(slice(size, total), wide)
        added._put_numbers(size, ids, wide)
        return added._after(self, ids)

    def without(self, positions: NDArray[np.intp]) -> CodeRows:
        """These rows except the ones at `positions`."""
        keep = np.ones(len(self), bool)
        keep[positions] = False
        rest, kept = self._like(int(np.count_nonzero(keep))), np.flatnonzero(keep)
        np.compress(keep, self.codes, axis=0, out=rest.codes)
        np.compress(keep, self.extras, axis=0, out=rest.extras)
        rest._take_numbers(self, kept)
        return rest._after(self, NO_IDS)

    def with_codes(self, positions: NDArray[np.intp], wide: Codes) -> CodeRows:
        """These rows with other codes, extras and slots at `positions`."""
        changed = self.trimmed()
        changed._put(positions, wide)
        if changed._slots is not None:
            changed._slots.set(positions, slots_of(wide), len(self))
        return changed._after(self, self.ids_at(positions))

    def with_slots(self) -> CodeRows:
        """These rows, the slots of which are their positions."""
        same = self.trimmed()
        same._slots = Counting()
        return same

    def trimmed(self) -> CodeRows:
        """A copy without spare room."""
        copy, size = self._like(len(self)), len(self)
        copy.codes[:], copy.extras[:] = self.codes, self.extras
        copy._ids = self._ids.copy(size)
        copy._slots = None if self._slots is None else self._slots.copy(size)
        return copy._after(self, NO_IDS)

    def _like(self, size: int, capacity: int = 0) -> CodeRows:
        """Room for rows of the same kind."""
        widths = self.codes.shape[1], self.extras.shape[1]
        return CodeRows(widths[0], size, capacity, first_id=0, n_extra=widths[1], has_slots=self._slots is not None)

    def _put(self, where: Any, wide: Codes) -> None:
        """Set the codes and extras of some rows."""
        n_bytes, n_extra = self.codes.shape[1], self.extras.shape[1]
        self.codes[where] = wide[:, :n_bytes]
        if n_extra:
            self.extras[where] = wide[:, n_bytes : n_bytes + n_extra]

    def _put_numbers(self, start: int, ids: Ids, wide: Codes) -> None:
        """Set the ids and slots of the rows from `start` on, the last ones so far."""
        self._ids.put(start, ids, len(self._codes))
        if self._slots is not None:
            self._slots.put(start, slots_of(wide), len(self._codes))

    def _take_numbers(self, other: CodeRows, positions: NDArray[np.intp]) -> None:
        """Set all ids and slots, to those of some rows of another object."""
        self._ids.put(0, other.ids_at(positions), len(self._codes))
        if self._slots is not None:
            self._slots.put(0, other.slots_at(positions), len(self._codes))

    def _sorted(self) -> CodeRows:
        """The same rows in order of id; a copy if they are not."""
        if not self._ids.is_stored or np.all(self.ids[1:] > self.ids[:-1]):
            return self
        order = np.argsort(self.ids, kind="stable")
        copy = self._like(len(self))
        np.take(self.codes, order, axis=0, out=copy.codes)
        np.take(self.extras, order, axis=0, out=copy.extras)
        copy._take_numbers(self, order)
        return copy

    def _after(self, before: CodeRows, changed: Ids) -> CodeRows:
        """Note what changed since `before`, if somebody keeps tables over it."""
        self.changes, self.n_changes = before.changes, before.n_changes
        if self.changes is not None:
            if self.changes.is_over:
                self.changes = None
                return self
            self.changes.note(before.n_changes, changed, len(self))
            self.n_changes += 1
        return self


@dataclass(frozen=True)
class Edit:
    """What one call changes: ids to remove, and ids (ascending) with wide rows to add. Ids in both get other codes.

    `vectors` are those of `ids`, not yet as they are stored; None if there are none or they stay.
    """

    removed: Ids
    ids: Ids
    codes: Codes
    vectors: Reals | None = None

    @property
    def replaces(self) -> bool:
        return len(self.removed) > 0 and len(self.ids) > 0

    def apply(self, rows: CodeRows) -> CodeRows:
        """The rows after the change; ids to remove must be there, ids to add must not."""
        if self.replaces:
            return rows.with_codes(rows.find(self.removed)[1], self.codes)
        if len(self.removed):
            return rows.without(rows.find(self.removed)[1])
        return rows.with_added(self.ids, self.codes) if len(self.ids) else rows

    def last_id(self, before: int) -> int:
        """The highest id ever used, after the change."""
        return max(before, int(self.ids[-1])) if len(self.ids) else before


def slots_of(wide: Codes) -> Ints:
    """The slots at the end of wide rows."""
    return np.ascontiguousarray(wide[:, -SLOT_BYTES:]).view("<i8")[:, 0].astype(np.int64, copy=False)


def slot_bytes(slots: Ints) -> Codes:
    """Slots as they are in wide rows."""
    return np.ascontiguousarray(slots, "<i8").view(np.uint8).reshape(len(slots), SLOT_BYTES)
