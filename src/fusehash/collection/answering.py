"""Answer a search: compose the query from its parts, rank, and say what the results are worth.

Every part is a vector of real numbers: the projections of words and of images, and the signs of the codes of items. An
image whose content is in the collection stands for the code of its item. Of several parts, the query is the sum of the
vectors, each of length 1; what the results should be less like is subtracted with the weight 1/2. So is the projection
of excluded words, for the pictures that have no caption to exclude them by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.items import Hit, Hits, storable_text
from fusehash.collection.queries import calibration
from fusehash.collection.queries.filters import allowed_by, both
from fusehash.collection.queries.language import Clause, parse
from fusehash.collection.queries.words import Ints, Words
from fusehash.collection.question import NO_HASH, Question, content_of, pack_pictures, unit, unpack_pictures
from fusehash.collection.searching import WORDS_WEIGHT, Snapshot
from fusehash.collection.store import CollectionState
from fusehash.datasets.folders import content_hash
from fusehash.errors import DataError, FusehashError
from fusehash.search.rows import Ids
from fusehash.sqlite import DamageError, Database
from fusehash.views import Floats

UNLIKE_WEIGHT = 0.5
COMPOSED_WORDS_WEIGHT = 1.0  # of the words of a text if the query has other parts too
FIRST_ROUND, GROWTH = 200, 4  # results that are ranked together, so that later pages do not change earlier ones


@dataclass(frozen=True)
class Ranked:
    """Some results, best first; a confidence that is not known is NaN."""

    ids: Ids
    distances: Ints
    scores: Floats
    codes: Codes
    confidences: Floats

    def taken(self, rows: Any) -> Ranked:
        return Ranked(*(getattr(self, name)[rows] for name in Ranked.__annotations__))

    @classmethod
    def joined(cls, parts: list[Ranked]) -> Ranked:
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__annotations__))


def answer(question: Question, snapshot: Snapshot, items: Database) -> Hits:
    """The results of a search in a snapshot."""
    current = snapshot.state.generation
    if question.generation not in (None, current):
        raise DataError(f"The code is of generation {question.generation}; generation {current} is current.")
    shared = _Shared(question, snapshot, items)
    pictures = _Pictures.of(shared)
    sides = [_Side(shared, pictures, clause) for clause in shared.clauses]
    hits = shared.hits(_merged(sides, question), set(pictures.same))
    hits.generation, hits.picture = current, pictures.token(snapshot)
    if sides[0].query is not None:
        hits.code = bits.pack(sides[0].query[None])[0].tobytes()
    shared.judge(hits, sides)
    return hits


class _Shared:
    """What all sides of a query share. Catalogue and words are read when first needed."""

    def __init__(self, question: Question, snapshot: Snapshot, items: Database) -> None:
        self.question, self.snapshot, self._items = question, snapshot, items
        self.clauses = (Clause(),) if question.text is None else parse(question.text)
        self._catalogue: Catalogue | None = None
        self._words: Words | None = None
        self.filtered = None if question.filters.is_empty else question.filters.allowed(self.catalogue)

    @property
    def catalogue(self) -> Catalogue:
        if self._catalogue is None:
            with self._items.reading() as database:
                self._catalogue = self.snapshot.catalogue(database)
        return self._catalogue

    @property
    def words(self) -> Words:
        if self._words is None:
            self._words = self.snapshot.words(self._items)
        return self._words

    def with_image(self, content: bytes | None) -> list[int]:
        """The ids of the items with a code whose image has a content, by its hash; those with a caption first."""
        ids = [] if content is None else self.catalogue.by_image.get(content, [])
        return sorted(
            (id for id in ids if id in self.snapshot.index), key=lambda id: (id not in self.catalogue.texts, id)
        )

    def signs(self, id: int) -> Floats:
        """The code of an item."""
        if id not in self.snapshot.index:
            raise DataError(f"An item to search by must be in the collection and have a code. Id {id} has none.")
        return bits.unpack(self.snapshot.index.get(np.array([id], np.int64)), self.snapshot.state.n_bits)[0].astype(
            float
        )

    def hits(self, ranked: Ranked, same: set[int]) -> Hits:
        ids = ranked.ids.tolist()
        with self._items.reading() as database:
            items = self.snapshot.items(database, ids)
            if len(items) < len(ids) and CollectionState.read(database).revision == self.snapshot.state.revision:
                raise DamageError("items are missing from it")
        asked = [clause.text for clause in self.clauses if clause.text]
        columns = (ranked.distances.tolist(), ranked.scores.tolist(), ranked.codes, ranked.confidences.tolist())
        return Hits(
            Hit(
                id,
                distance,
                score,
                items[id],
                packed.tobytes(),
                confidence=None if np.isnan(confidence) else confidence,
                matched=self.words.matched(id, asked) if asked else (),
                same_image=id in same,
            )
            for id, distance, score, packed, confidence in zip(ids, *columns, strict=True)
            if id in items  # a writer may have removed some
        )

    def judge(self, hits: Hits, sides: list[_Side]) -> None:
        """Count what may be found and the captions that have all words; name the words that no caption has."""
        everything = self.snapshot.index.ids
        left = [everything if side.allowed is None else np.intersect1d(side.allowed, everything) for side in sides]
        hits.total = len(_union(left))
        hits.note = self._note_on_labels()
        worded = [side for side in sides if side.clause.text]
        if not worded:
            return
        matching = [self.words.having_all(calibration.asked_words(side.clause.text)) for side in worded]
        within = [side.allowed for side in worded]
        parts = [ids if some is None else np.intersect1d(ids, some) for ids, some in zip(matching, within, strict=True)]
        hits.matching = len(_union(parts))
        hits.missing = list(dict.fromkeys(word for side in worded for word in self.words.missing(side.clause.text)))
        phrases = [phrase for side in worded for phrase in side.clause.phrases]
        hits.note = hits.note or _note(hits, phrases, has_captions=bool(len(self.words.ids)))

    def _note_on_labels(self) -> str:
        """That no item has a label that is asked for, and the label that was perhaps meant."""
        asked = [label for clause in self.clauses for label in clause.labels]
        if self.question.filters.label is not None:
            asked.append(str(self.question.filters.label))
        unknown = [label for label in dict.fromkeys(asked) if not len(self.catalogue.with_label(storable_text(label)))]
        if not unknown:
            return ""
        similar = get_close_matches(unknown[0], self.catalogue.by_label, n=1)
        meant = f" Did you mean “{similar[0]}”?" if similar else ""
        return f"No item has the label {' or '.join(f'“{label}”' for label in unknown)}.{meant}"


class _Side:
    """One side of OR: its filter, its vector (None if it only filters), and its results."""

    def __init__(self, shared: _Shared, pictures: _Pictures, clause: Clause) -> None:
        self.shared, self.pictures, self.clause = shared, pictures, clause
        only_words = Clause(text=clause.text) == clause
        self.allowed = both(shared.filtered, None if only_words else allowed_by(clause, shared.catalogue, shared.words))
        self.text_vector = self._projected(clause.text) if clause.text else None
        self.query = self._composed()

    def _projected(self, text: str) -> Floats:
        # The encoder may not keep a word that only one text has.
        shared = self.shared
        known = shared.question.rerank and bool(shared.words.scores(text).scores.any())
        return shared.snapshot.project("text", text, must_know=not known)

    def _composed(self) -> Floats | None:
        question, shared = self.shared.question, self.shared
        if question.code is not None:
            return _signs_of(question.code, shared.snapshot.state.n_bits)
        more = [vector for vector in (self.text_vector,) if vector is not None]
        more += [*self.pictures.vectors, *map(shared.signs, question.like)]
        less = [*map(shared.signs, question.unlike), *self._excluded()]
        if len(more) == 1 and not less:
            return more[0]
        if not more and not question.unlike:
            return None  # exclusions alone leave a list
        zero = np.zeros(shared.snapshot.state.n_bits)
        return sum(map(unit, more), zero) - UNLIKE_WEIGHT * sum(map(unit, less), zero)

    def _excluded(self) -> Iterator[Floats]:
        snapshot = self.shared.snapshot
        for excluded in self.clause.excluded if snapshot.state.text_encoder else ():
            try:
                yield snapshot.project("text", excluded)
            except FusehashError:  # a word that the encoder does not know
                continue

    def first(self, count: int) -> Iterator[Ranked]:
        """At least `count` results, if there are so many, in rounds that are ranked separately."""
        if self.query is None:
            yield self._listed()
            return
        before, size = np.empty(0, np.int64), FIRST_ROUND
        while True:
            part = self._ranked(size)
            yield part.taken(~np.isin(part.ids, before))
            if len(part.ids) >= count or len(part.ids) < size:
                return
            before, size = np.union1d(before, part.ids), GROWTH * size

    def _ranked(self, size: int) -> Ranked:
        question, snapshot, text = self.shared.question, self.shared.snapshot, self.clause.text
        assert self.query is not None
        is_composed = bool(self.pictures.vectors or question.like or question.unlike)
        is_projected = bool(text or self.pictures.are_projected or len(question.like) + len(question.unlike) > 1)
        rerank = question.rerank and is_projected
        words = self.shared.words.scores(text) if text and rerank else None
        if words is not None and not words.scores.any():
            words = None
        ids, distances, scores, codes = snapshot.candidates(
            self.query,
            size + len(question.like) + len(question.unlike),
            allowed=self.allowed,
            rerank=rerank,
            words=words,
            words_weight=COMPOSED_WORDS_WEIGHT if is_composed else WORDS_WEIGHT,
            expected=self._expected if snapshot.calibration and text else None,
        )
        confidences = np.full(len(ids), np.nan)
        if text and rerank and not is_composed and snapshot.calibration and len(ids):
            confidences = self._confidences(ids, codes)
            if words is not None:
                confidences[scores == 1.0] = 1.0  # its caption has exactly the words of the query
        ranked = Ranked(ids, distances, scores, codes, confidences)
        is_alone = not (text or question.like or question.unlike)
        first = np.isin(ids, self.pictures.same) & is_alone
        rounded = np.nan_to_num(confidences.round(2))
        ranked = ranked.taken(np.lexsort((ids, distances, -scores, -rounded, ~first)))
        return ranked.taken(~np.isin(ranked.ids, [*question.like, *question.unlike])).taken(slice(size))

    def _chances(self, ids: Ids, codes: Codes) -> Floats:
        """The chance of each word of the text for each item, whatever its own caption says."""
        snapshot, words, asked = self.shared.snapshot, self.shared.words, calibration.asked_words(self.clause.text)
        assert snapshot.calibration is not None
        assert self.text_vector is not None
        signs = bits.unpack(codes, snapshot.state.n_bits).astype(np.float64)
        fit = calibration.similarity(signs, self.text_vector)
        background = calibration.similarity(snapshot.background, self.text_vector)
        having = [words.having(word) for word in asked]
        shares = snapshot.neighbors(words).shares(ids, having)
        return snapshot.calibration.chances(words, asked, fit, background, shares)

    def _expected(self, ids: Ids, codes: Codes) -> Floats:
        return np.asarray(self._chances(ids, codes).mean(axis=0), np.float64)

    def _confidences(self, ids: Ids, codes: Codes) -> Floats:
        """The mean over the words of their chances, which the caption of an item raises or lowers."""
        snapshot, words = self.shared.snapshot, self.shared.words
        assert snapshot.calibration is not None
        named = calibration.has_word(words, calibration.asked_words(self.clause.text), ids)
        chances = self._chances(ids, codes)
        chances = snapshot.calibration.with_captions(chances, named, np.isin(ids, words.ids))
        return np.asarray(chances.mean(axis=0), np.float64)

    def _listed(self) -> Ranked:
        """What a filter alone leaves, in order of id."""
        index = self.shared.snapshot.index
        ids = index.ids if self.allowed is None else np.intersect1d(self.allowed, index.ids)
        zeros = np.zeros(len(ids))
        return Ranked(ids, zeros.astype(np.int32), zeros, index.get(ids), np.full(len(ids), np.nan))


@dataclass(frozen=True)
class _Pictures:
    """The images of a query as vectors."""

    vectors: tuple[Floats, ...] = ()
    content: bytes = NO_HASH  # the hash of the only image
    same: tuple[int, ...] = ()  # ids of the items with this image
    are_projected: bool = False  # whether a vector is more than the signs of a code

    @classmethod
    def of(cls, shared: _Shared) -> _Pictures:
        question, vectors, content, same = shared.question, [], NO_HASH, list[int]()
        are_projected = False
        if question.picture is not None:
            hashed, vector, generation = unpack_pictures(question.picture, shared.snapshot.state.n_bits)
            content, same = hashed or NO_HASH, shared.with_image(hashed)
            if not same and generation != (current := shared.snapshot.state.generation):
                raise DataError(f"The picture is of generation {generation}; generation {current} is current.")
            vectors.append(shared.signs(same[0]) if same else vector)
            are_projected = not same
        for image in question.images:
            data = content_of(image)
            hashed = None if data is None else content_hash(data)
            ids = shared.with_image(hashed)
            vectors.append(
                shared.signs(ids[0]) if ids else shared.snapshot.project("image", image if data is None else data)
            )
            are_projected = are_projected or not ids
            content, same = hashed or NO_HASH, ids
        if len(vectors) != 1:
            content, same, are_projected = NO_HASH, [], bool(vectors)
        return cls(tuple(vectors), content, tuple(same), are_projected)

    def token(self, snapshot: Snapshot) -> bytes:
        """What stands for these images in a later search."""
        return pack_pictures(self.vectors, self.content, snapshot.state.generation, snapshot.state.n_bits)


def _merged(sides: list[_Side], question: Question) -> Ranked:
    """The results of all sides of OR, each item once with its best score."""
    last = question.offset + question.k
    ranked = Ranked.joined([part for side in sides for part in side.first(last)])
    if len(sides) > 1:
        rounded = np.nan_to_num(ranked.confidences.round(2))
        ranked = ranked.taken(np.lexsort((ranked.ids, ranked.distances, -ranked.scores, -rounded)))
        _, firsts = np.unique(ranked.ids, return_index=True)
        ranked = ranked.taken(np.sort(firsts))
    if question.min_confidence > 0.0:
        ranked = ranked.taken(~(ranked.confidences < question.min_confidence))
    return ranked.taken(slice(question.offset, last))


def _signs_of(code: Any, n_bits: int) -> Floats:
    if not isinstance(code, bytes | bytearray) or len(code) != n_bits // 8:
        raise DataError(f"A code of this collection must be {n_bits // 8} bytes. Got {code!r} instead.")
    return bits.unpack(np.frombuffer(bytes(code), np.uint8)[None], n_bits)[0].astype(np.float64)


def _union(parts: list[Ids]) -> Ids:
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


def _note(hits: Hits, phrases: list[str], *, has_captions: bool) -> str:
    """What a person should know before looking at the results."""
    if not has_captions:
        return "Nothing here has a caption; showing what looks closest."
    named = " or ".join(f"“{word}”" for word in (hits.missing if hits.total else phrases))
    if named:
        return f"No caption contains {named}{'; showing what looks closest' if hits.total else ''}."
    return "" if hits.matching or not hits else "No caption contains all of these words; showing what fits best."
