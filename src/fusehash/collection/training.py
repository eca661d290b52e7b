"""From features to codes: the model of a collection, trained on every item, whatever views it has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fusehash.collection.encoding import VIEWS, Fitted, fingerprint
from fusehash.collection.entries import Entry
from fusehash.collection.features import Features, Floats32
from fusehash.collection.items import Progress
from fusehash.errors import DataError, FusehashError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher


@dataclass(frozen=True)
class Trained:
    """A model and the fingerprint of what it was trained on."""

    fingerprint: str
    model: CrossModalHasher

    @property
    def views(self) -> list[str]:
        return self.model.view_names_


def model_file(folder: Path, name: str) -> Path:
    """Where a model lies."""
    return folder / f"model-{name}.safetensors"


def load_model(folder: Path, name: str) -> Trained:
    """A model of a collection."""
    from fusehash import hashers

    return Trained(name, hashers.load(model_file(folder, name)))


def matrices(entries: Sequence[Entry], encoders: dict[str, Fitted], features: Features) -> dict[str, Floats32]:
    """Features by view, one row an entry; NaN where the entry has not got the view."""
    contents = {"image": [entry.image for entry in entries], "text": [entry.text_content for entry in entries]}
    return {
        view: features.matrix(encoders[view].fingerprint, contents[view], encoders[view].width)
        for view in VIEWS
        if view in encoders
    }


def train(
    folder: Path, n_bits: int, seed: int, views: dict[str, Floats32], encoders: dict[str, Fitted], report: Progress
) -> Trained:
    """The model of these items; one that was trained on the same before is loaded instead.

    Raises DataError, with what is missing, where nothing can be learned from them.
    """
    from fusehash import hashers

    usable = {view: matrix for view, matrix in views.items() if _tells_apart(matrix)}
    if not usable:
        raise DataError(
            "A collection needs at least 2 items with different images or different texts before it can be searched."
        )
    seen = ~np.all([np.isnan(matrix[:, 0]) for matrix in usable.values()], axis=0)
    usable = {view: matrix[seen] for view, matrix in usable.items()}
    made_from = [encoders[view].fingerprint for view in usable]
    rows = [np.ascontiguousarray(matrix).data.cast("B") for matrix in usable.values()]
    name = fingerprint("agsfh", n_bits, seed, list(usable), made_from, *rows)
    path = model_file(folder, name)
    if path.exists():
        try:
            return Trained(name, hashers.load(path))
        except FusehashError:
            pass  # trained anew below
    report(0, 1, "learning codes")
    model = hashers.make("fusehash", n_bits=n_bits, missing="allow", random_state=seed, callback=report)
    model.fit(usable)
    model.set_params(callback=None)
    model.save(path)
    return Trained(name, model)


def encode(model: CrossModalHasher, views: dict[str, Floats32]) -> list[bytes | None]:
    """The code of every row, from the views it has; None where it has none of the model's."""
    known = {view: views[view] for view in model.view_names_ if view in views}
    count = len(next(iter(views.values()))) if views else 0
    if not known:
        return [None] * count
    seen = ~np.all([np.isnan(matrix[:, 0]) for matrix in known.values()], axis=0)
    codes: list[bytes | None] = [None] * count
    if seen.any():
        packed = model.encode_fused({view: matrix[seen] for view, matrix in known.items()})
        for place, code in zip(np.flatnonzero(seen), packed, strict=True):
            codes[place] = code.tobytes()
    return codes


def _tells_apart(matrix: Floats32) -> bool:
    """At least two rows are there, and they differ."""
    there = matrix[~np.isnan(matrix[:, 0])]
    return len(there) >= 2 and bool((there != there[0]).any())
