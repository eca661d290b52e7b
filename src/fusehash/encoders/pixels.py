"""What pretrained image encoders want: a square of numbers, centered and scaled."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash.encoders.base import Single
from fusehash.errors import ParameterError

if TYPE_CHECKING:
    from PIL.Image import Image


def normalized_pixels(image: Image, size: int, mean: Any, std: Any) -> Single:
    """(3, size, size): shorter side to `size`, middle cut out, (x - mean) / std of values in 0..1."""
    from PIL.Image import Resampling

    # The largest square in the middle, resized: the same pixels as resizing first, without a thin image growing huge.
    side = min(image.size)
    left, top = (image.width - side) / 2, (image.height - side) / 2
    square = image.resize((size, size), Resampling.BICUBIC, box=(left, top, left + side, top + side))
    values = np.asarray(square, dtype=np.float32) / np.float32(255.0)
    centered = (values - np.asarray(mean, dtype=np.float32)) / np.asarray(std, dtype=np.float32)
    return np.ascontiguousarray(centered.transpose(2, 0, 1))


def unit_rows(rows: Single) -> Single:
    """Every row with length 1; rows of zeros stay."""
    norms = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(norms > 0, norms, np.float32(1.0))


def check_three(owner: str, name: str, value: Any, *, positive: bool = False) -> None:
    """Three finite numbers, one for each color."""
    try:
        numbers = list(value)
        good = len(numbers) == 3 and all(isinstance(x, Real) and np.isfinite(float(x)) for x in numbers)
    except TypeError:
        good = False
    if not good or (positive and min(numbers) <= 0):
        raise ParameterError(owner, name, f"three finite {'positive ' if positive else ''}numbers", value)
