"""The catalogue: ids, texts and labels of all items, checked, for word searches, labels and lists.

Once there is one, the next reads no more than the ids and checksums of all items, and the items that have changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fusehash.collection import store
from fusehash.collection.store import CollectionState, Row, Totals
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError


@dataclass(frozen=True)
class Catalogue:
    """All items at one revision."""

    revision: int
    totals: Totals
    ids: Ids  # ascending
    checksums: Ids
    texts: dict[int, str]  # by id, ascending, of the items that have one
    labels: dict[int, tuple[str, ...]]  # likewise

    @classmethod
    def read(cls, database: Connection, before: Catalogue | None = None) -> Catalogue:
        """The catalogue of what is committed now; what an earlier one has is not read again."""
        state = CollectionState.read(database)
        if before is not None and before.revision == state.revision:
            return before
        texts: dict[int, str] = {}
        labels: dict[int, tuple[str, ...]] = {}
        if before is None or state.totals is None:
            rows = store.read_rows(database)
            ids, checksums = _columns((row[0], row[-1]) for row in rows)
        else:
            ids, checksums = _columns(database.execute("SELECT id, checksum FROM item ORDER BY id"))
            is_same = before._has(ids, checksums)
            same, others = set(ids[is_same].tolist()), ids[~is_same].tolist()
            texts = {id: text for id, text in before.texts.items() if id in same}
            labels = {id: names for id, names in before.labels.items() if id in same}
            rows = store.rows_by_id(database, others)
            if [(row[0], row[-1]) for row in rows] != list(zip(others, checksums[~is_same].tolist(), strict=True)):
                raise DamageError("items are missing from it or damaged")
        totals = state.totals or Totals().changed([], rows)
        totals.check(ids, checksums)
        texts |= {row[0]: row[2] for row in rows if row[2] is not None}
        labels |= {row[0]: names for row in rows if (names := store.labels_of(row[3]))}
        return cls(state.revision, totals, ids, checksums, dict(sorted(texts.items())), dict(sorted(labels.items())))

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

    def _has(self, ids: Ids, checksums: Ids) -> Any:
        """Which of some ids are here with the same checksum."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return (self.ids[rows] == ids) & (self.checksums[rows] == checksums)


def _columns(rows: Iterable[Row]) -> tuple[Ids, Ids]:
    """Ids and checksums as arrays."""
    pairs = list(rows)
    if not all(type(id) is int and type(checksum) is int for id, checksum in pairs):
        raise DamageError("checksums of items are damaged")
    ids, checksums = np.array(pairs, np.int64).reshape(-1, 2).T
    return ids, checksums
