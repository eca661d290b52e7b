"""Collection: pictures and texts in one folder, found by text, by image or by likeness."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fusehash.checks import check_integer, check_n_bits
from fusehash.collection import folder, store
from fusehash.collection.database import WriterLock
from fusehash.collection.encoding import EncoderSettings
from fusehash.collection.entries import Entry, checked
from fusehash.collection.features import Features
from fusehash.collection.items import Progress, Report
from fusehash.collection.reader import Reader
from fusehash.collection.writing import Change, Plan, Settings, compare
from fusehash.datasets.folders import NewItem
from fusehash.errors import DataError, ParameterError

# Past this share of items that the model has not seen, build() learns the codes anew.
RETRAIN_SHARE = 0.5


class Collection(Reader):
    """Items with an image, a text or both, their codes, and the model that made these, in one folder.

    Made by `create` or `open`. When `build`, `add`, `update`, `remove` or `reindex` has returned, its effect survives
    kill -9 and loss of power; a call that was cut off has left nothing but caches that the next one uses. Any number of
    processes may search while one writes; each search sees what has been committed by then. All methods may be called
    from several threads.

    Examples
    --------
    >>> from fusehash import Collection                              # doctest: +SKIP
    >>> from fusehash.collection import read_folder                  # doctest: +SKIP
    >>> with Collection.create("my.collection") as collection:       # doctest: +SKIP
    ...     collection.build(read_folder("photos", "captions.csv"))
    ...     hits = collection.search(text="kids playing football", k=5)
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0) -> None:
        super().__init__(path, timeout=timeout)
        self._writer = WriterLock(self.path / "writer.lock", timeout)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        n_bits: int = 64,
        image_encoder: str = "classical",
        text_encoder: str = "tfidf",
        image_params: dict[str, Any] | None = None,
        text_params: dict[str, Any] | None = None,
        random_state: int = 0,
        timeout: float = 10.0,
    ) -> Collection:
        """Make an empty collection in a new folder. The parameters of the encoders must be JSON values."""
        check_n_bits("Collection.create", n_bits)
        if n_bits > 1024:
            raise ParameterError("Collection.create", "n_bits", "at most 1024", n_bits)
        check_integer("Collection.create", "random_state", random_state, low=0)
        image = EncoderSettings(image_encoder, dict(image_params or {}))
        text = EncoderSettings(text_encoder, dict(text_params or {}))
        folder.create(Path(path).absolute(), Settings(int(n_bits), int(random_state), image, text))
        return cls(path, timeout=timeout)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 10.0) -> Collection:
        """Open a collection. A second writer waits for up to ``timeout`` seconds."""
        return cls(path, timeout=timeout)

    # -- writing -------------------------------------------------------------------------------------------------

    def build(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Make the collection hold these items (and those that came by `add`), doing only what is not done yet.

        Items that an earlier build brought and that are not named any more are removed. Codes are learned the first
        time, and again when most items are new to the model or a view has come that it does not know.
        """
        with self._change(progress) as (change, report):
            entries = checked(items, report.skipped)
            stored = self._stored()
            plan = Plan()
            for entry in entries:
                entry.built = True
                if entry.key in stored:
                    compare(entry, stored[entry.key], plan)
                else:
                    plan.fresh.append(entry)
            named = {entry.key for entry in entries}
            for entry in stored.values():
                if entry.key not in named:
                    if entry.built and entry.id is not None:
                        plan.removed.append(entry.id)
                    else:
                        plan.unchanged.append(entry)
            report.unchanged = len(plan.unchanged)
            change.run(plan, train=self._wants_training(plan), drop_broken=True)
        return report

    def add(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Add items, all or none; a key that is there already is an error. The model stays as it is."""
        with self._change(progress) as (change, report):
            entries = checked(items, report.skipped)
            there = self._stored(entry.key for entry in entries)
            if there:
                raise DataError(f"Items must be new. {next(iter(there))!r} is there already; update() changes it.")
            train = not change.state.model
            plan = Plan(fresh=entries, unchanged=list(self._stored().values()) if train else [])
            change.run(plan, train=train)
        return report

    def update(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Put other content under keys that are there, all or none; ids stay."""
        with self._change(progress) as (change, report):
            entries = checked(items, report.skipped)
            there, plan = self._stored(entry.key for entry in entries), Plan()
            for entry in entries:
                if entry.key not in there:
                    raise DataError(f"Items must be there already. {entry.key!r} is not; add() adds it.")
                entry.built = there[entry.key].built
                compare(entry, there[entry.key], plan)
            report.unchanged = len(plan.unchanged)
            train = not change.state.model
            if train:
                others = [entry for key, entry in self._stored().items() if key not in there]
                plan.unchanged += others
            change.run(plan, train=train)
        return report

    def remove(self, ids: Iterable[int]) -> Report:
        """Remove items by id, all or none."""
        with self._change(None) as (change, report):
            gone = list(dict.fromkeys(int(id) for id in ids))
            with self._items.reading() as database:
                for id in gone:
                    if database.execute("SELECT 1 FROM item WHERE id = ?", (id,)).fetchone() is None:
                        raise DataError(f"Ids must be in the collection. Id {id} is not.")
            change.run(Plan(removed=gone))
        return report

    def reindex(self, progress: Progress | None = None) -> Report:
        """Learn encoders and codes anew from all items, and switch to them at once."""
        with self._change(progress) as (change, report):
            entries = list(self._stored().values())
            report.unchanged = len(entries)
            change.run(Plan(unchanged=entries), train=True, must_train=True)
        return report

    @contextmanager
    def _change(self, progress: Progress | None) -> Iterator[tuple[Change, Report]]:
        report, started = Report(), time.perf_counter()
        with self._writer:
            features = Features(self.path / "features.db")
            try:
                told = progress or (lambda step, total, message: None)
                yield Change(self.path, self.settings, self._items, features, report, told), report
            finally:
                features.close()
                with self._items.lock:
                    self._version = None  # own changes do not show in data_version
        report.seconds = time.perf_counter() - started
        stats = self.stats()
        if stats["advice"] and stats["advice"] not in report.notes:
            report.notes.append(stats["advice"])

    def _stored(self, keys: Iterable[str] | None = None) -> dict[str, Entry]:
        with self._items.reading() as database:
            return {entry.key: entry for entry in store.entries(database, keys)}

    def _wants_training(self, plan: Plan) -> bool:
        """Nothing has been learned yet, or of too few of these items, or of a view less than there is now."""
        snapshot = self._now()
        if not snapshot.state.model:
            return True
        coming = [*plan.fresh, *plan.changed]
        unseen = len(coming) + sum(not entry.trained for entry in plan.unchanged)
        if unseen > RETRAIN_SHARE * (len(coming) + len(plan.unchanged)):
            return True
        views = self._attempt(lambda snapshot: snapshot.model.views)
        return any(
            ("text" not in views and entry.text is not None) or ("image" not in views and entry.wants_image)
            for entry in coming
        )
