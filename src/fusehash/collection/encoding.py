"""From images and texts to features: encoders fitted once, features kept batch by batch.

A fitted encoder lies in a file named after what it was made from: its settings and the content it was fitted on. A call
that was cut off therefore finds what it had fitted, and features that were made with it, when it is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import __version__
from fusehash.collection.database import Database
from fusehash.collection.entries import Entry, UnreadableError
from fusehash.collection.features import Features
from fusehash.collection.items import Progress
from fusehash.errors import FusehashError
from fusehash.numerics.parallel import n_cores

VIEWS = ("image", "text")
FIT_IMAGES = 1000  # images that an encoder is fitted on; more do not change a vocabulary
BATCH_ITEMS, BATCH_BYTES = 256, 64 << 20
BATCH_TEXTS = 1024
THUMBNAIL_SOURCE = 512  # pixels a side that a thumbnail needs at most to be made from


@dataclass(frozen=True)
class EncoderSettings:
    """An encoder by name, with its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fitted:
    """An encoder and the fingerprint of what it was made from."""

    fingerprint: str
    encoder: Any

    @property
    def width(self) -> int:
        return int(self.encoder.n_features_)


def fingerprint(*parts: Any) -> str:
    """A short name for anything made of JSON values, bytes and views of bytes."""
    digest = hashlib.blake2b(digest_size=10)
    for part in (__version__, *parts):
        plain = isinstance(part, bytes | memoryview)
        encoded = part if plain else json.dumps(part, sort_keys=True).encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def encoder_file(folder: Path, view: str, name: str) -> Path:
    """Where a fitted encoder lies."""
    return folder / f"{view}-{name}.encoder"


def load_encoder(folder: Path, view: str, name: str) -> Fitted:
    """A fitted encoder of a collection."""
    from fusehash import encoders

    return Fitted(name, encoders.load(encoder_file(folder, view, name)))


