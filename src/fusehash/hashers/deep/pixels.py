"""A small convolutional network on pixels, written once for NumPy and PyTorch, so that encoding needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from fusehash.numerics.arrays import Array, namespace, precision, zeros

Shape: TypeAlias = tuple[int, int, int]  # height, width, channels

KERNEL, FIRST_CHANNELS, SMALLEST = 3, 32, 4


def convolution_widths(shape: Shape) -> list[tuple[int, int]]:
    """Inputs and outputs of every convolution: each halves height and width, until one of them is at most 4."""
    height, width, channels = shape
    widths: list[tuple[int, int]] = []
    while min(height, width) > SMALLEST:
        outputs = FIRST_CHANNELS * 2 ** len(widths)
        widths.append((KERNEL**2 * channels, outputs))
        height, width, channels = _halved(height), _halved(width), outputs
    return widths


def flat_width(shape: Shape) -> int:
    """How many numbers the last convolution gives."""
    height, width, channels = shape
    for _, channels in convolution_widths(shape):  # noqa: B007
        height, width = _halved(height), _halved(width)
    return height * width * channels


def convolved(X: Array, layers: Sequence[Array], shape: Shape) -> Array:
    """Rows of pixels after all convolutions, each followed by ReLU; `layers` are K_1, b_1, K_2, b_2, ..."""
    X = X.reshape(len(X), *shape)
    for i in range(0, len(layers), 2):
        patches = patches_of(X)
        X = patches.reshape(-1, patches.shape[-1]) @ layers[i] + layers[i + 1]
        X = X.clip(0.0).reshape(*patches.shape[:3], -1)
    return X.reshape(len(X), -1)


def patches_of(X: Array) -> Array:
    """The 3 x 3 neighborhood of every second pixel of images (n, h, w, c), zero outside: (n, h / 2, w / 2, 9 c)."""
    n, height, width, channels = X.shape
    padded = zeros((n, height + 2, width + 2, channels), X, precision(X))
    padded[:, 1:-1, 1:-1] = X
    shifted = [padded[:, i : i + height : 2, j : j + width : 2] for i in range(KERNEL) for j in range(KERNEL)]
    return namespace(X).concat(shifted, axis=3)


def _halved(length: int) -> int:
    return (length + 1) // 2
