"""From images and texts to features: encoders are fitted once, features are cached batch by batch (features.py).

An encoder's file is named after its settings and what it was fitted on, so that it is found after an interruption.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from fusehash import extras, trust
from fusehash.collection import store
from fusehash.collection.features import FeatureCache, Floats32
from fusehash.collection.items import CollectionError, CorruptCollectionError, Entry, UnreadableError
from fusehash.collection.store import EncoderSettings
from fusehash.errors import FusehashError
from fusehash.numerics.parallel import n_cores
from fusehash.parameters import Progress
from fusehash.sqlite import Database
from fusehash.version import __version__

FIT_IMAGES = 1000  # images that an encoder is fitted on; more do not change a vocabulary
BATCH_ITEMS, BATCH_BYTES, BATCH_TEXTS = 256, 64 << 20, 1024
THUMBNAIL_SOURCE = 512  # pixels per side that a thumbnail is made from at most
Views = dict[str, Floats32]
Encoders = dict[str, "FittedEncoder"]


@dataclass(frozen=True)
class FittedEncoder:
    """An encoder, the fingerprint of what it was made from, and on how many items it was fitted, if known."""

    fingerprint: str
    encoder: Any
    count: int = 0


def fingerprint(*parts: Any) -> str:
    """A short name for anything made of JSON values, bytes and views of bytes."""
    digest = hashlib.blake2b(digest_size=10)
    for part in (__version__, *parts):
        encoded = part if isinstance(part, bytes | memoryview) else json.dumps(part, sort_keys=True).encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def order_of(key: str, purpose: str = "") -> bytes:
    """What keys are sorted by to take a sample: the same for every collection and generation."""
    return hashlib.blake2b(f"{purpose}{key}".encode(), digest_size=8).digest()


def encoder_file(folder: Path, view: str, name: str) -> Path:
    return folder / f"{view}-{name}.encoder"


def load_encoder(folder: Path, view: str, name: str, checksum: int | None = None) -> FittedEncoder:
    """An encoder of a collection; damage raises if its checksum is known."""
    from fusehash import encoders

    path = encoder_file(folder, view, name)
    check_file(path, checksum)
    return FittedEncoder(name, encoders.load(path))


def file_checksum(path: Path) -> int:
    """The CRC-32 of a file in the folder of a collection, which must be no link."""
    checksum = 0
    with trust.open_file(path, f"The file {path}", CollectionError, follow_links=False) as file:
        while part := file.read(1 << 20):
            checksum = zlib.crc32(part, checksum)
    return checksum


def check_file(path: Path, checksum: int | None) -> None:
    """Raise if a model or encoder is not the file that the collection has written."""
    if checksum is None:
        trust.open_file(path, f"The file {path}", CollectionError, follow_links=False).close()
    elif file_checksum(path) != checksum:
        collection = f"The collection {path.parent}"
        raise CorruptCollectionError(f"{collection} is corrupt: {path.name} is damaged; a reindex makes it again.")


class ItemEncoder:
    """Makes thumbnails and features of entries; sets `entry.problem` if an image cannot be read."""

    def __init__(self, items: Database, features: FeatureCache, progress: Progress) -> None:
        self._folder, self._items, self._features, self._progress = items.path.parent, items, features, progress

    def fit(
        self, view: str, settings: EncoderSettings, entries: Sequence[Entry], *, always: bool = False
    ) -> FittedEncoder | None:
        """An encoder fitted on a sample of the images or on all texts; None if there are none, unless `always`."""
        from fusehash import encoders

        trust.check_models(settings.name, settings.params, f"The collection {self._folder}", CollectionError)
        encoder = encoders.make(settings.name, modality=view, **settings.params)
        sources: list[tuple[bytes, Any]] = []
        if getattr(encoder, "learns", True):
            texts = (entry.text for entry in entries if entry.text is not None)
            sources = self._images(entries) if view == "image" else [(text.encode(), text) for text in texts]
            if not sources:
                return None
            name = fingerprint(view, settings.name, settings.params, *(content for content, _ in sources))
        elif always or any(entry.wants_image if view == "image" else entry.text is not None for entry in entries):
            name = fingerprint(view, settings.name, settings.params, encoder.identity())
        else:
            return None
        path = encoder_file(self._folder, view, name)
        if path.exists() and not path.is_symlink():
            with contextlib.suppress(FusehashError):  # a damaged file is made again
                return FittedEncoder(name, encoders.load(path), len(sources))
        self._progress(0, 1, f"learning {view} features")
        encoder.fit([source for _, source in sources], progress=self._progress)
        encoders.save(encoder, path)
        return FittedEncoder(name, encoder, len(sources))

    def _images(self, entries: Sequence[Entry]) -> list[tuple[bytes, Any]]:
        """Hash and file or content of a sample of the images."""
        candidates = sorted((entry for entry in entries if entry.wants_image), key=lambda entry: order_of(entry.key))
        sources: list[tuple[bytes, Any]] = []
        for i, entry in enumerate(candidates):
            if len(sources) == FIT_IMAGES:
                break
            self._progress(i, min(len(candidates), FIT_IMAGES), "reading images to learn features from")
            data = self._content(entry)
            if data is not None:
                sources.append((entry.image or b"", data if entry.path is None or entry.stored else entry.path))
        return sources

    def encode(self, entries: Sequence[Entry], encoders: Encoders) -> None:
        """Make all features that are missing from the cache."""
        self._encode_images(entries, encoders.get("image"))
        fitted = encoders.get("text")
        if fitted is None:
            return
        by_content = {entry.text_content: entry.text for entry in entries if entry.text is not None}
        missing = sorted(self._features.missing(fitted.fingerprint, (c for c in by_content if c is not None)))
        for start in range(0, len(missing), BATCH_TEXTS):
            batch, report = missing[start : start + BATCH_TEXTS], self._from(start, len(missing), "encoding texts")
            report(0, len(batch), "")
            rows, _ = fitted.encoder.encode([by_content[c] for c in batch], report)
            self._features.put(fitted.fingerprint, batch, rows)

    def _encode_images(self, entries: Sequence[Entry], fitted: FittedEncoder | None) -> None:
        """Make thumbnails and, with an encoder, features."""
        pictured = [entry for entry in entries if entry.wants_image]
        missing: set[bytes] = set()
        if fitted is not None:
            missing = self._features.missing(fitted.fingerprint, (e.image for e in pictured if e.stored and e.image))
        pictured = [entry for entry in pictured if not entry.stored or entry.image in missing]
        done = 0
        for batch in filter(None, self._batches(pictured)):
            report, count = self._from(done, len(pictured), "encoding images"), len(batch)
            report(0, count, "")
            self._make_thumbnails(batch)
            if fitted is not None:
                self._encode_batch(batch, fitted, report)
            done += count

    def _from(self, start: int, total: int, message: str) -> Progress:
        """Progress of a batch that begins at an item."""
        return lambda step, _, __: self._progress(start + step, total, message)

    def _batches(self, entries: Sequence[Entry]) -> Iterator[list[tuple[Entry, bytes]]]:
        """Entries with the content of their images, a limited number of bytes at a time."""
        batch: list[tuple[Entry, bytes]] = []
        size = 0
        for entry in entries:
            data = self._content(entry)
            if data is not None:
                batch.append((entry, data))
                size += len(data)
            if len(batch) == BATCH_ITEMS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        yield batch

    def _content(self, entry: Entry) -> bytes | None:
        """The image of an entry. If the file of a stored one has changed or is gone, its thumbnail replaces it."""
        before = entry.image, entry.size, entry.mtime, entry.taken
        try:
            data = entry.read()
            if not entry.stored or entry.image == before[0]:
                return data
        except UnreadableError as error:
            if not entry.stored:
                entry.problem, entry.image = str(error), None
                return None
        entry.image, entry.size, entry.mtime, entry.taken = before
        with self._items.reading() as database:
            thumbnail = store.read_thumbnail(database, entry.image)
        return None if thumbnail is None else thumbnail[2]

    def _make_thumbnails(self, batch: list[tuple[Entry, bytes]]) -> None:
        """Store missing thumbnails; images that cannot be opened leave the batch."""
        with self._items.reading() as database:
            stored = {entry.image: store.read_thumbnail(database, entry.image) for entry, _ in batch}
        new = {entry.image: data for entry, data in batch if stored[entry.image] is None}
        with ThreadPoolExecutor(n_cores()) as pool:
            made = dict(zip(new, pool.map(_try_thumbnail, new.values()), strict=True))
        rows = [(image or b"", *result) for image, result in made.items() if isinstance(result, tuple)]
        if rows:
            with self._items.writing() as database:
                checked = ((*row, store.thumbnail_checksum(*row)) for row in rows)
                database.executemany("INSERT OR IGNORE INTO thumbnail VALUES (?, ?, ?, ?, ?)", checked)
        for entry, _ in batch:
            result = stored[entry.image] or made[entry.image]
            if isinstance(result, str):
                entry.problem, entry.image = result, None
            else:
                entry.width, entry.height = result[:2]
        batch[:] = [(entry, data) for entry, data in batch if entry.problem is None]

    def _encode_batch(self, batch: list[tuple[Entry, bytes]], fitted: FittedEncoder, progress: Progress) -> None:
        missing = self._features.missing(fitted.fingerprint, (entry.image for entry, _ in batch if entry.image))
        new = {entry.image: data for entry, data in batch if entry.image in missing}
        if not new:
            return
        contents = [content for content in new if content is not None]
        rows, reasons = fitted.encoder.encode([new[content] for content in contents], progress)
        problems = {contents[i]: reason for i, reason in reasons.items()}
        self._features.put(fitted.fingerprint, contents, rows)
        for entry, _ in batch:
            if entry.image is not None and entry.image in problems:
                entry.problem, entry.image = problems[entry.image], None


def _try_thumbnail(data: bytes) -> tuple[int, int, bytes] | str:
    """Width, height and thumbnail of an image, or why it cannot be opened."""
    from fusehash.encoders import reading

    try:
        image = reading.open_image(data, side=THUMBNAIL_SOURCE)
    except reading.ImageError as error:
        return str(error)
    with extras.require("PIL.Image", "Reading images").open(BytesIO(data)) as file:
        width, height = file.size
    # `image` is upright, and a large JPEG was opened at a fraction of its size.
    if abs(image.width * height - image.height * width) > abs(image.width * width - image.height * height):
        width, height = height, width
    return width, height, reading.thumbnail(image)
