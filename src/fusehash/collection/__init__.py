"""Collections: images and texts in one folder, searched across modalities."""

from __future__ import annotations

from fusehash.collection.collection import Collection
from fusehash.collection.generations import Generation
from fusehash.collection.items import CollectionError, CorruptCollectionError, Hit, Hits, Item, Report
from fusehash.collection.queries.filters import Filters
from fusehash.collection.store import is_collection
from fusehash.datasets.folders import NewItem, read_folder

__all__ = [
    "Collection",
    "CollectionError",
    "CorruptCollectionError",
    "Filters",
    "Generation",
    "Hit",
    "Hits",
    "Item",
    "NewItem",
    "Report",
    "is_collection",
    "read_folder",
]
