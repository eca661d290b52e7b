"""The catalogue: texts, labels, names, days and images of all items, checked, for word searches, filters and lists.

Once there is one, the next reads no more than the ids and checksums of all items, and the items that have changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from fusehash.collection import store
from fusehash.collection.store import CollectionState, Row, Totals
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError

T = TypeVar("T")


@dataclass(frozen=True)
class Catalogue:
    """All items at one revision."""

    revision: int
    totals: Totals
    ids: Ids  # ascending
    checksums: Ids
    texts: dict[int, str]  # by id, ascending, of the items that have one
    labels: dict[int, tuple[str, ...]]  # likewise
    keys: dict[int, str]
    images: dict[int, bytes]  # hashes of the images, of the items that have one
    days: dict[int, str]  # as YYYY-MM-DD, of the items whose image has one

    @classmethod
    def read(cls, database: Connection, before: Catalogue | None = None) -> Catalogue:
        """The catalogue of what is committed now; what an earlier one has is not read again."""
        state = CollectionState.read(database)
        if before is not None and before.revision == state.revision:
            return before
        texts: dict[int, str] = {}
        labels: dict[int, tuple[str, ...]] = {}
        keys: dict[int, str] = {}
        images: dict[int, bytes] = {}
        days: dict[int, str] = {}
        if before is None or state.totals is None:
            rows = store.read_rows(database)
            ids, checksums = _columns((row[0], row[-1]) for row in rows)
        else:
            ids, checksums = _columns(database.execute("SELECT id, checksum FROM item ORDER BY id"))
            is_same = before._has(ids, checksums)
            same, others = set(ids[is_same].tolist()), ids[~is_same].tolist()
            texts = {id: text for id, text in before.texts.items() if id in same}
            labels = {id: names for id, names in before.labels.items() if id in same}
            keys = {id: key for id, key in before.keys.items() if id in same}
            images = {id: image for id, image in before.images.items() if id in same}
            days = {id: day for id, day in before.days.items() if id in same}
            rows = store.rows_by_id(database, others)
            if [(row[0], row[-1]) for row in rows] != list(zip(others, checksums[~is_same].tolist(), strict=True)):
                raise DamageError("items are missing from it or damaged")
        totals = state.totals or Totals().changed([], rows)
        totals.check(ids, checksums)
        texts |= {row[0]: row[2] for row in rows if row[2] is not None}
        labels |= {row[0]: names for row in rows if (names := store.labels_of(row[3]))}
        keys |= {row[0]: row[1] for row in rows}
        images |= {row[0]: row[4] for row in rows if row[4] is not None}
        days |= {row[0]: day for row in rows if (day := store.day_of(row))}
        return cls(
            state.revision,
            totals,
            ids,
            checksums,
            _by_id(texts),
            _by_id(labels),
            _by_id(keys),
            _by_id(images),
            _by_id(days),
        )

    @cached_property
    def by_label(self) -> dict[str, Ids]:
        """The ids of the items with each label."""
        ids: dict[str, list[int]] = defaultdict(list)
        for id, names in self.labels.items():
            for name in names:
                ids[name].append(id)
        return {name: np.array(listed, np.int64) for name, listed in ids.items()}

    def with_label(self, label: str) -> Ids:
        return self.by_label.get(label, self.ids[:0])

    @cached_property
    def by_image(self) -> dict[bytes, list[int]]:
        """The ids of the items with each image, by the hash of its content."""
        ids: dict[bytes, list[int]] = defaultdict(list)
        for id, image in self.images.items():
            ids[image].append(id)
        return dict(ids)

    @cached_property
    def folders(self) -> dict[str, Ids]:
        """The ids of the items in each folder, by the part of their keys before the last slash."""
        ids: dict[str, list[int]] = defaultdict(list)
        for id, key in self.keys.items():
            ids[key.rpartition("/")[0]].append(id)
        return {folder: np.array(listed, np.int64) for folder, listed in ids.items()}

    def _has(self, ids: Ids, checksums: Ids) -> Any:
        """Which of some ids are here with the same checksum."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return (self.ids[rows] == ids) & (self.checksums[rows] == checksums)


def _by_id(column: dict[int, T]) -> dict[int, T]:
    """A column in order of id."""
    return dict(sorted(column.items()))


def _columns(rows: Iterable[Row]) -> tuple[Ids, Ids]:
    """Ids and checksums as arrays."""
    pairs = list(rows)
    if not all(type(id) is int and type(checksum) is int for id, checksum in pairs):
        raise DamageError("checksums of items are damaged")
    ids, checksums = np.array(pairs, np.int64).reshape(-1, 2).T
    return ids, checksums
