"""The search itself: the nearest codes, ordered again by what a code alone does not hold.

A query is a vector p of real numbers; its code is sgn(p). Candidates are the nearest codes by Hamming distance. With
reranking, more candidates than asked for are taken and ordered by the asymmetric distance

    sum of |p_j| over the bits j where the code differs from sgn(p),

so that a bit the query is unsure of counts little. A query of one or two words is far from any caption. For a query by
text, the texts that contain most of its words are therefore candidates too. With the words q of the query, d of a text,
and w_t = ln(1 + (n - df_t + 1/2) / (df_t + 1/2)), larger for rarer words,

    contained = sum of w_t over q that d has / sum of w_t over q      how much of the query the text contains
    purity    = sum of w_t over d that q has / sum of w_t over d      how little else it contains
    words     = (contained + 0.1 purity) / 1.1
    code      = 1 - 2 (asymmetric distance) / (sum of all |p_j|)
    score     = (code + 2 words) / 3,                                 from -1 to 1.

A word counts once. If a text lacks a word of the query, another form of it counts 0.8 in `contained`: a word that
begins with it, or that it begins with, of about the same length (kid and kids). An item without a text gets the mean
`words` of its neighbors. A text with exactly the words of the query scores 1. docs/collections.md says how the weight 2
was chosen. Ties: Hamming distance, then id.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection import store
from fusehash.collection.bridge import Bridge
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.changes import Learned
from fusehash.collection.encoding import FittedEncoder, Floats32, encoder_file, load_encoder
from fusehash.collection.items import Item
from fusehash.collection.store import CollectionState
from fusehash.collection.training import NEEDS_ITEMS, bridge_file, load_bridge, load_model, model_file
from fusehash.errors import DataError, FusehashError
from fusehash.forks import new_lock
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, Database
from fusehash.views import Floats

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

CACHED_ITEMS = 20_000  # that a snapshot keeps in memory
CANDIDATES_PER_RESULT, EXTRA_CANDIDATES = 4, 64  # that reranking looks at
WORDS_WEIGHT = 2.0  # of the words of a text, relative to its code
VERBATIM = 1.0 - 1e-5  # exactly the words of the query, up to rounding
PURITY_WEIGHT = 0.1
# Two words are forms of one if they share at least so many letters from the start, and so large a part of all letters.
FORM_LETTERS, FORM_SHARE, FORM_WEIGHT = 3, 0.7, 0.8
_WORD = re.compile(r"\w+")

Ints = NDArray[np.int32]


class GoneError(Exception):
    """A file of this snapshot is gone: a writer has replaced it."""


@dataclass
class Snapshot:
    """A collection at one moment: its state and codes. Model and encoders are read when first needed."""

    folder: Path
    state: CollectionState
    index: HammingIndex
    _loaded: dict[str, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=new_lock)
    _items: dict[int, Item] = field(default_factory=dict)

    @property
    def model(self) -> CrossModalHasher:
        """The model; raises if nothing has been learned yet."""
        name = self.state.model
        if not name:
            raise DataError(f"This collection cannot be searched yet: it {NEEDS_ITEMS}")
        checksum = self.state.checksums.get("model")
        return self._load("model", model_file(self.folder, name), lambda: load_model(self.folder, name, checksum))

    def encoder(self, view: str) -> FittedEncoder | None:
        name = self.state.encoder_names.get(view)
        if name is None:
            return None
        path, checksum = encoder_file(self.folder, view, name), self.state.checksums.get(view)
        return self._load(view, path, lambda: load_encoder(self.folder, view, name, checksum))

    @property
    def bridge(self) -> Bridge | None:
        """What gives pictures without a text the text features that it expects, if there is such a thing."""
        name, checksum = self.state.bridge, self.state.checksums.get("bridge")
        path = bridge_file(self.folder, name)
        return self._load("bridge", path, lambda: load_bridge(self.folder, name, checksum)) if name else None

    def catalogue(self, database: Connection) -> Catalogue:
        """The texts and labels of all items; those of an earlier moment are not read again."""
        catalogue = self._loaded["catalogue"] = Catalogue.read(database, self._loaded.get("catalogue"))
        return catalogue

    def items(self, database: Connection, ids: Sequence[int]) -> dict[int, Item]:
        """Those of some items that exist; they are read and checked once."""
        if len(self._items) > CACHED_ITEMS:
            self._items.clear()
        if new := [id for id in ids if id not in self._items]:
            self._items.update(store.items_by_id(database, new))
        return {id: self._items[id] for id in ids if id in self._items}

    def words(self, items: Database) -> Words:
        """The words of all texts; those of an earlier moment are not split again."""
        with self._lock:
            revision, words = self._loaded.get("words", (-1, None))
            if revision != self.state.revision:
                with items.reading() as database:
                    catalogue = self.catalogue(database)
                words = Words.read(catalogue.texts.items(), words)
                self._loaded["words"] = catalogue.revision, words
            return words

    def learned(self, state: CollectionState) -> Learned | None:
        """Model and encoders of a state if they are those of this moment, which are read once."""
        mine, theirs = ((each.model, each.bridge, each.encoder_names, each.checksums) for each in (self.state, state))
        if not state.model or mine != theirs:
            return None
        encoders = {view: fitted for view in state.encoder_names if (fitted := self.encoder(view)) is not None}
        return Learned(encoders, state.model, self.model, state.bridge, self.bridge)

    def successor(self, state: CollectionState, index: HammingIndex) -> Snapshot:
        """A later moment; what has not changed is not read again."""
        names = _parts(state)
        before = _parts(self.state)
        kept = {part: self._loaded[part] for part in names if part in self._loaded and before.get(part) == names[part]}
        return Snapshot(self.folder, state, index, kept, self._lock)

    def project(self, view: str, item: Any, *, must_know: bool = True) -> Floats:
        """The real-valued vector of a query; with `must_know`, a text needs a word that the encoder knows."""
        model = self.model
        fitted = self.encoder(view) if view in model.view_names_ else None
        if fitted is None:
            raise DataError(f"This collection was made without {view}s, so it cannot be searched by {view}.")
        row, problems = fitted.encoder.encode([item])  # without a lock: a large image takes long
        if problems or not np.isfinite(row).all():
            raise DataError(f"The query's {view} cannot be used: {problems.get(0, 'it has no features.')}")
        if must_know and view == "text" and not row.any():
            raise DataError(f"None of the words of the query occurs in this collection. Got {item!r}.")
        return model.project(row, view=view)[0]

    def rank(
        self, query: Floats, k: int, *, allowed: Ids | None = None, rerank: bool = True, words: WordScores | None = None
    ) -> tuple[Ids, Ints, Floats, Codes]:
        """Ids, distances, scores and codes of the `k` best items; with `words`, their texts count too."""
        n_bits, code = self.state.n_bits, bits.pack(query[None])
        count = CANDIDATES_PER_RESULT * k + EXTRA_CANDIDATES if rerank else k
        (distances,), (ids,) = self.index.search(code, count, allowed=allowed)
        if not rerank or not ids.size:
            return ids, distances, 1.0 - 2.0 * distances / n_bits, self.index.get(ids)
        neighbors = ids
        if words is not None:
            others = np.setdiff1d(words.best(count, allowed), neighbors)
            (more_distances,), (more_ids,) = self.index.search(code, count, allowed=others)
            distances, ids = np.concatenate([distances, more_distances]), np.concatenate([ids, more_ids])
        codes = self.index.get(ids)
        # Row by row in one fixed order, so that equal codes get equal scores.
        scores = (bits.unpack(codes, n_bits) * query).sum(axis=1) / max(np.abs(query).sum(), 1e-300)
        if words is not None:
            scores = _with_words(scores, words.of(ids), words.of(neighbors))
        order = np.lexsort((ids, distances, -scores))[:k]
        return ids[order], distances[order], scores[order], codes[order]

    def _load(self, part: str, path: Path, load: Callable[[], Any]) -> Any:
        if part in self._loaded:
            return self._loaded[part]
        with self._lock:
            if part not in self._loaded:
                try:
                    self._loaded[part] = load()
                except (FusehashError, OSError) as error:
                    if path.exists():
                        raise
                    raise GoneError(path.name) from error
            return self._loaded[part]


def _parts(state: CollectionState) -> dict[str, str]:
    """What a snapshot reads when it is first needed, with its name."""
    return {"words": "", "catalogue": "", "model": state.model, "bridge": state.bridge, **state.encoder_names}


def _with_words(scores: Floats, words: Floats, neighbor_words: Floats) -> Floats:
    """Scores by code and words; items without a text get the mean of the neighbors that have one."""
    with_text = neighbor_words[np.isfinite(neighbor_words)]
    filled = np.where(np.isfinite(words), words, with_text.mean() if len(with_text) else 0.0)
    both = (scores + WORDS_WEIGHT * filled) / (1.0 + WORDS_WEIGHT)
    return np.where(filled >= VERBATIM, 1.0, both)


def words_in(text: str) -> list[str]:
    """The different words of a text, in one spelling."""
    return sorted(set(_WORD.findall(unicodedata.normalize("NFKC", text).lower())))


@dataclass(frozen=True)
class WordScores:
    """How well each text matches the words of a query: ids of items with a text, ascending, and their scores."""

    ids: Ids
    scores: Floats32

    def best(self, count: int, allowed: Ids | None = None) -> Ids:
        """The ids of the `count` largest positive scores, largest first, then by id; among the allowed ones."""
        scores = self.scores if allowed is None else np.where(np.isin(self.ids, allowed), self.scores, 0.0)
        rows = np.flatnonzero(scores > 0.0)
        if count < len(rows):
            cut = np.partition(scores[rows], len(rows) - count)[len(rows) - count]
            rows = rows[scores[rows] >= cut]
        return self.ids[rows[np.argsort(-scores[rows], kind="stable")][:count]]

    def of(self, ids: Ids) -> Floats:
        """The scores of some ids; NaN for items without a text."""
        scores = np.full(len(ids), np.nan)
        if len(self.ids):
            rows = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
            has_text = self.ids[rows] == ids
            scores[has_text] = self.scores[rows[has_text]]
        return scores


@dataclass(frozen=True)
class Words:
    """The words of all texts."""

    ids: Ids  # of the items that have a text, ascending
    vocabulary: dict[str, int]  # word -> number
    starts: Ints  # the words of text i are numbers[starts[i] : starts[i + 1]]
    numbers: Ints
    texts: dict[int, str]  # id -> the text that the words are from

    @classmethod
    def read(cls, rows: Iterable[tuple[int, str]], before: Words | None = None) -> Words:
        """Words of (id, text) rows in order of id; texts that `before` has are not split again."""
        vocabulary = dict(before.vocabulary) if before is not None else {}
        row_of = {} if before is None else {id: row for row, id in enumerate(before.ids.tolist())}
        texts: dict[int, str] = {}
        parts: list[Ints] = []
        for id, text in rows:
            if before is not None and before.texts.get(id) == text:
                row = row_of[id]
                parts.append(before.numbers[before.starts[row] : before.starts[row + 1]])
            else:
                numbers = [vocabulary.setdefault(word, len(vocabulary)) for word in words_in(text)]
                parts.append(np.array(numbers, np.int32))
            texts[id] = text
        starts = np.zeros(len(parts) + 1, np.int32)
        np.cumsum([len(part) for part in parts], out=starts[1:])
        joined = np.concatenate(parts) if parts else np.empty(0, np.int32)
        return cls(np.fromiter(texts, np.int64, len(texts)), vocabulary, starts, joined, texts)

    @cached_property
    def weights(self) -> Floats32:
        """w_t of every word."""
        counts = np.bincount(self.numbers, minlength=len(self.vocabulary))
        return np.log1p((len(self.ids) - counts + 0.5) / (counts + 0.5)).astype(np.float32)

    @cached_property
    def totals(self) -> Floats32:
        """Sum of w_t over the words of every text."""
        sums = np.concatenate([[0.0], np.cumsum(self.weights[self.numbers], dtype=np.float64)])
        return (sums[self.starts[1:]] - sums[self.starts[:-1]]).astype(np.float32)

    @cached_property
    def _postings(self) -> tuple[Ints, Ints]:
        """For every word, the rows of the texts that have it: rows[starts[t] : starts[t + 1]]."""
        rows = np.repeat(np.arange(len(self.ids), dtype=np.int32), np.diff(self.starts))
        order = np.argsort(self.numbers, kind="stable")
        starts = np.searchsorted(self.numbers[order], np.arange(len(self.vocabulary) + 1)).astype(np.int32)
        return rows[order], starts

    @cached_property
    def _sorted(self) -> tuple[list[str], list[int]]:
        """All words, and their different lengths."""
        return sorted(self.vocabulary), sorted(set(map(len, self.vocabulary)))

    def forms(self, word: str) -> list[str]:
        """Words that begin with a word, or that it begins with, and are of about its length; not itself."""
        if len(word) < FORM_LETTERS:
            return []
        words, lengths = self._sorted
        first, last = bisect_left(words, word), bisect_left(words, word + chr(sys.maxunicode))
        ends = (end for end in lengths if FORM_LETTERS <= end < len(word))  # few, however long the word is
        shorter = [word[:end] for end in ends if word[:end] in self.vocabulary]
        return [
            other
            for other in (*shorter, *words[first:last])
            if other != word and 2 * min(len(word), len(other)) >= FORM_SHARE * (len(word) + len(other))
        ]

    def scores(self, query: str) -> WordScores:
        """How well each text matches the words of a query."""
        contained, inside = np.zeros((2, len(self.ids)), np.float32)
        total = 0.0
        rows, starts = self._postings
        rarest = float(np.log1p(2.0 * len(self.ids) + 1.0))
        for word in words_in(query):
            number = self.vocabulary.get(word)
            weight = rarest if number is None else float(self.weights[number])
            total += weight
            texts = rows[:0] if number is None else rows[starts[number] : starts[number + 1]]
            inside[texts] += weight
            share = np.zeros(len(self.ids), np.float32)
            for form in map(self.vocabulary.__getitem__, self.forms(word)):
                share[rows[starts[form] : starts[form + 1]]] = FORM_WEIGHT
            share[texts] = 1.0
            contained += np.float32(weight) * share
        if total > 0.0:
            purity = inside / np.maximum(self.totals, np.float32(1e-9))
            weighted = contained / np.float32(total) + np.float32(PURITY_WEIGHT) * purity
            contained = (weighted / np.float32(1.0 + PURITY_WEIGHT)).astype(np.float32, copy=False)
        return WordScores(self.ids, contained)
