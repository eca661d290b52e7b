"""The only home of safetensors files and of atomic writes.

A fusehash file is a safetensors file: arrays as tensors, everything else as JSON in the header. The header's metadata
holds `format` (which kind of file), `version`, and one JSON document per entry. In it an array is
{"$array": tensor name} and a registered dataclass is {"$class": name, "fields": ...}. No code is ever loaded.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np

from fusehash.errors import DataError, ModelFileError

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

    Its name is part of the format; `@storable("Name")` keeps the name of earlier files. When its fields change, a class
    method `revive(**fields)` must accept those of earlier files.
    """

    def register(cls: type[T]) -> type[T]:
        name = what if isinstance(what, str) else cls.__name__
        _CLASSES[name], _NAMES[cls] = cls, name
        return cls

    return register if isinstance(what, str) else register(what)


# -- safetensors -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileFormat:
    """One kind of safetensors file.

    Attributes
    ----------
    name : str
        Stored in the header, as in "fusehash-model".
    version : int
        The version that is written; files of this version and all earlier ones can be read.
    what : str
        For messages, as in "model".
    """

    name: str
    version: int
    what: str

    def write(self, path: Path, content: dict[str, Any]) -> None:
        """Write a file; whatever happens, `path` holds either the old file or the whole new one."""
        from safetensors.numpy import save

        arrays: Arrays = {}
        documents = {name: json.dumps(_flatten(value, name, arrays)) for name, value in content.items()}
        data = save(arrays, metadata={"format": self.name, "version": str(self.version), **documents})
        write_atomically(path, lambda file: file.write(data))

    @contextmanager
    def reading(self, path: Path) -> Iterator[tuple[int, Content]]:
        """The version of a file and its content, by name.

        Anything that goes wrong inside, also while the caller puts the content to use, is reported as a damaged file.
        """
        from safetensors import SafetensorError, safe_open

        check_readable(path, f"{_article(self.what)} {self.what} file")
        try:
            with safe_open(str(path), framework="np") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != self.name:
                    raise ModelFileError(
                        f"'{path}' must be a fusehash {self.what}. It is a safetensors file of another kind."
                    )
                if int(metadata["version"]) > self.version:
                    raise ModelFileError(
                        f"'{path}' was written by a newer fusehash (format {metadata['version']}); "
                        f"this one reads formats up to {self.version}."
                    )
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            yield int(metadata["version"]), Content(metadata, arrays)
        except (SafetensorError, OSError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(
                f"'{path}' must be an intact fusehash {self.what}. It is truncated, damaged or foreign."
            ) from error


@dataclass(frozen=True)
class Content:
    """What was written, by name; decoded when asked for, so that classes can be imported before."""

    documents: dict[str, str]
    arrays: Arrays

    def __getitem__(self, name: str) -> Any:
        text = self.documents[name]
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            return text  # format 1 stored names without quotes
        return _revive(value, self.arrays)


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def _flatten(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        arrays[name] = np.ascontiguousarray(value)
        return {"$array": name}
    if type(value) in _NAMES:
        content = {f.name: _flatten(getattr(value, f.name), f"{name}.{f.name}", arrays) for f in fields(value)}
        return {"$class": _NAMES[type(value)], "fields": content}
    if isinstance(value, dict):
        return {"$dict": [[key, _flatten(item, f"{name}.{key}", arrays)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_flatten(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise DataError(f"'{name}' must be made of numbers, strings and arrays to be saved. Got {type(value).__name__}.")


def _revive(value: Any, arrays: Arrays) -> Any:
    if isinstance(value, list):
        return [_revive(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$dict" in value:
        return {key: _revive(item, arrays) for key, item in value["$dict"]}
    if "$class" in value:
        cls, content = _CLASSES[value["$class"]], {key: _revive(item, arrays) for key, item in value["fields"].items()}
        if set(content) == {f.name for f in fields(cls)}:
            return cls(**content)
        return cls.revive(**content)  # type: ignore[attr-defined]
    return {key: _revive(item, arrays) for key, item in value.items()}  # format 1 of encoders


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


# -- atomic writes -----------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[Any]:
    """A new file, open for writing, that replaces `path` when the block ends without an error.

    The file is written next to `path`, flushed to disk, then renamed; an error leaves `path` as it was.
    """
    if not path.parent.is_dir():
        raise DataError(f"The folder of '{path}' must exist. '{path.parent}' does not.")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise DataError(f"'{path}' cannot be written: {error.strerror}.") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp's 0600 is for secrets
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise DataError(f"'{path}' could not be written ({error.strerror}); nothing was changed.") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, fill: Callable[[Any], Any]) -> None:
    """Replace a file by what `fill(file)` writes, or leave it as it was."""
    with replacing(path) as file:
        fill(file)


def make_folder(path: Path) -> None:
    """Make a folder and those above it where they are missing, to be there after a loss of power, too."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder, so that files which were renamed into it are there after a loss of power."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_readable(path: Path, what: str) -> None:
    """Raise if a file does not exist or cannot be opened; safetensors does not tell one from the other."""
    try:
        path.open("rb").close()
    except FileNotFoundError:
        raise ModelFileError(f"'{path}' must be {what}. There is no such file.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelFileError(f"'{path}' must be {what}. It cannot be read: {reason}.") from error
