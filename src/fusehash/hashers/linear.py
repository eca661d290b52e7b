"""Linear hash functions sgn((x - mean) W) and the sums that fit them, shared by the linear methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fusehash import bits
from fusehash.errors import DataError, warn
from fusehash.hashers.base import CrossModalHasher
from fusehash.numerics.arrays import Array, cast, host, is_accelerated, namespace, precision
from fusehash.numerics.linalg import CenteredGram, ridge_solver, solve_ridge
from fusehash.numerics.rotation import signs_of
from fusehash.streams.row_passes import Block, RowPasses, RowSums
from fusehash.views import BLOCK_ROWS, Floats, PairedViews

LARGEST = 1e200  # sum of squares; later steps multiply it


class LinearHasher(CrossModalHasher):
    """A method whose hash functions are linear: `weights_[view]` is W_m (d_m x K), `means_[view]` the training mean."""

    means_: dict[str, Floats]
    weights_: dict[str, Floats]

    def _project_block(self, block: Floats, view: str) -> Floats:
        return (block - self.means_[view]) @ self.weights_[view]


class CenteredViews:
    """Training views minus their means: centered row blocks, Gram matrices, and ridge regressions on them.

    One pass over the data for means and Gram matrices. A device computes in single precision by default. `centered` is
    all that a pass needs to center a block; it holds no data.
    """

    def __init__(self, data: RowPasses, ridge: float, dtype: str | None = None) -> None:
        self.data, self.views, self.n_threads, self.ridge = data, data.views, data.n_threads, ridge
        self.dtype = dtype or ("float32" if is_accelerated(data.like) else "float64")
        self.sums = gram_sums(data, self.dtype)
        self.factors = {name: ridge_solver(total.gram, ridge) for name, total in self.sums.items()}
        self.means: dict[str, Floats] = {name: total.mean for name, total in self.sums.items()}
        self.centered = Centered(self.means, self.dtype)

    @classmethod
    def of(cls, views: PairedViews, ridge: float, n_threads: int | None = None) -> CenteredViews:
        return cls(RowPasses(views, n_threads), ridge)

    def block(self, name: str, rows: slice) -> Floats:
        return self.views.block(name, rows) - self.sums[name].mean

    def project(self, rows: slice, W: dict[str, Floats]) -> Floats:
        """sum_m X_m W_m for some rows."""
        return np.sum([self.block(name, rows) @ weights for name, weights in W.items()], axis=0)

    def sign_step(self, W: dict[str, Array]) -> tuple[bits.Codes, dict[str, Array]]:
        """B = sgn(sum_m X_m W_m), packed, and the sums X_m'B that regressions need."""
        centered = self.centered

        def of_block(block: Block) -> tuple[tuple[Array], RowSums]:
            X = centered(block)
            B = signs_of(projected(X, W))
            return (bits.pack(B),), products(X, B)

        lines, sums = self.data.total(of_block, BLOCK_ROWS)
        assert lines is not None
        return lines[0], sums

    def regress(self, XB: dict[str, Array]) -> dict[str, Array]:
        """W_m = (X_m'X_m + ridge I)^-1 X_m'B (Eq. 35 with the ridge that it needs)."""
        return {name: solve_ridge(self.factors[name], product) for name, product in XB.items()}

    def regression_loss(self, W: dict[str, Floats], XB: dict[str, Floats], n_entries: int) -> float:
        """sum_m ||B - X_m W_m||^2 for B in {-1, +1} with n_entries entries, from the sums alone."""
        loss = 0.0
        for name, weights in W.items():
            xp = namespace(weights)
            explained = 2.0 * xp.sum(weights * XB[name]) - xp.sum(weights * (self.sums[name].gram @ weights))
            loss += n_entries - float(explained)
        return loss

    def warn_if_rank_below(self, n_bits: int, owner: str) -> None:
        """Warn about more bits than independent directions."""
        bound = min(self.views.n_rows - 1, sum(self.views.n_features.values()))
        if bound <= 4 * n_bits:  # otherwise the rank does not matter, and eigenvalues take time
            bound = min(bound, sum(_rank(total.gram) for total in self.sums.values()))
        if n_bits > bound:
            warn(
                f"{owner} was asked for {n_bits} bits of data that vary in {bound} directions; "
                "further bits can only repeat what the first ones say."
            )


@dataclass(frozen=True)
class Centered:
    """Blocks less their means, in the precision of the work."""

    means: dict[str, Array]
    dtype: str

    def __call__(self, block: Block) -> dict[str, Array]:
        return {name: cast(X - cast(self.means[name], precision(X)), self.dtype) for name, X in block.arrays.items()}


