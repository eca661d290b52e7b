"""The folder of a collection: collection.json says what it was created with and never changes after that."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

from fusehash.collection.database import CollectionError, CorruptCollectionError, Database, sync_folder
from fusehash.collection.store import APPLICATION_ID, FORMAT, SCHEMA, State
from fusehash.collection.writing import Settings
from fusehash.errors import ParameterError

KIND, VERSION = "fusehash-collection", 1


def create(target: Path, settings: Settings) -> None:
    """Make the folder of an empty collection; it is there whole, or not at all."""
    check_encoders("Collection.create", settings)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise CollectionError(f"There is something at {target} already.")
    except PermissionError as error:
        raise CollectionError(f"The collection {target} could not be created: {error.strerror}.") from error
    content = {"format": KIND, "version": VERSION, **settings.to_dict()}
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.new")
    try:
        draft.mkdir()
        database = Database.create(draft / "items.db", SCHEMA, APPLICATION_ID, FORMAT)
        with database.writing() as connection:
            State(settings.n_bits).write(connection)
        database.close()
        with (draft / "collection.json").open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(draft)
        draft.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        shutil.rmtree(draft, ignore_errors=True)
        reason = error.strerror or str(error).rstrip(".")
        raise CollectionError(f"The collection {target} could not be created: {reason}.") from error
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def is_collection(path: Path) -> bool:
    """Whether a path looks like a collection, intact or not."""
    return path.is_dir() and (path / "collection.json").exists()


def read_settings(path: Path) -> Settings:
    """collection.json, or why it is none."""
    if not path.exists():
        raise CollectionError(f"There is no collection at {path}.")
    if not is_collection(path):
        raise CorruptCollectionError(f"{path} is not a fusehash collection.")
    try:
        content = json.loads((path / "collection.json").read_text(encoding="utf-8"))
        if content["format"] != KIND:
            raise CorruptCollectionError(f"{path} is not a fusehash collection.")
        if content["version"] != VERSION:
            raise CorruptCollectionError(
                f"The collection {path} has version {content['version']}; this fusehash reads version {VERSION}."
            )
        return Settings.of(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptCollectionError(f"The collection {path} is corrupt: collection.json is damaged.") from error
    except OSError as error:
        raise CollectionError(f"The collection {path} could not be read: {error.strerror}.") from error


def check_encoders(owner: str, settings: Settings) -> None:
    """Say at once that an encoder or its parameters do not exist, are for other items, or cannot be used here."""
    from fusehash import encoders

    for view, encoder in (("image", settings.image), ("text", settings.text)):
        encoders.make(encoder.name, modality=view, **encoder.params).check_usable()
        try:
            json.dumps(encoder.params)
        except TypeError:
            raise ParameterError(owner, f"{view}_params", "made of JSON values", encoder.params) from None
