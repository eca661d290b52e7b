"""The folder of a collection.

    collection.json      the settings that the collection was created with; never changes
    items.db             its items, their codes, and which model and encoders made these codes
    features.db          cache of features, see encoding.py
    model-*, image-*, text-*    the models and encoders that items.db names
    writer.lock, builder.lock   held by the one writer and by the one builder of a generation

In items.db, `state` is one row: the current generation; the others are in tables that are created when first needed
(generations.py). `item.image` and `thumbnail.image` are hashes of an image's content.

Two counters: `generation` counts models, `revision` counts changes that a search could see. Functions that write run
inside a transaction of their caller.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import sqlite
from fusehash.bits import Codes
from fusehash.collection.items import CollectionError, CorruptCollectionError, Entry, Item
from fusehash.errors import DataError, ParameterError
from fusehash.files import draft_folder, sync_folder, write_atomically
from fusehash.parameters import integer, multiple_of
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError

VIEWS = ("image", "text")
KIND, VERSION = "fusehash-collection", 1
ITEMS = sqlite.FileKind(
    name=lambda path: f"The collection {path.parent}",
    application_id=0x4648434F,  # "FHCO"
    format=1,
    schema=(
        "CREATE TABLE state (only INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, text TEXT, labels TEXT, "
        "image BLOB, width INTEGER, height INTEGER, path TEXT, size INTEGER, mtime INTEGER, built INTEGER, "
        "trained INTEGER, problem TEXT)",
        "CREATE TABLE code (id INTEGER PRIMARY KEY, code BLOB NOT NULL)",
        "CREATE TABLE label (name TEXT, id INTEGER, PRIMARY KEY (name, id)) WITHOUT ROWID",
        "CREATE TABLE thumbnail (image BLOB PRIMARY KEY, width INTEGER, height INTEGER, jpeg BLOB)",
    ),
    unavailable=CollectionError,
    corrupt=CorruptCollectionError,
    may_be_link=False,
)
GENERATION_TABLES = (
    "CREATE TABLE generation (number INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE generation_code (number INTEGER, id INTEGER, content BLOB, code BLOB, trained INTEGER, "
    "PRIMARY KEY (number, id)) WITHOUT ROWID",
)
_COLUMNS = "id, key, text, labels, image, width, height, path, size, mtime, built, trained, problem"  # as in Entry
_NAMES = _COLUMNS.split(", ")
_INSERT = f"INTO item ({_COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"
_DIGEST = (1 << 62) - 1
# Names in states that were written when a revision was called a generation.
_OLD_NAMES = {"generation": "revision", "number": "generation", "before": "previous"}


@dataclass(frozen=True)
class EncoderSettings:
    """An encoder by name, with its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CollectionSettings:
    """What the codes of a collection are made with."""

    n_bits: int
    random_state: int
    image: EncoderSettings
    text: EncoderSettings

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> CollectionSettings:
        image, text = (EncoderSettings(content[view]["name"], dict(content[view]["params"])) for view in VIEWS)
        return cls(int(content["n_bits"]), int(content["random_state"]), image, text)

    def at(self, state: CollectionState) -> CollectionSettings:
        """The settings of a state, if the collection was created with these."""
        return self if state.settings is None else CollectionSettings.from_dict(state.settings)

    def check(self, owner: str) -> CollectionSettings:
        """Raise if a value is wrong, an encoder does not exist, or a package that it needs is missing."""
        from fusehash import encoders

        n_bits = int(multiple_of(8, 1024).check(owner, "n_bits", self.n_bits))
        seed = int(integer().check(owner, "random_state", self.random_state))
        for view, encoder in (("image", self.image), ("text", self.text)):
            encoders.make(encoder.name, modality=view, **encoder.params).check_usable()
            try:
                json.dumps(encoder.params)
            except TypeError:
                raise ParameterError(owner, f"{view}_params", "made of JSON values", encoder.params) from None
        return replace(self, n_bits=n_bits, random_state=seed)


