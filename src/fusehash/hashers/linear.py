"""Linear hash functions sgn((x - mean) W) and the sums that fit them, shared by the linear methods."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError, warn
from fusehash.hashers.base import CrossModalHasher, signs
from fusehash.parallel import map_blocks
from fusehash.spectrum import CentredGram, ridge_solver, solve_ridge
from fusehash.views import Floats, PairedViews


class LinearHasher(CrossModalHasher):
    """A method whose hash functions are linear: `weights_[view]` is W_m (d_m x K), `means_[view]` the training mean."""

    means_: dict[str, Floats]
    weights_: dict[str, Floats]

    def _project_block(self, block: Floats, view: str) -> Floats:
        return (block - self.means_[view]) @ self.weights_[view]


@dataclass
class CentredViews:
    """Training views seen through their means: centred row blocks, Gram matrices, and ridge regressions on them."""

    views: PairedViews
    sums: dict[str, CentredGram]
    factors: dict[str, Floats]
    ridge: float
    n_threads: int | None = None

    @classmethod
    def of(cls, views: PairedViews, ridge: float, n_threads: int | None = None) -> CentredViews:
        """One pass over the data for means and Gram matrices."""
        sums = gram_sums(views, n_threads)
        factors = {name: ridge_solver(total.gram, ridge) for name, total in sums.items()}
        return cls(views, sums, factors, ridge, n_threads)

    @property
    def means(self) -> dict[str, Floats]:
        return {name: total.mean for name, total in self.sums.items()}

    def block(self, name: str, rows: slice) -> Floats:
        return self.views.block(name, rows) - self.sums[name].mean

    def project(self, rows: slice, W: dict[str, Floats]) -> Floats:
        """sum_m X_m W_m for some rows."""
        return np.sum([self.block(name, rows) @ weights for name, weights in W.items()], axis=0)

    def sign_step(self, W: dict[str, Floats], B: NDArray[np.int8]) -> dict[str, Floats]:
        """B = sgn(sum_m X_m W_m), in place, and the sums X_m'B that regressions need."""

        def of_block(rows: slice) -> dict[str, Floats]:
            new = signs(self.project(rows, W))
            B[rows] = new
            return {name: self.block(name, rows).T @ new for name in self.views}

        return sum_parts(map_blocks(of_block, self.views.blocks(), self.n_threads))

    def regress(self, XB: dict[str, Floats]) -> dict[str, Floats]:
        """W_m = (X_m'X_m + ridge I)^-1 X_m'B (Eq. 35 with the ridge that it needs)."""
        return {name: solve_ridge(self.factors[name], product) for name, product in XB.items()}

    def regression_loss(self, W: dict[str, Floats], XB: dict[str, Floats], n_entries: int) -> float:
        """sum_m ||B - X_m W_m||^2 for B in {-1, +1} with n_entries entries, from the sums alone."""
        loss = 0.0
        for name, weights in W.items():
            explained = 2.0 * np.sum(weights * XB[name]) - np.sum(weights * (self.sums[name].gram @ weights))
            loss += float(n_entries - explained)
        return loss

    def warn_if_rank_below(self, n_bits: int, owner: str) -> None:
        """More bits than independent directions: the further bits repeat what the first ones say."""
        bound = min(self.views.n_rows - 1, sum(self.views.n_features.values()))
        if bound <= 4 * n_bits:  # otherwise nobody needs to know, and eigenvalues cost time
            bound = min(bound, sum(_rank(total.gram) for total in self.sums.values()))
        if n_bits > bound:
            warn(
                f"{owner} was asked for {n_bits} bits of data that vary in {bound} directions; "
                "further bits can only repeat what the first ones say."
            )


def centred_matrices(views: PairedViews) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Every view as one dense matrix minus its mean, and the means; refuses views that do not vary.

    For methods whose steps need all rows at once; the linear ones of this project pass over blocks instead.
    """
    means, centred = {}, {}
    for name in views:
        X = views.block(name, slice(None))
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = X.mean(axis=0), X.var(axis=0)
        _check_size(name, len(X) * variance)
        _check_varies(name, mean, variance)
        means[name], centred[name] = mean, X - mean
    return centred, means


def gram_sums(views: PairedViews, n_threads: int | None = None) -> dict[str, CentredGram]:
    """Means and centred Gram matrices of every view, in one pass; refuses views that do not vary."""

    def of_block(rows: slice) -> dict[str, CentredGram]:
        parts = {name: CentredGram(d) for name, d in views.n_features.items()}
        with np.errstate(over="ignore", invalid="ignore"):  # looked at below
            for name, part in parts.items():
                part.add(views.block(name, rows)[views.is_present(name)[rows]])
        return parts

    sums = {name: CentredGram(d) for name, d in views.n_features.items()}
    for parts in map_blocks(of_block, views.blocks(), n_threads):
        with np.errstate(over="ignore", invalid="ignore"):
            for name, part in parts.items():
                sums[name].merge(part)
    for name, total in sums.items():
        _check_size(name, total.gram)
        _check_varies(name, total.mean, total.variance)
    return sums


def _check_size(name: str, sums: Floats) -> None:
    if not np.isfinite(sums).all():
        raise DataError(f"View '{name}' must hold numbers whose squares can be summed. Got numbers too large.")


def _check_varies(name: str, mean: Floats, variance: Floats) -> None:
    if np.all(variance <= 1e-24 * mean**2):
        raise DataError(f"View '{name}' must vary between rows. Every feature is constant.")


def _rank(gram: Floats) -> int:
    w = np.linalg.eigvalsh(gram)
    return int(np.sum(w > 1e-10 * w[-1]))


def sum_parts(parts: Iterable[dict[str, Floats]]) -> dict[str, Floats]:
    """Add up what the blocks returned, name by name, in order."""
    total: dict[str, Floats] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total
