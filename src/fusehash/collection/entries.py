"""An item on its way into a collection: what is known of it, and whether it differs from what is stored."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fusehash.datasets.folders import NewItem, content_hash
from fusehash.errors import DataError

MAX_IMAGE_BYTES = 1 << 28
# A file that was written less than this before it was read may be written again without its time changing.
_SETTLED_NS = 2_000_000_000


class UnreadableError(Exception):
    """An image cannot be read; the sentence goes into the report."""


@dataclass
class Entry:
    """An item, stored or about to be."""

    key: str
    text: str | None = None
    labels: tuple[str, ...] = ()
    path: Path | None = None  # where its image lies
    data: bytes | None = None  # or what it is
    image: bytes | None = None  # hash of the image's content; None before it was read, and where there is none
    width: int = 0
    height: int = 0
    size: int = 0  # of the file when it was read, and its time of change; 0: not to be trusted
    mtime: int = 0
    id: int | None = None
    built: bool = False  # came by build(), and goes when a later build() no longer names it
    trained: bool = False  # the model in force has seen it
    problem: str | None = None  # why its image cannot be used
    stored: bool = False  # as it is in the collection: nothing to be read again

    @property
    def wants_image(self) -> bool:
        """Has an image that was not found to be broken."""
        return self.problem is None and (self.image is not None or self.path is not None or self.data is not None)

    @property
    def text_content(self) -> bytes | None:
        """Hash of the text."""
        return None if self.text is None else content_hash(self.text.encode())

    def read(self) -> bytes:
        """The content of the image as it is now; notes its hash, size and time."""
        data = self.data
        if data is None:
            if self.path is None:
                raise UnreadableError("there is no image file to read.")
            try:
                seen = self.path.stat()
                if not stat.S_ISREG(seen.st_mode):  # a pipe or a device could block for ever
                    raise UnreadableError("the image must be a file. It is a folder, a pipe or a device.")
                if seen.st_size > MAX_IMAGE_BYTES:
                    raise UnreadableError(f"the image file has {seen.st_size:,} bytes, more than {MAX_IMAGE_BYTES:,}.")
                data = self.path.read_bytes()
            except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
                reason = error.strerror if isinstance(error, OSError) else error
                raise UnreadableError(f"the image file cannot be read: {reason}.") from error
            settled = time.time_ns() - seen.st_mtime_ns > _SETTLED_NS
            self.size, self.mtime = (seen.st_size, seen.st_mtime_ns) if settled else (0, 0)
        self.image = content_hash(data)
        return data

    def is_same_file(self, stored: Entry) -> bool:
        """Size and time say that the image is the one that was stored; saves reading it."""
        if self.path is None or not stored.mtime:
            return False
        try:
            seen = self.path.stat()
        except OSError:
            return False
        return (seen.st_size, seen.st_mtime_ns) == (stored.size, stored.mtime)


def checked(items: Iterable[NewItem], skipped: dict[str, str], *, partial: bool = False) -> list[Entry]:
    """Entries of new items; a key that comes twice is an error, an item with nothing in it is skipped.

    ``partial``: they may lack an image and a text, which then stay as they are stored.
    """
    entries: dict[str, Entry] = {}
    for item in items:
        if not isinstance(item, NewItem):
            raise DataError(f"Items must be of the type NewItem. Got {type(item).__name__} instead.")
        if not isinstance(item.key, str) or not item.key.strip():
            raise DataError(f"The key of an item must be a non-empty string. Got {item.key!r} instead.")
        key = storable(item.key, "backslashreplace")  # names that differ stay different
        if key in entries:
            raise DataError(f"The keys of items must differ from each other. Got {key!r} more than once.")
        if item.text is not None and not isinstance(item.text, str):
            raise DataError(f"The text of {item.key!r} must be a string. Got {type(item.text).__name__} instead.")
        if isinstance(item.labels, str) or not isinstance(item.labels, Iterable):
            raise DataError(f"The labels of {item.key!r} must be several strings. Got {item.labels!r} instead.")
        text = storable(item.text or "").strip() or None
        labels = tuple(dict.fromkeys(storable(str(label)).strip() for label in item.labels if str(label).strip()))
        entry = Entry(key, text, labels)
        if isinstance(item.image, bytes | bytearray):
            entry.data = bytes(item.image)
        elif isinstance(item.image, str | Path):
            entry.path = Path(item.image).absolute()
        elif item.image is not None:
            raise DataError(
                f"The image of {item.key!r} must be a path or bytes. Got {type(item.image).__name__} instead."
            )
        if entry.text is None and item.image is None and not partial:
            skipped[key] = "it has neither an image nor a text."
            continue
        entries[key] = entry
    return list(entries.values())


def storable(text: str, how: str = "replace") -> str:
    """Text without halves of characters, which no UTF-8 database can hold (file names may have them)."""
    return text.encode("utf-8", how).decode()
