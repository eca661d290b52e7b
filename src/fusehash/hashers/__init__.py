"""Every hashing method, by name. `make("fusehash", n_bits=32)` builds one; `names()` and `catalogue()` list them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import ParameterError
from fusehash.hashers.catalogue import OURS, Kind, MethodInfo, catalogue, info

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
        if param not in known and param not in cls.REMOVED:
            raise ParameterError("hashers", "params", f"among {', '.join(known)} for {name!r}", param)
    return cls(**params)


def load(path: str | Path) -> CrossModalHasher:
    """Load a model that `save` wrote."""
    from fusehash.errors import ModelFileError
    from fusehash.hashers.base import MODEL_FILE

    with MODEL_FILE.reading(Path(path)) as (version, content):
        method = content["method"]
        if version == 1 and method == "agsfh" and content["params"]["preset"] is None:
            method = "fusehash"  # format 1 had one class for both, told apart by `preset`
        if method not in names():
            raise ModelFileError(f"'{path}' holds the method {method!r}, which this fusehash does not know.")
        cls = get(method)
        params = content["params"]
        if version == 1 and method in OURS:
            params = {name: params[name] for name in cls._get_param_names() if params.get(name, "auto") != "auto"}
        model = cls(**params)
        model._restore(content["state"])
    return model


__all__ = ["MethodInfo", "catalogue", "get", "info", "load", "make", "names"]
