"""The only home of safetensors files and of atomic writes.

A fusehash file is a safetensors file: arrays as tensors, everything else as JSON in the header. The header's metadata
holds `format` (which kind of file), `version`, `checksum`, and one JSON document per entry. In it an array is
{"$array": tensor name} and a registered dataclass is {"$class": name, "fields": ...}. No code is ever loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np

from fusehash import trust
from fusehash.errors import DataError, MissingPackageError, ModelFileError

Arrays = dict[str, "np.ndarray[Any, Any]"]
T = TypeVar("T")
CHECKSUM = "checksum"  # the entry that holds it
MAX_HEADER_BYTES = 100_000_000  # what safetensors accepts
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "U32": 4, "I32": 4, "F32": 4}
ITEM_BYTES |= {"U64": 8, "I64": 8, "F64": 8}
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
    checked_since : int
        The first version whose files must have a checksum.
    """

    name: str
    version: int
    what: str
    checked_since: int

    def write(self, path: Path, content: dict[str, Any]) -> None:
        """Write a file; whatever happens, `path` holds either the old file or the whole new one."""
        from safetensors.numpy import save

        arrays: Arrays = {}
        documents = {name: json.dumps(_flatten(value, name, arrays)) for name, value in content.items()}
        entries = {"format": self.name, "version": str(self.version), **documents}
        data = save(arrays, metadata={**entries, CHECKSUM: checksum_of(entries, arrays)})
        write_atomically(path, lambda file: file.write(data))

    @contextmanager
    def reading(self, path: Path, *, follow_links: bool = True) -> Iterator[tuple[int, Content]]:
        """The version of a file and its content, by name; use `follow_links=False` in a folder of data.

        Anything that goes wrong inside, also while the caller puts the content to use, is reported as a damaged file.
        """
        from safetensors import safe_open

        check_readable(path, f"{_article(self.what)} {self.what} file", follow_links=follow_links)
        intact = f"'{path}' must be an intact fusehash {self.what}."
        try:
            _check_header(path)
            with safe_open(str(path), framework="np") as file:
                entries = dict(file.metadata() or {})
                if entries.get("format") != self.name:
                    raise ModelFileError(
                        f"'{path}' must be a fusehash {self.what}. It is a safetensors file of another kind."
                    )
                version = int(entries["version"])
                if version > self.version:
                    raise ModelFileError(
                        f"'{path}' was written by a newer fusehash (format {version}); "
                        f"this one reads formats up to {self.version}."
                    )
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            checksum = entries.pop(CHECKSUM, None)
            if (checksum is not None or version >= self.checked_since) and checksum != checksum_of(entries, arrays):
                raise ModelFileError(f"{intact} Its checksum says that it was changed.")
            yield version, Content(entries, arrays)
        except (ModelFileError, MissingPackageError):
            raise
        except MemoryError as error:
            raise ModelFileError(f"'{path}' could not be read: there is not enough memory.") from error
        except Exception as error:  # whatever a file that was made to do harm leads to
            raise ModelFileError(f"{intact} It is truncated, damaged or foreign.") from error