def products(X: dict[str, Array], B: Array) -> RowSums:
    """The sums X_m'B."""
    return RowSums({name: cast(block.T @ B, "float64") for name, block in X.items()})


def projected(X: dict[str, Array], W: dict[str, Array]) -> Array:
    """sum_m X_m W_m of centered blocks."""
    total = None
    for name, weights in W.items():
        part = X[name] @ cast(weights, precision(X[name]))
        total = part if total is None else total + part
    return total


def centered_matrices(views: PairedViews) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Every view as one dense matrix minus its mean, and the means; for methods whose steps need all rows at once."""
    means, centered = {}, {}
    for name in views:
        X = views.block(name, slice(None))
        means[name] = checked_mean(name, X)
        centered[name] = X - means[name]
    return centered, means


def checked_mean(name: str, X: Floats) -> Floats:
    """The mean of a view; raises DataError if the view is constant or too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean, variance = X.mean(axis=0), X.var(axis=0)
    _check_size(name, len(X) * variance)
    check_varies(name, mean, variance)
    return np.asarray(mean)


def checked_means(views: PairedViews) -> dict[str, Floats]:
    """The mean of every view, in one pass over its row blocks; raises as `checked_mean` does."""
    means = {}
    for name in views:
        width = views.n_features[name]
        n, mean, squares = 0, np.zeros(width), np.zeros(width)
        for rows in views.blocks():
            X = views.block(name, rows)
            with np.errstate(over="ignore", invalid="ignore"):
                of_block = X.mean(axis=0)
                apart, total = of_block - mean, n + len(X)
                squares += ((X - of_block) ** 2).sum(axis=0) + apart**2 * (n * len(X) / total)
                mean, n = mean + apart * (len(X) / total), total
        _check_size(name, squares)
        check_varies(name, mean, squares / n)
        means[name] = mean
    return means


def gram_sums(data: RowPasses, dtype: str = "float64") -> dict[str, CenteredGram]:
    """Means and centered Gram matrices of every view, in one pass; views must vary."""

    def of_block(block: Block) -> tuple[None, RowSums]:
        parts = RowSums({name: CenteredGram(X.shape[1]) for name, X in block.arrays.items()})
        with np.errstate(over="ignore", invalid="ignore"):
            for name, part in parts.items():
                seen = block.present[name]
                part.add(block.arrays[name] if seen is None else block.arrays[name][seen], dtype)
        return None, parts

    sums: dict[str, CenteredGram] = data.total(of_block, BLOCK_ROWS)[1]
    for name, total in sums.items():
        _check_size(name, total.gram)
        check_varies(name, host(total.mean), host(total.variance))
    return sums


def _check_size(name: str, sums: Array) -> None:
    xp = namespace(sums)
    if not bool(xp.all(xp.abs(sums) <= LARGEST)):  # also of NaN
        raise DataError(f"View '{name}' must hold numbers whose squares can be summed. Got numbers too large.")


def check_varies(name: str, mean: Floats, variance: Floats) -> None:
    """Raise DataError for a view that is the same in every row."""
    if np.all(variance <= 1e-24 * mean**2):
        raise DataError(f"View '{name}' must vary between rows. Every feature is constant.")


def _rank(gram: Array) -> int:
    w = np.linalg.eigvalsh(host(gram))
    return int(np.sum(w > 1e-10 * w[-1]))


def settled(losses: Sequence[float], tol: float) -> bool:
    """Whether the last iteration changed the loss by at most tol (relative)."""
    return len(losses) > 1 and abs(losses[-1] - losses[-2]) <= tol * abs(losses[-1])


def sum_parts(parts: Iterable[dict[str, Floats]]) -> dict[str, Floats]:
    """Add up what the blocks returned, name by name, in order."""
    total: dict[str, Floats] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total[name] + value if name in total else value
    return total


def random_weights(data: CenteredViews, n_bits: int, rng: np.random.Generator) -> dict[str, Floats]:
    """Normal W_m (d_m x n_bits) that give every view the same say in sum_m X_m W_m."""
    return {
        name: rng.standard_normal((len(total.gram), n_bits)) / np.sqrt(np.trace(total.gram))
        for name, total in data.sums.items()
    }


def ridge_penalty(data: CenteredViews, W: dict[str, Floats]) -> float:
    """sum_m r_m ||W_m||^2, r_m = ridge times the mean diagonal of X_m'X_m."""
    means = {name: np.trace(total.gram) / len(total.gram) for name, total in data.sums.items()}
    return float(sum(data.ridge * means[name] * np.sum(weights**2) for name, weights in W.items()))
