"""CCA-ITQ: canonical variates, turned so that they are close to their own signs."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.canonical import SharedDirections, joint_sums, shared_directions
from fusehash.hashers.linear import CenteredViews, LinearHasher
from fusehash.numerics.rotation import groups, random_orthogonal, signs_of
from fusehash.parameters import Progress, Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class CCAITQ(LinearHasher):
    """Iterative Quantization of canonical variates, here between views.

        Z_m = X_m A_m diag(rho)^power        A_m the first r canonical directions, variates of unit variance
        min ||B - Z R||^2                    Z = [Z_1; ...; Z_M] the rows of all views, R'R = I, B = sgn(Z R)
        repeat  B = sgn(Z R),  R = U V'      where U S V' is the SVD of Z'B

    from a random rotation R; W_m = A_m diag(rho)^power R. For more than two views the CCA is its MAXVAR form and rho
    the mean correlation of a variate with the other views. Unified codes are the signs of the sum of the views'
    projections.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed; threads of `fit` (default: all); called as callback(step, total, message).
    ridge : float, default 1e-3
        Ridge of the CCA, relative to the mean diagonal of X'X.
    power : float, default 1
        Power of the correlations that weight the variates: 1 as in the authors' code, 0 for unit variance.
    max_iter, max_rows : int, default 50 and 20000
        Rounds of B and R; the rotation is learned from at most `max_rows` random pairs.

    Attributes
    ----------
    correlations_ : ndarray of shape (r,)
        Canonical correlations.
    objective_ : ndarray of shape (max_iter,)
        ||B - Z R||^2 in every round, summed over all rotations.
    means_, weights_ : dict of str to ndarray
        Training mean and W_m of every view.

    Notes
    -----
    There are at most as many canonical directions as the smaller view has independent features, and the paper stops
    there. For more bits, several rotations from independent random starts are placed side by side, each with some of
    its columns.

    References
    ----------
    Y. Gong, S. Lazebnik. Iterative Quantization: A Procrustean Approach to Learning Binary Codes. CVPR 2011.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> fh.hashers.CCAITQ(n_bits=16, random_state=0).fit(data.views).codes_.shape
    (200, 2)
    """

    method: ClassVar[str] = "cca_itq"
    summary: ClassVar[str] = "canonical variates and a rotation towards their signs"
    min_views: ClassVar[int] = 2
    PARAMETERS: ClassVar[dict[str, Rule]] = {"power": real()}

    def __init__(
        self,
        *,
        n_bits: int = 64,
        ridge: float = 1e-3,
        power: float = 1.0,
        max_iter: int = 50,
        max_rows: int = 20000,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.ridge = ridge
        self.power = power
        self.max_iter = max_iter
        self.max_rows = max_rows
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        data = CenteredViews.of(views, self.ridge, self.n_threads)
        A = self._weighted_directions(shared_directions(data, *joint_sums(data)))
        r = len(self.correlations_)
        if r < self.n_bits:
            self._warn_about_bits(f"views that share {r} directions", "further bits are other rotations of them")
        Z = self._variates(data, A)
        widths = list(groups(r, self.n_bits))
        rng = rng_for(self._seed, "rotation")
        rotations = [random_orthogonal(r, rng) for _ in widths]
        losses = []
        for step in range(self.max_iter):
            turned = [rotation_step(Z, R) for R in rotations]
            rotations = [R for R, _ in turned]
            losses.append(sum(loss for _, loss in turned))
            self._report(step + 1, self.max_iter, f"loss {losses[-1]:.6g}")
        R = np.hstack([rotation[:, :width] for rotation, width in zip(rotations, widths, strict=True)])
        W = {name: directions @ R for name, directions in A.items()}
        self.means_, self.weights_ = data.means, W
        self.codes_ = self._codes_of(views)
        self.objective_ = np.array(losses)

    def _weighted_directions(self, shared: SharedDirections) -> dict[str, Floats]:
        """A_m diag(rho)^power of the first n_bits directions that are shared."""
        r = max(min(shared.n_shared, self.n_bits), 1)
        self.correlations_ = np.clip(shared.agreement[:r], 0.0, 1.0)
        return {name: directions[:, :r] * self.correlations_**self.power for name, directions in shared.maps.items()}

    def _variates(self, data: CenteredViews, A: dict[str, Floats]) -> Floats:
        """Z, the rows of all views one below the other."""
        rows = self._sample_rows(data.views.n_rows, self.max_rows)
        return np.vstack([data.block(name, rows) @ directions for name, directions in A.items()])


def rotation_step(Z: Floats, R: Floats) -> tuple[Floats, float]:
    """B = sgn(Z R) and the rotation that brings Z closest to B; also ||B - Z R||^2 of the rotation that was given."""
    ZR = Z @ R
    B = signs_of(ZR)
    U, _, Vt = np.linalg.svd(Z.T @ B)
    return U @ Vt, float(np.sum((B - ZR) ** 2))
