"""Collection: pictures and texts in one folder, found by text, by image or by likeness."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from fusehash.collection import folder, mirror, store
from fusehash.collection.database import CollectionError, WriterLock
from fusehash.collection.encoding import EncoderSettings
from fusehash.collection.entries import Entry, checked
from fusehash.collection.features import Features
from fusehash.collection.generations import builder_lock
from fusehash.collection.items import Progress, Report
from fusehash.collection.reader import Reader
from fusehash.collection.store import State
from fusehash.collection.succession import Succession
from fusehash.collection.writing import Change, Plan, Settings, compare
from fusehash.datasets.folders import NewItem
from fusehash.errors import DataError
from fusehash.parameters import check_integer, check_n_bits
from fusehash.search import IndexServerError
from fusehash.search.rows import check_ids
from fusehash.search.servers import address as server

# Past this share of items that the model has not seen, build() learns the codes anew.
RETRAIN_SHARE = 0.5
# Seconds that a generation, once it is built, waits for writers.
PATIENCE = 600.0

Kind = TypeVar("Kind", bound=Change)


class Collection(Reader):
    """Items with an image, a text or both, their codes, and the model that made these, in one folder.

    Made by `create` or `open`. When a call that writes has returned, its effect survives kill -9 and loss of power; one
    that was cut off has left nothing but caches that the next one uses. Any number of processes may search while one
    writes; each search sees what has been committed by then. All methods may be called from several threads.

    Examples
    --------
    >>> from fusehash import Collection                              # doctest: +SKIP
    >>> from fusehash.collection import read_folder                  # doctest: +SKIP
    >>> with Collection.create("my.collection") as collection:       # doctest: +SKIP
    ...     collection.build(read_folder("photos", "captions.csv"))
    ...     hits = collection.search(text="kids playing football", k=5)
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> None:
        self._writer = WriterLock(Path(path).absolute() / "writer.lock", timeout)
        super().__init__(path, timeout=timeout, engine=engine)

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
        engine: str | None = None,
    ) -> Collection:
        """Make an empty collection in a new folder. The parameters of the encoders must be JSON values.

        ``engine``: what searches the codes, as for `HammingIndex`. A server's address is remembered without its
        password: it holds a copy of the codes and answers the searches of everybody who opens the collection.
        """
        image = EncoderSettings(image_encoder, dict(image_params or {}))
        text = EncoderSettings(text_encoder, dict(text_params or {}))
        settings = _checked_settings("Collection.create", n_bits, random_state, image, text)
        if server.is_address(engine):
            server.exists(server.beside(engine, "0" * 8))  # says what is wrong before a folder is made
        folder.create(Path(path).absolute(), settings)
        return cls(path, timeout=timeout, engine=engine)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> Collection:
        """Open a collection. A second writer waits for up to ``timeout`` seconds.

        ``engine`` as in `create`, by default the server that is remembered, else memory. Another server's address makes
        the collection move there; the name of an engine searches in this process, whatever is remembered.
        """
        return cls(path, timeout=timeout, engine=engine)

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
                raise DataError(f"Items must be new. {next(iter(there))!r} is there already; an update changes it.")
            train = not change.state.model
            plan = Plan(fresh=entries, unchanged=list(self._stored().values()) if train else [])
            change.run(plan, train=train)
        return report

    def update(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Put other content under keys that are there, all or none; ids stay.

        An image, a text or labels that are not given stay as they are stored; an image that cannot be used is an error.
        """
        with self._change(progress) as (change, report):
            entries = checked(items, report.skipped, partial=True)
            there, plan = self._stored(entry.key for entry in entries), Plan()
            for entry in entries:
                if entry.key not in there:
                    raise DataError(f"Items must be there already. {entry.key!r} is not; it must be added first.")
                entry.built = there[entry.key].built
                compare(entry, there[entry.key], plan, partial=True)
            report.unchanged = len(plan.unchanged)
            train = not change.state.model
            if train:
                others = [entry for key, entry in self._stored().items() if key not in there]
                plan.unchanged += others
            change.run(plan, train=train, refuse_broken=True)
        return report

    def remove(self, ids: Iterable[int]) -> Report:
        """Remove items by id, all or none."""
        with self._change(None) as (change, report):
            gone = list(dict.fromkeys(check_ids(list(ids)).tolist()))
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

    # -- generations ---------------------------------------------------------------------------------------------

    def reindex_beside(
        self,
        progress: Progress | None = None,
        *,
        n_bits: int | None = None,
        image_encoder: str | None = None,
        text_encoder: str | None = None,
        image_params: dict[str, Any] | None = None,
        text_params: dict[str, Any] | None = None,
        random_state: int | None = None,
        measure: bool = True,
    ) -> Report:
        """Learn a new generation of encoders and codes from all items, and keep it beside the one in force.

        Searches and writes go on meanwhile. What is not given is as in the generation in force. ``measure``: learn a
        second time without some pairs, to tell the quality on them (`generations`). `switch` puts it in force.
        """
        self._check_server()
        owner, now = "Collection.reindex_beside", self.settings
        settings = _checked_settings(
            owner,
            now.n_bits if n_bits is None else n_bits,
            now.random_state if random_state is None else random_state,
            _other(now.image, image_encoder, image_params),
            _other(now.text, text_encoder, text_params),
        )
        folder.check_encoders(owner, settings)
        with self._building(), self._work(Succession, progress) as (succession, report):
            patient = WriterLock(self.path / "writer.lock", PATIENCE)
            succession.build(list(self._stored().values()), settings, measure=measure, writer=patient)
        return report

    def switch(self, to: int | None = None, *, back: bool = False, progress: Progress | None = None) -> Report:
        """Put another generation in force: the newest one, that of a number, or with ``back`` the one before.

        Items that came or changed since it was built get their codes first; then everybody who searches sees the other
        generation from one moment to the next, never a mixture. The one that was in force is kept.
        """
        if back and to is not None:
            raise DataError("A switch goes to a generation by its number, or back. Got both.")
        with self._writer, self._work(Succession, progress) as (succession, report):
            self._check_server()
            succession.switch(list(self._stored().values()), to, back=back)
            self._send(progress)
        return report

    def drop(self, generation: int) -> Report:
        """Keep a generation no longer; not the one in force."""
        number = check_integer("Collection.drop", "generation", generation, low=1)
        with self._writer, self._work(Succession, None) as (succession, report):
            self._check_server()
            succession.drop(number)
        return report

    # -- what they share -----------------------------------------------------------------------------------------

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Held by the one who builds a generation. Taken while nobody writes: a writer may be tidying up."""
        with ExitStack() as held:
            with self._writer:
                held.enter_context(WriterLock(builder_lock(self.path), 0.0, "building a generation of"))
            yield

    @contextmanager
    def _change(self, progress: Progress | None) -> Iterator[tuple[Change, Report]]:
        with self._writer, self._work(Change, progress) as work:
            self._check_server()
            yield work
            self._send(progress)

    def _check_server(self) -> None:
        """A server that is away is told before anything is changed."""
        if self._mirror is not None:
            self._mirror.check()

    def _catch_up(self) -> None:
        if self._mirror is None:
            return
        with self._items.reading() as database:
            lags = self._lags(State.read(database, self.path))
        moves = mirror.read(self.path) != self._mirror.record()
        if moves:
            self._check_server()
        if lags or moves:
            with self._writer:
                self._send(None)

    def _send(self, progress: Progress | None) -> None:
        """Send the codes in force to the server, for whoever holds the lock."""
        if self._mirror is None:
            return
        with self._items.reading() as database:
            state = State.read(database, self.path)
            ids, codes = store.read_codes(database, state, self.path)
        try:
            if state.codes:
                self._mirror.send(state, ids, codes, progress)
            else:
                self._mirror.remember()
        except IndexServerError as error:
            raise CollectionError(
                f"The collection {self.path} has changed, but its server does not know yet; the next change or a "
                f"reindex tells it. {error}"
            ) from None

    @contextmanager
    def _work(self, kind: type[Kind], progress: Progress | None) -> Iterator[tuple[Kind, Report]]:
        report, started = Report(), time.perf_counter()
        features = Features(self.path / "features.db")
        try:
            told = progress or (lambda step, total, message: None)
            yield kind(self.path, self._created_with, self._items, features, report, told), report
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


def _checked_settings(
    owner: str, n_bits: Any, random_state: Any, image: EncoderSettings, text: EncoderSettings
) -> Settings:
    check_n_bits(owner, n_bits, most=1024)
    return Settings(int(n_bits), check_integer(owner, "random_state", random_state, low=0), image, text)


def _other(now: EncoderSettings, name: str | None, params: dict[str, Any] | None) -> EncoderSettings:
    """Other settings where they are given; another encoder has parameters of its own."""
    kept = now.params if name in (None, now.name) else {}
    return EncoderSettings(name or now.name, dict(kept if params is None else params))
