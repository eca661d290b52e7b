"""One model, one safetensors file: arrays as tensors, everything else as JSON in the header. No code is ever loaded.

The header's metadata holds `format` ("fusehash-model"), `version`, `method`, `params` and `state`. In `state` an array
is {"$array": tensor name} and a known small class is {"$class": its name, "fields": ...}; nothing else is revived.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fusehash.bits import check_codes
from fusehash.errors import DataError, ModelFileError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

FORMAT = "fusehash-model"
VERSION = 1
# Constructor arguments that are not settings of the method.
NOT_SAVED = ("callback", "n_threads")
# Learned attributes of every method.
COMMON = ("codes_", "n_features_", "n_samples_", "view_names_")

_CLASSES: dict[str, type] = {}
T = TypeVar("T")


def is_learned(name: str) -> bool:
    """Whether an attribute of a model is what `fit` has learned."""
    return name.endswith("_") and not name.startswith("_")


def storable(cls: type[T]) -> type[T]:
    """Class decorator: a dataclass that may stand inside a model file."""
    _CLASSES[cls.__name__] = cls
    return cls


def _flatten(value: Any, name: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"$array": name}
    if is_dataclass(value) and not isinstance(value, type) and type(value).__name__ in _CLASSES:
        content = {f.name: _flatten(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"$class": type(value).__name__, "fields": content}
    if isinstance(value, dict):
        return {"$dict": [[key, _flatten(item, f"{name}.{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"'{name}' must be made of numbers, strings and arrays to be saved. Got {type(value).__name__}.")


def _revive(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_revive(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$dict" in value:
        return {key: _revive(item, arrays) for key, item in value["$dict"]}
    return _CLASSES[value["$class"]](**{key: _revive(item, arrays) for key, item in value["fields"].items()})


def contiguous(value: Any) -> Any:
    """The same with every array in C order, as a file gives it back: products of another layout round differently."""
    if isinstance(value, np.ndarray):
        return np.asarray(value, order="C")
    if isinstance(value, dict):
        return {key: contiguous(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(contiguous(item) for item in value)
    if type(value).__name__ in _CLASSES:
        return type(value)(**{f.name: contiguous(getattr(value, f.name)) for f in fields(value)})
    return value


def write(model: CrossModalHasher, path: Path) -> None:
    """Save a fitted model; whatever happens, `path` holds either the old file or the whole new one."""
    from safetensors.numpy import save

    arrays: dict[str, np.ndarray[Any, Any]] = {}
    learned = {name: value for name, value in vars(model).items() if is_learned(name)}
    state = _flatten(learned, "state", arrays)
    params = {name: value for name, value in model.get_params(deep=False).items() if name not in NOT_SAVED}
    if not isinstance(params.get("random_state"), int | np.integer | type(None)):
        params["random_state"] = None  # a generator was used up; only seeds can be stored
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "method": model.method,
        "params": json.dumps(_flatten(params, "params", arrays)),
        "state": json.dumps(state),
    }
    content = save(arrays, metadata=metadata)
    write_atomically(path, lambda file: file.write(content))


def write_atomically(path: Path, fill: Callable[[Any], Any]) -> None:
    """Write a file beside `path`, flush it to disk, then rename it over `path`."""
    if not path.parent.is_dir():
        raise DataError(f"The folder of '{path}' must exist. '{path.parent}' does not.")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DataError(f"'{path}' cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)  # mkstemp's 0600 is for secrets
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise DataError(f"'{path}' could not be written ({error.strerror}); nothing was changed.") from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_readable(path: Path, what: str) -> None:
    """Say that a file is not there, or cannot be opened; safetensors takes the one for the other."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise ModelFileError(f"'{path}' must be {what}. There is no such file.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"'{path}' must be {what}. It cannot be read: {reason}.") from error


def read(path: Path, find: Callable[[str], type[CrossModalHasher] | None]) -> CrossModalHasher:
    """Load what `write` wrote; `find` gives the class of a method, or None."""
    from safetensors import SafetensorError, safe_open

    check_readable(path, "a model file")
    try:
        with safe_open(str(path), framework="np") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise ModelFileError(f"'{path}' must be a fusehash model. It is a safetensors file of another kind.")
            if int(metadata["version"]) > VERSION:
                raise ModelFileError(
                    f"'{path}' was written by a newer fusehash (format {metadata['version']}); "
                    f"this one reads formats up to {VERSION}."
                )
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        cls = find(metadata["method"])
        if cls is None:
            raise ModelFileError(
                f"'{path}' holds the method {metadata['method']!r}, which this fusehash does not know."
            )
        model = cls(**_revive(json.loads(metadata["params"]), arrays))
        state = _revive(json.loads(metadata["state"]), arrays)
        if not set(COMMON) <= set(state) or not all(map(is_learned, state)):
            raise ValueError("not the learned attributes of a model")
        check_codes(state["codes_"], model.n_bits)
        for name, value in state.items():
            setattr(model, name, value)
        return model
    except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"'{path}' must be an intact fusehash model. It is truncated, damaged or foreign."
        ) from error