def create_folder(target: Path, settings: CollectionSettings) -> None:
    """Make the folder of an empty collection, completely or not at all."""
    settings = settings.check("Collection.create")
    content = json.dumps({"format": KIND, "version": VERSION, **asdict(settings)}, indent=2).encode()
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileExistsError(None, "there is something already")
        with draft_folder(target) as draft:
            sqlite.create(draft / "items.db", ITEMS, CollectionState(settings.n_bits).write)
            write_atomically(draft / "collection.json", lambda file: file.write(content))
            draft.rename(target)
            sync_folder(target.parent)
    except (OSError, DataError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise CollectionError(f"The collection {target} could not be created: {reason}.") from error


def is_collection(path: Path) -> bool:
    """Whether a path looks like a collection, intact or not."""
    return path.is_dir() and (path / "collection.json").exists()


def read_settings(path: Path) -> CollectionSettings:
    if not path.exists():
        raise CollectionError(f"There is no collection at {path}.")
    try:
        content = json.loads((path / "collection.json").read_text(encoding="utf-8")) if is_collection(path) else None
        if content is None or content["format"] != KIND:
            raise CorruptCollectionError(f"{path} is not a fusehash collection.")
        if content["version"] != VERSION:
            raise CorruptCollectionError(
                f"The collection {path} has version {content['version']}; this fusehash reads version {VERSION}."
            )
        return CollectionSettings.from_dict(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptCollectionError(f"The collection {path} is corrupt: collection.json is damaged.") from error
    except OSError as error:
        raise CollectionError(f"The collection {path} could not be read: {error.strerror}.") from error


@dataclass(frozen=True)
class CollectionState:
    """A generation of a collection, current or kept.

    Model and encoders are named after what they were made from; an empty name means that there is none yet.
    """

    n_bits: int
    revision: int = 0  # counts the changes that a search could see
    codes: int = 0
    digest: int = 0  # sum of the checksums of all codes
    model: str = ""
    image_encoder: str = ""
    text_encoder: str = ""
    images_fitted: int = 0  # images that the image encoder was fitted on
    generation: int = 1  # counts models
    previous: int = 0  # the generation that was current before this one
    newest: int = 1  # the highest generation ever used
    made: str = ""  # when the model was trained
    quality: float | None = None  # pair AUC on held-out pairs
    settings: dict[str, Any] | None = None  # None: those of collection.json

    @property
    def encoder_names(self) -> dict[str, str]:
        names = {"image": self.image_encoder, "text": self.text_encoder}
        return {view: name for view, name in names.items() if name}

    def write(self, database: Connection) -> None:
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?)", self.pack())

    def pack(self) -> tuple[str, int]:
        """The state as JSON, and its checksum."""
        content = json.dumps(asdict(self))
        return content, zlib.crc32(content.encode())

    @classmethod
    def read(cls, database: Connection) -> CollectionState:
        return cls.unpack(database.execute("SELECT content, checksum FROM state WHERE only = 1").fetchone())

    @classmethod
    def unpack(cls, row: Any) -> CollectionState:
        """The state that `pack` packed, checked."""
        try:
            if row is None or zlib.crc32(row[0].encode()) != row[1]:
                raise ValueError
            content = json.loads(row[0])
            if "revision" not in content:
                content = {_OLD_NAMES.get(name, name): value for name, value in content.items()}
            return cls(**content)
        except (ValueError, TypeError, AttributeError):
            raise DamageError("its state is damaged") from None


def check(database: Connection, settings: CollectionSettings) -> None:
    """Raise if the file holds anything but the tables of a collection, or does not belong to collection.json."""
    query = "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    tables = {sql for (sql,) in database.execute(query)}
    if tables not in (set(ITEMS.schema), {*ITEMS.schema, *GENERATION_TABLES}):
        raise DamageError("it does not hold the tables of a collection")
    state = CollectionState.read(database)
    try:
        if settings.at(state).n_bits != state.n_bits:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise DamageError("its files do not fit together") from None


def kept_states(database: Connection) -> list[CollectionState]:
    """The generations other than the current one, in order."""
    query = "SELECT content, checksum FROM generation ORDER BY number"
    return [CollectionState.unpack(row) for row in database.execute(query)] if has_generations(database) else []


def has_generations(database: Connection) -> bool:
    query = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'generation'"
    return bool(database.execute(query).fetchone()[0])


def read_codes(database: Connection, state: CollectionState) -> tuple[Ids, Codes]:
    """All ids, ascending, and their codes, checked."""
    width, rows = state.n_bits // 8, database.execute("SELECT id, code FROM code ORDER BY id").fetchall()
    codes = b"".join(code for _, code in rows if isinstance(code, bytes))
    digest = digest_of((id, code) for id, code in rows if isinstance(code, bytes))
    if len(rows) != state.codes or len(codes) != width * len(rows) or digest != state.digest:
        raise DamageError("codes are missing from it or damaged")
    ids = np.fromiter((id for id, _ in rows), np.int64, len(rows))
    return ids, np.frombuffer(codes, np.uint8).reshape(-1, width)


def write_codes(
    database: Connection, state: CollectionState, gone: Iterable[int], codes: dict[int, bytes]
) -> CollectionState:
    """Remove the codes of some ids and write others; returns the next state."""
    digest, count = state.digest, state.codes
    for id in {*gone, *codes}:
        old = database.execute("SELECT code FROM code WHERE id = ?", (id,)).fetchone()
        if old is not None:
            digest, count = digest - digest_of([(id, old[0])]), count - 1
            database.execute("DELETE FROM code WHERE id = ?", (id,))
    database.executemany("INSERT INTO code VALUES (?, ?)", codes.items())
    digest = (digest + digest_of(codes.items())) & _DIGEST
    return replace(state, revision=state.revision + 1, codes=count + len(codes), digest=digest)


def digest_of(codes: Iterable[tuple[int, bytes]]) -> int:
    """The sum of the checksums of codes, in any order."""
    return sum(zlib.crc32(code, id & 0xFFFFFFFF) for id, code in codes) & _DIGEST


def read_entries(database: Connection, keys: Iterable[str] | None = None) -> list[Entry]:
    """All entries in order of id, or those of some keys."""
    if keys is None:
        return [_entry(row) for row in database.execute(f"SELECT {_COLUMNS} FROM item ORDER BY id")]
    rows = (database.execute(f"SELECT {_COLUMNS} FROM item WHERE key = ?", (key,)).fetchone() for key in keys)
    return [_entry(row) for row in rows if row is not None]


def read_items(database: Connection, condition: str, *values: object) -> list[Item]:
    """Items as readers see them; `condition` is the end of the query."""
    query = f"SELECT id, key, text, labels, image, width, height FROM item {condition}"
    return [
        Item(id, key, text, tuple(json.loads(labels)), image is not None, width, height)
        for id, key, text, labels, image, width, height in database.execute(query, values)
    ]


def items_by_id(database: Connection, ids: Iterable[int]) -> dict[int, Item]:
    """Those of some items that exist, in one query."""
    condition = "WHERE id IN (SELECT value FROM json_each(?))"
    return {item.id: item for item in read_items(database, condition, json.dumps(list(ids)))}


def write_entries(database: Connection, entries: Iterable[Entry]) -> None:
    """Write items; those without an id are new and get one."""
    for entry in entries:
        _remove_labels(database, entry.id)
        verb = "INSERT" if entry.id is None else "INSERT OR REPLACE"
        entry.id = database.execute(f"{verb} {_INSERT}", _row(entry)).lastrowid
        database.executemany("INSERT INTO label VALUES (?, ?)", [(name, entry.id) for name in entry.labels])


def touch(database: Connection, entries: Iterable[Entry]) -> None:
    """Write where the image files of unchanged items are now."""
    rows = ((_path(entry), entry.size, entry.mtime, entry.built, entry.id) for entry in entries)
    database.executemany("UPDATE item SET path = ?, size = ?, mtime = ?, built = ? WHERE id = ?", rows)


def remove(database: Connection, ids: Iterable[int]) -> None:
    for id in ids:
        _remove_labels(database, id)
        database.execute("DELETE FROM item WHERE id = ?", (id,))


def _entry(row: tuple[Any, ...]) -> Entry:
    values = dict(zip(_NAMES, row, strict=True))
    values["labels"] = tuple(json.loads(values["labels"]))
    values["path"] = None if values["path"] is None else Path(os.fsdecode(values["path"]))
    values["built"], values["trained"] = bool(values["built"]), bool(values["trained"])
    return Entry(**values, stored=True)


def _row(entry: Entry) -> tuple[object, ...]:
    values = {name: getattr(entry, name) for name in _NAMES}
    values |= {"labels": json.dumps(entry.labels, ensure_ascii=False), "path": _path(entry)}
    return tuple(values.values())


def _path(entry: Entry) -> str | bytes | None:
    """The path of an image; as bytes if its name is not UTF-8."""
    name = None if entry.path is None else os.fsencode(entry.path)
    with contextlib.suppress(UnicodeDecodeError):
        return None if name is None else name.decode("utf-8")
    return name


def _remove_labels(database: Connection, id: int | None) -> None:
    row = database.execute("SELECT labels FROM item WHERE id = ?", (id,)).fetchone()
    names = [] if row is None else json.loads(row[0])
    database.executemany("DELETE FROM label WHERE name = ? AND id = ?", [(name, id) for name in names])
