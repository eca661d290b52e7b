"""Image features that need no download: classical histograms, and the bag of visual words alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash.encoders import histograms, visual_words
from fusehash.encoders.base import Batch, Encoder, Progress, Single, check_jobs, gather
from fusehash.encoders.reading import MAX_PIXELS, ImageError, open_image
from fusehash.errors import DataError
from fusehash.parameters import check_integer, resolve_seed, rng_for

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 224
MIN_SIDE = 16
FIT_IMAGES = 1000  # more do not change a vocabulary


class ImageEncoder(Encoder):
    """Base of the image encoders: opens each item, and tells of those that cannot be opened."""

    modality: ClassVar[str] = "image"

    max_pixels: int
    n_jobs: int | None

    def _check_params(self) -> None:
        check_integer(type(self).__name__, "max_pixels", self.max_pixels, low=1)
        check_jobs(type(self).__name__, self.n_jobs)

    def _encode(self, items: Sequence[Any]) -> Batch:
        rows, problems = self._each(items, self._features)
        return gather(rows, self.n_features_, problems)

    def _each(self, items: Sequence[Any], work: Callable[[Image], Any]) -> tuple[list[Any], dict[int, str]]:
        """work(image) for every item; None and a sentence for those that cannot be opened."""
        results, problems = [], {}
        for place, item in enumerate(items):
            try:
                results.append(work(open_image(item, max_pixels=self.max_pixels, side=self._decode_side)))
            except ImageError as error:  # noqa: PERF203  (decoding an image takes a thousand times longer)
                results.append(None)
                problems[place] = str(error)
            except MemoryError:
                results.append(None)
                problems[place] = "The image must fit into memory. It does not."
        return results, problems

    @property
    def _decode_side(self) -> int | None:
        """JPEG files may be decoded at a fraction of their size, neither side below this one."""
        return None

    @abstractmethod
    def _features(self, image: Image) -> Single:
        """The features of one image."""


class SiftEncoder(ImageEncoder):
    """Bag of visual words: how often each of `n_words` typical SIFT descriptors occurs. Rows sum to 1.

    The words are k-means centers of descriptors from up to 1,000 of the images; 128 of them are what the image view of
    the Wiki data set is made of. An image without any keypoint gets the same share for every word.

    Parameters
    ----------
    n_words : size of the vocabulary; fewer are learned where the images do not have as many different descriptors.
    n_keypoints : the strongest keypoints that are kept of each image.
    side : images are brought to this length of their longer side first.
    max_pixels : larger images are not decoded.
    random_state : seed.
    n_jobs : threads; None for all cores. The features do not depend on it.

    Attributes
    ----------
    words_ : (n_words, 128) float32, the vocabulary.
    """

    name: ClassVar[str] = "sift"
    summary: ClassVar[str] = "bag of SIFT visual words, as in the Wiki data set"

    words_: Single

    def __init__(
        self,
        *,
        n_words: int = 128,
        n_keypoints: int = 300,
        side: int = SIDE,
        max_pixels: int = MAX_PIXELS,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.n_words = n_words
        self.n_keypoints = n_keypoints
        self.side = side
        self.max_pixels = max_pixels
        self.random_state = random_state
        self.n_jobs = n_jobs

    def check_usable(self) -> None:
        """Needs OpenCV whatever the images are."""
        self._check_params()
        visual_words.sift_module()

    def _check_params(self) -> None:
        super()._check_params()
        owner = type(self).__name__
        check_integer(owner, "n_words", self.n_words, low=1)
        check_integer(owner, "n_keypoints", self.n_keypoints, low=1)
        check_integer(owner, "side", self.side, low=MIN_SIDE)

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        visual_words.sift_module()
        seed = resolve_seed(self.random_state)
        chosen = self._chosen(len(items), seed)
        self.problems_ = {}
        sampled: list[Single] = []
        picked = [items[place] for place in chosen]

        def work(some: Sequence[Any]) -> tuple[list[Any], dict[int, str]]:
            return self._each(some, lambda image: self._sample(image, seed))

        for start, (found, problems) in self._batches(work, picked, progress, "learning visual words"):
            sampled += [part for part in found if part is not None]
            self.problems_.update({int(chosen[start + place]): told for place, told in problems.items()})
        if not sampled:
            first = next(iter(self.problems_.values()), "There are none.")
            raise DataError(f"{type(self).__name__} needs at least one image that can be read. {first}")
        self.words_ = visual_words.learn_words(np.vstack(sampled), self.n_words, seed)
        self.n_features_ = self._width()

    def _chosen(self, n_items: int, seed: int) -> list[int]:
        """The images to learn from, in the order they came."""
        if n_items <= FIT_IMAGES:
            return list(range(n_items))
        return [int(place) for place in np.sort(rng_for(seed, "images").permutation(n_items)[:FIT_IMAGES])]

    def _sample(self, image: Image, seed: int) -> Single:
        small = self._working_size(image).convert("L")
        return visual_words.sample(visual_words.descriptors(small, self.n_keypoints), seed)

    def _width(self) -> int:
        if not len(self.words_):
            raise DataError(f"{type(self).__name__} needs images with structure. None of them has a SIFT keypoint.")
        return len(self.words_)

    def _check_state(self) -> None:
        if self.words_.ndim != 2 or self.words_.shape[1] != visual_words.WIDTH or self.n_features_ != self._width():
            raise ValueError("the vocabulary has another shape")

    @property
    def _decode_side(self) -> int:
        return 2 * self.side

    def _working_size(self, image: Image) -> Image:
        """The longer side as asked for, the shorter in proportion, but never too thin to look at."""
        from PIL.Image import Resampling

        scale = self.side / max(image.size)
        size = tuple(max(MIN_SIDE, round(length * scale)) for length in image.size)
        return image if size == image.size else image.resize(size, Resampling.BILINEAR, reducing_gap=3.0)

    def _features(self, image: Image) -> Single:
        return self._words(self._working_size(image).convert("L")).astype(np.float32)

    def _words(self, gray: Image) -> Any:
        return visual_words.histogram(visual_words.descriptors(gray, self.n_keypoints), self.words_)


class ClassicalEncoder(SiftEncoder):
    """Color, gradient and texture histograms and a bag of SIFT visual words, side by side.

    Each of the four blocks is a histogram h with sum 1 and stands as sqrt(h) / 2, so that every row has length 1 and
    Euclidean distance is the Hellinger distance of the histograms, all four weighing the same.

    Parameters
    ----------
    n_words : size of the vocabulary; fewer are learned where the images do not have as many different descriptors.
    n_keypoints : the strongest keypoints that are kept of each image.
    side : images are brought to this length of their longer side first.
    max_pixels : larger images are not decoded.
    random_state : seed.
    n_jobs : threads; None for all cores. The features do not depend on it.

    Attributes
    ----------
    words_ : (n_words, 128) float32, the vocabulary; empty, and its block left out, where no image has a keypoint.
    """

    name: ClassVar[str] = "classical"
    summary: ClassVar[str] = "color, gradient and texture histograms and SIFT visual words"

    def check_usable(self) -> None:
        """The parameters alone: the default is there also where nobody has images, nor OpenCV."""
        self._check_params()

    def __init__(
        self,
        *,
        n_words: int = 256,
        n_keypoints: int = 300,
        side: int = SIDE,
        max_pixels: int = MAX_PIXELS,
        random_state: Any = 0,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            n_words=n_words,
            n_keypoints=n_keypoints,
            side=side,
            max_pixels=max_pixels,
            random_state=random_state,
            n_jobs=n_jobs,
        )

    def _width(self) -> int:
        return histograms.N_COLOR + histograms.N_GRADIENT + histograms.N_TEXTURE + len(self.words_)

    def _features(self, image: Image) -> Single:
        small = self._working_size(image)
        gray = small.convert("L")
        blocks = [histograms.color(small), histograms.gradient(gray), histograms.texture(gray)]
        if len(self.words_):
            blocks.append(self._words(gray))
        return np.sqrt(np.concatenate(blocks) / len(blocks)).astype(np.float32)
