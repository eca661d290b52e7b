"""Models of the package sentence-transformers: texts, and images where a model has both towers (clip-ViT-B-32)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fusehash.encoders.base import PretrainedEncoder, Single, unit_rows
from fusehash.encoders.downloads import loading_models
from fusehash.encoders.images import ImageEncoder
from fusehash.encoders.reading import MAX_PIXELS
from fusehash.encoders.texts import TextEncoder
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.parameters import Rule, optional, string

if TYPE_CHECKING:
    from PIL.Image import Image


class SentenceEncoder(PretrainedEncoder):
    """What the encoders of both modalities share."""

    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "model": Rule("the name of a model or the path of its folder", lambda v: isinstance(v, str | Path) and v != ""),
        "device": optional(string()),
    }

    model: Any
    device: str | None
    batch_size: int

    def _load(self) -> Any:
        package = require("sentence_transformers", f"The encoder {self.name!r}")
        name = str(Path(self.model).resolve()) if Path(self.model).is_dir() else str(self.model)
        try:
            with loading_models():
                return _create(package.SentenceTransformer, name, self.device)
        except Exception as error:  # downloads, damaged files and unknown names raise different classes
            reason = " ".join(str(error).split())[:200].rstrip(".")
            rule = f"The model {str(self.model)!r} must be on this machine or be possible to download."
            raise DataError(f"{rule} It is not: {reason}.") from error

    def _rows(self, contents: list[Any]) -> Single:
        given = [each.encode("utf-8", "replace").decode() if isinstance(each, str) else each for each in contents]
        model = self._loaded()  # its DataError is a ValueError, and has its own sentence
        try:
            rows = model.encode(given, batch_size=self.batch_size, show_progress_bar=False)
        except (TypeError, ValueError, AttributeError) as error:  # a model of texts that gets images
            raise DataError(f"The model {str(self.model)!r} must encode {self.modality}s. It does not.") from error
        return unit_rows(np.asarray(rows, dtype=np.float32))

    def _n_threads(self) -> int:
        return 1  # the model itself uses all cores


class SentenceImageEncoder(SentenceEncoder, ImageEncoder):
    """The image tower of a model of sentence-transformers.

    Parameters
    ----------
    model : str or Path, default="clip-ViT-B-32"
        A name that the package can download, or a local folder.
    device : str or None, default=None
        "cpu", "cuda", ...; None for a GPU if there is one.
    batch_size : int, default=16
        Images per batch.
    max_pixels : int, default=64_000_000
        Larger images are not decoded.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("sentence-transformers", modality="image", device="cpu")
    SentenceImageEncoder(device='cpu')
    """

    name: ClassVar[str] = "sentence-transformers"

    def __init__(
        self, *, model: Any = "clip-ViT-B-32", device: str | None = None, batch_size: int = 16,
        max_pixels: int = MAX_PIXELS,
    ) -> None:  # fmt: skip
        self.model, self.device, self.batch_size, self.max_pixels = model, device, batch_size, max_pixels

    def _features(self, image: Image) -> Any:
        return image


class SentenceTextEncoder(SentenceEncoder, TextEncoder):
    """A text model of sentence-transformers, or the text tower of one with both.

    Parameters
    ----------
    model, device
        As in `SentenceImageEncoder`; give both encoders of a collection the same model to search without captions.
    batch_size : int, default=64
        Texts per batch.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoders.make("sentence-transformers", modality="text", device="cpu")
    SentenceTextEncoder(device='cpu')
    """

    name: ClassVar[str] = "sentence-transformers"

    def __init__(self, *, model: Any = "clip-ViT-B-32", device: str | None = None, batch_size: int = 64) -> None:
        self.model, self.device, self.batch_size = model, device, batch_size


@lru_cache(maxsize=2)
def _create(cls: Any, name: str, device: str | None) -> Any:
    """The image and the text encoder of a collection share one model."""
    return cls(name, device=device)
