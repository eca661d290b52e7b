"""What goes into a collection and what comes out of it.

`NewItem` (from datasets.folders) is what callers give, `Entry` is the same item while it is compared and written,
`Item` is what readers see, and `Hit` is an `Item` with its place in a result.
"""

from __future__ import annotations

import contextlib
import stat
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fusehash.collection.dates import day_taken
from fusehash.datasets.folders import NewItem, content_hash
from fusehash.errors import DataError, FusehashError

MAX_BYTES = 1 << 28  # of an image file
# A file that changed less than this before it was read may change again without another modification time.
_SETTLED_NS = 2_000_000_000


class CollectionError(FusehashError, OSError):
    """A collection cannot be reached or written now; its content is unharmed."""


class CorruptCollectionError(FusehashError):
    """A folder is not an intact fusehash collection."""


class UnreadableError(Exception):
    """An image cannot be read; the message goes into the report."""


@dataclass(frozen=True)
class Item:
    """An item of a collection. An id is never used again; width and height are in pixels, 0 without an image.

    `path` is where the image was read from, and `day` its date as YYYY-MM-DD: when its picture was taken or, if
    the file does not say so, when the file was last changed. None and "" if they are not known.
    """

    id: int
    key: str
    text: str | None
    labels: tuple[str, ...]
    has_image: bool
    width: int
    height: int
    path: Path | None = None
    day: str = ""


@dataclass(frozen=True)
class Hit:
    """One result of a search.

    Attributes
    ----------
    id, item, code : int, Item, bytes
        The item, its id and its packed code.
    distance, score : int, float
        Number of bits in which its code differs from that of the query; from -1 to 1, higher is better (searching.py).
    confidence : float or None
        In a search by words: how likely somebody who describes this item uses a word of the query, by its picture and
        its caption (queries/calibration.py); None if the collection has too few captioned pictures to tell.
    matched : tuple of str
        The words of its caption that the query asks for, as the caption spells them.
    same_image : bool
        Whether its image is, byte by byte, the one that was searched with.
    """

    id: int
    distance: int
    score: float
    item: Item
    code: bytes
    confidence: float | None = None
    matched: tuple[str, ...] = ()
    same_image: bool = False


class Hits(list[Hit]):
    """The results of a search, best first.

    Attributes
    ----------
    code, generation : bytes, int
        The packed code of the query, empty if it only filters; the generation that made all these codes.
    total : int
        Number of items that the filters of the query leave.
    matching : int or None
        Of these, the number whose captions have all words of the query; None in a search without words.
    missing, note : list of str, str
        Words of the query that no caption has; one sentence for people about what that means, or nothing.
    picture : bytes
        What stands for the images of the query in a later search, as `search(picture=...)`.
    """

    code: bytes = b""
    generation: int = 0
    total: int = 0
    matching: int | None = None
    note: str = ""
    picture: bytes = b""

    def __init__(self, hits: Iterable[Hit] = ()) -> None:
        super().__init__(hits)
        self.missing: list[str] = []


