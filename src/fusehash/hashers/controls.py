"""Controls: what a good method must beat."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.canonical import rotated_directions
from fusehash.hashers.linear import CenteredViews, LinearHasher, settled
from fusehash.numerics.arrays import convert, host, to_device_of
from fusehash.parameters import Progress, rng_for
from fusehash.views import PairedViews


class RegressionHasher(LinearHasher):
    """Control for AGSFH: codes and hash functions that fit each other by regression alone.

        repeat  B = sgn(sum_m X_m W_m),   W_m = (X_m'X_m + ridge I)^-1 X_m'B      from W_m ~ N(0, 1)

    AGSFH at its published settings computes this: its graph term is smaller than the regression term by 10^4 and more
    (docs/paper.md). Started from the same seed, the two agree on more than 99.9 % of the bits.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    ridge : float, default 1e-6
        Ridge of the regressions, relative to the mean diagonal of X'X.
    max_iter, tol : int, default 20; float, default 1e-5
        Stop after so many iterations or when the loss changes by no more than `tol` (relative).
    device, dtype : str, optional
        Where to compute on data of the host, such as "cuda" or "cupy"; precision, single on a GPU and double elsewhere.

    Attributes
    ----------
    objective_ : ndarray of shape (n_iterations,)
        Loss after every iteration.
    means_, weights_ : dict of str to ndarray
        Training mean and W_m of every view.

    References
    ----------
    This project, docs/paper.md.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.RegressionHasher(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "regression"
    summary: ClassVar[str] = "control: alternating sign and ridge regression, no graph"
    accelerated: ClassVar[bool] = True

    def __init__(
        self,
        *,
        n_bits: int = 64,
        ridge: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-5,
        device: str | None = None,
        dtype: str | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        rows = self._passes(views)
        data = CenteredViews(rows, self.ridge, self.dtype)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        rng = rng_for(self._seed, "W")
        sizes = views.n_features.items()
        W = {name: to_device_of(rng.standard_normal((d, self.n_bits)), rows.like) for name, d in sizes}
        losses: list[float] = []
        for step in range(self.max_iter):
            codes, XB = data.sign_step(W)
            W = data.regress(XB)
            losses.append(data.regression_loss(W, XB, views.n_rows * self.n_bits))
            self._report(step + 1, self.max_iter, f"loss {losses[-1]:.6g}")
            if settled(losses, self.tol):
                break
        self.codes_ = host(codes)
        self.means_, self.weights_ = convert(data.means, host), convert(W, host)
        self.objective_ = np.array(losses)


class RandomRotationHasher(LinearHasher):
    """Control: signs of randomly rotated canonical variates, nothing learned beyond (generalized) CCA.

        Q_m = X_m (X_m'X_m + ridge I)^-1/2,   V = top eigenvectors of [Q_1 ... Q_M]'[Q_1 ... Q_M],
        W_m = (whitening of X_m) V_m R,       B = sgn(sum_m X_m W_m),   R random orthogonal

    With more bits than canonical directions, several independent rotations are placed side by side.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    ridge : float, default 1e-3
        Ridge of the whitening, relative to the mean diagonal of X'X.

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Training mean and W_m of every view.

    References
    ----------
    This project, docs/methods.md.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.RandomRotationHasher(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "random"
    summary: ClassVar[str] = "control: canonical correlation analysis and a random rotation"

    def __init__(
        self,
        *,
        n_bits: int = 64,
        ridge: float = 1e-3,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.ridge = ridge
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge, self.n_threads)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        self._report(1, 2, "canonical directions")
        self.means_ = data.means
        self.weights_ = rotated_directions(data, self.n_bits, self.n_bits, rng_for(self._seed, "rotation"))
        self._report(2, 2, "codes")
        self.codes_ = self._codes_of(views)
