"""Collection: images and texts in one folder, searched by text, by image or by similarity to an item."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fusehash import bits, trust
from fusehash.collection import overview, store
from fusehash.collection.answering import Question, answer
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.changes import Learned, Plan, lock_of
from fusehash.collection.generations import Generation, GenerationChange
from fusehash.collection.items import CollectionError, Entry, Hits, Item, Report, Saved, check_items
from fusehash.collection.likeness import Looks
from fusehash.collection.originals import Original, Originals
from fusehash.collection.queries.filters import Filters, ordered
from fusehash.collection.searching import GoneError, Snapshot
from fusehash.collection.store import CollectionSettings, CollectionState, EncoderSettings, Totals
from fusehash.collection.training import files_of
from fusehash.datasets.folders import NewItem
from fusehash.errors import DataError, FusehashError, ParameterError
from fusehash.parameters import Progress, integer, real
from fusehash.search import HammingIndex
from fusehash.search.rows import HIGHEST, Ids, check_ids
from fusehash.sqlite import DamageError, Database

RETRAIN_SHARE = 0.5  # of items that are new to the model; with more, build() trains again
BUILD_TIMEOUT = 600.0  # seconds that a generation, once it is built, waits for writers
_ATTEMPTS = 5

T = TypeVar("T")


class Collection(AbstractContextManager["Collection"]):
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
        self.path = Path(path).absolute()
        self._engine = _check_engine("Collection.open", engine)
        self._created_with = store.read_settings(self.path)
        self._writer = lock_of(self.path, "writer", timeout)
        self._items = Database(self.path / "items.db", store.ITEMS, timeout)
        self._originals = Originals()
        self._snapshot: Snapshot | None = None
        self._version: tuple[int, int] | None = None
        try:
            with self._items.reading() as database:
                store.check(database, self._created_with)
            self._now()
        except BaseException:
            self.close()
            raise

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
        _check_engine("Collection.create", engine)
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
        image = _changed(current.image, image_encoder, image_params, "image")
        text = _changed(current.text, text_encoder, text_params, "text")
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

    def generations(self) -> list[Generation]:
        """All generations, in order of their numbers."""
        with self._items.reading() as database:
            current = CollectionState.read(database)
            kept = store.kept_states(database)
        listed = [self._describe(state, current) for state in (current, *kept) if state.model or state is current]
        return sorted(listed, key=lambda generation: generation.number)

    def search(
        self,
        text: str | None = None,
        *,
        image: Any = None,
        like: int | Iterable[int] | None = None,
        unlike: int | Iterable[int] | None = None,
        code: bytes | None = None,
        picture: bytes | None = None,
        k: int = 20,
        offset: int = 0,
        label: str | None = None,
        filters: Filters | None = None,
        rerank: bool = True,
        min_confidence: float = 0.0,
        generation: int | None = None,
    ) -> Hits:
        """Find the `k` items that match best: by a text, images, items or a code, or by several of them together.

        Parameters
        ----------
        text : str
            Words, "phrases", -exclusions, label:NAME, before:DATE, after:DATE and OR (queries/language.py).
        image : path, bytes or PIL.Image.Image; or a list of them
            Images to search for. One that is in the collection, byte by byte, is the first result.
        like, unlike : int or iterable of int
            Ids of items that the results should, and should not, be similar to; they are no results themselves.
        code, picture : bytes
            A packed code of this collection, as in `Hits.code`; the images of an earlier search, as in `Hits.picture`.
        k, offset : int, default=20 and 0
            Number of results at most, and how many of the best are skipped.
        label, filters : str, optional; Filters, optional
            A label that the results must have; other conditions.
        rerank : bool, default=True
            Order the nearest codes by the real-valued query and the words of a text; no effect on `like` and `code`.
        min_confidence : float, default=0.0
            Leave out results with a lower confidence; those without one stay.
        generation : int, optional
            The generation of a stored `code`; raises if another one is current.

        Returns
        -------
        Hits
            Best first. Raises DataError if the query cannot be used.
        """
        integer(1).check("Collection.search", "k", k)
        integer().check("Collection.search", "offset", offset)
        real().check("Collection.search", "min_confidence", min_confidence)
        if label is not None:
            filters = replace(filters or Filters(), label=label)
        question = Question(
            text,
            tuple(image) if isinstance(image, list | tuple) else () if image is None else (image,),
            _ids(like),
            _ids(unlike),
            code,
            picture,
            filters or Filters(),
            k,
            offset,
            rerank,
            float(min_confidence),
            generation,
        )
        question.check()
        return self._attempt(lambda snapshot: answer(question, snapshot, self._items))

    def query_code(self, *, text: str | None = None, image: Any = None) -> bytes:
        """The packed code of a text or an image, as `search` takes it."""
        if (text is None) == (image is None):
            raise DataError("A query code needs exactly one of text and image.")
        if text is not None and not (isinstance(text, str) and text.strip()):
            raise DataError("A text to search for must have at least one word. Got none.")
        view, item = ("image", image) if text is None else ("text", text.strip())
        return self._attempt(lambda snapshot: bits.pack(snapshot.project(view, item)[None])[0].tobytes())

    def check(self) -> None:
        """Raise if a search would: codes, a model or encoders that cannot be read."""
        self._attempt(
            lambda snapshot: snapshot.state.model and [snapshot.encoder(v) for v in snapshot.model.view_names_]
        )

    @property
    def settings(self) -> CollectionSettings:
        return self._now().state.made_with(self._created_with)

    @property
    def revision(self) -> int:
        return self._now().state.revision

    @property
    def generation(self) -> int:
        return self._now().state.generation

    def __len__(self) -> int:
        return self._totals().items

    def item(self, id: int) -> Item:
        """One item; an unknown id raises DataError."""
        with self._items.reading() as database:
            for row in store.read_rows(database, "WHERE id = ?", _sql_id(id)):
                return store.read_item(row)
            if database.execute("SELECT 1 FROM code WHERE id = ?", (_sql_id(id),)).fetchone():
                raise DamageError("items are missing from it")
        raise DataError(f"Ids must be in the collection. Id {id} is not.")

    def items(
        self,
        offset: int = 0,
        limit: int = 100,
        label: str | None = None,
        *,
        filters: Filters | None = None,
        order: str = "id",
    ) -> list[Item]:
        """Items that filters leave, by "id", by date ("newest", "oldest"), by "name", or the last "added" first."""
        integer().check("Collection.items", "offset", offset)
        integer(1).check("Collection.items", "limit", limit)
        snapshot = self._now()
        with self._items.reading() as database:
            catalogue = snapshot.catalogue(database)
            page = ordered(catalogue, self._left(catalogue, label, filters), order)[offset : offset + limit].tolist()
            items = snapshot.items(database, page)
            if len(items) != len(page):
                raise DamageError("items are missing from it")
        return list(items.values())

    def count(self, label: str | None = None, *, filters: Filters | None = None) -> int:
        """How many items the filters leave."""
        with self._items.reading() as database:
            return len(self._left(self._now().catalogue(database), label, filters))

    @staticmethod
    def _left(catalogue: Catalogue, label: str | None, filters: Filters | None) -> Ids:
        chosen = filters or Filters()
        allowed = (chosen if label is None else replace(chosen, label=label)).allowed(catalogue)
        return catalogue.ids if allowed is None else allowed

    def labels(self) -> dict[str, int]:
        """How many items have each label, most frequent first."""
        snapshot = self._now()
        with self._items.reading() as database:
            by_label = snapshot.catalogue(database).by_label
        counts = {name: len(ids) for name, ids in by_label.items()}
        return dict(sorted(counts.items(), key=lambda label: (-label[1], label[0])))

    def facets(self) -> dict[str, Any]:
        """How many items there are with each label, in each folder, of each year, with and without a text."""
        with self._items.reading() as database:
            return overview.facets(self._now().catalogue(database))

    def near(self, id: int, k: int = 12) -> list[tuple[int, int, bool]]:
        """Near-duplicates of an item: ids, distances, and whether the images are equal byte by byte; nearest first."""
        snapshot = self._now()
        if id not in snapshot.index:
            return []
        with self._items.reading() as database:
            catalogue = snapshot.catalogue(database)
        same = set(catalogue.by_image.get(catalogue.images.get(id, b""), ()))
        radius, code = snapshot.state.n_bits // overview.NEAR_SHARE, snapshot.index.get([id])
        _, _, ids = snapshot.index.range_search(code, radius)
        looks = Looks(self.thumbnail)
        listed = same | {other for other in ids.tolist() if looks.alike(id, other)}
        others = np.array([other for other in listed - {id} if other in snapshot.index], np.int64)
        distances = bits.distances_to(np.repeat(code, len(others), axis=0), snapshot.index.get(others))
        rows = zip(others.tolist(), distances.tolist(), (other in same for other in others.tolist()), strict=True)
        return sorted(rows, key=lambda row: (not row[2], row[1], row[0]))[:k]

    def duplicates(self) -> list[list[int]]:
        """Groups of ids with the same image, or whose images look the same (likeness.py); largest first."""
        snapshot = self._now()
        with self._items.reading() as database:
            catalogue = snapshot.catalogue(database)
        radius = snapshot.state.n_bits // overview.NEAR_SHARE
        return overview.duplicates(snapshot.index, catalogue, Looks(self.thumbnail).alike, radius)

    def original(self, id: int) -> Original | None:
        """The original picture of an item, open; None if it is not where it was or has another content."""
        with self._items.reading() as database:
            entries = store.read_entries_by_id(database, [id])
        return self._originals.open(entries[0].path, entries[0].image) if entries else None

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

    def saved(self, ids: Iterable[int]) -> list[Saved]:
        """Items as they are stored, for `restore`; an unknown id raises DataError."""
        entries = self._entries_of(list(ids))
        with self._items.reading() as database:
            return [Saved(entry, store.read_thumbnail(database, entry.image)) for entry in entries]

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

    def thumbnail(self, id: int) -> bytes | None:
        """A small picture of an item's image, WebP or JPEG, or None."""
        with self._items.reading() as database:
            images = [row[4] for row in store.read_rows(database, "WHERE id = ?", _sql_id(id))]
            if images in ([], [None]):
                return None
            thumbnail = store.read_thumbnail(database, images[0])
            if thumbnail is None:
                raise DamageError("thumbnails are missing from it")
        return thumbnail[2]

    def stats(self) -> dict[str, Any]:
        """What the collection holds, and whether a reindex is recommended."""
        state = self._now().state
        settings = state.made_with(self._created_with)
        return {
            "path": str(self.path),
            "n_bits": state.n_bits,
            "codes": state.codes,
            "generation": state.generation,
            "image_encoder": settings.image.name,
            "text_encoder": settings.text.name,
            "bytes": self._bytes(),
            **overview.counts(self._totals(), trained=bool(state.model)),
        }

    def clusters(self, count: int = 12) -> list[dict[str, Any]]:
        """Groups of similar items, largest first: {"words", "examples" (ids), "size"}."""
        integer(1).check("Collection.clusters", "count", count)
        snapshot = self._now()
        ids = snapshot.index.ids
        with self._items.reading() as database:  # no longer than needed: searches wait for it
            catalogue = snapshot.catalogue(database)
        words = overview.words_of(catalogue, ids)
        return overview.clusters(words, ids, snapshot.index.get(ids), snapshot.state.n_bits, count)

    def code_stats(self) -> dict[str, Any]:
        """How the codes use their bits, and the distances of random pairs."""
        snapshot = self._now()
        return overview.code_stats(snapshot.index.get(snapshot.index.ids), snapshot.state.n_bits)

    def close(self) -> None:
        """Close the files."""
        self._items.close()

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        n_bits = self._created_with.n_bits if self._snapshot is None else self._snapshot.state.n_bits
        return f"<{type(self).__name__} of {n_bits} bits in {self.path}>"

    def _now(self) -> Snapshot:
        """The collection as last committed by any process."""
        with self._items.lock:
            version = self._items.data_version()
            if self._snapshot is None or version != self._version:
                with self._items.reading() as database:
                    state, before = CollectionState.read(database), self._snapshot
                    if before is None or state.revision != before.state.revision:
                        index = HammingIndex(state.n_bits, engine=self._engine)
                        ids, codes = store.read_codes(database, state)
                        index.add(codes, ids)
                        new = before.successor(state, index) if before else Snapshot(self.path, state, index)
                        self._snapshot = new
                self._version = version
            assert self._snapshot is not None
            return self._snapshot

    def _totals(self) -> Totals:
        snapshot = self._now()
        if snapshot.state.totals is not None:
            return snapshot.state.totals
        with self._items.reading() as database:
            return snapshot.catalogue(database).totals

    def _attempt(self, work: Callable[[Snapshot], T]) -> T:
        """Do something with the current state, again if a writer has just replaced its files."""
        for _ in range(_ATTEMPTS):
            try:
                with self._reporting_os_errors():
                    result = work(self._now())
                self._items.check_place()  # model and encoders were read from the same folder
                return result
            except GoneError:
                with self._items.lock:
                    self._version = None
        with self._items.reporting():
            raise DamageError("its model or an encoder is missing; a reindex makes it again")

    def _describe(self, state: CollectionState, current: CollectionState) -> Generation:
        settings, files = state.made_with(self._created_with), files_of(self.path, state).values()
        shared = {name: getattr(state, name) for name in ("made", "codes", "n_bits", "quality")}
        return Generation(
            number=state.generation,
            current=state is current,
            previous=state.generation == current.previous,
            random_state=settings.random_state,
            image_encoder=settings.image.name if state.image_encoder else "",
            text_encoder=settings.text.name if state.text_encoder else "",
            bytes=state.codes * state.n_bits // 8 + sum(map(_size, files)),
            **shared,
        )

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

    @contextmanager
    def _reporting_os_errors(self) -> Iterator[None]:
        """One sentence if a file of the folder cannot be reached, in particular because the folder was moved."""
        try:
            yield
        except OSError as error:
            if isinstance(error, FusehashError):
                raise
            self._items.check_place()
            reason = error.strerror or error
            raise CollectionError(f"The collection {self.path} cannot be reached: {reason}.") from error

    def _learned(self, state: CollectionState) -> Learned | None:
        with suppress(GoneError):
            return self._now().learned(state)
        return None

    def _bytes(self) -> int:
        try:
            return sum(_size(path) for path in self.path.iterdir())
        except OSError as error:
            raise CollectionError(f"The collection {self.path} cannot be reached: {error.strerror}.") from error

    def _entries_of(self, ids: list[int]) -> list[Entry]:
        with self._items.reading() as database:
            entries = store.read_entries_by_id(database, map(_sql_id, ids))
        missing = set(ids) - {entry.id for entry in entries}
        if missing:
            raise DataError(f"Ids must be in the collection. Id {min(missing)} is not.")
        return entries

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


