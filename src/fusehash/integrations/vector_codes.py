"""Codes of document vectors, and the checks of these vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusehash.bits import Codes, check_codes, distances_to, pack
from fusehash.errors import DataError
from fusehash.integrations.rows import Vector
from fusehash.numerics.rotation import random_rotations

PROBES = 8  # vectors whose codes tell whether a file was written with the same model


class VectorCodes:
    """Codes by a fitted model, or the signs of randomly rotated vectors, which need no training.

    model, view : fitted hasher and the name of the view that the vectors are of; None for random rotations
    """

    def __init__(self, model: Any = None, view: str | None = None) -> None:
        if (model is None) != (view is None):
            raise DataError("A model and the view of its vectors belong together. Got one of them.")
        self._model, self._view = model, view
        self._directions: NDArray[np.float64] | None = None

    def encode(self, vectors: Vector, n_bits: int) -> Codes:
        """Packed codes, one for each row."""
        if self._model is not None:
            return check_codes(self._model.encode(vectors.astype(np.float64), view=self._view))
        return pack(vectors.astype(np.float64) @ self._rotation(vectors.shape[1], n_bits))

    def _rotation(self, width: int, n_bits: int) -> NDArray[np.float64]:
        """Orthonormal directions, or several rotations next to each other where there are more bits than numbers."""
        if self._directions is None or self._directions.shape != (width, n_bits):
            rng = np.random.default_rng(0)
            wide = np.linalg.qr(rng.standard_normal((width, n_bits)))[0] if width > n_bits else None
            self._directions = random_rotations(width, n_bits, rng) if wide is None else wide
        return self._directions

    def probe(self, width: int, n_bits: int) -> str:
        """Codes of some fixed vectors, as text."""
        rng = np.random.default_rng(1)
        return self.encode(rng.standard_normal((PROBES, width)).astype(np.float32), n_bits).tobytes().hex()

    def check(self, settings: dict[str, Any], name: str) -> None:
        """Raise if the codes of a file were made by another model; rounding may turn single bits."""
        stored, now = (
            np.frombuffer(bytes.fromhex(probe), np.uint8)
            for probe in (settings["probe"], self.probe(settings["width"], settings["n_bits"]))
        )
        if stored.size != now.size or distances_to(stored[None], now[None]).sum() > now.size // 10:
            raise DataError(f"The file {name} must be opened with the model that its codes are from.")


def checked_vector(values: ArrayLike, what: str) -> Vector:
    """A vector of finite numbers, in single precision if nothing is lost by it."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{what} must have a vector of finite numbers. Got something else.") from None
    if vector.ndim != 1 or not vector.size or not np.isfinite(vector).all():
        raise DataError(f"{what} must have a vector of finite numbers. Got one of shape {vector.shape}.")
    short = vector.astype(np.float32)
    return short if np.array_equal(short, vector) else vector  # half the space if nothing is lost


def cosine(a: Vector, b: Vector | None) -> float:
    """The cosine of two vectors; 0 if there is no second one."""
    if b is None:
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y) or 1.0))
