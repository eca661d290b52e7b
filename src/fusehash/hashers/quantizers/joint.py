"""What quantizers of joint embeddings share: unit rows, means, rotations by width, and the two numbers per item.

Rows of every view are scaled to unit length, since embeddings are compared by cosine. With r = x - c, x an item and c
the mean of its view, and with the mean q0 of the views that ask, a query q has

    <q, r> = <q - q0, r> + <q0, r>,        <q - q0, r> ~ scale <b, p>,      p = (q - q0) R,  b = sgn(r R)

The estimate is unbiased for scale = |r|^2 / sum_j |(r R)_j|. The second term is a constant per item. Items are ranked
by ``scale * <b, p> + offset`` (Gao and Long 2024 for one view; with a gap between views the second term decides).
"""

from __future__ import annotations

import numpy as np

from fusehash.errors import DataError
from fusehash.hashers.linear import LinearHasher, check_varies
from fusehash.numerics.features import unit_rows
from fusehash.numerics.linalg import CenteredGram
from fusehash.numerics.rotation import random_rotations
from fusehash.parameters import rng_for
from fusehash.views import Floats, PairedViews


class JointQuantizer(LinearHasher):
    """A linear method on unit rows: sgn((x / |x| - mean) W). Views of one width share W, so that they share codes."""

    comparable = False  # unless the views are one space, which nothing in the rows can show

    def _project_block(self, block: Floats, view: str) -> Floats:
        return (unit_rows(block) - self.means_[view]) @ self.weights_[view]

    def _rotations(self, views: PairedViews) -> dict[str, Floats]:
        """One random rotation per width; the identity (nothing is rotated) has one bit per column."""
        return {name: random_rotation(d, self.n_bits, self._seed) for name, d in views.n_features.items()}


def random_rotation(width: int, n_bits: int, seed: int) -> Floats:
    """(width, n_bits): columns of random rotations, the same for equal widths and seeds."""
    return random_rotations(width, n_bits, rng_for(seed, f"rotation of {width}"))


def unit_moments(views: PairedViews) -> dict[str, CenteredGram]:
    """Mean and centered Gram matrix of the unit rows of every view, over the rows where it is present.

    Raises DataError for a row of zeros, which has no direction: in embeddings it stands for an item that failed.
    """
    totals = {}
    for name in views:
        total, present = CenteredGram(views.n_features[name]), views.is_present(name)
        zeros: list[int] = []
        for rows in views.blocks():
            block = views.block(name, rows)
            zeros += (rows.start + np.flatnonzero(present[rows] & ~block.any(axis=1))).tolist()
            total.add(unit_rows(block[present[rows]]))
        check_varies(name, total.mean, total.variance)
        if zeros:
            raise DataError(f"View '{name}' must hold embeddings other than zero. Row {zeros[0]} is all zeros.")
        totals[name] = total
    return totals


def mean_query(means: dict[str, Floats], view: str) -> Floats:
    """The mean of the views that search the items of a view: of all others of its width, or of itself if none is."""
    others = [mean for name, mean in means.items() if name != view and len(mean) == len(means[view])]
    return np.mean(others, axis=0) if others else means[view]


def scales_of(squared_lengths: Floats, products: Floats) -> Floats:
    """|r|^2 / <b, p>, the scale of the estimate; 0 for an item at the mean."""
    return np.where(products > 0.0, squared_lengths / np.where(products > 0.0, products, 1.0), 0.0)