@dataclass
class Report:
    """What a call that writes has done.

    Attributes
    ----------
    added, changed, removed, unchanged : int
        Number of items.
    trained, seconds : bool, float
        Whether a model was trained, and how long the call took.
    skipped, notes : dict of str to str; list of str
        Key -> why the item or its image cannot be used (with a text, it is kept); remarks about the whole collection.
    ids, generation : list of int; int or None
        Ids of the items that were added or changed; the generation that was built or switched to.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    trained: bool = False
    seconds: float = 0.0
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    generation: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


@dataclass
class Entry:
    """An item while it is compared, encoded and written."""

    key: str
    text: str | None = None
    labels: tuple[str, ...] = ()
    path: Path | None = None  # the image file
    data: bytes | None = None  # or the content of the image
    image: bytes | None = None  # hash of the image's content; None before it is read, and without an image
    width: int = 0
    height: int = 0
    size: int = 0  # of the file when it was read, like its modification time; 0 if they cannot be trusted
    mtime: int = 0
    id: int | None = None
    built: bool = False  # added by build(), removed when a later build() does not name it
    trained: bool = False  # the current model was trained with it
    problem: str | None = None  # why its image cannot be used
    taken: str | None = None  # the day, "" if the image does not say; None before it is read, and in older collections
    stored: bool = False  # equal to what the collection holds; its image need not be read

    @property
    def wants_image(self) -> bool:
        """Whether it has an image that is not known to be broken."""
        return self.problem is None and (self.image is not None or self.path is not None or self.data is not None)

    @property
    def is_empty(self) -> bool:
        """Whether it has neither a text nor a usable image."""
        return self.text is None and self.image is None

    @property
    def text_content(self) -> bytes | None:
        return None if self.text is None else content_hash(self.text.encode())

    def read(self) -> bytes:
        """Read the image as it is now; sets its hash, day, size and modification time."""
        data = self.data
        if data is None:
            if self.path is None:
                raise UnreadableError("there is no image file to read.")
            try:
                status = self.path.stat()
                if not stat.S_ISREG(status.st_mode):  # a pipe or a device could block forever
                    raise UnreadableError("the image must be a file. It is a folder, a pipe or a device.")
                if status.st_size > MAX_BYTES:
                    raise UnreadableError(f"the image file has {status.st_size:,} bytes, more than {MAX_BYTES:,}.")
                data = self.path.read_bytes()
            except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
                reason = error.strerror if isinstance(error, OSError) else error
                raise UnreadableError(f"the image file cannot be read: {reason}.") from error
            settled = time.time_ns() - status.st_mtime_ns > _SETTLED_NS
            self.size, self.mtime = (status.st_size, status.st_mtime_ns) if settled else (0, 0)
        self.image, self.taken = content_hash(data), day_taken(data)
        return data

    def is_same_file(self, stored: Entry) -> bool:
        """Whether size and modification time show that the image is the stored one, without reading it."""
        if self.path is not None and stored.mtime:
            with contextlib.suppress(OSError):
                status = self.path.stat()
                return (status.st_size, status.st_mtime_ns) == (stored.size, stored.mtime)
        return False


@dataclass(frozen=True)
class Saved:
    """An item as it was stored, to bring it back: the entry, and width, height and content of its thumbnail."""

    entry: Entry
    thumbnail: tuple[int, int, bytes] | None


def check_items(items: Iterable[NewItem], skipped: dict[str, str], *, partial: bool = False) -> list[Entry]:
    """Entries of new items; a duplicate key raises, an item without content is skipped.

    With `partial`, items may lack an image and a text, which then stay as they are stored.
    """
    entries: dict[str, Entry] = {}
    for item in items:
        if not isinstance(item, NewItem):
            raise DataError(f"Items must be of the type NewItem. Got {type(item).__name__} instead.")
        if not isinstance(item.key, str) or not item.key.strip():
            raise DataError(f"The key of an item must be a non-empty string. Got {item.key!r} instead.")
        key = storable_text(item.key, "backslashreplace")  # different names stay different
        if key in entries:
            raise DataError(f"The keys of items must differ from each other. Got {key!r} more than once.")
        if item.text is not None and not isinstance(item.text, str):
            raise DataError(f"The text of {item.key!r} must be a string. Got {type(item.text).__name__} instead.")
        if isinstance(item.labels, str) or not isinstance(item.labels, Iterable):
            raise DataError(f"The labels of {item.key!r} must be several strings. Got {item.labels!r} instead.")
        text = storable_text(item.text or "").strip() or None
        labels = (storable_text(str(label)).strip() for label in item.labels)
        entry = Entry(key, text, tuple(dict.fromkeys(label for label in labels if label)))
        if isinstance(item.image, bytes | bytearray):
            entry.data = bytes(item.image)
        elif isinstance(item.image, str | Path):
            entry.path = Path(item.image).absolute()
        elif item.image is not None:
            kind = type(item.image).__name__
            raise DataError(f"The image of {item.key!r} must be a path or bytes. Got {kind} instead.")
        if entry.text is None and item.image is None and not partial:
            skipped[key] = "it has neither an image nor a text."
            continue
        entries[key] = entry
    return list(entries.values())


def storable_text(text: str, errors: str = "replace") -> str:
    """Text without lone surrogates, which file names may have and UTF-8 cannot hold."""
    return text.encode("utf-8", errors).decode()
