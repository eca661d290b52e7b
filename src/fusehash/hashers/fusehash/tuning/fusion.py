"""Weights of the views in a fusion of projections."""

from __future__ import annotations

import numpy as np

from fusehash.hashers.fusehash.closed_form import Rng
from fusehash.hashers.fusehash.fitted import Arrays, Fitted
from fusehash.hashers.fusehash.tuning.trials import TUNING_ROWS
from fusehash.numerics.arrays import host
from fusehash.numerics.rotation import signs_of
from fusehash.streams.row_passes import RowPasses


def fusion_weights(fitted: Fitted, prepared: Arrays) -> dict[str, float]:
    """Weights of the views in a fusion: least squares of the codes on the projections, scaled to a mean of 1."""
    B = host(signs_of(fitted.project_complete(prepared)))
    P = np.stack([host(fitted.project(X, name)).ravel() for name, X in prepared.items()], axis=1)
    solution = np.linalg.solve(P.T @ P + 1e-12 * np.trace(P.T @ P) * np.eye(P.shape[1]), P.T @ B.ravel())
    clipped = np.maximum(solution, 0.05 * max(float(solution.max()), 1e-9))
    return dict(zip(prepared, (float(a) for a in clipped / clipped.mean()), strict=True))


def training_fusion_weights(fitted: Fitted, data: RowPasses, rng: Rng) -> dict[str, float]:
    """`fusion_weights` on training rows: for fits with so many rows that held-out rows say no more."""
    rows = data.views.complete_rows()
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    return fusion_weights(fitted, {name: fitted.maps[name].preparation(data.take(name, rows)) for name in data.names})
