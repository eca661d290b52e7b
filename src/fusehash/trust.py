"""The only home of what is trusted in data: which files are opened, which sizes, codecs and classes are believed.

A path that the user gives is trusted and may be a link. Nothing inside the data is trusted: no link, no
absolute path, no address, no codec or class outside a list here, no size that the file itself cannot hold.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from fusehash.errors import DataError, FusehashError

MAX_DOCUMENT_BYTES = 1 << 24  # of JSON or YAML
MAX_DEPTH = 64  # of nested lists and objects in a document
MAX_EXPANSION = 1100  # bytes that one byte of a compressed file may become; deflate reaches 1032
MODEL_PARAMS = {"onnx": ("path", "tokenizer"), "clip": ("model", "pretrained")}  # of encoders: names of other files
TRUSTED_MODELS = "FUSEHASH_TRUSTED_MODELS"  # environment variable: models that the user confirms, separated by commas
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_confirmed: set[str] = set()


def open_file(
    path: Path, subject: str, error: type[FusehashError] = DataError, *, follow_links: bool = True
) -> BinaryIO:
    """Open a regular file for reading, unbuffered; a FIFO, device or socket is refused without waiting for it.

    Use `follow_links=False` for a file whose name comes from data or that is inside a folder of data.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    if not follow_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
        if path.is_symlink():
            raise error(f"{subject} must be a file of its own. {path} is a link.")
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise error(f"{subject} could not be read: {reason}.") from cause
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{subject} must be a regular file. {path} is a folder, a pipe or a device.")
    return os.fdopen(handle, "rb", buffering=0)


def check_folder(path: Path, subject: str, error: type[FusehashError] = DataError) -> None:
    """Raise unless everything below a folder is a regular file or a folder: no links, pipes or devices."""
    for parent, folders, files in os.walk(path):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(parent, name)).st_mode  # noqa: PTH118 (many files)
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise error(f"{subject} must hold regular files only. {Path(parent, name)} is a link, pipe or device.")


def check_size(
    subject: str, needed: int, file_bytes: int, error: type[FusehashError] = DataError, *, compressed: bool = False
) -> None:
    """Raise if a header claims more bytes than its file can hold, before memory is taken for them."""
    if needed < 0 or needed > file_bytes * (MAX_EXPANSION if compressed else 1):
        raise error(f"{subject} claims {needed:,} bytes of content. Its file has {file_bytes:,}.")


def parse_json(text: str | bytes, subject: str, error: type[FusehashError] = DataError) -> Any:
    """A JSON document of bounded size and depth, which may hold NaN."""
    if len(text) > MAX_DOCUMENT_BYTES:
        raise error(f"{subject} must have at most {MAX_DOCUMENT_BYTES:,} bytes. It has {len(text):,}.")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise error(f"{subject} must be a JSON document. It is damaged.") from cause
    check_depth(document, subject, error)
    return document


def check_depth(document: Any, subject: str, error: type[FusehashError] = DataError) -> None:
    """Raise if lists and dicts are nested too deep to be processed."""
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise error(f"{subject} must be nested at most {MAX_DEPTH} deep. It is deeper.")
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                inner.extend(value.values())
            elif isinstance(value, list | tuple):
                inner.extend(value)
        level = inner


def confirm_models(*params: Mapping[str, Any] | None) -> None:
    """Trust the models that the user himself has named as parameters of encoders, in this process."""
    _confirmed.update(str(value) for each in params for value in (each or {}).values())


def check_models(encoder: str, params: Mapping[str, Any], folder: Path, error: type[FusehashError] = DataError) -> None:
    """Raise unless the models that an encoder in a folder of data names may be loaded.

    These are: a plain name, which only the list of a library can resolve; a file of this machine by its absolute path,
    if it did not come with the folder; and what the user has confirmed.
    """
    confirmed = {"", *_confirmed, *os.environ.get(TRUSTED_MODELS, "").split(",")}
    for param in MODEL_PARAMS.get(encoder, ()):
        name = str(params.get(param) or "")
        if name not in confirmed and not _is_harmless(name, folder):
            raise error(
                f"The encoder {encoder!r} of {folder} names the model {name!r}, which data may not choose. "
                f"If you trust it, set {TRUSTED_MODELS} to this name."
            )


def _is_harmless(name: str, folder: Path) -> bool:
    path = Path(name)
    try:
        if _PLAIN_NAME.fullmatch(name):
            return not path.exists()
        return path.is_absolute() and not path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a name too long, a zero byte or a circle of links
        return False
