"""Every hashing method, by name. `make("agsfh", n_bits=32)` builds one; `names()` lists them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import ParameterError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

# name -> (module, class); imported when asked for.
_METHODS = {
    "agsfh": ("fusehash.hashers.agsfh", "AGSFH"),
    "regression": ("fusehash.hashers.regression", "RegressionHasher"),
    "random": ("fusehash.hashers.random_rotation", "RandomRotationHasher"),
}


def names() -> list[str]:
    """The name of every method."""
    return list(_METHODS)


def get(name: str) -> type[CrossModalHasher]:
    """The class of a method."""
    if name not in _METHODS:
        raise ParameterError("hashers", "name", f"one of {', '.join(map(repr, _METHODS))}", name)
    module, cls = _METHODS[name]
    found: type[CrossModalHasher] = getattr(import_module(module), cls)
    return found


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
    from fusehash.hashers import persistence

    return persistence.read(Path(path), {name: get(name) for name in names()})


__all__ = ["get", "load", "make", "names"]
