"""How good codes with some settings are, without labels: does a picture find its own text among others, and back?

Items that have both views are put into an order that depends on their keys alone, so that generations of one collection
are measured on the same items. The first fifth of them (at most HELD_OUT) is held out, a model of its own is learned
from the next (at most LEARNED), and the number is the mean pair AUC over both directions on those held out: 1/2 is
chance, 1 is perfect. The model in force has seen all items and could not be measured on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fusehash.collection import training
from fusehash.collection.encoding import VIEWS, Fitted
from fusehash.collection.entries import Entry
from fusehash.collection.features import Features
from fusehash.collection.items import Progress
from fusehash.errors import FusehashError

HELD_OUT, LEARNED = 1000, 4000
FEWEST = 40  # pairs below which the number would say nothing


def held_out_quality(
    entries: Sequence[Entry], encoders: dict[str, Fitted], features: Features, n_bits: int, seed: int, report: Progress
) -> float | None:
    """Mean pair AUC on held-out pairs; None where there are too few, or nothing can be learned from them."""
    from fusehash import hashers

    if set(encoders) != set(VIEWS):
        return None
    pairs = [entry for entry in entries if entry.image is not None and entry.text is not None]
    pairs = sorted(pairs, key=lambda entry: _order(entry.key))[: 2 * (HELD_OUT + LEARNED)]
    views = training.matrices(pairs, encoders, features)
    there = ~np.any([np.isnan(matrix[:, 0]) for matrix in views.values()], axis=0)
    views = {view: matrix[there] for view, matrix in views.items()}
    count = int(there.sum())
    if count < FEWEST:
        return None
    held = min(HELD_OUT, count // 5)
    report(0, 1, "measuring on held-out pairs")
    model = hashers.make("fusehash", n_bits=n_bits, random_state=seed, callback=report)
    try:
        model.fit({view: matrix[held : held + LEARNED] for view, matrix in views.items()})
        return float(model.score({view: matrix[:held] for view, matrix in views.items()}))
    except FusehashError:  # views that do not vary
        return None


def _order(key: str) -> bytes:
    return hashlib.blake2b(b"quality" + key.encode(), digest_size=8).digest()
