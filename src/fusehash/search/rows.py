"""Codes and their ids in memory, in order of id, and the checks of ids that callers pass.

A `CodeRows` never changes once a search may use it: adding and removing return a new one. Appending (new ids above all
others) writes into spare room past the end, which no earlier `CodeRows` sees. The room is 1/64 of the size: a million
codes of 64 bits take 8 MB and at most 2 % more. Ids without gaps (0, 1, 2, ...) are not stored; others take 8 bytes per
code. Membership is a binary search; there is no dictionary.

A code may have a few more bytes next to it, `extras` (see factors.py). Where codes come and go, those bytes are
appended to them: a wide row is a code and its extras.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError

Ids = NDArray[np.int64]
Ints = NDArray[np.int64]
Distances = NDArray[np.int32]
Nearest = tuple[Distances, Ids]  # (queries, k) each
InRange = tuple[Ints, Distances, Ids]  # offsets (queries + 1), and the results of all queries one after the other
Allowed: TypeAlias = "NDArray[Any] | None"  # what may be returned; None for all
Threads: TypeAlias = "int | None"  # None for all cores

NO_IDS: Ids = np.empty(0, np.int64)
HIGHEST = int(np.iinfo(np.int64).max)


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
        "__weakref__", "_codes", "_extras", "_first_id", "_stored_ids", "changes", "codes", "extras", "n_changes",
    )  # fmt: skip

    def __init__(
        self, n_bytes: int, size: int = 0, capacity: int = 0, *, first_id: int | None = None, n_extra: int = 0
    ) -> None:
        """Room for rows; ids count up from `first_id`, or are stored if it is None and there are any."""
        capacity = max(size, capacity)
        raw = np.empty(capacity * n_bytes + 64, np.uint8)
        skip = -raw.ctypes.data % 64  # on a boundary of 64 bytes no vector straddles two cache lines
        self._codes = raw[skip : skip + capacity * n_bytes].reshape(capacity, n_bytes)
        self._stored_ids: Ids | None = np.empty(capacity, np.int64) if size and first_id is None else None
        self._first_id = first_id or 0
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
        cls, n_bytes: int, size: int, blocks: Iterable[tuple[Ids, Codes]], capacity: int = 0, n_extra: int = 0
    ) -> CodeRows:
        """Rows from blocks of wide rows, each in order of id; there must be `size` of them.

        Raises ValueError if there are more or fewer.
        """
        rows, filled = cls(n_bytes, size, capacity, first_id=0, n_extra=n_extra), 0
        for ids, wide in blocks:
            end = filled + len(ids)
            if end > size:
                raise ValueError("there are more rows than expected")
            rows._put_ids(filled, ids)
            rows._put(slice(filled, end), wide)
            filled = end
        if filled != size:
            raise ValueError("there are fewer rows than expected")
        return rows._sorted()

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, spare room included."""
        return self._codes.nbytes + self._extras.nbytes + (0 if self._stored_ids is None else self._stored_ids.nbytes)

    @property
    def ids(self) -> Ids:
        """All ids; made when asked for if they are not stored."""
        return self.ids_between(0, len(self))

    @property
    def first_id(self) -> int | None:
        """The first id if all of them count up from it, else None."""
        return self._first_id if self._stored_ids is None else None

    def ids_between(self, start: int, stop: int) -> Ids:
        """The ids of some consecutive rows."""
        if self._stored_ids is None:
            stop = min(stop, len(self))
            return np.arange(self._first_id + start, self._first_id + max(start, stop), dtype=np.int64)
        return self._stored_ids[: len(self)][start:stop]

    def ids_at(self, positions: NDArray[Any]) -> Ids:
        """The ids of the rows at some positions."""
        return positions + self._first_id if self._stored_ids is None else self._stored_ids[positions]

    def find(self, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
        """Whether each id is here, and its position (or the position at which it would be)."""
        if self._stored_ids is not None:
            return find(self._stored_ids[: len(self)], ids)
        last_id = self._first_id + len(self) - 1
        here = (ids >= self._first_id) & (ids <= last_id)
        # Clipped before the subtraction, which could overflow.
        return here, (np.clip(ids, self._first_id, last_id + 1) - self._first_id).astype(np.intp, copy=False)

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
        """Some rows, each with its extras appended; the codes themselves if there are none."""
        if not self.extras.shape[1]:
            return self.codes[positions]
        return np.hstack([self.codes[positions], self.extras[positions]])

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
            added._put_ids(0, all_ids)
            return added._after(self, ids)
        added = CodeRows.__new__(CodeRows)
        added._codes, added._stored_ids, added._first_id = self._codes, self._stored_ids, self._first_id
        added._extras = self._extras
        if total > len(self._codes):
            room = self._like(0, total + total // 64 if size else total)
            added._codes, added._extras = room._codes, room._extras
            added._codes[:size], added._extras[:size] = self.codes, self.extras
        added.codes, added.extras = added._codes[:total], added._extras[:total]
        added._put(slice(size, total), wide)
        added._put_ids(size, ids)
        return added._after(self, ids)

    def without(self, positions: NDArray[np.intp]) -> CodeRows:
        """These rows except the ones at `positions`."""
        keep = np.ones(len(self), bool)
        keep[positions] = False
        rest = self._like(int(np.count_nonzero(keep)))
        np.compress(keep, self.codes, axis=0, out=rest.codes)
        np.compress(keep, self.extras, axis=0, out=rest.extras)
        rest._put_ids(0, self.ids_at(np.flatnonzero(keep)))
        return rest._after(self, NO_IDS)

    def with_codes(self, positions: NDArray[np.intp], wide: Codes) -> CodeRows:
        """These rows with other codes and extras at `positions`."""
        changed = self.trimmed()
        changed._put(positions, wide)
        return changed._after(self, self.ids_at(positions))

    def trimmed(self) -> CodeRows:
        """A copy without spare room."""
        copy = self._like(len(self), first_id=self._first_id)
        copy.codes[:], copy.extras[:] = self.codes, self.extras
        if self._stored_ids is not None:
            copy._stored_ids = self.ids.copy()
        return copy._after(self, NO_IDS)

    def _like(self, size: int, capacity: int = 0, first_id: int = 0) -> CodeRows:
        """Room for rows of the same widths."""
        widths = self.codes.shape[1], self.extras.shape[1]
        return CodeRows(widths[0], size, capacity, first_id=first_id, n_extra=widths[1])

    def _put(self, where: Any, wide: Codes) -> None:
        """Set some rows."""
        n_bytes = self.codes.shape[1]
        self.codes[where] = wide[:, :n_bytes]
        if self.extras.shape[1]:
            self.extras[where] = wide[:, n_bytes:]

    def _put_ids(self, start: int, ids: Ids) -> None:
        """Set the ids of the rows from `start` on, the last ones so far; store them only if there are gaps."""
        if self._stored_ids is None and len(ids):
            first = self._first_id if start else int(ids[0])
            ascend = int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool(np.all(ids[1:] > ids[:-1]))
            if ascend and int(ids[0]) == first + start:
                self._first_id = first
                return
            self._stored_ids = np.empty(len(self._codes), np.int64)
            self._stored_ids[:start] = np.arange(first, first + start)
        if self._stored_ids is not None:
            if start + len(ids) > len(self._stored_ids):
                larger = np.empty(len(self._codes), np.int64)
                larger[:start] = self._stored_ids[:start]
                self._stored_ids = larger
            self._stored_ids[start : start + len(ids)] = ids

    def _sorted(self) -> CodeRows:
        """The same rows in order of id; a copy if they are not."""
        if self._stored_ids is None or np.all(self.ids[1:] > self.ids[:-1]):
            return self
        order = np.argsort(self.ids, kind="stable")
        copy = self._like(len(self))
        np.take(self.codes, order, axis=0, out=copy.codes)
        np.take(self.extras, order, axis=0, out=copy.extras)
        copy._put_ids(0, self.ids[order])
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

    `vectors` are those of `ids`, as bytes; None if there are none or they stay.
    """

    removed: Ids
    ids: Ids
    codes: Codes
    vectors: Codes | None = None

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


def find(ascending: Ids, ids: Ids) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Whether each id is among ascending ones, and its position (or the position at which it would be)."""
    positions = np.searchsorted(ascending, ids)
    if not len(ascending):
        return np.zeros(len(ids), bool), positions
    return ascending[np.minimum(positions, len(ascending) - 1)] == ids, positions


def check_ids(ids: ArrayLike, count: int | None = None) -> Ids:
    """Ids as a vector of 64-bit integers, `count` of them."""
    vector = np.asarray(ids)
    if vector.size == 0:
        vector = vector.astype(np.int64)
    if vector.dtype == object and all(isinstance(id, (int, np.integer)) for id in vector.ravel()):
        raise DataError("Ids must be 64-bit integers. Got larger ones.")
    if vector.ndim != 1 or vector.dtype.kind not in "iu":
        raise DataError(f"Ids must be a vector of integers. Got {vector.dtype} of shape {vector.shape} instead.")
    if vector.dtype == np.uint64 and vector.size and int(vector.max()) > HIGHEST:
        raise DataError(f"Ids must be 64-bit integers. Got {vector.max()} instead.")
    if count is not None and len(vector) != count:
        raise DataError(f"There must be one id for each of {count} codes. Got {len(vector)} instead.")
    return vector.astype(np.int64)


def check_different(ids: Ids) -> None:
    """No id may occur twice."""
    values, counts = np.unique(ids, return_counts=True)
    if len(values) != len(ids):
        raise DataError(f"Ids must differ from each other. Got {values[counts > 1][0]} more than once.")


def check_new(taken: Ids) -> None:
    """`taken` are the ids to add that are in the index already; there must be none."""
    if len(taken):
        raise DataError(f"Ids must be new. Id {taken[0]} is in the index already; replace() changes its code.")


def check_here(ids: Ids, here: NDArray[np.bool_]) -> None:
    """Every id must be in the index."""
    if not here.all():
        missing = ids[~here]
        others = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"Ids must be in the index. Id {missing[0]}{others} is not.")


def count_on(last_id: int, count: int) -> Ids:
    """The next `count` ids after the highest one ever used."""
    if last_id + count > HIGHEST:
        raise DataError("There are no higher ids left; pass ids.")
    return np.arange(last_id + 1, last_id + 1 + count, dtype=np.int64)


def selected(mask: NDArray[np.bool_], count: int) -> Ints:
    """Positions that a mask over `count` codes selects."""
    if mask.shape != (count,):
        raise DataError(f"A mask must have one entry for each of {count} codes. Got shape {mask.shape} instead.")
    return np.flatnonzero(mask)
