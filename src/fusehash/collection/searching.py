"""The search itself: the nearest codes, then their order by what the query's signs alone would throw away.

A query is a vector p of real numbers; its code is sgn(p). Candidates are the nearest codes by Hamming distance. With
reranking, more candidates than wanted are taken and ordered by the asymmetric distance

    sum over the bits where b differs from sgn(p) of |p_j|,

so that a bit which the query is unsure of counts little. For a query by text, the texts that say most of its words are
candidates too (words.py), and the score is

    (code + 2 said) / 3,   code = 1 - 2 (asymmetric distance) / (sum of all |p_j|),   from -1 to 1,

where an item without a text counts as its neighbors do on average. A text with the very words of the query scores 1.
The weight 2 was chosen on held-out captions of photos and emoji, whole and cut to a few words (docs/collections.md).
Ties: Hamming distance, then id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.bits import Codes
from fusehash.collection.database import Database
from fusehash.collection.encoding import Fitted, encoder_file, load_encoder
from fusehash.collection.store import State
from fusehash.collection.training import Trained, load_model, model_file
from fusehash.collection.words import Said, Words, read_words
from fusehash.errors import DataError, FusehashError
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.views import Floats

# Candidates that reranking looks at, for k wanted.
OVERFETCH, EXTRA = 4, 64
# What the words of a text weigh beside its code.
WORDS_WEIGHT = 2.0
VERBATIM = 1.0 - 1e-5  # the very words of the query, up to rounding


class GoneError(Exception):
    """A file of this snapshot is no longer there: a writer has put another in its place."""


class MovedError(GoneError):
    """Items were removed from a server between one look at it and the next."""


@dataclass(frozen=True)
class Found:
    """One result: id, Hamming distance, score, code."""

    id: int
    distance: int
    score: float
    code: bytes


@dataclass
class Snapshot:
    """A collection as it was at one moment: its state and codes; model and encoders are read when first needed."""

    folder: Path
    state: State
    index: HammingIndex
    _loaded: dict[str, Any] = field(default_factory=dict)
    _lock: Any = field(default_factory=threading.RLock)

    @property
    def model(self) -> Trained:
        """The model; an error where nothing has been learned yet."""
        if not self.state.model:
            raise DataError(
                "This collection cannot be searched yet: "
                "it needs at least 2 items with different images or different texts."
            )
        name = self.state.model
        return self._load("model", model_file(self.folder, name), lambda: load_model(self.folder, name))

    def encoder(self, view: str) -> Fitted | None:
        """The encoder of a view, or None where it has none."""
        name = self.state.image_encoder if view == "image" else self.state.text_encoder
        if not name:
            return None
        return self._load(view, encoder_file(self.folder, view, name), lambda: load_encoder(self.folder, view, name))

    def _load(self, what: str, path: Path, load: Callable[[], Any]) -> Any:
        with self._lock:
            if what not in self._loaded:
                try:
                    self._loaded[what] = load()
                except (FusehashError, OSError) as error:
                    if path.exists():
                        raise
                    raise GoneError(path.name) from error
            return self._loaded[what]

    def codes(self, ids: Ids) -> Codes:
        """The codes of items that were just found."""
        try:
            return self.index.get(ids)
        except DataError as error:  # a server shows what is there now, and another process may have removed some
            raise MovedError(str(error)) from error

    def words(self, items: Database) -> Words:
        """The words of the texts; of those that a former moment had too, nothing is taken apart again."""
        with self._lock:
            if "words" not in self._loaded:
                with items.reading() as database:
                    self._loaded["words"] = read_words(database, self._loaded.pop("former words", None))
            words: Words = self._loaded["words"]
            return words

    def successor(self, state: State, index: HammingIndex) -> Snapshot:
        """A later moment; what has been read and is still in force need not be read again."""
        kept = {
            what: self._loaded[what]
            for what, before, now in (
                ("model", self.state.model, state.model),
                ("image", self.state.image_encoder, state.image_encoder),
                ("text", self.state.text_encoder, state.text_encoder),
            )
            if what in self._loaded and before == now
        }
        former = self._loaded.get("words", self._loaded.get("former words"))
        if former is not None:
            kept["former words"] = former
        return Snapshot(self.folder, state, index, kept, self._lock)

    def project(self, view: str, item: Any, *, known: bool = True) -> Floats:
        """The real-valued vector of a query; with ``known``, of a text that the encoder knows a word of."""
        model = self.model
        fitted = self.encoder(view) if view in model.views else None
        if fitted is None:
            other = "texts" if view == "text" else "images"
            raise DataError(f"This collection was made without {other}, so it cannot be searched by {view}.")
        with self._lock:  # an encoder tells its problems in an attribute
            row = np.asarray(fitted.encoder.transform([item]))
            problem = fitted.encoder.problems_.get(0)
        if problem is not None or not np.isfinite(row).all():
            raise DataError(f"The query's {view} cannot be used: {problem or 'it has no features.'}")
        if known and view == "text" and not row.any():
            raise DataError(f"None of the words of the query occurs in this collection. Got {item!r}.")
        return model.model.project(row, view=view)[0]


def find(
    snapshot: Snapshot, query: Floats, k: int, *, allowed: Any, rerank: bool, said: Said | None = None
) -> list[Found]:
    """The ``k`` best items for a real-valued query; with ``said``, by what their texts say of it too."""
    n_bits = snapshot.state.n_bits
    code = bits.pack(query[None])
    fetch = OVERFETCH * k + EXTRA if rerank else k
    found = snapshot.index.search(code, fetch, allowed=allowed)
    distances, ids = found[0][0], found[1][0]
    if not ids.size:
        return []
    if not rerank:
        scores = 1.0 - 2.0 * distances / n_bits
        codes, order = snapshot.codes(ids), np.arange(min(k, len(ids)))
    else:
        near = ids
        if said is not None:
            more = snapshot.index.search(code, fetch, allowed=np.setdiff1d(said.best(fetch, allowed), near))
            distances, ids = np.concatenate([distances, more[0][0]]), np.concatenate([ids, more[1][0]])
        codes = snapshot.codes(ids)
        # Row by row in one fixed order, so that equal codes get equal scores.
        scores = (bits.unpack(codes, n_bits) * query).sum(axis=1) / max(np.abs(query).sum(), 1e-300)
        if said is not None:
            scores = _with_words(scores, said.of(ids), said.of(near))
        order = np.lexsort((ids, distances, -scores))[:k]
    return [Found(int(ids[i]), int(distances[i]), float(scores[i]), codes[i].tobytes()) for i in order]


def _with_words(scores: Floats, said: Floats, said_near: Floats) -> Floats:
    """Scores by code and words; ``said_near``: of the items that are nearest by code, from which others are guessed."""
    known = said_near[np.isfinite(said_near)]
    filled = np.where(np.isfinite(said), said, known.mean() if len(known) else 0.0)
    both = (scores + WORDS_WEIGHT * filled) / (1.0 + WORDS_WEIGHT)
    return np.where(filled >= VERBATIM, 1.0, both)
