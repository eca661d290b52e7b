"""The reading side of a collection: search, and look at what is there."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np

from fusehash import bits
from fusehash.collection import generations, mirror, overview, store
from fusehash.collection.database import CollectionError, CorruptCollectionError, Database, check_header
from fusehash.collection.entries import storable
from fusehash.collection.folder import read_settings
from fusehash.collection.generations import Generation
from fusehash.collection.items import Hit, Hits, Item
from fusehash.collection.mirror import Mirror
from fusehash.collection.searching import GoneError, MovedError, Snapshot, find
from fusehash.collection.store import APPLICATION_ID, FORMAT, State
from fusehash.collection.words import Said
from fusehash.collection.writing import Settings, files_of
from fusehash.errors import DataError
from fusehash.parameters import check_integer
from fusehash.search import HammingIndex
from fusehash.search.rows import HIGHEST
from fusehash.search.servers import address as server
from fusehash.search.servers.address import IndexGoneError

_TRIES = 5

T = TypeVar("T")
Self = TypeVar("Self", bound="Reader")


class Reader:
    """What can be asked of a collection; `Collection` adds what changes it."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> None:
        self.path = Path(path).absolute()
        self._created_with = read_settings(self.path)
        self._engine, self._mirror = self._searched_by(engine)
        check_header(self.path / "items.db", APPLICATION_ID, FORMAT)
        self._items = Database(self.path / "items.db", timeout=timeout)
        self._snapshot: Snapshot | None = None
        self._version: int | None = None
        try:
            with self._items.reading() as database:
                store.check_schema(database, self.path)
                state = State.read(database, self.path)
            if not self._fits_together(state):
                raise CorruptCollectionError(f"The collection {self.path} is corrupt: its files do not fit together.")
            self._catch_up()
            if self._mirror is None:  # a server is asked when it is needed, so that what is wrong with it can be mended
                self._now()
        except BaseException:
            Reader.close(self)
            raise

    @property
    def settings(self) -> Settings:
        """What the generation in force was made with."""
        return self._created_with.now(self._now().state)

    def _fits_together(self, state: State) -> bool:
        with suppress(KeyError, TypeError, ValueError):
            return self._created_with.now(state).n_bits == state.n_bits
        return False

    # -- searching -----------------------------------------------------------------------------------------------

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
        """The ``k`` items that fit best: to a text, an image (path, bytes or PIL image), an item's id, or a code.

        ``label`` narrows the search to items with that label. ``rerank`` orders the nearest codes by what the signs of
        the query alone do not tell, and for a text by the words that items share with it; it has no effect on a query
        that is itself a code. ``generation``: refuse to answer where another one is in force, for a code that was kept.
        """
        if sum(given is not None for given in (text, image, like, code)) != 1:
            raise DataError("A search needs exactly one of text, image, like and code.")
        check_integer("Collection.search", "k", k, low=1)

        def work(snapshot: Snapshot) -> Hits:
            if generation not in (None, snapshot.state.number):
                raise DataError(
                    f"The code is of generation {generation}; generation {snapshot.state.number} is in force now."
                )
            allowed = self._allowed(label)
            said = None
            if like is not None:
                query = self._code_of(snapshot, like)
            elif code is not None:
                query = self._check_code(snapshot, code)
            elif text is not None and rerank:
                query, said = self._project_with_words(snapshot, text)
            else:
                query = self._project(snapshot, text, image)
            ranked = rerank and like is None and code is None
            found = find(snapshot, query, k + (like is not None), allowed=allowed, rerank=ranked, said=said)
            found = [one for one in found if one.id != like][:k]
            with self._items.reading() as database:
                items = [store.items(database, "WHERE id = ?", (one.id,)) for one in found]
            pairs = zip(found, items, strict=True)
            hits = Hits(Hit(one.id, one.distance, one.score, item[0], one.code) for one, item in pairs if item)
            hits.code, hits.generation = bits.pack(query[None])[0].tobytes(), snapshot.state.number
            return hits

        return self._attempt(work)

    def query_code(self, *, text: str | None = None, image: Any = None) -> bytes:
        """The code of a text or an image, as `search` takes it."""
        if (text is None) == (image is None):
            raise DataError("A query code needs exactly one of text and image.")
        return self._attempt(lambda snapshot: bits.pack(self._project(snapshot, text, image)[None])[0].tobytes())

    def _project(self, snapshot: Snapshot, text: str | None, image: Any) -> Any:
        if text is not None:
            _check_text(text)
            return snapshot.project("text", text.strip())
        return snapshot.project("image", image)

    def _project_with_words(self, snapshot: Snapshot, text: str) -> tuple[Any, Said | None]:
        """The vector of a text, and what the texts say of it; None where all of them say nothing."""
        _check_text(text)
        said = snapshot.words(self._items).said(text)
        some = bool(said.scores.any())
        # A word that one text alone has may be none that the encoder keeps.
        return snapshot.project("text", text.strip(), known=not some), said if some else None

    def _allowed(self, label: str | None) -> Any:
        """Ids that may be found, or None for all."""
        if label is None:
            return None
        with self._items.reading() as database:
            rows = database.execute("SELECT id FROM label WHERE name = ?", (storable(str(label)),)).fetchall()
        return np.array([id for (id,) in rows], np.int64)

    def _code_of(self, snapshot: Snapshot, id: int) -> Any:
        if id not in snapshot.index:
            raise DataError(f"An item to search by must be in the collection and have a code. Id {id} has none.")
        return bits.unpack(snapshot.codes(np.array([id], np.int64)), snapshot.state.n_bits)[0].astype(np.float64)

    def _check_code(self, snapshot: Snapshot, code: bytes) -> Any:
        n_bits = snapshot.state.n_bits
        if not isinstance(code, bytes | bytearray) or len(code) != n_bits // 8:
            raise DataError(f"A code of this collection must be {n_bits // 8} bytes. Got {code!r} instead.")
        return bits.unpack(np.frombuffer(bytes(code), np.uint8)[None], n_bits)[0].astype(np.float64)

    def _now(self) -> Snapshot:
        """The collection as last committed by anyone."""
        with self._items.lock:
            version = self._items.data_version()
            if self._snapshot is None or version != self._version:
                with self._items.reading() as database:
                    state = State.read(database, self.path)
                    before = self._snapshot
                    if before is not None and self._lags(state):
                        return before  # until a writer has sent the codes to the server
                    if before is None or state.generation != before.state.generation:
                        index = self._index(database, state)
                        if before is None:
                            self._snapshot = Snapshot(self.path, state, index)
                        else:
                            self._snapshot = before.successor(state, index)
                self._version = version
            assert self._snapshot is not None
            return self._snapshot

    def _searched_by(self, engine: str | None) -> tuple[str, Mirror | None]:
        """The engine that searches in memory, and the server that does it instead; by default the one before."""
        remembered = mirror.read(self.path)
        if engine is None and remembered is not None:
            engine = remembered.engine
        if server.is_address(engine):
            return "scan", Mirror(self.path, engine)
        HammingIndex(8, engine=engine or "scan")  # says what is wrong with a name
        return engine or "scan", None

    def _catch_up(self) -> None:
        """Bring a server up to date that a writer has left behind; readers cannot."""

    def _lags(self, state: State) -> bool:
        return self._mirror is not None and state.codes > 0 and not self._mirror.fits(state)

    def _index(self, database: Any, state: State) -> HammingIndex:
        if self._mirror is not None and state.codes:
            return self._mirror.index(state)
        index = HammingIndex(state.n_bits, engine=self._engine)
        ids, codes = store.read_codes(database, state, self.path)
        index.add(codes, ids)
        return index

    def _attempt(self, work: Callable[[Snapshot], T]) -> T:
        """Do something with the current state; once more where a writer has just put other files in place."""
        moved = False
        for _ in range(_TRIES):
            try:
                return work(self._now())
            except MovedError:  # the next look sees what is there then
                moved = True
                continue
            except (GoneError, IndexGoneError):
                moved = False
            with self._items.lock:
                self._version = None
                if self._mirror is not None:  # the index on the server may be another one now
                    self._snapshot = None
        if moved:
            raise CollectionError(
                f"The server of the collection {self.path} changes faster than it can be read; ask again later."
            )
        raise CorruptCollectionError(
            f"The collection {self.path} is corrupt: its model or an encoder is missing; a reindex makes it anew."
        )

    def check(self) -> None:
        """Raise what a search would meet: codes, a model or encoders that cannot be read."""

        def work(snapshot: Snapshot) -> None:
            if snapshot.state.model:
                for view in snapshot.model.views:
                    snapshot.encoder(view)

        self._attempt(work)

    @property
    def changes(self) -> int:
        """A number that grows with every change that a search could see."""
        return self._now().state.generation

    @property
    def generation(self) -> int:
        """The number of the generation in force: codes of different generations have nothing to do with each other."""
        return self._now().state.number

    # -- looking -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        with self._items.reading() as database:
            return int(database.execute("SELECT count(*) FROM item").fetchone()[0])

    def item(self, id: int) -> Item:
        """One item."""
        with self._items.reading() as database:
            found = store.items(database, "WHERE id = ?", (_number(id),))
        if not found:
            raise DataError(f"Ids must be in the collection. Id {id} is not.")
        return found[0]

    def items(self, offset: int = 0, limit: int = 100, label: str | None = None) -> list[Item]:
        """Items in order of id."""
        check_integer("Collection.items", "offset", offset, low=0)
        check_integer("Collection.items", "limit", limit, low=1)
        narrowed = "" if label is None else "WHERE id IN (SELECT id FROM label WHERE name = ?)"
        values = () if label is None else (storable(str(label)),)
        with self._items.reading() as database:
            part = min(limit, HIGHEST), min(offset, HIGHEST)
            return store.items(database, f"{narrowed} ORDER BY id LIMIT ? OFFSET ?", (*values, *part))

    def labels(self) -> dict[str, int]:
        """How many items have each label, most frequent first."""
        with self._items.reading() as database:
            query = "SELECT name, count(*) FROM label GROUP BY name ORDER BY count(*) DESC, name"
            return dict(database.execute(query).fetchall())

    def thumbnail(self, id: int) -> bytes | None:
        """A small JPEG of an item's image, or None where it has none."""
        with self._items.reading() as database:
            query = "SELECT jpeg FROM thumbnail WHERE image = (SELECT image FROM item WHERE id = ?)"
            found = database.execute(query, (_number(id),)).fetchone()
        return None if found is None else bytes(found[0])

    def stats(self) -> dict[str, Any]:
        """What the collection holds, and whether it is time for a reindex."""
        snapshot = self._now()
        settings = self._created_with.now(snapshot.state)
        with self._items.reading() as database:
            counts = overview.counts(database, trained=bool(snapshot.state.model))
        return {
            "path": str(self.path),
            "n_bits": snapshot.state.n_bits,
            "codes": snapshot.state.codes,
            "generation": snapshot.state.number,
            "image_encoder": settings.image.name,
            "text_encoder": settings.text.name,
            "bytes": sum(_size(path) for path in self.path.iterdir()),
            **({} if self._mirror is None else {"engine": self._mirror.shown}),
            **counts,
        }

    def generations(self) -> list[Generation]:
        """The generation in force and those that are kept beside it, by number."""
        with self._items.reading() as database:
            state = State.read(database, self.path)
            kept = generations.kept(database, self.path)
        found = [self._generation(one, state) for one in (state, *kept) if one.model or one is state]
        return sorted(found, key=lambda one: one.number)

    def _generation(self, one: State, in_force: State) -> Generation:
        settings, files = self._created_with.now(one), files_of(self.path, one)
        return Generation(
            number=one.number,
            in_force=one is in_force,
            before=one.number == in_force.before,
            made=one.made,
            codes=one.codes,
            n_bits=one.n_bits,
            random_state=settings.random_state,
            image_encoder=settings.image.name if one.image_encoder else "",
            text_encoder=settings.text.name if one.text_encoder else "",
            quality=one.quality,
            bytes=one.codes * one.n_bits // 8 + sum(map(_size, files)),
        )

    def clusters(self, count: int = 12) -> list[dict[str, Any]]:
        """Groups of alike items, largest first: {"words", "examples" (ids), "size"}."""
        check_integer("Collection.clusters", "count", count, low=1)

        def work(snapshot: Snapshot) -> list[dict[str, Any]]:
            ids = snapshot.index.ids
            with self._items.reading() as database:
                said = overview.words_of(database, ids)
            return overview.clusters(said, ids, snapshot.codes(ids), snapshot.state.n_bits, count)

        return self._attempt(work)

    def code_stats(self) -> dict[str, Any]:
        """How the codes use their bits, and the distances of random pairs."""

        def work(snapshot: Snapshot) -> dict[str, Any]:
            return overview.code_stats(snapshot.codes(snapshot.index.ids), snapshot.state.n_bits)

        return self._attempt(work)

    def close(self) -> None:
        """Let go of the files."""
        self._items.close()
        if self._mirror is not None:
            self._mirror.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        n_bits = self._created_with.n_bits if self._snapshot is None else self._snapshot.state.n_bits
        return f"<{type(self).__name__} of {n_bits} bits in {self.path}>"


def _number(id: Any) -> int | None:
    """An id as SQLite takes it; None, which nothing has, for what cannot be one."""
    whole = isinstance(id, int | np.integer) and not isinstance(id, bool)
    return int(id) if whole and abs(id) <= HIGHEST else None


def _check_text(text: Any) -> None:
    if not isinstance(text, str) or not text.strip():
        raise DataError("A text to search for must have at least one word. Got none.")


def _size(path: Path) -> int:
    with suppress(OSError):  # a writer may just have removed it
        return path.stat().st_size
    return 0
