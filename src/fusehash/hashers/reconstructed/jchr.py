"""JCHR: Joint Coupled-Hashing Representation (2016), reconstructed from one sentence about it."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.linear import CenteredViews, LinearHasher, random_weights, ridge_penalty, settled, sum_parts
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class JCHR(LinearHasher):
    """Every view has its own binary codes; all are coupled to the unified ones.

        min  sum_m ||B_m - X_m W_m||^2  +  a sum_m ||B - B_m||^2  +  sum_m r_m ||W_m||^2,      B, B_m in {-1, +1}

    X_m (N x d_m) is centered, W_m (d_m x K), r_m = ridge times the mean diagonal of X_m'X_m. Two steps, each the exact
    minimizer over its block, so the objective never rises:

        W_m      :  (X_m'X_m + r_m I)^-1 X_m'B_m
        B and B_m, jointly :  for a given b the best b_m is sgn(u_m + a b), u_m = (X_m W_m)_ik, at a cost that is
                    -2 sum_m |u_m + a b| up to a constant; comparing b = +1 with b = -1 gives
                    B = sgn(sum_m clip(X_m W_m, -a, a)),     B_m = sgn(X_m W_m + a B)

    So a view has a say of at most a in a bit. The loop starts from B = B_m = sgn(sum_m X_m W_m) with random W_m.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    coupling : float, default 0.5
        a, a quarter of the price of a bit that differs from the unified one.
    ridge, max_iter, tol : float, default 1e-6; int, default 30; float, default 1e-5
        Relative ridge; stop after so many iterations or when the objective changes by no more than `tol` (relative).

    Attributes
    ----------
    objective_ : ndarray of shape (n_iterations,)
        Objective after every iteration.

    Notes
    -----
    Known: each view is embedded in its own binary space, and unified codes come from these. The rest is ours.

    References
    ----------
    Joint Coupled-Hashing Representation for Cross-Modal Retrieval, 2016.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.JCHR(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "jchr"
    summary: ClassVar[str] = "binary codes of each view, coupled to unified ones"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"coupling": real(strict=True)}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        coupling: float = 0.5,
        ridge: float = 1e-6,
        max_iter: int = 30,
        tol: float = 1e-5,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.coupling = coupling
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge, self.n_threads)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        self.coupling_ = float(self.coupling)
        W = random_weights(data, self.n_bits, rng_for(self._seed, "W"))
        B = np.zeros((views.n_rows, self.n_bits), np.int8)
        XB, apart = self._code_step(data, W, B, np.inf)
        losses: list[float] = []
        for step in range(self.max_iter):
            if step:
                XB, apart = self._code_step(data, W, B, self.coupling_)
            W = data.regress(XB)
            loss = data.regression_loss(W, XB, B.size) + 4.0 * self.coupling_ * apart + ridge_penalty(data, W)
            losses.append(loss)
            self._report(step + 1, self.max_iter, f"loss {loss:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = bits.pack(B)
        self.means_ = data.means
        self.weights_ = W
        self.objective_ = np.array(losses)

    def _code_step(
        self, data: CenteredViews, W: dict[str, Floats], B: Any, coupling: float
    ) -> tuple[dict[str, Floats], int]:
        """B (in place) and B_m for given W; the sums X_m'B_m, and how many bits of B_m differ from B."""

        def of_block(rows: slice) -> tuple[dict[str, Floats], int]:
            X = {name: data.block(name, rows) for name in data.views}
            unified, per_view = coupled_codes([X[name] @ W[name] for name in X], coupling)
            B[rows] = unified
            return (
                {name: X[name].T @ codes for name, codes in zip(X, per_view, strict=True)},
                sum(int(np.sum(codes != unified)) for codes in per_view),
            )

        parts = list(map_blocks(of_block, data.views.blocks(), self.n_threads))
        return sum_parts(part for part, _ in parts), sum(apart for _, apart in parts)

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        return agreement([self._project_block(block, name) for name, block in blocks.items()], self.coupling_)


def agreement(U: list[Floats], coupling: float) -> Floats:
    """sum_m clip(U_m, -a, a): half the difference in cost between b = -1 and b = +1."""
    return np.sum([np.clip(each, -coupling, coupling) for each in U], axis=0)


def coupled_codes(U: list[Floats], coupling: float) -> tuple[Floats, list[Floats]]:
    """The unified codes and those of every view that jointly minimize the objective for projections U_m."""
    B = signs_of(agreement(U, coupling))
    return B, [signs_of(each + coupling * B) for each in U]
