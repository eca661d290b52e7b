"""The folder of a collection.

    collection.json      the settings that the collection was created with; never changes
    items.db             its items, their codes, and which model and encoders made these codes
    features.db          cache of features, see encoding.py
    model-*, image-*, text-*, bridge-*    the models, encoders and bridges that items.db names
    writer.lock, builder.lock   held by the one writer and by the one builder of a generation

In items.db, `state` is one row: the current generation; the others are in tables that are created when first needed
(generations.py). `item.image` and `thumbnail.image` are hashes of an image's content.

Two counters: `generation` counts models, `revision` counts changes that a search could see. Functions that write run
inside a transaction of their caller.

Nothing is believed that a checksum does not confirm. Every row of `item` and `thumbnail` has its own, the state has one
of itself, of all codes, of all items and of the model and encoder files; so damaged, exchanged and missing rows are
noticed. In format 1, items had none, and in format 2 no day on which their pictures were taken: such a file is read as
it is, and the first writer adds what is missing (`upgrade`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import sqlite, trust
from fusehash.bits import Codes
from fusehash.collection.items import CollectionError, CorruptCollectionError, Entry, Item, Saved
from fusehash.errors import DataError, ParameterError
from fusehash.files import draft_folder, sync_folder, write_atomically
from fusehash.parameters import integer, multiple_of
from fusehash.search.rows import Ids
from fusehash.sqlite import Connection, DamageError, Database

VIEWS = ("image", "text")
Row = tuple[Any, ...]  # an item: its columns and its checksum
KIND, VERSION = "fusehash-collection", 2  # version 1 had no checksum
_OTHER_TABLES = (
    "CREATE TABLE state (only INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE code (id INTEGER PRIMARY KEY, code BLOB NOT NULL)",
)
_TABLES = (  # as ALTER TABLE leaves those of formats 1 and 2
    "CREATE TABLE item (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, text TEXT, labels TEXT, "
    "image BLOB, width INTEGER, height INTEGER, path TEXT, size INTEGER, mtime INTEGER, built INTEGER, "
    "trained INTEGER, problem TEXT, checksum INTEGER, taken TEXT)",
    "CREATE TABLE thumbnail (image BLOB PRIMARY KEY, width INTEGER, height INTEGER, jpeg BLOB, checksum INTEGER)",
)
_FORMAT_2_TABLES = tuple(table.replace(", taken TEXT)", ")") for table in _TABLES)
_FORMAT_1_TABLES = (
    *(table.replace(", checksum INTEGER)", ")") for table in _FORMAT_2_TABLES),
    "CREATE TABLE label (name TEXT, id INTEGER, PRIMARY KEY (name, id)) WITHOUT ROWID",
)
ITEMS = sqlite.FileKind(
    name=lambda path: f"The collection {path.parent}",
    application_id=0x4648434F,  # "FHCO"
    format=3,
    older=(1, 2),
    schema=(*_OTHER_TABLES, *_TABLES),
    unavailable=CollectionError,
    corrupt=CorruptCollectionError,
    may_be_link=False,
    page_size=1024,  # thumbnails have about 5 kB: of the last of their pages, half is empty
)
GENERATION_TABLES = (
    "CREATE TABLE generation (number INTEGER PRIMARY KEY, content TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE generation_code (number INTEGER, id INTEGER, content BLOB, code BLOB, trained INTEGER, "
    "PRIMARY KEY (number, id)) WITHOUT ROWID",
)
_COLUMNS = "id, key, text, labels, image, width, height, path, size, mtime, built, trained, problem, taken"  # of Entry
_NAMES = _COLUMNS.split(", ")
_NO = type(None)
_TYPES = frozenset(  # that the columns of an item may have
    (int, str, text, str, image, int, int, path, int, int, int, int, problem, taken)
    for text, image, path, problem, taken in product(
        (str, _NO), (bytes, _NO), (str, bytes, _NO), (str, _NO), (str, _NO)
    )
)
_DAY = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2})?")
_DIGEST = (1 << 62) - 1
_FILE_NAME = re.compile(r"(?:[0-9a-f]{20})?")  # of a model or encoder, without its kind: a fingerprint or nothing
_OWN_FILES = ("collection.json", "items.db", "items.db-wal", "items.db-shm", "features.db", "writer.lock")
# Names in states that were written when a revision was called a generation.
_OLD_NAMES = {"generation": "revision", "number": "generation", "before": "previous"}


@dataclass(frozen=True)
class EncoderSettings:
    """An encoder by name, with its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, encoder: Any, params: dict[str, Any] | None, view: str) -> EncoderSettings:
        """Settings of an encoder that a caller gives: an encoder object, or a text as `encoders.parse` takes it."""
        from fusehash import encoders

        if isinstance(encoder, str):
            name, given = encoders.parse(encoder, view)
            return cls(name, {**given, **(params or {})})
        if params is not None or getattr(encoder, "modality", None) != view or not hasattr(encoder, "get_params"):
            expected = f"a name, or an encoder of {view}s that has its own parameters"
            raise ParameterError("Collection", f"{view}_encoder", expected, encoder)
        usual, own = type(encoder)().get_params(deep=False), encoder.get_params(deep=False)
        changed = {key: value for key, value in own.items() if value != usual[key] and key != "n_jobs"}
        return cls(encoder.name, {key: str(v) if isinstance(v, Path) else v for key, v in changed.items()})

    def located(self) -> EncoderSettings:
        """With absolute paths of model files, the only ones that may be read from a collection later."""
        params = dict(self.params)
        for name in trust.MODEL_PARAMS.get(self.name, ()):
            if isinstance(params.get(name), str) and Path(params[name]).exists():
                params[name] = str(Path(params[name]).absolute())
        return replace(self, params=params)


