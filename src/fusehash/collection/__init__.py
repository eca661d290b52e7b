"""Collections: pictures and texts in one folder, indexed and found across modalities."""

from __future__ import annotations

from fusehash.collection.collection import Collection
from fusehash.collection.database import CollectionError, CorruptCollectionError
from fusehash.collection.folder import is_collection
from fusehash.collection.generations import Generation
from fusehash.collection.items import Hit, Hits, Item, Report
from fusehash.datasets.folders import NewItem, read_folder

__all__ = [
    "Collection",
    "CollectionError",
    "CorruptCollectionError",
    "Generation",
    "Hit",
    "Hits",
    "Item",
    "NewItem",
    "Report",
    "is_collection",
    "read_folder",
]
