"""Weights of the views in a fusion of projections."""

from __future__ import annotations

import numpy as np

from fusehash.hashers.fusehash.closed_form import Rng
from fusehash.hashers.fusehash.fitted import Arrays, Fitted
from fusehash.hashers.fusehash.tuning.trials import TUNING_ROWS
from fusehash.numerics.arrays import host
from fusehash.numerics.rotation import signs_of
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats

RIDGE = 1e-4  # towards equal weights, relative to the sum of squares of all projections


def fusion_weights(fitted: Fitted, prepared: Arrays) -> dict[str, float]:
    """Weights of the views in a fusion: least squares of the codes on the projections, scaled to a mean of 1."""
    B = host(signs_of(fitted.project_complete(prepared)))
    P = np.stack([host(fitted.project(X, name)).ravel() for name, X in prepared.items()], axis=1)
    solution = near_equal(P.astype(np.float64), B.ravel().astype(np.float64))
    clipped = np.maximum(solution, 0.05 * max(float(solution.max()), 1e-9))
    return dict(zip(prepared, (float(a) for a in clipped / clipped.mean()), strict=True))


def near_equal(P: Floats, b: Floats) -> Floats:
    """The least squares solution of P a = b; of those that are nearly as good, one of nearly equal numbers.

    So that views that say the same count the same, instead of what rounding errors say of their difference.
    """
    gram, together = P.T @ P, P.sum(axis=1)
    equal = float(together @ b) / max(float(together @ together), np.finfo(float).tiny)
    ridge = RIDGE * np.trace(gram) * np.eye(len(gram)) + np.finfo(float).tiny * np.eye(len(gram))
    return np.asarray(equal + np.linalg.solve(gram + ridge, P.T @ (b - equal * together)))


def training_fusion_weights(fitted: Fitted, data: RowPasses, rng: Rng) -> dict[str, float]:
    """`fusion_weights` on training rows: for fits with so many rows that held-out rows say no more."""
    rows = data.views.complete_rows()
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    return fusion_weights(fitted, {name: fitted.maps[name].preparation(data.take(name, rows)) for name in data.names})
