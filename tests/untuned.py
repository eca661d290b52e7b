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
    "hash_functions": "regression",
    "view_weights": (1.0, 1.0),
    "word_weights": 0.0,
}

# What matters is fixed, for any number of views.
FIXED: dict[str, Any] = {
    "feature_map": "rbf",
    "kernel_width": 1.0,
    "ridge": 0.03,
    "graph_weight": 1.0,
    "latent_weight": 1.0,
    "spectral_power": 2.0,
}
SMALL: dict[str, Any] = {**FIXED, "n_anchors": 100, "n_kernel_anchors": 100}

# Deep methods small and quick, for tests that look at something else.
_SMALL: dict[str, Any] = {"hidden": 32, "batch_size": 32, "epochs": 20}
DEEP: dict[str, dict[str, Any]] = {
    "djsrh": {**_SMALL, "learning_rate": 0.03},
    "jdsh": {**_SMALL, "learning_rate": 0.03},
    "dgcpn": {**_SMALL, "learning_rate": 0.02, "dropout": 0.1, "text_weight": 0.5, "center": True},
    "cirh": {**_SMALL, "batch_size": 64, "graph_hidden": 32, "learning_rate": 0.005, "graph_rate": 0.005},
    "ucch": {**_SMALL, "learning_rate": 0.002, "n_negatives": 64},
    "dbrc": {**_SMALL, "learning_rate": 0.005},
    "dcmh": {**_SMALL, "learning_rate": 0.3, "eta": 0.05},
    "ddcmh": {**_SMALL, "image_hidden": 32, "learning_rate": 0.01},
}
