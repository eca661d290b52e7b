"""fusehash: cross-modal hashing. Paired data in, short binary codes out, found across modalities.

The names below are imported when first used, so that ``import fusehash`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = (
    "bits",
    "collection",
    "datasets",
    "encoders",
    "errors",
    "evaluation",
    "hashers",
    "search",
    "streams",
    "views",
)
_NAMES = {
    "AGSFH": "fusehash.hashers.agsfh",
    "Collection": "fusehash.collection",
    "FuseHash": "fusehash.hashers.fusehash",
    "HammingIndex": "fusehash.search",
    "PairedViews": "fusehash.streams",
    "RegressionHasher": "fusehash.hashers.controls",
    "load": "fusehash.hashers",
}

__all__ = [
    "AGSFH",
    "Collection",
    "FuseHash",
    "HammingIndex",
    "PairedViews",
    "RegressionHasher",
    "__version__",
    "bits",
    "collection",
    "datasets",
    "encoders",
    "errors",
    "evaluation",
    "hashers",
    "load",
    "search",
    "streams",
    "views",
]

if TYPE_CHECKING:
    from fusehash import bits, collection, datasets, encoders, errors, evaluation, hashers, search, streams, views
    from fusehash.collection import Collection
    from fusehash.hashers import load
    from fusehash.hashers.agsfh import AGSFH
    from fusehash.hashers.controls import RegressionHasher
    from fusehash.hashers.fusehash import FuseHash
    from fusehash.search import HammingIndex
    from fusehash.views import PairedViews


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fusehash.{name}")
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'fusehash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
