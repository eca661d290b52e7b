"""Original pictures: opened where they were read from, if their content is still the one that was indexed.

A collection may come from a stranger and name any file of this machine. A file is used only if it has the hash that the
collection holds: nobody can name the hash of a file that they do not have.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fusehash import trust
from fusehash.collection.items import MAX_BYTES, CollectionError
from fusehash.errors import FusehashError
from fusehash.extras import require
from fusehash.forks import new_lock

VERIFIED = 10_000  # files that are remembered to have the right content
PART = 1 << 20
MAX_EXIF = 200  # characters of a value
EXIF_TAGS = {  # without the place
    0x010F: "Camera maker",
    0x0110: "Camera",
    0xA434: "Lens",
    0x9003: "Taken",
    0x829A: "Exposure time (s)",
    0x829D: "Aperture (f/)",
    0x8827: "ISO",
    0x920A: "Focal length (mm)",
    0x013B: "Artist",
    0x8298: "Copyright",
    0x0131: "Software",
}
EXIF_FOLDER = 0x8769  # the tag that leads to the others


@dataclass(frozen=True)
class Original:
    """An open picture file whose content is the one that was indexed."""

    file: BinaryIO
    size: int
    content: bytes  # its hash
    media_type: str


class Originals:
    """Opens originals, and remembers which files have been compared with their hashes."""

    def __init__(self) -> None:
        self._verified: OrderedDict[tuple[int, int, int, int, bytes], str] = OrderedDict()
        self._lock = new_lock()

    def open(self, path: Path | None, content: bytes | None) -> Original | None:
        """The file at a path; None if it is gone, is no picture, or has another content."""
        if path is None or content is None:
            return None
        try:
            file = trust.open_file(path, f"The picture {path}", CollectionError)
        except FusehashError:
            return None
        try:
            status = os.fstat(file.fileno())
            known = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, content)
            media_type = self._verified.get(known)
            if media_type is None:
                media_type = _media_type(file) if status.st_size <= MAX_BYTES and _has(file, content) else ""
            if not media_type:
                file.close()
                return None
            with self._lock:
                self._verified[known] = media_type
                while len(self._verified) > VERIFIED:
                    self._verified.popitem(last=False)
            file.seek(0)
        except (OSError, ValueError):
            file.close()
            return None
        return Original(file, status.st_size, content, media_type)


def exif_of(original: Original) -> dict[str, str]:
    """What the camera wrote into a picture, without the place; nothing if it is damaged."""
    from fusehash.encoders import reading

    image_module = require("PIL.Image", "Reading pictures")
    values: dict[str, str] = {}
    with suppress(Exception):  # decoders of damaged files raise nearly anything
        original.file.seek(0)
        with image_module.open(original.file, formats=reading.known_formats()) as image:
            tags = image.getexif()
            every = {**dict(tags), **dict(tags.get_ifd(EXIF_FOLDER))}
        for tag, name in EXIF_TAGS.items():
            if (value := every.get(tag)) is not None:
                values[name] = _as_text(value)
    return {name: value for name, value in values.items() if value}


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float) or type(value).__name__ == "IFDRational":
        value = f"{float(value):.6g}"  # type: ignore[arg-type]
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return " ".join(text.encode("utf-8", "replace").decode().split())[:MAX_EXIF]


def _has(file: BinaryIO, content: bytes) -> bool:
    digest = hashlib.blake2b(digest_size=16)  # as content_hash
    while part := file.read(PART):
        digest.update(part)
    return digest.digest() == content


def _media_type(file: BinaryIO) -> str:
    """The type of a picture by its content, "" if it is none."""
    from fusehash.encoders import reading

    image_module = require("PIL.Image", "Reading pictures")
    file.seek(0)
    try:
        with image_module.open(file, formats=reading.known_formats()) as image:
            return str(image_module.MIME.get("JPEG" if image.format == "MPO" else image.format, ""))
    except Exception:  # decoders of damaged files raise nearly anything
        return ""
