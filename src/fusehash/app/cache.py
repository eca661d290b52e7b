"""What routes need in addition to a collection: slow answers in memory, checks of uploads, a warm start."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from fusehash.app.errors import ApiError
from fusehash.app.guard import Limits
from fusehash.app.pools import Pool
from fusehash.collection import Collection, CollectionError
from fusehash.encoders.reading import (
    DECODING_BYTES,
    LIKE_WEBP,
    NAMES,
    WEBP_DECODING_BYTES,
    ImageError,
    decoded_pixels,
    known_formats,
)
from fusehash.errors import DataError, MissingPackageError


def check_image(data: bytes, limits: Limits) -> int:
    """Refuse an upload by its size and its header; returns how much memory its decoding takes at most."""
    from PIL import Image

    if len(data) > limits.upload_bytes:
        raise ApiError(413, "too_large", f"An image may have at most {limits.upload_bytes:,} bytes.")
    if not data:
        raise ImageError("The image must have content. It is empty.")
    try:
        with Image.open(BytesIO(data), formats=known_formats()) as image:
            pixels = decoded_pixels(image)
            per_pixel = WEBP_DECODING_BYTES if image.format in LIKE_WEBP else DECODING_BYTES
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        pixels, per_pixel = 2 * limits.upload_pixels, DECODING_BYTES
    except Exception:  # decoders of damaged files raise nearly anything
        raise ImageError(f"The image must be a file of the kind {NAMES}. It is something else.") from None
    if pixels > limits.upload_pixels:
        raise ImageError(f"The image must have at most {limits.upload_pixels:,} pixels. It claims to have more.")
    return pixels * per_pixel


@dataclass
class AnswerCache:
    """Keeps slow answers until the collection changes; one thread computes, other requests wait without one."""

    collection: Collection
    limits: Limits
    _answers: dict[str, tuple[int, float, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pool = Pool(1, self.limits.connections)

    async def get(self, compute: Callable[[], Any], seconds: float = math.inf) -> Any:
        """What `compute` returns, or has returned for this revision at most `seconds` ago."""
        return await self._pool.run(self._current, compute, seconds)

    def _current(self, compute: Callable[[], Any], seconds: float) -> Any:
        revision, now, name = self.collection.revision, time.monotonic(), compute.__name__
        cached_revision, made, answer = self._answers.get(name, (None, now, None))
        if cached_revision != revision or now - made > seconds:
            answer = compute()
            self._answers[name] = revision, now, answer
        return answer


def warm_up(collection: Collection) -> None:
    """Read model, encoders and words before the first visitor waits for them; raises if a file is damaged."""
    from PIL import Image

    for query in ({"text": "a"}, {"image": Image.new("RGB", (64, 64))}):
        with contextlib.suppress(DataError, CollectionError, MissingPackageError):
            collection.search(**query, k=1)
