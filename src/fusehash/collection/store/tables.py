"""The tables of items.db: how they are created, checked and brought from older formats to the current one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fusehash import sqlite
from fusehash.collection.items import CollectionError, CorruptCollectionError
from fusehash.collection.store.codes import read_codes
from fusehash.collection.store.kept import GENERATION_TABLES, kept_digest, kept_rows, kept_states
from fusehash.collection.store.rows import read_rows
from fusehash.collection.store.settings import CollectionSettings, write_settings
from fusehash.collection.store.state import CollectionState, Totals
from fusehash.collection.store.thumbnails import read_thumbnail, thumbnail_checksum
from fusehash.errors import DataError
from fusehash.files import draft_folder, sync_folder
from fusehash.sqlite import Connection, DamageError, Database

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


def check(database: Connection, settings: CollectionSettings) -> None:
    """Raise if the file holds anything but the tables of a collection, or does not belong to collection.json."""
    query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name <> 'sqlite_sequence'"
    tables = {sql for (sql,) in database.execute(query)}
    by_format = {1: _FORMAT_1_TABLES, 2: _FORMAT_2_TABLES, ITEMS.format: _TABLES}
    schema = {*_OTHER_TABLES, *by_format.get(format_of(database), ())}
    if tables not in (schema, {*schema, *GENERATION_TABLES}):
        raise DamageError("it does not hold the tables of a collection")
    state = CollectionState.read(database)
    if state.made_with(settings).n_bits != state.n_bits or (state.totals is not None) != (format_of(database) > 1):
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
