"""Read items from a folder of pictures, with captions in one file or in a text file per picture.

    PHOTOS/                     every image in it; a.txt next to a.jpg is its text
    captions.csv                columns image, caption (or text), optionally labels (separated by ;) and id
    captions.jsonl              one {"image": ..., "text": ..., "labels": [...], "id": ...} per line
    texts.csv, texts.jsonl      the same without images

Images are named relative to PHOTOS or PHOTOS/images. A name that leads out of the folder, by "..", as an absolute path
or through a link, is rejected: a captions file from elsewhere must not publish other files of this machine.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fusehash.errors import DataError, warn

IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif")
)
TABLE_SUFFIXES = frozenset((".csv", ".tsv", ".jsonl", ".ndjson"))
DEFAULT_CAPTIONS = ("captions.csv", "captions.jsonl")
MAX_TEXT_BYTES = 1 << 20
SHOWN_ENDINGS = 8  # of files that are left out

csv.field_size_limit(MAX_TEXT_BYTES)


@dataclass(frozen=True)
class NewItem:
    """An item that you can add to a collection.

    Parameters
    ----------
    key : str
        A stable name, such as the relative file name. A collection holds one item per key.
    image : Path, bytes or None
        An image file, or its content.
    text : str or None
        A description.
    labels : tuple of str
        Names that a search can filter by.

    Examples
    --------
    >>> from fusehash.datasets.folders import NewItem
    >>> item = NewItem("cat.jpg", text="a cat on a wall")
    """

    key: str
    image: Path | bytes | None = None
    text: str | None = None
    labels: tuple[str, ...] = ()


def content_hash(content: bytes) -> bytes:
    """A short hash that identifies a content."""
    return hashlib.blake2b(content, digest_size=16).digest()


def read_folder(photos: str | Path, captions: str | Path | None = None) -> Iterator[NewItem]:
    """Yield the items of a folder: those in the captions file first, then the other images.

    A warning counts the files that are neither images nor captions.

    Parameters
    ----------
    photos : str or Path
        A folder of pictures, one image, or a .csv, .tsv or .jsonl file.
    captions : str or Path, optional
        The captions file; by default captions.csv or captions.jsonl in the folder.

    Raises
    ------
    DataError
        If something is missing, cannot be parsed, or names a file outside of the folder.
    """
    root, table = Path(photos), None if captions is None else Path(captions)
    if not root.exists():
        raise DataError(f"There must be pictures at {root}. There is nothing.")
    if root.is_file():
        if root.suffix.lower() in TABLE_SUFFIXES and table is None:
            yield from _captioned(root.absolute().parent, root).values()
            return
        if root.suffix.lower() not in IMAGE_SUFFIXES:
            raise DataError(f"A folder of pictures, an image, or a .csv or .jsonl file is needed. Got {root}.")
        yield NewItem(root.name, root, _sidecar_text(root))
        return
    table = table or default_captions(root)
    items = {} if table is None else _captioned(root, table)
    yield from items.values()
    named = {_resolved(item.image) for item in items.values() if isinstance(item.image, Path)}
    for path in image_files(root):
        if _resolved(path) not in named:
            yield NewItem(path.relative_to(root).as_posix(), path, _sidecar_text(path))
    _report_others(root, table)


def default_captions(folder: Path) -> Path | None:
    """The captions file in a folder of pictures; raises if it is a link that leads out of it."""
    path = next((folder / name for name in DEFAULT_CAPTIONS if (folder / name).is_file()), None)
    if path is not None and not _resolved(path).is_relative_to(_resolved(folder)):
        raise DataError(f"The captions of a folder must be in it. {path} is a link that leads out of it.")
    return path


def _captioned(root: Path, table: Path) -> dict[str, NewItem]:
    """The items of a captions file; several captions of one image become one text."""
    items: dict[str, NewItem] = {}
    base = _resolved(root)
    for line, row in _rows(table):
        where = f"{table.name}, line {line}"
        name, text = _string(row, "image", where), _string(row, "text", where) or _string(row, "caption", where)
        labels = _labels(row.get("labels"), where)
        if not name and not text:
            continue
        image = _inside(root, base, name, where) if name else None
        key = _string(row, "id", where) or (image.relative_to(root).as_posix() if image else _text_key(text))
        if key in items:
            other = items[key]
            if other.image != image:
                raise DataError(f"An id must be unique to one item. {where}: {key!r} is used for two images.")
            text = "\n".join(dict.fromkeys(part for part in (other.text, text) if part))
            labels = tuple(dict.fromkeys((*other.labels, *labels)))
        items[key] = NewItem(key, image, text or (_sidecar_text(image) if image else None), labels)
    return items


def _rows(table: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not table.is_file():
        raise DataError(f"The captions must be at {table}. There is no file.")
    if table.suffix.lower() not in TABLE_SUFFIXES:
        raise DataError(f"Captions must be a .csv, .tsv or .jsonl file. Got {table.name}.")
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            if table.suffix.lower() in (".jsonl", ".ndjson"):
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield number, _parsed(line, f"{table.name}, line {number}")
                return
            reader = csv.DictReader(file, delimiter="\t" if table.suffix.lower() == ".tsv" else ",", strict=True)
            names = [(name or "").strip().lower() for name in reader.fieldnames or ()]
            if not {"caption", "text", "image"} & set(names):
                got = ", ".join(names) or "nothing"
                raise DataError(f"The first line of {table.name} must name its columns, image and caption. Got {got}.")
            reader.fieldnames = names
            for row in reader:
                if any(field.strip() for field in row.pop(None, ())):
                    rule = f"A row must have at most {len(names)} fields, as the first; quote fields that have a comma."
                    raise DataError(f"{rule} {table.name}, line {reader.line_num}: got more.")
                yield reader.line_num, row
    except UnicodeError as error:
        raise DataError(f"{table.name} must be UTF-8 text. It is in another encoding; save it as UTF-8.") from error
    except csv.Error as error:
        last = reader.line_num
        raise DataError(f"{table.name} must be a CSV table. After line {last} it is not: {error}.") from error


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        row: dict[str, Any] = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"it is {type(row).__name__}")
    except (ValueError, RecursionError) as error:
        raise DataError(f"Each line must be a JSON object. {where} is not: {error}.") from error
    return row


def _inside(root: Path, base: Path, name: str, where: str) -> Path:
    try:
        os.fsencode(name)
        possible = "\0" not in name and "\\" not in name
    except UnicodeEncodeError:  # halves of characters
        possible = False
    if not possible or Path(name).is_absolute() or ".." in Path(name).parts or Path(name).drive:
        raise DataError(f"An image must be named relative to its folder and be in it. {where}: got {name!r}.")
    path = next((path for path in (root / name, root / "images" / name) if exists(path)), root / name)
    if not _resolved(path).is_relative_to(base):
        raise DataError(f"An image must be in its folder. {where}: {name!r} is a link that leads out of it.")
    return path


def exists(path: Path) -> bool:
    """Whether there is a file or folder at a path of any kind."""
    try:
        return path.exists()
    except OSError:  # too long for a name, or in a folder that cannot be listed
        return False


def image_files(root: Path) -> Iterator[Path]:
    """Every image in a folder and its subfolders, sorted; links that lead out of it are skipped with a warning."""
    base = _resolved(root)
    for path in _images(root):
        if _resolved(path).is_relative_to(base):
            yield path
        else:
            warn(f"The link {path} leads out of the folder and is skipped.")


def _images(root: Path) -> Iterator[Path]:
    """Every image in a folder and its subfolders, sorted; hidden folders and collections are skipped."""
    return (path for path in _files(root) if path.suffix.lower() in IMAGE_SUFFIXES)


def _files(root: Path) -> Iterator[Path]:
    """Every file in a folder and its subfolders that is not hidden, sorted; collections are skipped."""
    for folder, folders, files in os.walk(root, onerror=_unreadable):
        here = Path(folder)
        folders[:] = sorted(
            name for name in folders if not name.startswith(".") and not exists(here / name / "collection.json")
        )
        yield from (here / name for name in sorted(files) if not name.startswith("."))


def _report_others(root: Path, table: Path | None) -> None:
    """Warn how many files are neither images nor their texts, by their endings."""
    paths, captions = list(_files(root)), None if table is None else _resolved(table)
    pictures = {path.with_suffix("") for path in paths if path.suffix.lower() in IMAGE_SUFFIXES}
    others = Counter(
        path.suffix.lower() or "no ending"
        for path in paths
        if path.suffix.lower() not in IMAGE_SUFFIXES
        and not (path.suffix == ".txt" and path.with_suffix("") in pictures)
        and _resolved(path) != captions
    )
    if others:
        listed = [f"{count:,} {ending}" for ending, count in others.most_common(SHOWN_ENDINGS)]
        more = others.total() - sum(count for _, count in others.most_common(SHOWN_ENDINGS))
        listed += [f"{more:,} others"] if more else []
        verb = "file in {} is" if others.total() == 1 else "files in {} are"
        what = f"{others.total():,} {verb.format(root)} neither a picture nor a caption and left out"
        warn(f"{what}: {', '.join(listed)}.")


def _unreadable(error: OSError) -> NoReturn:  # items of a folder that cannot be read must not count as removed
    raise DataError(f"The folder {error.filename} cannot be read: {error.strerror}.") from error


def _resolved(path: Path) -> Path:
    return Path(os.path.realpath(path))  # a link to itself stays as it is


def _sidecar_text(image: Path) -> str | None:
    path = image.with_suffix(".txt")
    try:
        if path.is_symlink() or not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAX_TEXT_BYTES).decode("utf-8-sig", "replace").strip() or None
    except OSError as error:
        raise DataError(f"The text {path} cannot be read: {error.strerror}.") from error


def _string(row: dict[str, Any], name: str, where: str) -> str:
    value = row.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise DataError(f"'{name}' must be a string. {where}: got {type(value).__name__}.")
    return (value or "").strip()


def _labels(value: Any, where: str) -> tuple[str, ...]:
    names = value.split(";") if isinstance(value, str) else value or ()
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise DataError(f"'labels' must be a list of strings, or one string with ; between them. {where}.")
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _text_key(text: str) -> str:
    return f"text-{content_hash(text.encode('utf-8', 'surrogatepass')).hex()[:16]}"
