"""Prepared rows for the closed form: from views in blocks, or from arrays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.hashers.closed_form_maps import Single
from fusehash.prepare import Preparation
from fusehash.views import Floats, PairedViews

# Entries of a dense block or sample; bounds memory whatever the width of a view.
BLOCK_ENTRIES = 2**21
SAMPLE_ENTRIES = 2**24
SAMPLE_ROWS = 4096


@dataclass
class ViewsSource:
    """Rows of views (all, or a sorted selection), prepared block by block."""

    views: PairedViews
    preparations: dict[str, Preparation]
    selection: NDArray[np.intp] | None = None

    @property
    def names(self) -> list[str]:
        return self.views.names

    @property
    def n_rows(self) -> int:
        return self.views.n_rows if self.selection is None else len(self.selection)

    def blocks(self) -> Iterator[slice]:
        size = int(np.clip(BLOCK_ENTRIES // max(self.views.n_features.values()), 256, 2048))
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))

    def _rows(self, rows: slice) -> slice | NDArray[np.intp]:
        return rows if self.selection is None else self.selection[rows]

    def prepared(self, name: str, rows: slice) -> Single:
        return self.preparations[name](self.views.block(name, self._rows(rows)))

    def present(self, name: str, rows: slice) -> NDArray[np.bool_]:
        where = self._rows(rows)
        mask = self.views.present.get(name)
        if mask is None:
            return np.ones(rows.stop - rows.start, dtype=bool)
        return mask[where]


@dataclass
class ArraySource:
    """Prepared rows in memory, present in every view."""

    arrays: dict[str, Single]
    block_rows: int = 2048

    @property
    def names(self) -> list[str]:
        return list(self.arrays)

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.arrays.values())))

    def blocks(self) -> Iterator[slice]:
        for start in range(0, self.n_rows, self.block_rows):
            yield slice(start, min(start + self.block_rows, self.n_rows))

    def prepared(self, name: str, rows: slice) -> Single:
        return self.arrays[name][rows]

    def present(self, name: str, rows: slice) -> NDArray[np.bool_]:
        return np.ones(rows.stop - rows.start, dtype=bool)


def sample_view(views: PairedViews, name: str, rng: np.random.Generator, n_rows: int = SAMPLE_ROWS) -> Floats:
    """Some rows of a view in which it is present, dense."""
    rows = np.flatnonzero(views.is_present(name))
    n_rows = min(n_rows, len(rows), max(SAMPLE_ENTRIES // views.n_features[name], 256))
    return views.block(name, np.sort(rng.choice(rows, n_rows, replace=False)))


def learn_preparations(views: PairedViews, rng: np.random.Generator) -> dict[str, Preparation]:
    """How each view is made comparable, from a sample of its rows; refuses views that do not vary."""
    preparations = {}
    for name in views:
        sample = sample_view(views, name, rng)
        if np.all(sample == sample[0]) and _is_constant(views, name):
            raise DataError(f"View '{name}' must vary between rows. Every feature is constant.")
        preparations[name] = Preparation.learn(sample)
    return preparations


def _is_constant(views: PairedViews, name: str) -> bool:
    first = None
    for rows in views.blocks():
        block = views.block(name, rows)[views.is_present(name)[rows]]
        if len(block) == 0:
            continue
        first = block[0] if first is None else first
        if np.any(block != first):
            return False
    return True


def complete_rows(views: PairedViews) -> NDArray[np.intp]:
    """Rows that are present in every view."""
    return np.flatnonzero(np.all([views.is_present(name) for name in views], axis=0))
