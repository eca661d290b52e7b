"""Filters: which items may be found at all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import numpy as np

from fusehash.collection.catalogue import Catalogue
from fusehash.collection.items import storable_text
from fusehash.collection.queries.language import Clause
from fusehash.collection.queries.words import Words, spelled
from fusehash.errors import DataError
from fusehash.parameters import choice
from fusehash.search.rows import Ids

ORDERS = ("id", "newest", "oldest", "name", "added")


@dataclass(frozen=True)
class Filters:
    """What all results must have; None is no condition.

    Parameters
    ----------
    label, folder : str, optional
        A label; a folder, as the keys of the items begin, or "" for items in none.
    has_text : bool, optional
        With or without a caption.
    after, before : datetime.date, optional
        The first day that is allowed, and the first that is not; items without a date have no day.
    """

    label: str | None = None
    folder: str | None = None
    has_text: bool | None = None
    after: date | None = None
    before: date | None = None

    def __post_init__(self) -> None:
        for name in ("after", "before"):
            if not isinstance(getattr(self, name), date | None):
                raise DataError(f"{name!r} must be a datetime.date. Got {getattr(self, name)!r} instead.")

    @property
    def is_empty(self) -> bool:
        return self == Filters()

    def allowed(self, catalogue: Catalogue) -> Ids | None:
        """The ids of the items that may be found; None for all."""
        parts: list[Ids] = []
        if self.label is not None:
            parts.append(catalogue.with_label(storable_text(str(self.label))))
        if self.folder is not None:
            parts.append(_in_folder(catalogue, self.folder))
        if self.has_text is not None:
            with_text = np.fromiter(catalogue.texts, np.int64, len(catalogue.texts))
            parts.append(with_text if self.has_text else np.setdiff1d(catalogue.ids, with_text, assume_unique=True))
        if self.after or self.before:
            parts.append(_between(catalogue, self.after, self.before))
        return _intersection(parts)


def allowed_by(clause: Clause, catalogue: Catalogue, words: Words) -> Ids | None:
    """The ids of the items that one side of a query may find; None for all."""
    parts = [catalogue.with_label(storable_text(label)) for label in clause.labels]
    parts += [words.having_phrase(phrase) for phrase in clause.phrases]
    if clause.after or clause.before:
        parts.append(_between(catalogue, clause.after, clause.before))
    gone = [catalogue.with_label(storable_text(label)) for label in clause.excluded_labels]
    for excluded in clause.excluded:
        asked = spelled(excluded)
        gone.append(words.having(asked[0]) if len(asked) == 1 else words.having_phrase(excluded))
    if gone:
        parts.append(np.setdiff1d(catalogue.ids, np.concatenate(gone), assume_unique=False))
    return _intersection(parts)


def both(one: Ids | None, other: Ids | None) -> Ids | None:
    """What two filters allow together."""
    return _intersection([part for part in (one, other) if part is not None])


def ordered(catalogue: Catalogue, ids: Ids, order: str) -> Ids:
    """Ids in the order of a list: by "id", by day ("newest" or "oldest" first), by "name", or last "added" first."""
    choice(*ORDERS).check("Collection.items", "order", order)
    if order == "added":
        return ids[::-1]
    if order == "name":
        return np.array(sorted(ids.tolist(), key=lambda id: (catalogue.keys[id].casefold(), id)), np.int64)
    if order in ("newest", "oldest"):
        dated = [id for id in ids.tolist() if id in catalogue.days]
        dated.sort(key=lambda id: catalogue.days[id], reverse=order == "newest")
        undated = [id for id in ids.tolist() if id not in catalogue.days]
        return np.array(dated + undated, np.int64)
    return ids


def _in_folder(catalogue: Catalogue, folder: str) -> Ids:
    """The ids of the items in a folder or below it."""
    inside = [
        ids for name, ids in catalogue.folders.items() if name == folder or (folder and name.startswith(f"{folder}/"))
    ]
    return np.sort(np.concatenate(inside)) if inside else catalogue.ids[:0]


def _between(catalogue: Catalogue, after: date | None, before: date | None) -> Ids:
    first, last = after.isoformat() if after else "", before.isoformat() if before else "~"
    return np.array([id for id, day in catalogue.days.items() if first <= day < last], np.int64)


def _intersection(parts: list[Ids]) -> Ids | None:
    if not parts:
        return None
    ids = parts[0]
    for part in parts[1:]:
        ids = np.intersect1d(ids, part)
    return ids
