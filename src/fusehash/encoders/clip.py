"""CLIP and SigLIP: pretrained encoders whose image and text features can be compared, through open_clip.

open_clip, because it loads both towers of CLIP, SigLIP and their kin alike, by name, from a checkpoint file or from a
local folder, with the preprocessing and the tokenizer that belong to them; sentence-transformers knows only a few CLIP
models and brings the whole of transformers along.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from fusehash.encoders.base import Batch, Encoder, Progress, Single, check_jobs
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.pixels import unit_rows
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.errors import DataError, ParameterError
from fusehash.parameters import check_integer

if TYPE_CHECKING:
    from PIL.Image import Image

MODEL, WEIGHTS = "ViT-B-32", "laion2b_s34b_b79k"


class Loaded(NamedTuple):
    """A model with its preprocessing, its tokenizer and where it runs."""

    model: Any
    preprocess: Any
    tokenizer: Any
    device: str


# The image and the text encoder of a collection are one model: it is held once. The last two are kept.
_LOADED: dict[tuple[str, str | None, str], Loaded] = {}
_KEPT = 2
_LOCK = threading.Lock()


class ClipEncoder(Encoder):
    """What the image and the text tower share."""

    model: Any
    pretrained: str | None
    device: str | None
    batch_size: int

    def _check_params(self) -> None:
        owner = type(self).__name__
        if not isinstance(self.model, str | Path) or not str(self.model):
            raise ParameterError(owner, "model", "the name of a model or the path of its folder", self.model)
        check_integer(owner, "batch_size", self.batch_size, low=1)

    def check_usable(self) -> None:
        """As nothing is learned, to fit is to load the model and to try it."""
        self.fit([])

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        """Nothing is learned: the model is loaded and tried."""
        self.__dict__.pop("_runtime", None)
        self.problems_ = {}
        progress(0, 1, "loading the model")
        self.n_features_ = int(self._blank().shape[1])
        progress(1, 1, "done")

    @abstractmethod
    def _blank(self) -> Single:
        """The features of nothing, to see how many there are."""

    def _ready(self) -> None:
        self._clip()

    def _batch_rows(self) -> int:
        return self.batch_size

    def _clip(self) -> Loaded:
        if not hasattr(self, "_runtime"):
            self._runtime = load(self.model, self.pretrained, self.device)
        return self._runtime

    def _run(self, tower: str, inputs: Any) -> Single:
        """One tower on a batch that is always of the same size, rows scaled to length 1."""
        import torch

        clip, count = self._clip(), len(inputs)
        padded = torch.cat([inputs, inputs[:1].expand(self.batch_size - count, *inputs.shape[1:])])
        with torch.inference_mode():
            found = getattr(clip.model, tower)(padded.to(clip.device))
        return unit_rows(found[:count].float().cpu().numpy())


class ClipImageEncoder(ClipEncoder, ImageEncoder):
    """The image tower of a CLIP or SigLIP model.

    Parameters
    ----------
    model : a name that open_clip knows ("ViT-B-32", "ViT-B-16-SigLIP"), "hf-hub:owner/name", or a local folder with
        open_clip_config.json and weights.
    pretrained : a tag that open_clip knows for the model, or a checkpoint file; not used for hf-hub and folders.
    device : "cpu", "cuda", ...; None for a GPU where there is one.
    batch_size : images at once.
    max_pixels : larger images are not decoded.
    n_jobs : threads that prepare batches; None for one, as the model itself uses all cores.
    """

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "pretrained CLIP or SigLIP, image tower"

    def __init__(
        self,
        *,
        model: Any = MODEL,
        pretrained: str | None = WEIGHTS,
        device: str | None = None,
        batch_size: int = 16,
        max_pixels: int = MAX_PIXELS,
        n_jobs: int | None = None,
    ) -> None:
        self.model = model
        self.pretrained = pretrained
        self.device = device
        self.batch_size = batch_size
        self.max_pixels = max_pixels
        self.n_jobs = n_jobs

    def _check_params(self) -> None:
        ClipEncoder._check_params(self)
        ImageEncoder._check_params(self)
        check_jobs(type(self).__name__, self.n_jobs)

    def _n_threads(self) -> int:
        return self.n_jobs or 1

    def _blank(self) -> Single:
        import PIL.Image

        return self._run("encode_image", self._clip().preprocess(PIL.Image.new("RGB", (32, 32)))[None])

    def _encode(self, items: Sequence[Any]) -> Batch:
        import torch

        opened, problems = self._each(items, self._features)
        rows = np.full((len(items), self.n_features_), np.nan, dtype=np.float32)
        good = [place for place, pixels in enumerate(opened) if pixels is not None]
        if good:
            rows[good] = self._run("encode_image", torch.stack([opened[place] for place in good]))
        return rows, problems

    def _features(self, image: Image) -> Any:
        return self._clip().preprocess(image)


class ClipTextEncoder(ClipEncoder, TextEncoder):
    """The text tower of a CLIP or SigLIP model.

    Parameters
    ----------
    model : a name that open_clip knows ("ViT-B-32", "ViT-B-16-SigLIP"), "hf-hub:owner/name", or a local folder with
        open_clip_config.json and weights.
    pretrained : a tag that open_clip knows for the model, or a checkpoint file; not used for hf-hub and folders.
    device : "cpu", "cuda", ...; None for a GPU where there is one.
    batch_size : texts at once.
    """

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "pretrained CLIP or SigLIP, text tower"

    def __init__(
        self, *, model: Any = MODEL, pretrained: str | None = WEIGHTS, device: str | None = None, batch_size: int = 64
    ) -> None:
        self.model = model
        self.pretrained = pretrained
        self.device = device
        self.batch_size = batch_size

    def _blank(self) -> Single:
        return self._features(["a"])

    def _features(self, texts: list[str]) -> Single:
        plain = [text.encode("utf-8", "replace").decode() for text in texts]
        return self._run("encode_text", self._clip().tokenizer(plain))


def load(model: Any, pretrained: str | None, device: str | None) -> Loaded:
    """The model, from memory where it has been loaded before."""
    try:
        import open_clip
        import torch
    except ImportError as error:
        raise DataError(
            "The 'clip' encoders need the package open_clip_torch; pip install 'fusehash[clip]' brings it."
        ) from error
    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    name = str(model)
    if Path(name).is_dir():
        name = f"local-dir:{Path(name).resolve()}"
    from_name = ":" not in name
    if from_name and name not in open_clip.list_models():
        raise ParameterError("clip", "model", "a model that open_clip knows, or the path of a local folder", str(model))
    if from_name and not pretrained:
        raise ParameterError("clip", "pretrained", "a tag or a checkpoint file for a model given by name", pretrained)
    weights = pretrained if from_name else None
    key = (name, weights, where)
    with _LOCK:
        if key not in _LOADED:
            try:
                # Without weights open_clip would go on with random ones; that must be an error.
                net, preprocess = open_clip.create_model_from_pretrained(name, pretrained=weights, device=where)
                tokenizer = open_clip.get_tokenizer(name)
            except Exception as error:  # downloads, damaged files and unknown tags each raise their own
                reason = " ".join(str(error).split())[:200].rstrip(".")
                told = str(model) if weights is None else f"{model} with weights {weights!r}"
                raise DataError(
                    f"The CLIP model {told} must be on this machine or be possible to download. It is not: {reason}."
                ) from error
            while len(_LOADED) >= _KEPT:
                _LOADED.pop(next(iter(_LOADED)))
            _LOADED[key] = Loaded(net.eval(), preprocess, tokenizer, where)
        return _LOADED[key]
