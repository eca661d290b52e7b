"""Image features that need no download: classical histograms, and the bag of visual words alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash.encoders import histograms
from fusehash.encoders.base import Encoder, Progress, Single
from fusehash.encoders.reading import MAX_PIXELS, ImageError, open_image
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.parameters import Rule, integer, resolve_seed, rng_for

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 224
FIT_IMAGES = 1000  # more images do not change a vocabulary


class ImageEncoder(Encoder):
    """Base class of the image encoders: opens each item and reports those that cannot be opened."""

    modality: ClassVar[str] = "image"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"max_pixels": integer(1)}

    max_pixels: int
    n_jobs: int | None

    def _read(self, items: Sequence[Any]) -> tuple[dict[int, Any], dict[int, str]]:
        return self._each(items, self._features)

    def _each(self, items: Sequence[Any], work: Callable[[Image], Any]) -> tuple[dict[int, Any], dict[int, str]]:
        """work(image) of every item that can be opened, and why the others cannot."""
        results, problems = {}, {}
        for position, item in enumerate(items):
            try:
                results[position] = work(open_image(item, max_pixels=self.max_pixels, side=self._decode_side))
            except (ImageError, MemoryError) as error:
                too_large = isinstance(error, MemoryError)
                problems[position] = "The image must fit into memory. It does not." if too_large else str(error)
        return results, problems

    @property
    def _decode_side(self) -> int | None:
        """See `side` of `open_image`."""
        return None

    @abstractmethod
    def _features(self, image: Image) -> Any:
        """What is computed from one image alone."""

    def _rows(self, contents: list[Any]) -> Single:
        return np.stack(contents)

    def _blank(self) -> Single:
        blank = require("PIL.Image", "Encoding images").new("RGB", (32, 32))
        return self._rows([self._features(blank)])


class SiftEncoder(ImageEncoder):
    """Bag of visual words: how often each of `n_words` typical SIFT descriptors occurs. Rows sum to 1.

    The words are k-means centers of descriptors from up to 1,000 of the images. The image view of the Wiki dataset
    has 128 of them. An image without keypoints gets the same share for every word.

    Parameters
    ----------
    n_words : int, default=128
        Size of the vocabulary; smaller if the images have fewer distinct descriptors.
    n_keypoints : int, default=300
        Number of the strongest keypoints that are used per image.
    side : int, default=224
        Images are first resized to this length of their longer side.
    max_pixels : int, default=64_000_000
        Larger images are not decoded.
    random_state : int, Generator or None, default=0
        Seed.
    n_jobs : int or None, default=None
        Number of threads; None for all cores. The features do not depend on it.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, 128), float32
        The vocabulary.

    References
    ----------
    Lowe, Distinctive image features from scale-invariant keypoints, IJCV 2004. Sivic and Zisserman, Video Google,
    ICCV 2003. Arandjelovic and Zisserman, Three things everyone should know (RootSIFT), CVPR 2012.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("sift", n_words=64)
    SiftEncoder(n_words=64)
    """

    name: ClassVar[str] = "sift"
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "n_words": integer(1), "n_keypoints": integer(1, 2**31 - 1), "side": integer(histograms.MIN_SIDE, 8192)
    }  # fmt: skip

    def __init__(
        self, *, n_words: int = 128, n_keypoints: int = 300, side: int = SIDE, max_pixels: int = MAX_PIXELS,
        random_state: Any = 0, n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.n_words, self.n_keypoints, self.side, self.max_pixels = n_words, n_keypoints, side, max_pixels
        self.random_state, self.n_jobs = random_state, n_jobs

    def check_usable(self) -> None:
        """Raise if a parameter is wrong or OpenCV is not installed."""
        self._check_params()
        histograms.opencv()

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        histograms.opencv()
        seed = resolve_seed(self.random_state)
        chosen = list(range(len(items)))
        if len(items) > FIT_IMAGES:
            chosen = np.sort(rng_for(seed, "images").permutation(len(items))[:FIT_IMAGES]).tolist()
        self.problems_ = {}
        sampled: list[Single] = []

        def sample(image: Image) -> Single:
            gray = self._working_size(image).convert("L")
            return histograms.sample(histograms.descriptors(gray, self.n_keypoints), seed)

        images = [items[position] for position in chosen]
        batches = self._batches(lambda batch: self._each(batch, sample), images, progress, "learning visual words")
        for start, (descriptors, problems) in batches:
            sampled += descriptors.values()
            self.problems_.update({chosen[start + position]: why for position, why in problems.items()})
        if not sampled:
            first = next(iter(self.problems_.values()), "There are none.")
            raise DataError(f"{type(self).__name__} needs at least one image that can be read. {first}")
        self.words_ = histograms.learn_words(np.vstack(sampled), self.n_words, seed)
        self.n_features_ = self._width()

    def _width(self) -> int:
        if not len(self.words_):
            raise DataError(f"{type(self).__name__} needs images with structure. None of them has a SIFT keypoint.")
        return len(self.words_)

    def _check_state(self) -> None:
        shape = self.words_.shape
        if len(shape) != 2 or shape[1] != histograms.DESCRIPTOR or self.n_features_ != self._width():
            raise ValueError("the vocabulary has another shape")

    @property
    def _decode_side(self) -> int:
        return 2 * self.side

    def _working_size(self, image: Image) -> Image:
        """The image with its longer side at `side`, the shorter in proportion but not below 16."""
        from PIL.Image import Resampling

        scale = self.side / max(image.size)
        size = tuple(max(histograms.MIN_SIDE, round(length * scale)) for length in image.size)
        return image if size == image.size else image.resize(size, Resampling.BILINEAR, reducing_gap=3.0)

    def _features(self, image: Image) -> Single:
        return self._words(self._working_size(image).convert("L")).astype(np.float32)

    def _words(self, gray: Image) -> Any:
        return histograms.word_counts(histograms.descriptors(gray, self.n_keypoints), self.words_)


class ClassicalEncoder(SiftEncoder):
    """Color, gradient and texture histograms and a bag of SIFT visual words, next to each other.

    Each of the four blocks is a histogram h with sum 1 and enters as sqrt(h) / 2. So every row has length 1, Euclidean
    distance is the Hellinger distance of the histograms, and all four have the same weight.

    Parameters
    ----------
    n_words : int, default=256
        Size of the vocabulary; smaller if the images have fewer distinct descriptors.
    n_keypoints, side, max_pixels, random_state, n_jobs
        As in `SiftEncoder`.

    Attributes
    ----------
    words_ : ndarray of shape (n_words, 128), float32
        The vocabulary. If no image has a keypoint it is empty and its block is left out.

    References
    ----------
    Dalal and Triggs, Histograms of oriented gradients, CVPR 2005. Ojala et al., Local binary patterns, TPAMI 2002.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("classical", side=72)
    ClassicalEncoder(side=72)
    """

    name: ClassVar[str] = "classical"

    def __init__(
        self, *, n_words: int = 256, n_keypoints: int = 300, side: int = SIDE, max_pixels: int = MAX_PIXELS,
        random_state: Any = 0, n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            n_words=n_words, n_keypoints=n_keypoints, side=side, max_pixels=max_pixels,
            random_state=random_state, n_jobs=n_jobs,
        )  # fmt: skip

    check_usable = ImageEncoder.check_usable  # the default of collections, which may be without images and OpenCV

    def _width(self) -> int:
        return histograms.N_COLOR + histograms.N_GRADIENT + histograms.N_TEXTURE + len(self.words_)

    def _features(self, image: Image) -> Single:
        small = self._working_size(image)
        gray = small.convert("L")
        blocks = [histograms.color(small), histograms.gradient(gray), histograms.texture(gray)]
        if len(self.words_):
            blocks.append(self._words(gray))
        return np.sqrt(np.concatenate(blocks) / len(blocks)).astype(np.float32)
