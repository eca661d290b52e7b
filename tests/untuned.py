"""Settings of the default with nothing left to tune: what tests fit when they look at something else."""

from __future__ import annotations

from typing import Any

UNTUNED: dict[str, Any] = {
    "feature_map": "rbf",
    "kernel_width": 1.0,
    "ridge": 0.03,
    "hash_ridge": 0.003,
    "graph_weight": 1.0,
    "latent_weight": 1.0,
    "spectral_power": 2.0,
    "view_weights": (1.0, 1.0),
}