@dataclass(frozen=True)
class CollectionSettings:
    """What the codes of a collection are made with."""

    n_bits: int
    random_state: int
    image: EncoderSettings
    text: EncoderSettings

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> CollectionSettings:
        """Settings from JSON values; raises ValueError, TypeError or KeyError if they cannot be any."""
        n_bits = multiple_of(8).check("A collection", "n_bits", content["n_bits"])
        seed = integer().check("A collection", "random_state", content["random_state"])
        encoders = [EncoderSettings(content[view]["name"], dict(content[view]["params"])) for view in VIEWS]
        if not all(isinstance(text, str) for encoder in encoders for text in (encoder.name, *encoder.params)):
            raise TypeError
        return cls(n_bits, seed, *encoders)

    def has_encoder(self, view: str, text: str) -> bool:
        """Whether an encoder that is given as text, perhaps without parameters, is the one of a view."""
        chosen, own = EncoderSettings.of(text, None, view).located(), getattr(self, view)
        return chosen.name == own.name and chosen.params.items() <= own.params.items()

    def at(self, state: CollectionState) -> CollectionSettings:
        """The settings of a state, if the collection was created with these."""
        return self if state.settings is None else CollectionSettings.from_dict(state.settings)

    def check(self, owner: str) -> CollectionSettings:
        """Raise if a value is wrong, an encoder does not exist, or a package that it needs is missing."""
        from fusehash import encoders

        n_bits = int(multiple_of(8).check(owner, "n_bits", self.n_bits))
        seed = int(integer().check(owner, "random_state", self.random_state))
        for view, encoder in (("image", self.image), ("text", self.text)):
            encoders.make(encoder.name, modality=view, **encoder.params).check_usable()
            try:
                json.dumps(encoder.params)
            except TypeError:
                raise ParameterError(owner, f"{view}_params", "made of JSON values", encoder.params) from None
        return replace(self, n_bits=n_bits, random_state=seed, image=self.image.located(), text=self.text.located())


def create_folder(target: Path, settings: CollectionSettings) -> None:
    """Make the folder of an empty collection, completely or not at all."""
    settings = settings.check("Collection.create")
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FileExistsError(None, "there is something already")
        with draft_folder(target) as draft:
            state = CollectionState(settings.n_bits, totals=Totals(), kept=[])
            sqlite.create(draft / "items.db", ITEMS, state.write)
            write_settings(draft, settings)
            draft.rename(target)
            sync_folder(target.parent)
    except (OSError, DataError) as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise CollectionError(f"The collection {target} could not be created: {reason}.") from error


def is_collection(path: Path) -> bool:
    """Whether a path looks like a collection, intact or not."""
    return path.is_dir() and (path / "collection.json").exists()


