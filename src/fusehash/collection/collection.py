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
from fusehash.collection.changes import Learned, Plan, lock_of
from fusehash.collection.generations import Generation, GenerationChange
from fusehash.collection.items import CollectionError, Entry, Hit, Hits, Item, Report, check_items, storable_text
from fusehash.collection.searching import GoneError, Snapshot, WordScores
from fusehash.collection.store import CollectionSettings, CollectionState, EncoderSettings, Totals
from fusehash.collection.training import files_of
from fusehash.datasets.folders import NewItem
from fusehash.errors import DataError, FusehashError, ParameterError
from fusehash.parameters import Progress, integer
from fusehash.search import HammingIndex
from fusehash.search.rows import HIGHEST, Ids, check_ids
from fusehash.sqlite import DamageError, Database
from fusehash.views import Floats

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

    def build(self, items: Iterable[NewItem], progress: Progress | None = None) -> Report:
        """Make the collection hold these items, and those from `add`; only what has changed is processed.

        Items of an earlier build that are not named any more are removed. The model is trained the first time, and
        again when most items are new to it or have a view that it does not have.

        Parameters
        ----------
        items, progress : iterable of NewItem; callable, optional
            With different keys, as `read_folder` yields them; called as progress(step, total, message).

        Returns
        -------
        Report

        Raises
        ------
        DataError, MissingPackageError
            If an item is malformed or needs a package that is not installed; nothing is changed.
        """
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
        like: int | None = None,
        code: bytes | None = None,
        k: int = 20,
        label: str | None = None,
        rerank: bool = True,
        generation: int | None = None,
    ) -> Hits:
        """Find the `k` items that match best; give exactly one of `text`, `image`, `like` and `code`.

        Parameters
        ----------
        text, image : str; path, bytes or PIL.Image.Image
            Words or an image to search for.
        like, code : int; bytes
            Id of an item to find similar ones, or a packed code of this collection, as in `Hits.code`.
        k, label : int, default=20; str, optional
            Number of results at most, and the label that they must have.
        rerank : bool, default=True
            Order the nearest codes by the real-valued query and the words of a text; no effect on `like` and `code`.
        generation : int, optional
            The generation of a stored `code`; raises if another one is current.

        Returns
        -------
        Hits
            Best first. Raises DataError if the query cannot be used.
        """
        if sum(query is not None for query in (text, image, like, code)) != 1:
            raise DataError("A search needs exactly one of text, image, like and code.")
        integer(1).check("Collection.search", "k", k)

        def work(snapshot: Snapshot) -> Hits:
            current = snapshot.state.generation
            if generation not in (None, current):
                raise DataError(f"The code is of generation {generation}; generation {current} is current.")
            by_content = text is not None or image is not None
            if by_content:
                query, words = self._project(snapshot, text, image, with_words=rerank)
            else:
                query, words = _signs(snapshot, like, code), None
            ids, distances, scores, codes = snapshot.rank(
                query,
                k + (like is not None),
                allowed=self._allowed(snapshot, label),
                rerank=rerank and by_content,
                words=words,
            )
            with self._items.reading() as database:
                items = snapshot.items(database, ids.tolist())
                if len(items) < len(ids) and CollectionState.read(database).revision == snapshot.state.revision:
                    raise DamageError("items are missing from it")
            rows = zip(ids.tolist(), distances.tolist(), scores.tolist(), codes, strict=True)
            hits = Hits(
                Hit(id, distance, score, items[id], packed.tobytes())
                for id, distance, score, packed in rows
                if id in items and id != like  # a writer may have removed some
            )
            del hits[k:]
            hits.code, hits.generation = bits.pack(query[None])[0].tobytes(), current
            return hits

        return self._attempt(work)

    def query_code(self, *, text: str | None = None, image: Any = None) -> bytes:
        """The packed code of a text or an image, as `search` takes it."""
        if (text is None) == (image is None):
            raise DataError("A query code needs exactly one of text and image.")
        return self._attempt(lambda snapshot: bits.pack(self._project(snapshot, text, image)[0][None])[0].tobytes())

    def check(self) -> None:
        """Raise if a search would: codes, a model or encoders that cannot be read."""
        self._attempt(
            lambda snapshot: snapshot.state.model and [snapshot.encoder(v) for v in snapshot.model.view_names_]
        )

    @property
    def settings(self) -> CollectionSettings:
        return self._created_with.at(self._now().state)

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

    def items(self, offset: int = 0, limit: int = 100, label: str | None = None) -> list[Item]:
        """Items in order of id, all or those with a label."""
        integer().check("Collection.items", "offset", offset)
        integer(1).check("Collection.items", "limit", limit)
        snapshot = self._now()
        with self._items.reading() as database:
            catalogue = snapshot.catalogue(database)
            ids = catalogue.ids if label is None else catalogue.with_label(storable_text(str(label)))
            page = ids[offset : offset + limit].tolist()
            items = snapshot.items(database, page)
            if len(items) != len(page):
                raise DamageError("items are missing from it")
        return list(items.values())

    def labels(self) -> dict[str, int]:
        """How many items have each label, most frequent first."""
        snapshot = self._now()
        with self._items.reading() as database:
            by_label = snapshot.catalogue(database).by_label
        counts = {name: len(ids) for name, ids in by_label.items()}
        return dict(sorted(counts.items(), key=lambda label: (-label[1], label[0])))

    def thumbnail(self, id: int) -> bytes | None:
        """A small JPEG of an item's image, or None."""
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
        settings = self._created_with.at(state)
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

    def _project(
        self, snapshot: Snapshot, text: str | None, image: Any, *, with_words: bool = False
    ) -> tuple[Floats, WordScores | None]:
        """The vector of a text or an image, and the word scores of a text unless no item has any of its words."""
        if text is None:
            return snapshot.project("image", image), None
        if not isinstance(text, str) or not text.strip():
            raise DataError("A text to search for must have at least one word. Got none.")
        words = snapshot.words(self._items).scores(text) if with_words else None
        if words is not None and not words.scores.any():
            words = None
        # The encoder may not keep a word that only one text has.
        return snapshot.project("text", text.strip(), must_know=words is None), words

    def _allowed(self, snapshot: Snapshot, label: str | None) -> Ids | None:
        if label is None:
            return None
        with self._items.reading() as database:
            return snapshot.catalogue(database).with_label(storable_text(str(label)))

    def _describe(self, state: CollectionState, current: CollectionState) -> Generation:
        settings, files = self._created_with.at(state), files_of(self.path, state).values()
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


def _signs(snapshot: Snapshot, id: int | None, code: bytes | None) -> Floats:
    """The signs of the code of an item, or of a code."""
    n_bits = snapshot.state.n_bits
    if id is not None:
        if id not in snapshot.index:
            raise DataError(f"An item to search by must be in the collection and have a code. Id {id} has none.")
        packed = snapshot.index.get(np.array([id], np.int64))
    elif isinstance(code, bytes | bytearray) and len(code) == n_bits // 8:
        packed = np.frombuffer(bytes(code), np.uint8)[None]
    else:
        raise DataError(f"A code of this collection must be {n_bits // 8} bytes. Got {code!r} instead.")
    return bits.unpack(packed, n_bits)[0].astype(np.float64)


def _sql_id(id: Any) -> int | None:
    """An id as SQLite takes it; None, which no item has, for anything else."""
    is_whole = isinstance(id, int | np.integer) and not isinstance(id, bool)
    return int(id) if is_whole and abs(id) <= HIGHEST else None


def _size(path: Path) -> int:
    with suppress(OSError):  # a writer may just have removed it
        return path.stat().st_size
    return 0
