"""Color, gradient and texture histograms of one small image, in NumPy.

Each sums over the cells of a grid, sums to 1, and is a few milliseconds of work for an image of 224 x 168 pixels.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# color: 8 grays, and for what has color 8 hues x 2 saturations x 3 brightnesses
HUES, GRAYS = 8, 8
COLORS = GRAYS + HUES * 2 * 3
COLOR_GRIDS = (1, 2)
FAINT, STRONG = 32, 112  # saturation (of 255) from which a pixel has a color, and a strong one

# gradients: 9 directions without sign on a 4 x 4 grid, of the image and of a quarter of it
DIRECTIONS = 9
GRADIENT_GRID = 4
GRADIENT_SCALES = (1, 4)

# texture: the 58 uniform local binary patterns and the rest, on a 2 x 2 grid, of the image and of half of it
PATTERNS = 59
TEXTURE_GRID = 2
TEXTURE_SCALES = (1, 2)
CONTRAST = 3  # a neighbor counts as brighter from here on; less is noise of the camera

N_COLOR = COLORS * sum(n * n for n in COLOR_GRIDS)
N_GRADIENT = DIRECTIONS * GRADIENT_GRID**2 * len(GRADIENT_SCALES)
N_TEXTURE = PATTERNS * TEXTURE_GRID**2 * len(TEXTURE_SCALES)


def color(image: Image) -> Floats:
    """How much of each color there is: in the whole image, and in each quarter."""
    hsv = np.asarray(image.convert("HSV")).astype(np.intp)
    hue, saturation, value = hsv[..., 0], hsv[..., 1], hsv[..., 2]
    chromatic = GRAYS + (hue * HUES // 256 * 2 + (saturation >= STRONG)) * 3 + value * 3 // 256
    place = np.where(saturation < FAINT, value * GRAYS // 256, chromatic)
    return _unit_sum([_in_cells(place, COLORS, n, None) for n in COLOR_GRIDS])


def gradient(gray: Image) -> Floats:
    """Strength of edges by direction; each vote is shared by the two nearest directions."""
    parts = []
    for scale in GRADIENT_SCALES:
        brightness = np.asarray(shrink(gray, scale), dtype=np.float64)
        down, right = _differences(brightness, 0), _differences(brightness, 1)
        angle = np.mod(np.arctan2(down, right), np.pi) * (DIRECTIONS / np.pi)
        lower = np.floor(angle).astype(np.intp)
        share, strength = angle - lower, np.hypot(down, right)
        parts.append(
            _in_cells(lower % DIRECTIONS, DIRECTIONS, GRADIENT_GRID, strength * (1.0 - share))
            + _in_cells((lower + 1) % DIRECTIONS, DIRECTIONS, GRADIENT_GRID, strength * share)
        )
    return _unit_sum(parts)


def texture(gray: Image) -> Floats:
    """Which of its eight neighbors are brighter than a pixel, as a pattern; how often each pattern occurs."""
    parts = []
    for scale in TEXTURE_SCALES:
        brightness = np.asarray(shrink(gray, scale)).astype(np.int16)
        height, width = brightness.shape
        framed = np.pad(brightness, 1, mode="edge")
        threshold = brightness + CONTRAST
        code = np.zeros(brightness.shape, dtype=np.intp)
        around = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
        for bit, (y, x) in enumerate(around):
            code |= (framed[y : y + height, x : x + width] > threshold).astype(np.intp) << bit
        parts.append(_in_cells(uniform_patterns()[code], PATTERNS, TEXTURE_GRID, None))
    return _unit_sum(parts)


def shrink(image: Image, factor: int) -> Image:
    """The image at a fraction of its size, each pixel the mean of a square."""
    return image if factor == 1 else image.reduce(factor)


@cache
def uniform_patterns() -> Ints:
    """For each of 256 patterns its number: those with at most two changes around the circle have one of their own."""
    patterns = np.arange(256)
    bits = (patterns[:, None] >> np.arange(8)) & 1
    changes = np.abs(bits - np.roll(bits, 1, axis=1)).sum(axis=1)
    table = np.full(256, PATTERNS - 1, dtype=np.intp)
    table[changes <= 2] = np.arange(PATTERNS - 1)
    return table


def _differences(x: Floats, axis: int) -> Floats:
    """Central differences; none where there is but one pixel."""
    return np.gradient(x, axis=axis) if x.shape[axis] > 1 else np.zeros_like(x)


def _in_cells(place: Ints, n_places: int, n_cells: int, weights: Any) -> Floats:
    """A histogram for each cell of an n x n grid."""
    height, width = place.shape
    row, column = np.arange(height) * n_cells // height, np.arange(width) * n_cells // width
    cell = row[:, None] * n_cells + column[None, :]
    size = n_places * n_cells**2
    votes = None if weights is None else weights.ravel()
    counts: Floats = np.bincount((cell * n_places + place).ravel(), votes, size).astype(np.float64)
    return counts


def _unit_sum(parts: list[Floats]) -> Floats:
    """Each part with sum 1, then all together; a part without any vote is spread evenly."""
    even = [part / part.sum() if part.sum() > 0 else np.full(len(part), 1.0 / len(part)) for part in parts]
    return np.concatenate(even) / len(even)
