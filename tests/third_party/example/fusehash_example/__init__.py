"""A package of somebody else that brings a method; pyproject.toml registers it, and nothing of fusehash is changed."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fusehash import bits
from fusehash.hashers.base import CrossModalHasher
from fusehash.parameters import Rule, real, rng_for


class SignOfMeans(CrossModalHasher):
    """Signs of random projections of each view, turned towards the codes by one regression."""

    method: ClassVar[str] = "sign_of_means"
    title: ClassVar[str] = "SignOfMeans"
    summary: ClassVar[str] = "signs of random projections, then one regression for each view"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"strength": real(strict=True)}

    def __init__(self, *, n_bits: int = 64, strength: float = 0.01, random_state: Any = None, callback: Any = None):
        self.n_bits = n_bits
        self.strength = strength
        self.random_state = random_state
        self.callback = callback

    def _fit(self, views, labels):
        rng = rng_for(self._seed, "projections")
        X = {name: views.dense(name, slice(None)) for name in views}
        self.means_ = {name: X[name].mean(axis=0) for name in X}
        X = {name: X[name] - self.means_[name] for name in X}
        total = sum(X[name] @ rng.standard_normal((X[name].shape[1], self.n_bits)) / (X[name].std() or 1) for name in X)
        B = np.where(total > 0, 1.0, -1.0)
        self.weights_ = {}
        for name, block in X.items():
            gram = block.T @ block
            ridge = self.strength * np.trace(gram) / len(gram) or 1.0
            self.weights_[name] = np.linalg.solve(gram + ridge * np.eye(len(gram)), block.T @ B)
        self.codes_ = bits.pack(B)
        self._report(1, 1, "one regression for each view")

    def _project_block(self, block, view):
        return (block - self.means_[view]) @ self.weights_[view]
