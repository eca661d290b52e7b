"""Bag of visual words: SIFT descriptors of an image, each counted for the nearest of a few learned ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusehash.encoders.base import Single
from fusehash.errors import DataError
from fusehash.parameters import rng_for

if TYPE_CHECKING:
    from PIL.Image import Image

Floats = NDArray[np.float64]

WIDTH = 128  # numbers in a SIFT descriptor
SAMPLE_PER_IMAGE = 60
MIN_SIDE = 16  # OpenCV finds nothing in less


def sift_module() -> Any:
    """OpenCV, which is here for SIFT alone."""
    try:
        import cv2
    except ImportError as error:
        raise DataError(
            "SIFT features need the package opencv-python-headless; pip install 'fusehash[images]' brings it."
        ) from error
    return cv2


def descriptors(gray: Image, n_keypoints: int) -> Single:
    """The SIFT descriptors (m, 128) of the strongest keypoints, as square roots of histograms (RootSIFT)."""
    pixels = np.asarray(gray)
    if min(pixels.shape) < MIN_SIDE:
        return np.zeros((0, WIDTH), dtype=np.float32)
    # A detector of its own for each call: they are cheap, and several threads call this.
    _, found = sift_module().SIFT_create(nfeatures=n_keypoints).detectAndCompute(pixels, None)
    if found is None:
        return np.zeros((0, WIDTH), dtype=np.float32)
    sums = found.sum(axis=1, keepdims=True)
    return np.sqrt(found / np.where(sums > 0, sums, 1.0)).astype(np.float32)


def sample(found: Single, seed: int) -> Single:
    """A few descriptors of one image; which ones depends on the seed and their number alone."""
    if len(found) <= SAMPLE_PER_IMAGE:
        return found
    order = rng_for(seed, "descriptors").permutation(len(found))
    return found[np.sort(order[:SAMPLE_PER_IMAGE])]


def learn_words(sampled: Single, n_words: int, seed: int) -> Single:
    """The words (n, 128): k-means centers. Fewer where there are fewer different descriptors."""
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    different = np.unique(sampled, axis=0)
    if len(different) <= n_words:
        return different
    random = np.random.RandomState(int(rng_for(seed, "words").integers(2**31)))
    means = MiniBatchKMeans(n_words, batch_size=2048, max_iter=30, n_init=1, random_state=random)
    with threadpool_limits(1):  # sums over several threads round differently
        return np.ascontiguousarray(means.fit(different).cluster_centers_, dtype=np.float32)


def histogram(found: Single, words: Single) -> Floats:
    """How often each word occurs; sums to 1. Spread evenly where there is no keypoint."""
    if not len(found):
        return np.full(len(words), 1.0 / len(words))
    # ||d - w||^2 without ||d||^2, which is the same for all words
    nearest = np.argmin((words**2).sum(axis=1) - 2.0 * (found @ words.T), axis=1)
    counts: Floats = np.bincount(nearest, minlength=len(words)) / len(found)
    return counts
