"""Every hashing method. `names()` and `catalogue()` list them, `make("cmfh", n_bits=32)` builds one by name.

Classes can be imported from here, as in `from fusehash.hashers import CMFH`; a class is loaded when you ask for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import ModelFileError, ParameterError
from fusehash.hashers.catalogue import METHODS, OURS, Kind, MethodInfo, allow, catalogue, class_of, info, method_names

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

_CLASSES = {entry.class_name: entry for entry in METHODS.values()}
__all__ = ["MethodInfo", "allow", "catalogue", "get", "info", "load", "make", "names"]
__all__.extend(_CLASSES)


def __getattr__(name: str) -> type[CrossModalHasher]:
    if name in _CLASSES:
        return _CLASSES[name].load()
    raise AttributeError(f"module 'fusehash.hashers' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def names(kind: Kind | None = None) -> list[str]:
    """Return the names of all methods, or of those of one kind.

    Parameters
    ----------
    kind : {"unsupervised", "supervised", "control", "quantizer"}, optional
        Which methods to list; all by default.

    Returns
    -------
    list of str

    Examples
    --------
    >>> from fusehash import hashers
    >>> hashers.names("control")
    ['regression', 'random']
    """
    return method_names() if kind is None else [entry.name for entry in catalogue(kind)]


def get(name: str) -> type[CrossModalHasher]:
    """Return the class of a method.

    Parameters
    ----------
    name : str
        One of `names()`; others raise ParameterError.

    Returns
    -------
    type of CrossModalHasher

    Examples
    --------
    >>> from fusehash import hashers
    >>> hashers.get("cmfh").__name__
    'CMFH'
    """
    return info(name).load()


def make(name: str, **params: Any) -> CrossModalHasher:
    """Build an unfitted hasher.

    Parameters
    ----------
    name : str
        One of `names()`.
    **params
        Parameters of the class.

    Returns
    -------
    CrossModalHasher

    Raises
    ------
    ParameterError
        If there is no such method or it has no such parameter. Values are checked by `fit`.

    Examples
    --------
    >>> from fusehash import hashers
    >>> hashers.make("cmfh", n_bits=32)
    CMFH(n_bits=32)
    """
    cls = get(name)
    accepted = cls._get_param_names()
    for param in params:
        if param not in accepted and param not in cls.REMOVED:
            raise ParameterError("hashers", "params", f"among {', '.join(accepted)} for {name!r}", param)
    return cls(**params)


def load(path: str | Path) -> CrossModalHasher:
    """Load a fitted model that `save` wrote.

    Parameters
    ----------
    path : str or Path
        The model file.

    Returns
    -------
    CrossModalHasher

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, or not a fusehash model.
    """
    from fusehash.hashers.base import MODEL_FILE

    with MODEL_FILE.reading(Path(path)) as (version, content):
        method = content["method"]
        if version == 1 and method == "agsfh" and content["params"]["preset"] is None:
            method = "fusehash"  # format 1 had one class for both; `preset` said which
        cls, params = class_of(method), content["params"]
        if cls is None:
            problem = "which neither this fusehash nor an installed package knows"
            raise ModelFileError(f"'{path}' holds the method {method!r}, {problem}.")
        if version == 1 and method in OURS:
            params = {name: params[name] for name in cls._get_param_names() if params.get(name, "auto") != "auto"}
        model = cls(**params)
        model._restore(content["state"])
    return model
