"""Histograms of one small image, each with sum 1: color, gradients, texture (NumPy) and visual words (SIFT, OpenCV)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusehash.encoders.base import Single
from fusehash.extras import require
from fusehash.parameters import rng_for

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

# Color: 8 grays; for pixels with color, 8 hues x 2 saturations x 3 brightnesses.
HUES, GRAYS = 8, 8
COLORS = GRAYS + HUES * 2 * 3
COLOR_GRIDS = (1, 2)
FAINT, STRONG = 32, 112  # saturation (of 255) from which a pixel has a color, and a strong one

# Gradients: 9 unsigned directions on a 4 x 4 grid, of the image and of the image at a quarter of its size.
DIRECTIONS = 9
GRADIENT_GRID = 4
GRADIENT_SCALES = (1, 4)

# Texture: 58 uniform local binary patterns and one for the rest, on a 2 x 2 grid, at full and at half size.
PATTERNS = 59
TEXTURE_GRID = 2
TEXTURE_SCALES = (1, 2)
CONTRAST = 3  # a neighbor is brighter from this difference on; less is camera noise

# Visual words.
DESCRIPTOR = 128  # numbers in a SIFT descriptor
SAMPLE_PER_IMAGE = 60
MIN_SIDE = 16  # OpenCV finds no keypoints in smaller images

N_COLOR = COLORS * sum(n * n for n in COLOR_GRIDS)
N_GRADIENT = DIRECTIONS * GRADIENT_GRID**2 * len(GRADIENT_SCALES)
N_TEXTURE = PATTERNS * TEXTURE_GRID**2 * len(TEXTURE_SCALES)


def color(image: Image) -> Floats:
    """Share of each color in the whole image and in each quarter of it."""
    hsv = np.asarray(image.convert("HSV")).astype(np.intp)
    hue, saturation, value = hsv[..., 0], hsv[..., 1], hsv[..., 2]
    chromatic = GRAYS + (hue * HUES // 256 * 2 + (saturation >= STRONG)) * 3 + value * 3 // 256
    bins = np.where(saturation < FAINT, value * GRAYS // 256, chromatic)
    return _unit_sum([_in_cells(bins, COLORS, n, None) for n in COLOR_GRIDS])


def gradient(gray: Image) -> Floats:
    """Strength of edges by direction; each edge counts for its two nearest directions."""
    parts = []
    for scale in GRADIENT_SCALES:
        brightness = np.asarray(gray.reduce(scale), dtype=np.float64)
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
    """How often each local binary pattern occurs: which of the eight neighbors are brighter than a pixel."""
    parts = []
    for scale in TEXTURE_SCALES:
        brightness = np.asarray(gray.reduce(scale)).astype(np.int16)
        height, width = brightness.shape
        framed = np.pad(brightness, 1, mode="edge")
        threshold = brightness + CONTRAST
        code = np.zeros(brightness.shape, dtype=np.intp)
        around = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
        for bit, (y, x) in enumerate(around):
            code |= (framed[y : y + height, x : x + width] > threshold).astype(np.intp) << bit
        parts.append(_in_cells(uniform_patterns()[code], PATTERNS, TEXTURE_GRID, None))
    return _unit_sum(parts)


@cache
def uniform_patterns() -> Ints:
    """Bin of each of the 256 patterns; patterns with more than two changes around the circle share the last bin."""
    patterns = np.arange(256)
    bits = (patterns[:, None] >> np.arange(8)) & 1
    changes = np.abs(bits - np.roll(bits, 1, axis=1)).sum(axis=1)
    table = np.full(256, PATTERNS - 1, dtype=np.intp)
    table[changes <= 2] = np.arange(PATTERNS - 1)
    return table


def opencv() -> Any:
    return require("cv2", "Computing SIFT features")


def descriptors(gray: Image, n_keypoints: int) -> Single:
    """The SIFT descriptors (m, 128) of the strongest keypoints, as square roots of histograms (RootSIFT)."""
    raw = None
    if min(gray.size) >= MIN_SIDE:
        # A new detector per call: detectors are cheap and not safe to share between threads.
        _, raw = opencv().SIFT_create(nfeatures=n_keypoints).detectAndCompute(np.asarray(gray), None)
    if raw is None:
        return np.zeros((0, DESCRIPTOR), dtype=np.float32)
    sums = raw.sum(axis=1, keepdims=True)
    return np.sqrt(raw / np.where(sums > 0, sums, 1.0)).astype(np.float32)


def sample(all_of_image: Single, seed: int) -> Single:
    """A few descriptors of one image; the choice depends only on the seed and their number."""
    if len(all_of_image) <= SAMPLE_PER_IMAGE:
        return all_of_image
    order = rng_for(seed, "descriptors").permutation(len(all_of_image))
    return all_of_image[np.sort(order[:SAMPLE_PER_IMAGE])]


def learn_words(sampled: Single, n_words: int, seed: int) -> Single:
    """Visual words (n, 128): k-means centers, or the descriptors themselves if there are at most `n_words`."""
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    distinct = np.unique(sampled, axis=0)
    if len(distinct) <= n_words:
        return distinct
    random = np.random.RandomState(int(rng_for(seed, "words").integers(2**31)))
    means = MiniBatchKMeans(n_words, batch_size=2048, max_iter=30, n_init=1, random_state=random)
    with threadpool_limits(1):  # sums over several threads round differently
        return np.ascontiguousarray(means.fit(distinct).cluster_centers_, dtype=np.float32)


def word_counts(of_image: Single, words: Single) -> Floats:
    """Share of the descriptors that are nearest to each word; even shares if there is no descriptor."""
    if not len(of_image):
        return np.full(len(words), 1.0 / len(words))
    # ||d - w||^2 without ||d||^2, which is equal for all words
    nearest = np.argmin((words**2).sum(axis=1) - 2.0 * (of_image @ words.T), axis=1)
    counts: Floats = np.bincount(nearest, minlength=len(words)) / len(of_image)
    return counts


def _differences(x: Floats, axis: int) -> Floats:
    return np.gradient(x, axis=axis) if x.shape[axis] > 1 else np.zeros_like(x)


def _in_cells(bins: Ints, n_bins: int, n_cells: int, weights: Any) -> Floats:
    """One histogram for each cell of an n x n grid."""
    height, width = bins.shape
    row, column = np.arange(height) * n_cells // height, np.arange(width) * n_cells // width
    cell = row[:, None] * n_cells + column[None, :]
    votes = None if weights is None else weights.ravel()
    counts: Floats = np.bincount((cell * n_bins + bins).ravel(), votes, n_bins * n_cells**2).astype(np.float64)
    return counts


def _unit_sum(parts: list[Floats]) -> Floats:
    """All parts with equal sums, 1 in total; a part without counts is spread evenly."""
    scaled = [part / part.sum() if part.sum() > 0 else np.full(len(part), 1.0 / len(part)) for part in parts]
    return np.concatenate(scaled) / len(scaled)
