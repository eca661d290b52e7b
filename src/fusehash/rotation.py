"""Orthogonal rotations that turn real embeddings into signs: random ones, and learned ones (ITQ)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def random_orthogonal(r: int, rng: np.random.Generator) -> Floats:
    """A random orthogonal (r, r) matrix, uniform over the orthogonal group."""
    Q, R = np.linalg.qr(rng.standard_normal((r, r)))
    return Q * np.sign(np.diagonal(R))


def groups(r: int, n_bits: int) -> Iterator[int]:
    """How many columns each of several r-dimensional rotations gives to make n_bits, as evenly as possible."""
    count = -(-n_bits // r)
    for i in range(count):
        yield n_bits // count + (i < n_bits % count)


def random_rotations(r: int, n_bits: int, rng: np.random.Generator) -> Floats:
    """(r, n_bits): columns of random orthogonal matrices; several of them side by side where n_bits > r."""
    return np.hstack([random_orthogonal(r, rng)[:, :width] for width in groups(r, n_bits)])


def learned_rotation(Y: Floats, start: Floats, n_steps: int) -> Floats:
    """ITQ (Gong and Lazebnik 2011): the rotation R that brings Y R close to its own signs, from a starting rotation.

    Each step raises sum |Y R|: B = sgn(Y R), then R from the polar factor of Y'B.
    """
    R = start
    for _ in range(n_steps):
        U, _, Vt = np.linalg.svd(Y.T @ np.where(Y @ R > 0.0, 1.0, -1.0).astype(Y.dtype))
        R = U @ Vt
    return R


def learned_rotations(Y: Floats, n_bits: int, rng: np.random.Generator, n_steps: int) -> Floats:
    """(r, n_bits): columns of ITQ rotations from independent random starts, side by side where n_bits > r."""
    r = Y.shape[1]
    starts = [(random_orthogonal(r, rng).astype(Y.dtype), width) for width in groups(r, n_bits)]
    return np.hstack([learned_rotation(Y, start, n_steps)[:, :width] for start, width in starts])
