"""Tiny encoders and an untuned model in place of the real ones: call `install()` before a collection is used.

The encoders keep the contract of fusehash.encoders: fit, transform with NaN and a sentence for what cannot be read,
save, load.
"""

from __future__ import annotations

import functools
import io
import json
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

import fusehash
from fusehash import encoders as real
from fusehash import hashers
from fusehash.encoders.reading import ImageError, known_formats
from fusehash.errors import DataError, ParameterError
from untuned import UNTUNED

COUNTS = {"fit": 0, "image": 0, "text": 0}  # how many items have been worked on


class Encoder:
    modality = ""
    problems_: dict[int, str]

    def __init__(self, name: str, **params: Any) -> None:
        self.name, self.params = name, params

    def check_usable(self) -> None:
        pass

    def fit(self, items: Any, y: Any = None, *, progress: Any = None) -> Encoder:
        items = list(items)
        COUNTS["fit"] += len(items)
        rows = self._rows(items)
        self.mean_ = np.nanmean(rows, axis=0).astype(np.float32)
        self.n_features_ = len(self.mean_)
        return self

    def transform(self, items: Any, progress: Any = None) -> Any:
        items = list(items)
        COUNTS[self.modality] += len(items)
        return (self._rows(items) - self.mean_).astype(np.float32)

    def encode(self, items: Any, progress: Any = None) -> Any:
        return self.transform(items), self.problems_

    def _rows(self, items: list[Any]) -> Any:
        self.problems_ = {}
        rows = []
        for i, item in enumerate(items):
            try:
                rows.append(self._row(item))
            except DataError as error:
                self.problems_[i] = str(error)
                rows.append(None)
        width = next((len(row) for row in rows if row is not None), 1)
        return np.array([np.full(width, np.nan) if row is None else row for row in rows], dtype=np.float32)

    def _row(self, item: Any) -> Any:
        raise NotImplementedError


class Pixels(Encoder):
    """An image as 4 x 4 colored pixels."""

    modality = "image"

    def _row(self, item: Any) -> Any:
        image = open_image(item).resize((4, 4))
        return np.asarray(image, dtype=np.float32).ravel() / 255


class Words(Encoder):
    """A text as counts of hashed words."""

    modality = "text"

    def _row(self, item: Any) -> Any:
        row = np.zeros(32, dtype=np.float32)
        for word in item.lower().split():
            row[zlib.crc32(word.encode()) % 32] += 1
        return row


def make(name: str, *, modality: str | None = None, **params: Any) -> Encoder:
    classes = {"classical": Pixels, "tfidf": Words}
    if name not in classes or modality not in (None, classes[name].modality):
        raise ParameterError("encoders", "name", "classical or tfidf", name)
    return classes[name](name, **params)


def default(modality: str) -> str:
    return {"image": "classical", "text": "tfidf"}[modality]


def parse(text: str, modality: str) -> tuple[str, dict[str, Any]]:
    return (default(modality), {}) if text == "auto" else real.parse(text, modality)


def advice() -> str:
    return ""


def save(encoder: Encoder, path: Any) -> None:
    from fusehash.files import write_atomically

    content = json.dumps({"name": encoder.name, "params": encoder.params, "mean": encoder.mean_.tolist()}).encode()
    write_atomically(Path(path), lambda file: file.write(content))


def load(path: Any) -> Encoder:
    try:
        content = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is no encoder.") from error
    encoder = make(content["name"], **content["params"])
    encoder.mean_ = np.array(content["mean"], dtype=np.float32)
    encoder.n_features_ = len(encoder.mean_)
    encoder.problems_ = {}
    return encoder


def open_image(source: Any, *, max_pixels: int = 0, side: int | None = None) -> Any:
    try:
        if isinstance(source, Image.Image):
            return source.convert("RGB")
        return Image.open(io.BytesIO(source) if isinstance(source, bytes) else source).convert("RGB")
    except (OSError, SyntaxError) as error:
        raise ImageError("the image cannot be read.") from error


def thumbnail(image: Any, side: int = 256) -> bytes:
    small, file = image.copy(), io.BytesIO()
    small.thumbnail((side, side))
    small.save(file, "JPEG")
    return file.getvalue()


def install() -> None:
    """Replace fusehash.encoders, and the tuning of the model, in this process."""
    package, reading = ModuleType("fusehash.encoders"), ModuleType("fusehash.encoders.reading")
    for function in (make, save, load, default, parse, advice):
        setattr(package, function.__name__, function)
    for member in (open_image, thumbnail, known_formats, ImageError):
        setattr(reading, member.__name__, member)
    package.reading = reading  # type: ignore[attr-defined]
    sys.modules["fusehash.encoders"], sys.modules["fusehash.encoders.reading"] = package, reading
    fusehash.encoders = package  # type: ignore[attr-defined]
    hashers.make = functools.partial(_make_untuned, hashers.make)  # type: ignore[assignment]


def _make_untuned(make_hasher: Any, name: str, **params: Any) -> Any:
    fixed = {key: value for key, value in UNTUNED.items() if key != "view_weights"}  # some collections have one view
    return make_hasher(name, **fixed, **params)
