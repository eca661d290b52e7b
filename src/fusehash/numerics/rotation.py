"""Orthogonal rotations that turn real embeddings into signs: random ones, and learned ones (ITQ)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusehash.numerics.arrays import Array, Floats, cast, host, namespace, precision, to_device_of


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


def learned_rotation(Y: Array, start: Array, n_steps: int, softness: float = 0.0) -> Array:
    """ITQ (Gong and Lazebnik 2011): the rotation R that brings Y R close to its own signs, from a starting rotation.

    Each step raises sum |Y R|: B = sgn(Y R), then R from the polar factor of Y'B. With `softness` c the sign is
    replaced by a ramp, B = clip(Y R / (c mean |Y R0|), -1, 1): signs near zero are noise that plain ITQ follows, and
    with the ramp rounding errors change fewer bits (docs/study.md).
    """
    xp, R = namespace(Y), start
    width = softness * float(xp.mean(xp.abs(Y @ R))) if softness else 0.0
    for _ in range(n_steps):
        turned = Y @ R
        B = signs_of(turned) if width == 0.0 else xp.clip(turned / width, -1.0, 1.0)
        # The small factorization is faster on the host than on a device (r numbers squared travel).
        U, _, Vt = np.linalg.svd(host(Y.T @ B))
        R = to_device_of(U @ Vt, Y)
    return R


def signs_of(Y: Array) -> Array:
    """sgn with sgn(0) = -1, in the precision and on the device of Y."""
    if isinstance(Y, np.ndarray):
        return np.where(Y > 0.0, 1.0, -1.0).astype(Y.dtype)
    return 2.0 * cast(Y > 0.0, precision(Y)) - 1.0


def soft_signs(Y: Array, softness: float) -> Array:
    """tanh(Y / softness): nearly signs, but small where rounding errors or noise would decide the sign."""
    return namespace(Y).tanh(Y / softness)


def learned_rotations(Y: Array, n_bits: int, rng: np.random.Generator, n_steps: int, softness: float = 0.0) -> Array:
    """(r, n_bits): columns of ITQ rotations from independent random starts, side by side where n_bits > r."""
    r = Y.shape[1]
    starts = [(cast(to_device_of(random_orthogonal(r, rng), Y), precision(Y)), width) for width in groups(r, n_bits)]
    parts = [learned_rotation(Y, start, n_steps, softness)[:, :width] for start, width in starts]
    return namespace(Y).concat(parts, axis=1)
