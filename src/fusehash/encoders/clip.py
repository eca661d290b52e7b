"""CLIP and SigLIP: pretrained encoders whose image and text features can be compared, through open_clip."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fusehash.encoders.base import PretrainedEncoder, Single, unit_rows
from fusehash.encoders.downloads import loading_models
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.errors import DataError, ParameterError
from fusehash.extras import require
from fusehash.parameters import Rule, optional, string

if TYPE_CHECKING:
    from PIL.Image import Image

MODEL, WEIGHTS = "ViT-B-32", "laion2b_s34b_b79k"


class Loaded(NamedTuple):
    """A model with its preprocessing, its tokenizer and its device."""

    model: Any
    preprocess: Any
    tokenizer: Any
    device: str


class ClipEncoder(PretrainedEncoder):
    """What the image and the text tower share."""

    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "model": Rule("the name of a model or the path of its folder", lambda v: isinstance(v, str | Path) and v != ""),
        "pretrained": Rule("None, a tag or the path of a checkpoint", lambda v: v is None or isinstance(v, str | Path)),
        "device": optional(string()),
    }

    model: Any
    pretrained: str | None
    device: str | None
    batch_size: int

    def _load(self) -> Loaded:
        return load(self.model, self.pretrained, self.device)

    def _run(self, tower: str, inputs: Any) -> Single:
        """One tower on a batch, padded to a fixed size; rows scaled to length 1."""
        import torch

        clip, count = self._loaded(), len(inputs)
        padded = torch.cat([inputs, inputs[:1].expand(self.batch_size - count, *inputs.shape[1:])])
        with torch.inference_mode():
            rows = getattr(clip.model, tower)(padded.to(clip.device))
        return unit_rows(rows[:count].float().cpu().numpy())


class ClipImageEncoder(ClipEncoder, ImageEncoder):
    """The image tower of a CLIP or SigLIP model.

    Parameters
    ----------
    model : str or Path, default="ViT-B-32"
        A name that open_clip knows, "hf-hub:owner/name", or a local folder with open_clip_config.json and weights.
    pretrained : str or None, default="laion2b_s34b_b79k"
        A tag that open_clip knows for the model, or a checkpoint file; not used for hf-hub and folders.
    device : str or None, default=None
        "cpu", "cuda", ...; None for a GPU if there is one.
    batch_size : int, default=16
        Images per batch.
    max_pixels : int, default=64_000_000
        Larger images are not decoded.
    n_jobs : int or None, default=None
        Threads that prepare batches; None for one, as the model itself uses all cores.

    References
    ----------
    Radford et al., Learning transferable visual models from natural language supervision, ICML 2021.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("clip", modality="image", device="cpu")
    ClipImageEncoder(device='cpu')
    """

    name: ClassVar[str] = "clip"

    def __init__(
        self, *, model: Any = MODEL, pretrained: str | None = WEIGHTS, device: str | None = None, batch_size: int = 16,
        max_pixels: int = MAX_PIXELS, n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.model, self.pretrained, self.device, self.batch_size = model, pretrained, device, batch_size
        self.max_pixels, self.n_jobs = max_pixels, n_jobs

    def _n_threads(self) -> int:
        return self.n_jobs or 1

    def _features(self, image: Image) -> Any:
        return self._loaded().preprocess(image)

    def _rows(self, contents: list[Any]) -> Single:
        import torch

        return self._run("encode_image", torch.stack(contents))


class ClipTextEncoder(ClipEncoder, TextEncoder):
    """The text tower of a CLIP or SigLIP model.

    Parameters
    ----------
    model, pretrained, device
        As in `ClipImageEncoder`; give both encoders of a collection the same model.
    batch_size : int, default=64
        Texts per batch.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("clip", modality="text", device="cpu")
    ClipTextEncoder(device='cpu')
    """

    name: ClassVar[str] = "clip"

    def __init__(
        self, *, model: Any = MODEL, pretrained: str | None = WEIGHTS, device: str | None = None, batch_size: int = 64
    ) -> None:
        self.model, self.pretrained, self.device, self.batch_size = model, pretrained, device, batch_size

    def _rows(self, contents: list[str]) -> Single:
        plain = [text.encode("utf-8", "replace").decode() for text in contents]
        return self._run("encode_text", self._loaded().tokenizer(plain))


def load(model: Any, pretrained: str | None, device: str | None) -> Loaded:
    """Load a model, or return it if it is still in memory."""
    open_clip, torch = (require(package, "The encoder 'clip'") for package in ("open_clip", "torch"))
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
    try:
        with loading_models():
            return _create(name, weights, where)
    except Exception as error:  # downloads, damaged files and unknown tags raise different classes
        reason = " ".join(str(error).split())[:200].rstrip(".")
        title = str(model) if weights is None else f"{model} with weights {weights!r}"
        raise DataError(
            f"The CLIP model {title} must be on this machine or be possible to download. It is not: {reason}."
        ) from error


@lru_cache(maxsize=2)
def _create(name: str, weights: str | None, device: str) -> Loaded:
    """The image and the text encoder of a collection share one model."""
    import open_clip

    # create_model would accept missing weights and return random ones; this raises.
    model, preprocess = open_clip.create_model_from_pretrained(name, pretrained=weights, device=device)
    return Loaded(model.eval(), preprocess, open_clip.get_tokenizer(name), device)
