"""What a collection answers: searches, items, counts, near-duplicates, overviews. Nothing here writes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.collection import overview, store
from fusehash.collection.answering import answer
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.generations import Generation
from fusehash.collection.items import CollectionError, Entry, Hits, Item, Saved
from fusehash.collection.likeness import Looks
from fusehash.collection.opened import OpenCollection
from fusehash.collection.originals import Original, Originals
from fusehash.collection.queries.filters import Filters, ordered
from fusehash.collection.question import Question
from fusehash.collection.store import CollectionState
from fusehash.collection.training import files_of
from fusehash.errors import DataError
from fusehash.parameters import integer, real
from fusehash.search.ids import HIGHEST, check_ids
from fusehash.search.rows import Ids
from fusehash.sqlite import DamageError


class CollectionReader(OpenCollection):
    """The part of `Collection` that only reads."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0, engine: str | None = None) -> None:
        self._originals = Originals()
        super().__init__(path, timeout=timeout, engine=engine)

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

    def saved(self, ids: Iterable[int]) -> list[Saved]:
        """Items as they are stored, for `restore`; an unknown id raises DataError."""
        entries = self._entries_of(list(ids))
        with self._items.reading() as database:
            return [Saved(entry, store.read_thumbnail(database, entry.image)) for entry in entries]

    def _entries_of(self, ids: list[int]) -> list[Entry]:
        with self._items.reading() as database:
            entries = store.read_entries_by_id(database, map(_sql_id, ids))
        missing = set(ids) - {entry.id for entry in entries}
        if missing:
            raise DataError(f"Ids must be in the collection. Id {min(missing)} is not.")
        return entries

    def generations(self) -> list[Generation]:
        """All generations, in order of their numbers."""
        with self._items.reading() as database:
            current = CollectionState.read(database)
            kept = store.kept_states(database)
        listed = [self._describe(state, current) for state in (current, *kept) if state.model or state is current]
        return sorted(listed, key=lambda generation: generation.number)

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

    def _bytes(self) -> int:
        try:
            return sum(_size(path) for path in self.path.iterdir())
        except OSError as error:
            raise CollectionError(f"The collection {self.path} cannot be reached: {error.strerror}.") from error


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
