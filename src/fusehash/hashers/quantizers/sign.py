"""Sign: one bit per dimension, as vector databases binarize embeddings."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.quantizers.joint import JointQuantizer, unit_moments
from fusehash.parameters import Progress
from fusehash.views import Floats, PairedViews


class SignQuantizer(JointQuantizer):
    """Signs of the embedding itself, b = sgn(x), as Cohere, sentence-transformers and vector databases do.

    With as many bits as dimensions nothing is rotated; with fewer or more, the signs are those of random rotations.
    Nothing is centered: between views with a gap most bits are the same for a whole view.

    Parameters
    ----------
    n_bits, random_state, n_threads, callback : int, default 64; optional
        Code length, a multiple of 8; seed of the rotations; threads of `fit` (default: all); called as
        callback(step, total, message).

    Attributes
    ----------
    means_, weights_ : dict of str to ndarray
        Zeros, and the rotation of every view.

    References
    ----------
    docs/embeddings.md compares it.

    Examples
    --------
    >>> import numpy as np, fusehash as fh
    >>> X = np.random.default_rng(0).standard_normal((40, 16))
    >>> codes = fh.hashers.SignQuantizer(n_bits=16).fit({"image": X, "text": X}).encode(X, view="text")
    >>> bool((codes == fh.bits.pack(X)).all())
    True
    """

    method: ClassVar[str] = "sign"
    summary: ClassVar[str] = "quantizer: signs of the embedding, one bit per dimension"

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
        unit_moments(views)  # raises for a view that does not vary
        self.means_ = {name: np.zeros(width) for name, width in views.n_features.items()}
        self.weights_ = self._rotations(views)
        self._report(1, 2, "codes")
        self.codes_ = self._codes_of(views)
        self._report(2, 2, "done")

    def _rotations(self, views: PairedViews) -> dict[str, Floats]:
        rotations = super()._rotations(views)
        return {name: np.eye(self.n_bits) if len(R) == self.n_bits else R for name, R in rotations.items()}