def write_settings(folder: Path, settings: CollectionSettings) -> None:
    content = {"format": KIND, "version": VERSION, **asdict(settings)}
    text = json.dumps({**content, "checksum": _checksum_of(content)}, indent=2).encode()
    write_atomically(folder / "collection.json", lambda file: file.write(text))


def read_settings(path: Path) -> CollectionSettings:
    if not path.exists():
        raise CollectionError(f"There is no collection at {path}.")
    if not is_collection(path):
        raise CorruptCollectionError(f"{path} is not a fusehash collection.")
    for name in _OWN_FILES:
        if (path / name).is_symlink():
            raise CorruptCollectionError(f"The collection {path} must hold files of its own. {name} is a link.")
    damage = CorruptCollectionError(f"The collection {path} is corrupt: collection.json is damaged.")
    with trust.open_file(path / "collection.json", f"collection.json of {path}", CollectionError) as file:
        text = file.read(trust.MAX_DOCUMENT_BYTES + 1)
    content = trust.parse_json(text, f"collection.json of {path}", CorruptCollectionError)
    if not isinstance(content, dict):
        raise damage
    if content.get("format") != KIND:
        raise CorruptCollectionError(f"{path} is not a fusehash collection.")
    version, checksum = content.get("version"), content.pop("checksum", None)
    if version not in (1, VERSION):
        raise CorruptCollectionError(
            f"The collection {path} has version {version}; this fusehash reads versions up to {VERSION}."
        )
    try:
        if version == VERSION and checksum != _checksum_of(content):
            raise damage
        return CollectionSettings.from_dict(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damage from error


def _checksum_of(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


@dataclass(frozen=True)
class Totals:
    """What all items together come to; kept up to date by every function that writes items."""

    items: int = 0
    images: int = 0
    texts: int = 0
    pairs: int = 0
    broken_images: int = 0
    unseen: int = 0  # items that the current model was not trained with
    highest_id: int = 0  # ever used
    digest: int = 0  # of the ids and checksums of all rows

    def changed(self, gone: Iterable[Row], new: Iterable[Row]) -> Totals:
        """The totals after some rows were removed and others added."""
        values = asdict(self)
        for sign, rows in ((-1, gone), (1, new)):
            for id, _, text, _, image, _, _, _, _, _, _, trained, problem, _, checksum in rows:
                values["items"] += sign
                values["images"] += sign * (image is not None)
                values["texts"] += sign * (text is not None)
                values["pairs"] += sign * (image is not None and text is not None)
                values["broken_images"] += sign * (problem is not None)
                values["unseen"] += sign * (not trained)
                values["highest_id"] = max(values["highest_id"], id)
                values["digest"] += sign * checksum * (2 * id + 1)
        values["digest"] %= 1 << 64
        return Totals(**values)

    def check(self, ids: Ids, checksums: Ids) -> None:
        """Raise unless these are the ids and checksums of all items."""
        with np.errstate(over="ignore"):
            digest = (checksums.astype(np.uint64) * (2 * ids.astype(np.uint64) + np.uint64(1))).sum(dtype=np.uint64)
        if len(ids) != self.items or int(digest) != self.digest:
            raise DamageError("items are missing from it or damaged")


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
    calibration: dict[str, Any] | None = None  # queries/calibration.py; None if it was not measured
    checksums: dict[str, int] = field(default_factory=dict)  # of the files: "model" and views
    totals: Totals | None = None  # None in a kept generation and in format 1
    kept: list[int] | None = None  # numbers of the generations other than the current one; None like totals
    kept_digest: int | None = None  # of all rows of a kept generation; None in the current one and in format 1
    bridge: str = ""  # gives pictures without a text the text features that it expects; empty if there is none

    @property
    def encoder_names(self) -> dict[str, str]:
        names = {"image": self.image_encoder, "text": self.text_encoder}
        return {view: name for view, name in names.items() if name}

    def write(self, database: Connection) -> None:
        database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?)", self.pack())

    def pack(self) -> tuple[str, int]:
        """The state as JSON, and its checksum."""
        values = asdict(self)
        if not self.bridge:  # as before there were bridges
            del values["bridge"]
        content = json.dumps(values)
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
            if content.get("totals") is not None:
                content["totals"] = Totals(**content["totals"])
            state = cls(**content)
            state._check()
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise DamageError("its state is damaged") from None
        return state

    def _check(self) -> None:
        """Raise ValueError, TypeError or KeyError if values are not what they should be."""
        counts = [self.revision, self.codes, self.digest, self.images_fitted, self.generation, self.previous]
        counts += [self.newest, *self.checksums.values(), *(self.kept or ()), self.kept_digest or 0]
        if self.totals is not None:
            counts += [getattr(self.totals, each.name) for each in fields(self.totals)]
        if not all(type(count) is int and 0 <= count < 1 << 64 for count in counts):
            raise ValueError
        if not all(_FILE_NAME.fullmatch(name) for name in (self.model, self.bridge, *self.encoder_names.values())):
            raise ValueError
        if not isinstance(self.made, str) or not (self.quality is None or math.isfinite(self.quality)):
            raise ValueError
        multiple_of(8).check("A collection", "n_bits", self.n_bits)
        if self.settings is not None:
            CollectionSettings.from_dict(self.settings)


def check(database: Connection, settings: CollectionSettings) -> None:
    """Raise if the file holds anything but the tables of a collection, or does not belong to collection.json."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'"
    tables = {sql for (sql,) in database.execute(query)}
    by_format = {1: _FORMAT_1_TABLES, 2: _FORMAT_2_TABLES, ITEMS.format: _TABLES}
    schema = {*_OTHER_TABLES, *by_format.get(format_of(database), ())}
    if tables not in (schema, {*schema, *GENERATION_TABLES}):
        raise DamageError("it does not hold the tables of a collection")
    state = CollectionState.read(database)
    if settings.at(state).n_bits != state.n_bits or (state.totals is not None) != (format_of(database) > 1):
        raise DamageError("its files do not fit together")


def format_of(database: Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def upgrade(
    items: Database, settings: CollectionSettings, file_checksums: Callable[[CollectionState], dict[str, int]]
) -> None:
    """Add what a collection of an older format does not have; for a writer, before it does anything else."""
    with items.reading() as database:
        before = format_of(database)
    if before == ITEMS.format:
        return
    if before == 1:
        write_settings(items.path.parent, settings)
    with items.writing() as database:
        before = format_of(database)  # another process may have been faster
        if before == 1:
            _add_checksums(database, file_checksums)
        if before < ITEMS.format:
            database.execute("ALTER TABLE item ADD COLUMN taken TEXT")
            database.execute(f"PRAGMA user_version = {ITEMS.format}")


def _add_checksums(database: Connection, file_checksums: Callable[[CollectionState], dict[str, int]]) -> None:
    """From format 1 to 2."""
    state = CollectionState.read(database)
    read_codes(database, state)
    rows = read_rows(database)
    database.execute("ALTER TABLE item ADD COLUMN checksum INTEGER")
    database.executemany("UPDATE item SET checksum = ? WHERE id = ?", ((row[-1], row[0]) for row in rows))
    checksums = []
    for (image,) in database.execute("SELECT image FROM thumbnail").fetchall():
        thumbnail = read_thumbnail(database, image)
        if thumbnail is None:
            raise DamageError("a thumbnail is damaged")
        checksums.append((thumbnail_checksum(image, *thumbnail), image))
    database.execute("ALTER TABLE thumbnail ADD COLUMN checksum INTEGER")
    database.executemany("UPDATE thumbnail SET checksum = ? WHERE image = ?", checksums)
    database.execute("DROP TABLE label")  # Catalogue has them
    (highest_id,) = database.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'item'").fetchone()
    totals = Totals(highest_id=highest_id or 0).changed([], rows)
    kept = kept_states(database)
    for each in kept:
        checked = replace(each, checksums=file_checksums(each), kept_digest=kept_digest(kept_rows(database, each)))
        database.execute(
            "UPDATE generation SET content = ?, checksum = ? WHERE number = ?", (*checked.pack(), each.generation)
        )
    numbers = [each.generation for each in kept]
    replace(state, checksums=file_checksums(state), totals=totals, kept=numbers).write(database)


def kept_states(database: Connection) -> list[CollectionState]:
    """The generations other than the current one, in order."""
    states = []
    if has_generations(database):
        query = "SELECT content, checksum FROM generation ORDER BY number"
        states = [CollectionState.unpack(row) for row in database.execute(query)]
    numbers = CollectionState.read(database).kept
    if numbers is not None and numbers != [state.generation for state in states]:
        raise DamageError("generations are missing from it")
    return states


def kept_rows(database: Connection, state: CollectionState) -> list[Row]:
    """Id, content, code and trained of all items in a kept generation."""
    query = "SELECT id, content, code, trained FROM generation_code WHERE number = ? ORDER BY id"
    return database.execute(query, (state.generation,)).fetchall()


def kept_digest(rows: Iterable[Row]) -> int:
    """The sum of the checksums of rows of a kept generation."""
    return sum(zlib.crc32(ascii(row).encode()) for row in rows)


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


def read_rows(database: Connection, condition: str = "ORDER BY id", *values: object) -> list[Row]:
    """Items as tuples of all columns and the checksum, checked; `condition` is the end of the query."""
    rows: list[Row] = database.execute(f"SELECT * FROM item {condition}", values).fetchall()
    others = len(_NAMES) - 1
    if rows and len(rows[0]) == others:  # format 1
        rows = [_with_checksum((*row, None)) for row in rows]
    elif rows and len(rows[0]) == others + 1:  # format 2
        rows = [(*row[:others], None, row[others]) for row in rows]
    else:
        rows = [(*row[:others], row[others + 1], row[others]) for row in rows]
    for row in rows:
        content = row[:-1]
        is_intact = _checksum_of_row(content) == row[-1] and tuple(map(type, content)) in _TYPES
        if not is_intact or not _DAY.fullmatch(content[-1] or ""):
            raise DamageError(f"item {row[0]!r} is damaged")
    return rows


def rows_by_id(database: Connection, ids: Iterable[int]) -> list[Row]:
    """Those of some items that exist, in one query."""
    return read_rows(database, "WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", json.dumps(list(ids)))


def read_entries(database: Connection, keys: Iterable[str] | None = None) -> list[Entry]:
    """All entries in order of id, or those of some keys."""
    if keys is None:
        return [_entry(row) for row in read_rows(database)]
    entries = (_entry(row) for key in keys for row in read_rows(database, "WHERE key = ?", key))
    return list(entries)


def read_entries_by_id(database: Connection, ids: Iterable[int | None]) -> list[Entry]:
    """Those of some entries that exist, in order of id."""
    return [_entry(row) for row in rows_by_id(database, [id for id in ids if id is not None])]


def read_item(row: Row) -> Item:
    """An item as readers see it."""
    id, key, text, labels, image, width, height, path = row[:8]
    where = None if path is None else Path(os.fsdecode(path))
    return Item(id, key, text, labels_of(labels), image is not None, width, height, where, day_of(row))


def day_of(row: Row) -> str:
    """The day of an item, as YYYY-MM-DD: when its picture was taken, else when the file was last changed, else ""."""
    taken, mtime = row[_NAMES.index("taken")], row[_NAMES.index("mtime")]
    if taken:
        return str(taken)
    try:
        return datetime.fromtimestamp(mtime / 1e9).date().isoformat() if mtime > 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


def items_by_id(database: Connection, ids: Iterable[int]) -> dict[int, Item]:
    return {row[0]: read_item(row) for row in rows_by_id(database, ids)}


def write_entries(
    database: Connection, state: CollectionState, entries: Iterable[Entry], restored: Collection[int] = ()
) -> CollectionState:
    """Write items; new ones have no id and get one, `restored` ones have one. Returns the next state."""
    assert state.totals is not None
    listed, highest_id = list(entries), state.totals.highest_id
    replaced = [entry.id for entry in listed if entry.id is not None and entry.id not in restored]
    for entry in listed:
        if entry.id is None:
            highest_id += 1
            entry.id = highest_id
    return _exchange(database, state, replaced, [_row(entry) for entry in listed])


def amend(database: Connection, state: CollectionState, changes: dict[int, dict[str, object]]) -> CollectionState:
    """Write other values into some columns of some items, by id; returns the next state."""
    rows = []
    for row in rows_by_id(database, changes):
        values = {**dict(zip(_NAMES, row, strict=False)), **changes[row[0]]}
        rows.append(_with_checksum(tuple(values.values())))
    return _exchange(database, state, changes, rows)


def remove(database: Connection, state: CollectionState, ids: Iterable[int]) -> CollectionState:
    """Remove items; returns the next state."""
    return _exchange(database, state, ids, [])


def _exchange(database: Connection, state: CollectionState, ids: Iterable[int], rows: list[Row]) -> CollectionState:
    """Remove the items of some ids, which must exist, and write others."""
    assert state.totals is not None
    listed = list(ids)
    gone = rows_by_id(database, listed)
    if len(gone) != len(listed):
        raise DamageError("items are missing from it")
    database.executemany("DELETE FROM item WHERE id = ?", ((id,) for id in listed))
    marks = ", ".join("?" * (len(_NAMES) + 1))
    database.executemany(f"INSERT INTO item ({_COLUMNS}, checksum) VALUES ({marks})", rows)
    return replace(state, totals=state.totals.changed(gone, rows))


def columns_of_file(entry: Entry) -> dict[str, object]:
    """The columns of an item that say where its image file is and what else it told, for `amend`."""
    values = {"path": _path(entry), "size": entry.size, "mtime": entry.mtime, "built": int(entry.built)}
    return {**values, "taken": entry.taken}


@lru_cache(maxsize=4096)
def labels_of(text: str) -> tuple[str, ...]:
    """The labels of an item from the JSON in its row."""
    try:
        labels = json.loads(text)
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError
    except (ValueError, RecursionError):
        raise DamageError("labels of an item are damaged") from None
    return tuple(labels)


def read_thumbnail(database: Connection, image: bytes | None) -> tuple[int, int, bytes] | None:
    """Width, height and thumbnail of an image, by the hash of its content; None if there is none."""
    row = database.execute("SELECT * FROM thumbnail WHERE image = ?", (image,)).fetchone()
    if row is None:
        return None
    types = tuple(map(type, row[:4]))
    if types != (bytes, int, int, bytes) or (len(row) > 4 and row[4] != thumbnail_checksum(*row[:4])):
        raise DamageError("a thumbnail is damaged")
    return row[1], row[2], row[3]


def keep_thumbnails(items: Database, kept: Iterable[Saved]) -> None:
    """Store the thumbnails of saved items again, which a removal has deleted."""
    rows = [(each.entry.image, *each.thumbnail) for each in kept if each.thumbnail and each.entry.image]
    with items.writing() as database:
        checked = [(*row, thumbnail_checksum(*row)) for row in rows]
        database.executemany("INSERT OR IGNORE INTO thumbnail VALUES (?, ?, ?, ?, ?)", checked)


def thumbnail_checksum(image: bytes, width: int, height: int, jpeg: bytes) -> int:
    return zlib.crc32(jpeg, zlib.crc32(ascii((image, width, height)).encode()))


def _entry(row: Row) -> Entry:
    values = dict(zip(_NAMES, row, strict=False))
    values["labels"] = labels_of(values["labels"])
    values["path"] = None if values["path"] is None else Path(os.fsdecode(values["path"]))
    values["built"], values["trained"] = bool(values["built"]), bool(values["trained"])
    return Entry(**values, stored=True)


def _row(entry: Entry) -> Row:
    values = {name: getattr(entry, name) for name in _NAMES}
    values |= {"labels": json.dumps(entry.labels, ensure_ascii=False), "trained": int(entry.trained)}
    return _with_checksum(tuple((values | columns_of_file(entry)).values()))


def _with_checksum(content: Row) -> Row:
    return (*content, _checksum_of_row(content))


def _checksum_of_row(content: Row) -> int:
    """The checksum of all columns of an item; without a date taken, that of formats 1 and 2."""
    return zlib.crc32(ascii(content if content[-1] is not None else content[:-1]).encode())


def _path(entry: Entry) -> str | bytes | None:
    """The path of an image; as bytes if its name is not UTF-8."""
    name = None if entry.path is None else os.fsencode(entry.path)
    with contextlib.suppress(UnicodeDecodeError):
        return None if name is None else name.decode("utf-8")
    return name
