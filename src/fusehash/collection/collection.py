"""Collection: images and texts in one folder, searched by text, by image or by similarity to an item."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fusehash import trust
from fusehash.collection import store
from fusehash.collection.changes import Learned, Plan, lock_of
from fusehash.collection.generations import GenerationChange
from fusehash.collection.items import CollectionError, Entry, Report, Saved, check_items
from fusehash.collection.opened import check_engine
from fusehash.collection.reading import CollectionReader
from fusehash.collection.searching import GoneError
from fusehash.collection.store import CollectionSettings, CollectionState, EncoderSettings
from fusehash.datasets.folders import NewItem
from fusehash.errors import DataError
from fusehash.parameters import Progress, integer
from fusehash.search.ids import check_ids

RETRAIN_SHARE = 0.5  # of items that are new to the model; with more, build() trains again
BUILD_TIMEOUT = 600.0  # seconds that a generation, once it is built, waits for writers


class Collection(CollectionReader):
    """Items with an image, a text or both, their codes, and the model that made these codes, in one folder.

    Use `Collection.create` or `Collection.open`. When a call that writes returns, its effect survives kill -9 and loss
    of power; an interrupted call leaves nothing but caches. Any number of processes and threads may search while one
    writes. Every search sees what was committed before it.

    Parameters
    ----------
    path, timeout : str or path-like; float, default=10.0
        The folder of an existing collection; seconds that a writer waits for another writer.
    engine : str, default="scan"
        Name of the engine that searches the codes in memory, as for `HammingIndex`.

    Attributes
    ----------
    path, settings : Path, CollectionSettings
        The folder, and what the current generation was made with.
    generation, revision : int
        Number of the current generation, which counts models, and number of changes that a search could see.

    Raises
    ------
    CollectionError, CorruptCollectionError
        If the folder cannot be reached or written now; if it is not an intact collection.

    Examples
    --------
    >>> import tempfile
    >>> from fusehash.collection import Collection, NewItem
    >>> texts = ["a red house", "a red barn", "a blue lake", "the blue sea"]
    >>> with tempfile.TemporaryDirectory() as folder, Collection.create(f"{folder}/my.collection") as collection:
    ...     report = collection.build(NewItem(key=text, text=text) for text in texts)
    ...     hits = collection.search("red barn", k=2)
    >>> report.added, [hit.item.text for hit in hits]
    (4, ['a red barn', 'a red house'])
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> None:
        super().__init__(path, timeout=timeout, engine=engine)
        self._writer = lock_of(self.path, "writer", timeout)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        *,
        n_bits: int = 64,
        image_encoder: Any = "auto",
        text_encoder: Any = "auto",
        image_params: dict[str, Any] | None = None,
        text_params: dict[str, Any] | None = None,
        random_state: int = 0,
        timeout: float = 10.0,
        engine: str | None = None,
    ) -> Collection:
        """Make an empty collection in a new folder.

        Parameters
        ----------
        path : str or path-like
            The folder, which must be missing or empty.
        n_bits, random_state : int, default=64 and 0
            Length of the codes, a multiple of 8 and at most 4,096; seed of the model.
        image_encoder, text_encoder : str or Encoder, default="auto"
            Names of encoders, which may have parameters as in "classical:side=160", paths of ONNX files, or objects
            that `fusehash.encoders.make` returns. "auto" is efficientnet-lite0 and minilm if the extra `encoders` is
            installed, else classical and tfidf.
        image_params, text_params : dict, optional
            Parameters of encoders given by name, made of JSON values.

        Raises
        ------
        ParameterError, MissingPackageError
            If an encoder does not exist or is not installed, before the folder is made.
        """
        image = EncoderSettings.of(image_encoder, image_params, "image")
        text = EncoderSettings.of(text_encoder, text_params, "text")
        settings = CollectionSettings(n_bits, random_state, image, text)
        check_engine("Collection.create", engine)
        store.create_folder(Path(path).absolute(), settings)
        return cls(path, timeout=timeout, engine=engine)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> Collection:
        """Open an existing collection; the parameters are those of the class."""
        return cls(path, timeout=timeout, engine=engine)

    def build(self, items: Iterable[NewItem], progress: Progress | None = None, *, verbose: bool = False) -> Report:
        """Make the collection hold these items, and those from `add`; only what has changed is processed.

        Items of an earlier build that are not named any more are removed. The model is trained the first time, and
        again when most items are new to it or have a view that it does not have.

        Parameters
        ----------
        items, progress : iterable of NewItem; callable, optional
            With different keys, as `read_folder` yields them; called as progress(step, total, message).
        verbose : bool, default False
            Show the progress on stderr, unless `progress` is given.

        Returns
        -------
        Report

        Raises
        ------
        DataError, MissingPackageError
            If an item is malformed or needs a package that is not installed; nothing is changed.
        """
        if verbose and progress is None:
            from fusehash import console

            with console.progress("build") as bar:
                return self.build(items, bar)
        with self._change(progress) as change:
            entries = check_items(items, change.report.skipped)
            stored, plan = self._stored(), Plan()
            for entry in entries:
                entry.built = True
                before = stored.pop(entry.key, None)
                if before is None:
                    plan.new.append(entry)
                else:
                    plan.compare(entry, before)
            plan.removed = [entry.id for entry in stored.values() if entry.built and entry.id is not None]
            plan.unchanged += [entry for entry in stored.values() if not entry.built]
            change.report.unchanged = len(plan.unchanged)
            change.run(plan, train=self._wants_training(plan), broken="drop")
        return change.report

    def add(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Add items, all or none, and encode them with the current model; an existing key raises DataError.

        Parameters and result are those of `build`.
        """
        with self._change(progress) as change:
            entries = check_items(items, change.report.skipped)
            existing = self._stored(entry.key for entry in entries)
            if existing:
                raise DataError(f"Items must be new. {next(iter(existing))!r} is there already; an update changes it.")
            train = not change.state.model
            plan = Plan(new=entries, unchanged=list(self._stored().values()) if train else [])
            change.run(plan, train=train)
        return change.report

    def update(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Replace the content of existing keys, all or none; ids stay.

        An image, a text or labels that an item does not give stay as they are stored. A missing key or an image that
        cannot be used raises DataError. Parameters and result are those of `build`.
        """
        with self._change(progress) as change:
            entries = check_items(items, change.report.skipped, partial=True)
            stored, plan = self._stored(entry.key for entry in entries), Plan()
            for entry in entries:
                if entry.key not in stored:
                    raise DataError(f"Items must be there already. {entry.key!r} is not; it must be added first.")
                entry.built = stored[entry.key].built
                plan.compare(entry, stored[entry.key], partial=True)
            change.report.unchanged = len(plan.unchanged)
            train = not change.state.model
            if train:
                plan.unchanged += [entry for key, entry in self._stored().items() if key not in stored]
            change.run(plan, train=train, broken="refuse")
        return change.report

    def remove(self, ids: Iterable[int]) -> Report:
        """Remove items by id, all or none; an unknown id raises DataError."""
        with self._change() as change:
            gone = list(dict.fromkeys(check_ids(list(ids)).tolist()))
            with self._items.reading() as database:
                existing = store.items_by_id(database, gone)
            for id in gone:
                if id not in existing:
                    raise DataError(f"Ids must be in the collection. Id {id} is not.")
            change.run(Plan(removed=gone))
        return change.report

    def reindex(self, progress: Progress | None = None) -> Report:
        """Train encoders and model again on all items, and switch to them at once."""
        with self._change(progress) as change:
            entries = list(self._stored().values())
            change.report.unchanged = len(entries)
            change.run(Plan(unchanged=entries), train=True, must_train=True)
        return change.report

    def build_generation(
        self,
        progress: Progress | None = None,
        *,
        n_bits: int | None = None,
        image_encoder: Any = None,
        text_encoder: Any = None,
        image_params: dict[str, Any] | None = None,
        text_params: dict[str, Any] | None = None,
        random_state: int | None = None,
        measure: bool = True,
    ) -> Report:
        """Train a new generation on all items and keep it next to the current one; `switch` makes it current.

        Searches and writes go on meanwhile. The `generation` of the report is the new number.

        Parameters
        ----------
        n_bits, image_encoder, text_encoder, image_params, text_params, random_state : optional
            As for `create`; by default those of the current generation.
        measure : bool, default=True
            Train a second model without some pairs, to measure the quality on them (`generations`).
        """
        current = self.settings
        image = current.image.changed(image_encoder, image_params, "image")
        text = current.text.changed(text_encoder, text_params, "text")
        seed = current.random_state if random_state is None else random_state
        settings = CollectionSettings(current.n_bits if n_bits is None else n_bits, seed, image, text)
        for encoder, before in ((image, current.image), (text, current.text)):
            if encoder == before:  # from the collection, not from the caller
                trust.check_models(encoder.name, encoder.params, f"The collection {self.path}", CollectionError)
        settings = settings.check("Collection.build_generation")
        with self._change(progress, self._building()) as change:
            writer = lock_of(self.path, "writer", BUILD_TIMEOUT)
            change.build(list(self._stored().values()), settings, measure=measure, writer=writer)
        return change.report

    def switch(self, to: int | None = None, *, back: bool = False, progress: Progress | None = None) -> Report:
        """Make another generation current: the newest one, the one of a number, or the previous one.

        Items that came or changed since it was built are encoded first. The one that was current is kept.

        Parameters
        ----------
        to, back : int, optional; bool, default=False
            Number of a generation, by default the newest; or back to the previous one.
        """
        if back and to is not None:
            raise DataError("A switch goes to a generation by its number, or back. Got both.")
        with self._change(progress) as change:
            change.switch(list(self._stored().values()), to, back=back)
        return change.report

    def drop(self, generation: int) -> Report:
        """Remove a generation other than the current one."""
        number = int(integer(1).check("Collection.drop", "generation", generation))
        with self._change() as change:
            change.drop(number)
        return change.report

    def edit(self, id: int, *, text: str | None = None, labels: Iterable[str] | None = None) -> Report:
        """Set the text or the labels of an item exactly; an empty text removes it, and None leaves it as it is."""
        with self._change() as change:
            (stored,) = self._entries_of([id])
            (checked,) = check_items([NewItem(stored.key, None, text, tuple(labels or ()))], {}, partial=True)
            new_text = stored.text if text is None else checked.text
            entry = replace(stored, text=new_text, labels=stored.labels if labels is None else checked.labels)
            if entry.is_empty:
                raise DataError(f"An item must have an image or a text. {entry.key!r} would have neither.")
            is_same = (entry.text, entry.labels) == (stored.text, stored.labels)
            change.report.unchanged = int(is_same)
            if not is_same:
                change.run(Plan(changed=[entry]))
        return change.report

    def label(self, ids: Iterable[int], *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Report:
        """Remove labels from items, then add others, all or none; an unknown id raises DataError."""
        with self._change() as change:
            if isinstance(add, str) or isinstance(remove, str):
                raise DataError("Labels to add or remove must be several strings, not one.")
            given = [NewItem("add", None, None, tuple(add)), NewItem("remove", None, None, tuple(remove))]
            added, removed = (entry.labels for entry in check_items(given, {}, partial=True))
            stored, entries = self._entries_of(list(dict.fromkeys(ids))), list[Entry]()
            for entry in stored:
                kept = (label for label in entry.labels if label not in removed)
                labels = tuple(dict.fromkeys((*kept, *added)))
                if labels != entry.labels:
                    entries.append(replace(entry, labels=labels))
            change.report.unchanged = len(stored) - len(entries)
            if entries:
                change.run(Plan(changed=entries))
        return change.report

    def restore(self, items: Iterable[Saved]) -> Report:
        """Make items what they were when they were saved, with the ids they had: removed ones come back."""
        kept = list(items)
        with self._change() as change:
            store.keep_thumbnails(self._items, kept)
            with self._items.reading() as database:
                existing = {e.id for e in store.read_entries_by_id(database, [each.entry.id for each in kept])}
            entries = [replace(each.entry, stored=True) for each in kept]
            there = [entry for entry in entries if entry.id in existing]
            change.run(Plan(changed=there, restored=[entry for entry in entries if entry.id not in existing]))
        return change.report

    @contextmanager
    def _building(self) -> Iterator[None]:
        """Hold the builder lock. Acquired under the writer lock, because a writer may be deleting unused files."""
        with ExitStack() as locks:
            with self._writer:
                locks.enter_context(lock_of(self.path, "builder"))
            yield

    @contextmanager
    def _change(
        self, progress: Progress | None = None, lock: AbstractContextManager[None] | None = None
    ) -> Iterator[GenerationChange]:
        """Hold a lock, by default that of the writer, and complete the report of what is done under it."""
        self._items.check_place()  # before a lock file is made in another folder
        with lock or self._writer:
            started = time.perf_counter()
            report = progress or (lambda *step: None)
            change = GenerationChange(self._items, self._created_with, report, self._learned)
            try:
                with self._reporting_os_errors():
                    yield change
            finally:
                change.features.close()
                with self._items.lock:
                    self._version = None  # changes of this connection do not show in data_version
            change.report.seconds = time.perf_counter() - started
            advice = self.stats()["advice"]
            if advice and advice not in change.report.notes:
                change.report.notes.append(advice)

    def _learned(self, state: CollectionState) -> Learned | None:
        with suppress(GoneError):
            return self._now().learned(state)
        return None

    def _stored(self, keys: Iterable[str] | None = None) -> dict[str, Entry]:
        with self._items.reading() as database:
            return {entry.key: entry for entry in store.read_entries(database, keys)}

    def _wants_training(self, plan: Plan) -> bool:
        """Whether there is no model, or it was trained on too few of these items, or without one of their views."""
        if not self._now().state.model:
            return True
        incoming = [*plan.new, *plan.changed]
        unseen = len(incoming) + sum(not entry.trained for entry in plan.unchanged)
        views = self._attempt(lambda snapshot: snapshot.model.view_names_)
        return unseen > RETRAIN_SHARE * (len(incoming) + len(plan.unchanged)) or any(
            ("text" not in views and entry.text is not None) or ("image" not in views and entry.wants_image)
            for entry in incoming
        )
