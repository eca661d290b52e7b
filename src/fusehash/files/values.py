"""What a file may hold: numbers, strings, arrays and registered dataclasses; flattened, revived and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from fusehash.errors import DataError

Arrays = dict[str, "np.ndarray[Any, Any]"]
T = TypeVar("T")
_CLASSES: dict[str, type] = {}  # by the name in files
_NAMES: dict[type, str] = {}


@overload
def storable(what: type[T]) -> type[T]: ...
@overload
def storable(what: str) -> Callable[[type[T]], type[T]]: ...
def storable(what: type[T] | str) -> type[T] | Callable[[type[T]], type[T]]:
    """Class decorator: a dataclass that may be part of a file.

    Its name is part of the format; `@storable("Name")` keeps the name of earlier files. A field that
    is added has a default, which files without it get; after other changes, a class method `revive(**fields)` must
    accept those of earlier files.
    """

    def register(cls: type[T]) -> type[T]:
        name = what if isinstance(what, str) else cls.__name__
        _CLASSES[name], _NAMES[cls] = cls, name
        return cls

    return register if isinstance(what, str) else register(what)


def flatten(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"$array": name}
    if type(value) in _NAMES:
        content = {f.name: flatten(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"$class": _NAMES[type(value)], "fields": content}
    if isinstance(value, dict):
        return {"$dict": [[key, flatten(item, f"{name}.{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [flatten(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"'{name}' must be made of numbers, strings and arrays to be saved. Got {type(value).__name__}.")


def revive(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [revive(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$dict" in value:
        return {key: revive(item, arrays) for key, item in value["$dict"]}
    if "$class" in value:
        cls, content = _CLASSES[value["$class"]], {key: revive(item, arrays) for key, item in value["fields"].items()}
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        if required <= set(content) <= {f.name for f in fields(cls)}:  # later fields have defaults
            check_types(cls, content)
            return cls(**content)
        return cls.revive(**content)  # type: ignore[attr-defined]
    return {key: revive(item, arrays) for key, item in value.items()}  # format 1 of encoders


def check_types(cls: type, content: dict[str, Any]) -> None:
    """Raise ValueError unless values that came from a file have the types of the fields of a dataclass."""
    hints = get_type_hints(cls)
    for name, value in content.items():
        if name not in hints or not _is_a(value, hints[name]):
            raise ValueError(f"'{name}' of {cls.__name__} has another type")


def _is_a(value: Any, hint: Any) -> bool:
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_a(value, option) for option in inner)
    if kind is Literal:
        return value in inner
    if kind is np.ndarray:
        return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    if kind is dict:
        keys, values = inner or (Any, Any)
        return isinstance(value, dict) and all(_is_a(k, keys) and _is_a(v, values) for k, v in value.items())
    if kind in (list, tuple, Sequence):
        item = inner[0] if inner else Any
        return isinstance(value, list | tuple) and all(_is_a(part, item) for part in value)
    return not isinstance(kind, type) or kind is Any or isinstance(value, kind)


def arrays_in(value: Any) -> Iterator[Any]:
    """Every array in learned attributes."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from arrays_in(part)
    elif type(value) in _NAMES:
        for f in fields(value):
            yield from arrays_in(getattr(value, f.name))


def contiguous(value: Any) -> Any:
    """The same with every array in C order, as a file returns it: products of another layout round differently."""
    if isinstance(value, np.ndarray):
        return np.asarray(value, order="C")
    if isinstance(value, dict):
        return {key: contiguous(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(contiguous(item) for item in value)
    if type(value) in _NAMES:
        return type(value)(**{f.name: contiguous(getattr(value, f.name)) for f in fields(value)})
    return value
