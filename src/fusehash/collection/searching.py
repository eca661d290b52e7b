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
begins with it, or that it begins with, of about the same length (kid and kids). An item without a text gets what its
picture lets expect (queries/calibration.py), or if that was not measured, the mean `words` of its neighbors. A text
with exactly the words of the query scores 1. docs/collections.md says how the weight 2 was chosen. Ties: Hamming
distance, then id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection import store
from fusehash.collection.bridge import Bridge
from fusehash.collection.catalogue import Catalogue
from fusehash.collection.changes import Learned
from fusehash.collection.encoding import FittedEncoder, encoder_file, load_encoder
from fusehash.collection.items import Item
from fusehash.collection.queries.calibration import BACKGROUND, Calibration
from fusehash.collection.queries.neighbors import Neighbors
from fusehash.collection.queries.words import Ints, Words, WordScores
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

    @cached_property
    def calibration(self) -> Calibration | None:
        """What confidences are computed with, if it was measured."""
        content = self.state.calibration
        return None if content is None else Calibration.from_dict(content)

    @cached_property
    def background(self) -> Floats:
        """Codes of some items as rows of -1 and 1, which queries are compared with."""
        ids = self.index.ids
        if len(ids) > BACKGROUND:
            ids = np.sort(np.random.default_rng(0).choice(ids, BACKGROUND, replace=False))
        return bits.unpack(self.index.get(ids), self.state.n_bits).astype(np.float64)

    def neighbors(self, words: Words) -> Neighbors:
        """The captioned items that are nearest to each item."""
        made = self._loaded.get("neighbors")
        if made is None:
            ids = self.index.ids
            captioned = np.intersect1d(words.ids, ids, assume_unique=True)
            made = self._loaded["neighbors"] = Neighbors(captioned, ids, self.index.get)
        return made

    def rank(self, query: Floats, k: int, *, words: WordScores | None = None) -> tuple[Ids, Ints, Floats, Codes]:
        """Ids, distances, scores and codes of the `k` best items, best first."""
        ids, distances, scores, codes = self.candidates(query, k, words=words)
        return ids[:k], distances[:k], scores[:k], codes[:k]

    def candidates(
        self,
        query: Floats,
        k: int,
        *,
        allowed: Ids | None = None,
        rerank: bool = True,
        words: WordScores | None = None,
        words_weight: float = WORDS_WEIGHT,
        expected: Callable[[Ids, Codes], Floats] | None = None,
    ) -> tuple[Ids, Ints, Floats, Codes]:
        """Ids, distances, scores and codes of all candidates for the `k` best items, best first.

        With `words`, their texts count too; `expected` estimates the words of items without a text.
        """
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
            fill = _mean_of(words.of(neighbors)) if expected is None else expected(ids, codes)
            scores = _with_words(scores, words.of(ids), fill, words_weight)
        order = np.lexsort((ids, distances, -scores))
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


def _mean_of(words: Floats) -> Floats:
    """The mean word score of the neighbors that have a text."""
    with_text = words[np.isfinite(words)]
    return with_text.mean() if len(with_text) else np.zeros(())


def _with_words(scores: Floats, words: Floats, fill: Floats, weight: float) -> Floats:
    """Scores by code and words; `fill` is for items without a text."""
    filled = np.where(np.isfinite(words), words, fill)
    both = (scores + weight * filled) / (1.0 + weight)
    return np.where(np.isfinite(words) & (words >= VERBATIM), 1.0, both)