class Encoding:
    """Makes the features of entries; what cannot be read ends in ``entry.problem``."""

    def __init__(self, folder: Path, items: Database, features: Features, report: Progress) -> None:
        self._folder, self._items, self._features, self._report = folder, items, features, report

    def fit_images(self, settings: EncoderSettings, entries: Sequence[Entry]) -> tuple[Fitted, int] | None:
        """An encoder fitted on a sample of the images, and how many; None where no image can be read."""
        chosen = sorted((entry for entry in entries if entry.wants_image), key=lambda entry: _shuffled(entry.key))
        contents: list[bytes] = []
        sources: list[Any] = []
        for number, entry in enumerate(chosen):
            if len(sources) == FIT_IMAGES:
                break
            self._report(number, min(len(chosen), FIT_IMAGES), "reading images to learn features from")
            data = self._content(entry)
            if data is not None:
                contents.append(entry.image or b"")
                sources.append(data if entry.path is None or entry.stored else entry.path)
        if not sources:
            return None
        return self._fit("image", settings, sources, contents), len(sources)

    def fit_texts(self, settings: EncoderSettings, entries: Sequence[Entry]) -> Fitted | None:
        """An encoder fitted on all texts; None where there are none."""
        texts = [entry.text for entry in entries if entry.text is not None]
        return self._fit("text", settings, texts, [text.encode() for text in texts]) if texts else None

    def texts(self, entries: Sequence[Entry], fitted: Fitted) -> None:
        """See to it that the features of all texts are known."""
        by_content = {entry.text_content: entry.text for entry in entries if entry.text is not None}
        missing = sorted(self._features.missing(fitted.fingerprint, (c for c in by_content if c is not None)))
        for start in range(0, len(missing), BATCH_TEXTS):
            self._report(start, len(missing), "encoding texts")
            some = missing[start : start + BATCH_TEXTS]
            self._features.put(fitted.fingerprint, some, fitted.encoder.transform([by_content[c] for c in some]))

    def images(self, entries: Sequence[Entry], fitted: Fitted | None) -> None:
        """See to it that the thumbnails of all images, and with an encoder their features, are known."""
        wanted = [entry for entry in entries if entry.wants_image]
        if fitted is not None:
            known = [entry.image for entry in wanted if entry.stored and entry.image is not None]
            missing = self._features.missing(fitted.fingerprint, known)
            wanted = [entry for entry in wanted if not entry.stored or entry.image in missing]
        else:
            wanted = [entry for entry in wanted if not entry.stored]
        done = 0
        for batch in self._batches(wanted):
            self._report(done, len(wanted), "encoding images")
            self._keep_thumbnails(batch)
            if fitted is not None:
                self._encode(batch, fitted)
            done += len(batch)

    def _fit(self, view: str, settings: EncoderSettings, sources: list[Any], contents: list[bytes]) -> Fitted:
        from fusehash import encoders

        name = fingerprint(view, settings.name, settings.params, *contents)
        path = encoder_file(self._folder, view, name)
        if path.exists():
            try:
                return Fitted(name, encoders.load(path))
            except FusehashError:
                pass  # made anew below
        self._report(0, 1, f"learning {view} features")
        encoder = encoders.make(settings.name, modality=view, **settings.params).fit(sources, progress=self._report)
        encoders.save(encoder, path)
        return Fitted(name, encoder)

    def _batches(self, entries: Sequence[Entry]) -> Iterator[list[tuple[Entry, bytes]]]:
        """Entries with the content of their images, a limited number of bytes at a time."""
        batch: list[tuple[Entry, bytes]] = []
        size = 0
        for entry in entries:
            data = self._content(entry)
            if data is None:
                continue
            batch.append((entry, data))
            size += len(data)
            if len(batch) == BATCH_ITEMS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _content(self, entry: Entry) -> bytes | None:
        """The image of an entry. Of a stored one whose file has changed or is gone, the thumbnail stands in for it."""
        before = entry.image, entry.size, entry.mtime
        try:
            data = entry.read()
            if not entry.stored or entry.image == before[0]:
                return data
        except UnreadableError as error:
            if not entry.stored:
                entry.problem, entry.image = str(error), None
                return None
        entry.image, entry.size, entry.mtime = before
        with self._items.reading() as database:
            found = database.execute("SELECT jpeg FROM thumbnail WHERE image = ?", (entry.image,)).fetchone()
        return None if found is None else bytes(found[0])

    def _keep_thumbnails(self, batch: list[tuple[Entry, bytes]]) -> None:
        """Make and keep the thumbnails that are not there yet; images that cannot be opened leave the batch."""
        with self._items.reading() as database:
            query = "SELECT width, height FROM thumbnail WHERE image = ?"
            known = {entry.image: database.execute(query, (entry.image,)).fetchone() for entry, _ in batch}
        fresh = {entry.image: data for entry, data in batch if known[entry.image] is None}
        with ThreadPoolExecutor(n_cores()) as pool:
            made = dict(zip(fresh, pool.map(self._try_thumbnail, fresh.values()), strict=True))
        rows = [(image, *found) for image, found in made.items() if isinstance(found, tuple)]
        if rows:
            with self._items.writing() as database:
                database.executemany("INSERT OR IGNORE INTO thumbnail VALUES (?, ?, ?, ?)", rows)
        for entry, _ in batch:
            found = known[entry.image] or made[entry.image]
            if isinstance(found, str):
                entry.problem, entry.image = found, None
            else:
                entry.width, entry.height = found[:2]
        batch[:] = [(entry, data) for entry, data in batch if entry.problem is None]

    def _try_thumbnail(self, data: bytes) -> tuple[int, int, bytes] | str:
        from fusehash.encoders import reading

        try:
            image = reading.open_image(data, side=THUMBNAIL_SOURCE)
            return *_full_size(data, image), reading.thumbnail(image)
        except FusehashError as error:
            return str(error)

    def _encode(self, batch: list[tuple[Entry, bytes]], fitted: Fitted) -> None:
        """Make and keep the features of one batch."""
        missing = self._features.missing(fitted.fingerprint, (entry.image for entry, _ in batch if entry.image))
        fresh = {entry.image: data for entry, data in batch if entry.image in missing}
        sentences: dict[bytes | None, str] = {}
        if fresh:
            contents = [content for content in fresh if content is not None]
            rows = np.asarray(fitted.encoder.transform([fresh[content] for content in contents]))
            sentences = {contents[place]: told for place, told in fitted.encoder.problems_.items()}
            self._features.put(fitted.fingerprint, contents, rows)
        for entry, _ in batch:
            if entry.image in sentences:
                entry.problem, entry.image = sentences[entry.image], None


def _full_size(data: bytes, opened: Any) -> tuple[int, int]:
    """Width and height of an upright image that may have been opened at a fraction of its size."""
    from PIL import Image

    with Image.open(BytesIO(data)) as file:
        width, height = file.size
    turned = abs(opened.width * height - opened.height * width) > abs(opened.width * width - opened.height * height)
    return (height, width) if turned else (width, height)


def _shuffled(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=8).digest()