def _check_engine(owner: str, engine: str | None) -> str:
    if isinstance(engine, str) and "://" in engine:
        expected = "the name of a local engine: a collection is a folder, and HammingIndex is what works on a server"
        raise ParameterError(owner, "engine", expected, f"{engine.partition('://')[0]}://...")  # no password
    HammingIndex(8, engine=engine or "scan")  # raises for an unknown name
    return engine or "scan"


def _changed(settings: EncoderSettings, encoder: Any, params: dict[str, Any] | None, view: str) -> EncoderSettings:
    """Settings with another encoder or other parameters; another encoder does not inherit parameters."""
    if encoder is None:
        return replace(settings, params=dict(settings.params if params is None else params))
    chosen = EncoderSettings.of(encoder, params, view)
    return settings if chosen == replace(settings, params={}) and params is None else chosen


def _ids(ids: Any) -> tuple[int, ...]:
    """One id or several as a tuple."""
    if ids is None or isinstance(ids, int | np.integer):
        return () if ids is None else (int(ids),)
    return tuple(dict.fromkeys(check_ids(list(ids)).tolist()))


def _sql_id(id: Any) -> int | None:
    """An id as SQLite takes it; None, which no item has, for anything else."""
    is_whole = isinstance(id, int | np.integer) and not isinstance(id, bool)
    return int(id) if is_whole and abs(id) <= HIGHEST else None


def _size(path: Path) -> int:
    with suppress(OSError):  # a writer may just have removed it
        return path.stat().st_size
    return 0
