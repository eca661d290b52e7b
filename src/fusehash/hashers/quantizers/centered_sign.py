"""Own-mean sign: signs of randomly rotated embeddings, each view minus its own mean."""

from __future__ import annotations

from typing import Any, ClassVar

from fusehash.hashers.quantizers.joint import JointQuantizer, unit_moments
from fusehash.parameters import Progress
from fusehash.views import PairedViews


class CenteredSignQuantizer(JointQuantizer):
    """b = sgn((x / |x| - mean of the view) R) with a random rotation R that views of one width share.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed of the rotation; threads of `fit` (default: all); called as
        callback(step, total, message).

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Mean of the unit rows, and the rotation, of every view.

    References
    ----------
    docs/embeddings.md compares it.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> X = np.random.default_rng(0).standard_normal((40, 16))
    >>> fh.hashers.CenteredSignQuantizer(n_bits=32, random_state=0).fit({"image": X, "text": X}).codes_.shape
    (40, 4)
    """

    method: ClassVar[str] = "centered_sign"
    summary: ClassVar[str] = "quantizer: signs after a random rotation, each view minus its own mean"

    def __init__(
        self,
        *,
        n_bits: int = 64,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _fit(self, views: PairedViews, labels: Any) -> None:
        self.means_ = {name: total.mean for name, total in unit_moments(views).items()}
        self.weights_ = self._rotations(views)
        self._report(1, 2, "codes")
        self.codes_ = self._codes_of(views)
        self._report(2, 2, "done")
