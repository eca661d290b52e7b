"""The captioned items whose codes are nearest to those of an item: what their captions say about its picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusehash.bits import Codes
from fusehash.search import HammingIndex
from fusehash.search.rows import Ids
from fusehash.views import Floats

NEIGHBORS = 20
SHARPNESS = 8.0  # of the weights exp(SHARPNESS (s - 1)) of neighbors with the similarity s of codes, from -1 to 1
MAX_CAPTIONED = 10_000  # items that are compared with; of more, a random part


class Neighbors:
    """Which captioned items are nearest to each item; found when first asked for, and kept.

    Parameters
    ----------
    captioned, items : int64 arrays, ascending
        Ids of the items with a caption, and of all that may be asked about.
    codes_of : callable
        From ids to their codes.
    """

    def __init__(self, captioned: Ids, items: Ids, codes_of: Callable[[Ids], Codes]) -> None:
        if len(captioned) > MAX_CAPTIONED:
            captioned = np.sort(np.random.default_rng(0).choice(captioned, MAX_CAPTIONED, replace=False))
        self.captioned, self._items, self._codes_of = captioned, items, codes_of
        width = min(NEIGHBORS + 1, len(captioned))
        self._rows = np.zeros((len(items), width), np.int32)  # of captioned items
        self._weights = np.zeros((len(items), width), np.float32)
        self._known = np.zeros(len(items), np.bool_)
        if width:
            codes = codes_of(captioned)
            self._index = HammingIndex(8 * codes.shape[1])
            self._index.add(codes, captioned)

    def shares(self, ids: Ids, having: Sequence[Ids]) -> Floats:
        """The share of each item's neighbors that each list of ids has: lists x items; NaN without any neighbor.

        An item is no neighbor of itself; nearer ones count more.
        """
        places = np.searchsorted(self._items, ids)
        unknown = np.unique(places[~self._known[places]])
        if len(unknown) and len(self.captioned):
            self._find(unknown)
        rows, weights = self._rows[places], self._weights[places]
        has = np.array([np.isin(self.captioned, each) for each in having], np.bool_)
        sums = [(weights * each[rows]).sum(axis=1, dtype=np.float64) for each in has]
        totals = weights.sum(axis=1, dtype=np.float64)
        shares = np.full((len(having), len(ids)), np.nan)
        np.divide(np.array(sums).reshape(shares.shape), totals, out=shares, where=totals > 0.0)
        return shares

    def _find(self, places: Ids) -> None:
        ids = self._items[places]
        codes = self._codes_of(ids)
        distances, near = self._index.search(codes, self._rows.shape[1])
        similarity = 1.0 - 2.0 * distances / (8 * codes.shape[1])
        self._weights[places] = np.where(near == ids[:, None], 0.0, np.exp(SHARPNESS * (similarity - 1.0)))
        self._rows[places] = np.searchsorted(self.captioned, near)
        self._known[places] = True  # last, since other threads may ask
