"""Every hashing method, by name. `make("agsfh", n_bits=32)` builds one; `names()` and `catalogue()` list them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import ParameterError
from fusehash.hashers.catalogue import Kind, MethodInfo, catalogue, info

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher


def names(kind: Kind | None = None) -> list[str]:
    """The name of every method, or of those of one kind: "unsupervised", "supervised", "control"."""
    return [entry.name for entry in catalogue(kind)]


def get(name: str) -> type[CrossModalHasher]:
    """The class of a method."""
    return info(name).load()


def make(name: str, **params: Any) -> CrossModalHasher:
    """A new, unfitted hasher: make("regression", n_bits=32)."""
    cls = get(name)
    known = cls._get_param_names()
    for param in params:
        if param not in known:
            raise ParameterError("hashers", "params", f"among {', '.join(known)} for {name!r}", param)
    return cls(**params)


def load(path: str | Path) -> CrossModalHasher:
    """Load a model that `save` wrote."""
    from fusehash import persistence

    return persistence.read(Path(path), lambda name: get(name) if name in names() else None)


__all__ = ["MethodInfo", "catalogue", "get", "info", "load", "make", "names"]
