"""The search itself: the nearest codes, then their order by what the query's signs alone would throw away.

A query is a vector p of real numbers; its code is sgn(p). Candidates are the nearest codes by Hamming distance. With
reranking, more candidates than wanted are taken and ordered by the asymmetric distance

    sum over the bits where b differs from sgn(p) of |p_j|,

so that a bit which the query is unsure of counts little. Ties: Hamming distance, then id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.collection.encoding import Fitted, encoder_file, load_encoder
from fusehash.collection.store import State
from fusehash.collection.training import Trained, load_model, model_file
from fusehash.errors import DataError, FusehashError
from fusehash.search import HammingIndex
from fusehash.views import Floats

# Candidates that reranking looks at, for k wanted.
OVERFETCH, EXTRA = 4, 64


class GoneError(Exception):
    """A file of this snapshot is no longer there: a writer has put another in its place."""


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
        return Snapshot(self.folder, state, index, kept, self._lock)

    def project(self, view: str, item: Any) -> Floats:
        """The real-valued vector of a query."""
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
        if view == "text" and not row.any():
            raise DataError(f"None of the words of the query occurs in this collection. Got {item!r}.")
        return model.model.project(row, view=view)[0]


def find(snapshot: Snapshot, query: Floats, k: int, *, allowed: Any, rerank: bool) -> list[Found]:
    """The ``k`` best codes for a real-valued query."""
    n_bits = snapshot.state.n_bits
    code = bits.pack(query[None])
    fetch = OVERFETCH * k + EXTRA if rerank else k
    distances, ids = snapshot.index.search(code, fetch, allowed=allowed)
    if not ids.size:
        return []
    codes = snapshot.index.get(ids[0])
    if rerank and np.abs(query).sum() > 0:
        # Row by row in one fixed order, so that equal codes get equal scores.
        scores = (bits.unpack(codes, n_bits) * query).sum(axis=1) / np.abs(query).sum()
        order = np.lexsort((ids[0], distances[0], -scores))[:k]
    else:
        scores = 1.0 - 2.0 * distances[0] / n_bits
        order = np.arange(min(k, ids.shape[1]))
    return [Found(int(ids[0, i]), int(distances[0, i]), float(scores[i]), codes[i].tobytes()) for i in order]