def checksum_of(entries: dict[str, str], arrays: Arrays) -> str:
    """A digest of everything in a file but itself: all entries, and name, type, shape and bytes of all arrays."""
    digest = hashlib.sha256()
    digest.update(json.dumps(sorted(entries.items())).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _check_header(path: Path) -> None:
    """Raise unless the header has room in the file, names everything once, and no array is larger than the file."""
    with trust.open_file(path, f"'{path}'") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        n_bytes = int.from_bytes(file.read(8), "little")
        trust.check_size(f"'{path}'", n_bytes + 8, min(file_bytes, MAX_HEADER_BYTES))
        header = json.loads(file.read(n_bytes), object_pairs_hook=_once)
    for name, array in header.items():
        if name != "__metadata__":
            needed = math.prod(array["shape"]) * ITEM_BYTES[array["dtype"]]
            trust.check_size(f"An array of '{path}'", needed, file_bytes)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name is used twice")
    return content


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
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        if required <= set(content) <= {f.name for f in fields(cls)}:  # later fields have defaults
            check_types(cls, content)
            return cls(**content)
        return cls.revive(**content)  # type: ignore[attr-defined]
    return {key: _revive(item, arrays) for key, item in value.items()}  # format 1 of encoders


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


# -- atomic writes -----------------------------------------------------------------------------------------------


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file, open for writing, that replaces `path` when the block ends without an error.

    The file is written next to `path`, flushed to disk, then renamed; an error leaves `path` as it was.
    """
    if not path.parent.is_dir():
        raise DataError(f"The folder of '{path}' must exist. '{path.parent}' does not.")
    try:
        file = create_draft(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"'{path}' cannot be written: {reason}.") from error
    draft = Path(file.name)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # an open file cannot be renamed there
            draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise DataError(f"'{path}' could not be written ({error.strerror}); nothing was changed.") from error
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    try:
        sync_folder(path.parent)
    except OSError as error:
        raise DataError(f"'{path}' was written, but may not survive a loss of power ({error.strerror}).") from error


def create_draft(path: Path) -> BinaryIO:
    """A new file under a hidden name next to `path`, locked until it is closed; its `name` is a path.

    Stale drafts of the same path are removed. Raises OSError.
    """
    remove_stale_drafts(path)
    while True:
        file = path.with_name(f".{path.name}.{secrets.token_hex(6)}.draft").open("x+b")
        _lock_draft(file.fileno())
        with suppress(FileNotFoundError):  # another process took it for stale before it was locked
            if os.path.samestat(os.fstat(file.fileno()), os.stat(file.name)):  # noqa: PTH116 (a name)
                return file
        file.close()


@contextmanager
def draft_folder(path: Path) -> Iterator[Path]:
    """A new folder under a hidden name next to `path`, locked in the block; removed after it, unless it was renamed."""
    remove_stale_drafts(path)
    draft, handle = path.with_name(f".{path.name}.{secrets.token_hex(6)}.draft"), None
    draft.mkdir()
    try:
        if os.name == "posix":
            handle = os.open(draft, os.O_RDONLY)
            _lock_draft(handle)
            if not draft.is_dir():
                raise FileNotFoundError(None, "another process removed its draft; try again")
        yield draft
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _lock_draft(handle: int) -> None:
    """Lock a new draft; a process that takes it for stale holds it only until it has removed it."""
    if os.name == "nt":
        try_lock(handle)
        return
    import fcntl

    with suppress(OSError):  # a file system without locks
        fcntl.flock(handle, fcntl.LOCK_EX)


def remove_stale_drafts(path: Path) -> None:
    """Remove what writers of `path` left behind when they were killed: drafts, files or folders, that nobody locks."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.draft")
    with suppress(OSError):
        names = [entry.name for entry in os.scandir(path.parent) if pattern.fullmatch(entry.name)]
        for draft in map(path.with_name, names):
            with suppress(OSError):
                handle = os.open(draft, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
                try:
                    if not try_lock(handle):
                        continue
                    for name in (draft.name + suffix for suffix in ("-wal", "-shm", "-journal")):  # of SQLite
                        draft.with_name(name).unlink(missing_ok=True)
                    shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
                finally:
                    os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file or folder, unless another process holds it; closing it, or the end of a process, unlocks it."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def unlock(handle: int) -> None:
    """Unlock a file at once; closing it would wait for copies of the handle in forked processes."""
    if os.name != "nt":
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


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


def check_readable(path: Path, what: str, *, follow_links: bool = True) -> None:
    """Raise if a file does not exist or cannot be opened; safetensors does not tell one from the other."""
    try:
        trust.open_file(path, "It", ModelFileError, follow_links=follow_links).close()
    except ModelFileError as error:
        reason = "There is no such file." if isinstance(error.__cause__, FileNotFoundError) else error
        raise ModelFileError(f"'{path}' must be {what}. {reason}") from error
