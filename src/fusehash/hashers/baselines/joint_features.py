"""Matrix factorizations whose loops never touch the rows: what CMFH and JIMFH share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from fusehash.hashers.linear import gram_sums
from fusehash.numerics.parallel import map_blocks
from fusehash.parameters import rng_for
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats, PairedViews


class JointFeatures:
    """All centered features and the random starts of the factors, side by side in one matrix that is never held whole.

    A factor V = [X_1 ... X_M, starts] A is held as its coefficients A; `gram` is all that the products of such factors
    need. `span` says which columns belong to a view or a start.
    """

    def __init__(self, views: PairedViews, starts: dict[str, int], seed: int, n_threads: int | None) -> None:
        """Means in one pass over the data, the Gram matrix in a second; `starts` maps a factor to its columns."""
        self.views, self.starts, self._seed, self.n_threads = views, starts, seed, n_threads
        self.means = {name: total.mean for name, total in gram_sums(RowPasses(views, n_threads)).items()}
        widths = {**views.n_features, **{f"start {name}": width for name, width in starts.items()}}
        cuts = np.cumsum([0, *widths.values()])
        self.span = {name: slice(int(a), int(b)) for name, (a, b) in zip(widths, pairwise(cuts), strict=True)}
        self.gram = np.zeros((cuts[-1], cuts[-1]))
        for part in self.map_blocks(lambda block: block.T @ block):
            self.gram += part

    def map_blocks(self, work: Any) -> Any:
        """work(rows of the matrix) for all row blocks, in order."""
        return map_blocks(lambda rows: work(self.block(rows)), self.views.blocks(), self.n_threads)

    def block(self, rows: slice) -> Floats:
        """Some rows: the centered views, then starts from U(0, 1), the same ones whenever the block is asked for."""
        parts = [self.views.block(name, rows) - self.means[name] for name in self.views]
        rng = rng_for(self._seed, f"start {rows.start}")
        return np.hstack([*parts, *(rng.random((len(parts[0]), width)) for width in self.starts.values())])

    def start(self, name: str) -> Floats:
        """The coefficients of the random start of a factor."""
        return np.eye(len(self.gram))[:, self.span[f"start {name}"]]

    def residual(self, name: str, A: Floats, U: Floats) -> float:
        """||X_m - V U'||^2 for V with coefficients A."""
        span = self.span[name]
        fitted = np.sum((A.T @ self.gram @ A) * (U.T @ U))
        explained = 2.0 * np.sum((self.gram[span] @ A) * U) - fitted
        return max(float(np.trace(self.gram[span, span]) - explained), 0.0)
