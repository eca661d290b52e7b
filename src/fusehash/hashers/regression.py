"""REG, the control: AGSFH without its graph."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.checks import check_integer, check_real, stream
from fusehash.hashers.agsfh_paper import settled
from fusehash.hashers.base import Progress
from fusehash.hashers.linear import CentredViews, LinearHasher
from fusehash.views import Floats, PairedViews


class RegressionHasher(LinearHasher):
    """Control for AGSFH: codes and hash functions fitted to each other by regression alone.

        repeat  B = sgn(sum_m X_m W_m),   W_m = (X_m'X_m + ridge I)^-1 X_m'B      from W_m ~ N(0, 1)

    AGSFH at its published settings computes this: its graph term is smaller than the regression term by 10^4 and more
    (docs/paper.md). Started from the same seed the two agree on more than 99.9 % of the bits.

    Parameters
    ----------
    n_bits : code length, a multiple of 8.
    ridge : relative to the mean diagonal of X'X.
    max_iter, tol : iterations; stops when the loss changes by no more than tol (relative).
    random_state, n_threads, callback : as in AGSFH.
    """

    method: ClassVar[str] = "regression"
    summary: ClassVar[str] = "control: alternating sign and ridge regression, no graph"

    objective_: Floats

    def __init__(
        self,
        *,
        n_bits: int = 64,
        ridge: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-5,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _check_params(self) -> None:
        owner = type(self).__name__
        check_real(owner, "ridge", self.ridge)
        check_real(owner, "tol", self.tol)
        check_integer(owner, "max_iter", self.max_iter, low=1)

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CentredViews.of(views, self.ridge, self.n_threads)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        rng = stream(self._seed, "W")
        W = {name: rng.standard_normal((d, self.n_bits)) for name, d in views.n_features.items()}
        B = np.zeros((views.n_rows, self.n_bits), np.int8)
        losses: list[Floats] = []
        for step in range(self.max_iter):
            XB = data.sign_step(W, B)
            W = data.regress(XB)
            losses.append(np.array([data.regression_loss(W, XB, B.size)]))
            self._report(step + 1, self.max_iter, f"loss {losses[-1][0]:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = bits.pack(B)
        self.means_ = data.means
        self.weights_ = W
        self.objective_ = np.concatenate(losses)
