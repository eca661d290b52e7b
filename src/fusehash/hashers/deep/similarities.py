"""Cosines and their errors, written once for NumPy and PyTorch: what the objectives of deep methods are made of."""

from __future__ import annotations

from fusehash.numerics.arrays import Array

TINY = 1e-24  # under the root, so that a row of zeros stays zero and has a gradient


def unit(X: Array) -> Array:
    """Rows scaled to unit length; a row of zeros stays zero."""
    return X / ((X * X).sum(1) + TINY)[:, None] ** 0.5


def cosines(X: Array, Y: Array) -> Array:
    """The cosine of every row of X with every row of Y."""
    return unit(X) @ unit(Y).T


def mse(A: Array, B: Array | float) -> Array:
    """The mean squared difference over all entries."""
    return ((A - B) ** 2).mean()
