"""The folder of a collection.

    collection.json      the settings that the collection was created with; never changes
    items.db             its items, their codes, and which model and encoders made these codes
    features.db          cache of features, see features.py
    model-*, image-*, text-*, bridge-*    the models, encoders and bridges that items.db names
    writer.lock, builder.lock   held by the one writer and by the one builder of a generation

In items.db, `state` is one row: the current generation; the others are in tables that are created when first needed
(kept.py). `item.image` and `thumbnail.image` are hashes of an image's content.

Two counters: `generation` counts models, `revision` counts changes that a search could see. Functions that write run
inside a transaction of their caller.

Nothing is believed that a checksum does not confirm. Every row of `item` and `thumbnail` has its own, the state has one
of itself, of all codes, of all items and of the model and encoder files; so damaged, exchanged and missing rows are
noticed. In format 1, items had none, and in format 2 no day on which their pictures were taken: such a file is read as
it is, and the first writer adds what is missing (`upgrade`).
"""

from __future__ import annotations

from fusehash.collection.store.codes import digest_of, read_codes, write_codes
from fusehash.collection.store.kept import GENERATION_TABLES, has_generations, kept_digest, kept_rows, kept_states
from fusehash.collection.store.rows import (
    amend,
    columns_of_file,
    day_of,
    items_by_id,
    labels_of,
    read_entries,
    read_entries_by_id,
    read_item,
    read_rows,
    remove,
    rows_by_id,
    write_entries,
)
from fusehash.collection.store.settings import VIEWS, CollectionSettings, EncoderSettings, is_collection, read_settings
from fusehash.collection.store.state import CollectionState, Row, Totals
from fusehash.collection.store.tables import ITEMS, check, create_folder, upgrade
from fusehash.collection.store.thumbnails import keep_thumbnails, read_thumbnail, thumbnail_checksum

__all__ = [
    "GENERATION_TABLES",
    "ITEMS",
    "VIEWS",
    "CollectionSettings",
    "CollectionState",
    "EncoderSettings",
    "Row",
    "Totals",
    "amend",
    "check",
    "columns_of_file",
    "create_folder",
    "day_of",
    "digest_of",
    "has_generations",
    "is_collection",
    "items_by_id",
    "keep_thumbnails",
    "kept_digest",
    "kept_rows",
    "kept_states",
    "labels_of",
    "read_codes",
    "read_entries",
    "read_entries_by_id",
    "read_item",
    "read_rows",
    "read_settings",
    "read_thumbnail",
    "remove",
    "rows_by_id",
    "thumbnail_checksum",
    "upgrade",
    "write_codes",
    "write_entries",
]
