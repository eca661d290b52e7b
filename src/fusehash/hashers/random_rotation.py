"""CCA followed by a random rotation: the second control."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from fusehash.hashers.base import Progress
from fusehash.hashers.baselines.canonical import unit_variance
from fusehash.hashers.linear import CenteredViews, LinearHasher
from fusehash.numerics.linalg import CenteredGram, top_eigenpairs, whitening
from fusehash.numerics.parallel import map_blocks
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import Rule, real, rng_for
from fusehash.views import Floats, PairedViews


class RandomRotationHasher(LinearHasher):
    """Control: signs of randomly rotated canonical variates, nothing learned beyond (generalized) CCA.

        Q_m = X_m (X_m'X_m + ridge I)^-1/2,   V = top eigenvectors of [Q_1 ... Q_M]'[Q_1 ... Q_M],
        W_m = (whitening of X_m) V_m R,       B = sgn(sum_m X_m W_m),   R random orthogonal

    With more bits than canonical directions, several independent rotations stand side by side.

    Parameters
    ----------
    n_bits : code length, a multiple of 8.
    ridge : relative to the mean diagonal of X'X.
    random_state, n_threads, callback : as in AGSFH.
    """

    method: ClassVar[str] = "random"
    summary: ClassVar[str] = "control: canonical correlation analysis and a random rotation"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "ridge": real(),
    }

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
        directions = canonical_directions(data, self.n_bits)
        r = next(iter(directions.values())).shape[1]
        R = random_rotations(r, self.n_bits, rng_for(self._seed, "rotation"))
        W = {name: A @ R for name, A in directions.items()}
        self._report(2, 2, "codes")
        self.codes_ = self._codes_of(views, lambda rows: data.project(rows, W))
        self.means_ = data.means
        self.weights_ = W


def canonical_directions(data: CenteredViews, n_directions: int) -> dict[str, Floats]:
    """Generalized CCA (MAXVAR): per view, the (d_m x r) map to canonical variates of unit variance."""
    names, sizes = data.views.names, list(data.views.n_features.values())

    def of_block(rows: slice) -> CenteredGram:
        part = CenteredGram(sum(sizes))
        part.add(np.hstack([data.block(name, rows) for name in names]))
        return part

    joint = CenteredGram(sum(sizes))
    for part in map_blocks(of_block, data.views.blocks(), data.n_threads):
        joint.merge(part)
    cuts = np.cumsum([0, *sizes])
    spans = [slice(a, b) for a, b in pairwise(cuts)]
    whiteners = [whitening(joint.gram[span, span], data.ridge) for span in spans]
    G = np.empty_like(joint.gram)
    for a, left in zip(spans, whiteners, strict=True):
        for b, right in zip(spans, whiteners, strict=True):
            G[a, b] = left.T @ joint.gram[a, b] @ right
    w, V = top_eigenpairs(G, min(n_directions, len(G)))
    V = V[:, w > 1e-8 * w[0]]
    directions = {}
    for name, span, whitener in zip(names, spans, whiteners, strict=True):
        directions[name] = unit_variance(whitener @ V[span], joint.gram[span, span], joint.count)
    return directions
