"""What routes need in addition to a collection: slow answers in memory, checks of uploads, a warm start."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from fusehash.app.errors import ApiError
from fusehash.app.guard import Limits
from fusehash.collection import Collection, CollectionError
from fusehash.encoders.reading import FORMATS, ImageError
from fusehash.errors import DataError, MissingPackageError


def check_image(data: bytes, limits: Limits) -> None:
    """Refuse an upload by its size and its header, before anything is decoded."""
    from PIL import Image

    if len(data) > limits.upload_bytes:
        raise ApiError(413, "too_large", f"An image may have at most {limits.upload_bytes:,} bytes.")
    if not data:
        raise ImageError("The image must have content. It is empty.")
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        width = height = limits.upload_pixels
    except Exception:  # decoders of damaged files raise nearly anything
        raise ImageError("The image must be a JPEG, PNG, GIF, WEBP, BMP or TIFF file. It is something else.") from None
    if width * height > limits.upload_pixels:
        raise ImageError(f"The image must have at most {limits.upload_pixels:,} pixels. It claims to have more.")


@dataclass
class AnswerCache:
    """Keeps slow answers until the collection changes; one thread computes, the others wait for it."""

    collection: Collection
    _answers: dict[str, tuple[int, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, name: str, compute: Callable[[], Any]) -> Any:
        with self._lock:
            revision = self.collection.revision
            if name not in self._answers or self._answers[name][0] != revision:
                self._answers[name] = (revision, compute())
            return self._answers[name][1]


def warm_up(collection: Collection) -> None:
    """Read model, encoders and words before the first visitor waits for them; raises if a file is damaged."""
    from PIL import Image

    for query in ({"text": "a"}, {"image": Image.new("RGB", (64, 64))}):
        with contextlib.suppress(DataError, CollectionError, MissingPackageError):
            collection.search(**query, k=1)
