"""fusehash: cross-modal hashing. Paired data in, short binary codes out, found across modalities.

Public names are imported when first used, so ``import fusehash`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fusehash.version import __version__

# Public name -> the module that holds it; a name without a module is a module itself.
_PUBLIC = {
    "AGSFH": "hashers.agsfh",
    "Collection": "collection",
    "FuseHash": "hashers.fusehash",
    "HammingIndex": "search",
    "PairedViews": "streams",
    "RegressionHasher": "hashers.controls",
    "Retriever": "retriever",
    "load": "hashers",
    **dict.fromkeys(("bits", "collection", "datasets", "encoders", "errors", "evaluation")),
    **dict.fromkeys(("hashers", "plots", "search", "streams", "views")),
}

if TYPE_CHECKING:
    from fusehash import (
        bits,
        collection,
        datasets,
        encoders,
        errors,
        evaluation,
        hashers,
        plots,
        search,
        streams,
        views,
    )
    from fusehash.collection import Collection
    from fusehash.hashers import load
    from fusehash.hashers.agsfh import AGSFH
    from fusehash.hashers.controls import RegressionHasher
    from fusehash.hashers.fusehash import FuseHash
    from fusehash.retriever import Retriever
    from fusehash.search import HammingIndex
    from fusehash.views import PairedViews

__all__ = [
    "AGSFH", "Collection", "FuseHash", "HammingIndex", "PairedViews", "RegressionHasher", "Retriever", "__version__",
    "bits", "collection", "datasets", "encoders", "errors", "evaluation", "hashers", "load", "plots", "search",
    "streams", "views",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fusehash' has no attribute {name!r}")
    module = _PUBLIC[name]
    return import_module(f"fusehash.{name}") if module is None else getattr(import_module(f"fusehash.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
