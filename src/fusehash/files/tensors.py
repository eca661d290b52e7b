"""safetensors files: arrays as tensors, everything else as JSON in the header, with a checksum of it all."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.errors import MissingPackageError, ModelFileError
from fusehash.files.atomic import write_atomically
from fusehash.files.values import Arrays, flatten, revive

CHECKSUM = "checksum"  # the entry that holds it
MAX_HEADER_BYTES = 100_000_000  # what safetensors accepts
ITEM_BYTES = {"BOOL": 1, "U8": 1, "I8": 1, "U16": 2, "I16": 2, "F16": 2, "U32": 4, "I32": 4, "F32": 4}
ITEM_BYTES |= {"U64": 8, "I64": 8, "F64": 8}


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
        documents = {name: json.dumps(flatten(value, name, arrays)) for name, value in content.items()}
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
        return revive(value, self.arrays)


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


def check_readable(path: Path, what: str, *, follow_links: bool = True) -> None:
    """Raise if a file does not exist or cannot be opened; safetensors does not tell one from the other."""
    try:
        trust.open_file(path, "It", ModelFileError, follow_links=follow_links).close()
    except ModelFileError as error:
        reason = "There is no such file." if isinstance(error.__cause__, FileNotFoundError) else error
        raise ModelFileError(f"'{path}' must be {what}. {reason}") from error
