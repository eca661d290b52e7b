"""Made joint embeddings: unit vectors of a common space with a falling spectrum, noise, and a gap between the views."""

from __future__ import annotations

import numpy as np


def joint_embeddings(
    n: int = 600, width: int = 48, gap: float = 1.0, noise: float = 0.3, seed: int = 0
) -> dict[str, np.ndarray]:
    """Two paired views, {"image": (n, width), "text": (n, width)}."""
    rng = np.random.default_rng(seed)
    spectrum = 1.0 / np.sqrt(1.0 + np.arange(width) / 6.0)
    shared = rng.standard_normal((n, width)) * spectrum
    basis = np.linalg.qr(rng.standard_normal((width, width)))[0]
    views = {}
    for name in ("image", "text"):
        own = (shared + noise * rng.standard_normal((n, width)) * spectrum) @ basis
        offset = rng.standard_normal(width)
        X = own / np.linalg.norm(own, axis=1, keepdims=True) + gap * offset / np.linalg.norm(offset)
        views[name] = X / np.linalg.norm(X, axis=1, keepdims=True)
    return views


def cut(views: dict[str, np.ndarray], rows: slice) -> dict[str, np.ndarray]:
    """Some rows of every view."""
    return {name: X[rows] for name, X in views.items()}
