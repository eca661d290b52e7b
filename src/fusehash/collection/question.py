"""What a search asks: its parts, checked, and the token that stands for its images in a later search."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.collection.items import Entry, UnreadableError
from fusehash.collection.queries.filters import Filters
from fusehash.errors import DataError
from fusehash.views import Floats

MAX_PARTS = 16  # images, and items to be like or unlike
TOKEN = struct.Struct("<BQ16s")  # version, generation, hash of the image; then the vector in half precision
NO_HASH = bytes(16)


@dataclass(frozen=True)
class Question:
    """A search, as `Collection.search` takes it."""

    text: str | None = None
    images: tuple[Any, ...] = ()
    like: tuple[int, ...] = ()
    unlike: tuple[int, ...] = ()
    code: bytes | None = None
    picture: bytes | None = None
    filters: Filters = field(default_factory=Filters)
    k: int = 20
    offset: int = 0
    rerank: bool = True
    min_confidence: float = 0.0
    generation: int | None = None

    def check(self) -> None:
        """Raise unless there is something to search for."""
        parts = (self.text, self.code, self.picture)
        if all(part is None for part in parts) and not (self.images or self.like or self.unlike):
            raise DataError("A search needs a text, an image, an item or a code. Got none.")
        if self.code is not None and (self.text is not None or self.images or self.like or self.unlike):
            raise DataError("A code is a whole query. Got a text, an image or an item too.")
        if len(self.images) > MAX_PARTS or len(self.like) + len(self.unlike) > MAX_PARTS:
            raise DataError(f"A search takes at most {MAX_PARTS} images and {MAX_PARTS} items.")
        if self.text is not None and not (isinstance(self.text, str) and self.text.strip()):
            raise DataError("A text to search for must have at least one word. Got none.")


def pack_pictures(vectors: Sequence[Floats], content: bytes, generation: int, n_bits: int) -> bytes:
    """The token that stands for images in a later search; `content` is the hash of the only one."""
    if not vectors:
        return b""
    vector = sum(map(unit, vectors), np.zeros(n_bits))
    vector = vector / max(float(np.abs(vector).max()), 1e-300)
    vector = np.where(np.abs(vector) < 1e-4, np.copysign(1e-4, vector), vector)  # half precision keeps the sign
    return TOKEN.pack(1, generation, content) + vector.astype("<f2").tobytes()


def unpack_pictures(token: bytes, n_bits: int) -> tuple[bytes | None, Floats, int]:
    """The hash, the vector and the generation of a token."""
    if not isinstance(token, bytes) or len(token) != TOKEN.size + 2 * n_bits or token[0] != 1:
        raise DataError("A picture must be what `Hits.picture` of this collection holds. Got something else.")
    _, generation, content = TOKEN.unpack_from(token)
    vector = np.frombuffer(token, "<f2", offset=TOKEN.size).astype(np.float64)
    if not np.isfinite(vector).all():
        raise DataError("A picture must be made of finite numbers. Got others.")
    return (None if content == NO_HASH else content), vector, generation


def content_of(image: Any) -> bytes | None:
    """The content of an image file; None for an image in memory, and if it cannot be read."""
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    if isinstance(image, str | Path):
        try:
            return Entry("", path=Path(image)).read()
        except UnreadableError:
            return None
    return None


def unit(vector: Floats) -> Floats:
    return vector / max(float(np.linalg.norm(vector)), 1e-300)
