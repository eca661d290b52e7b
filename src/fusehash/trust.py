"""The only home of what is trusted in data: which files are opened, which sizes, codecs and classes are believed.

A path that the user gives is trusted and may be a link. Nothing inside the data is trusted: no link, no
absolute path, no address, no codec or class outside a list here, no size that the file itself cannot hold.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any, BinaryIO

from fusehash.errors import DataError, FusehashError

MAX_DOCUMENT_BYTES = 1 << 24  # of JSON or YAML
MAX_DEPTH = 64  # of nested lists and objects in a document
MAX_EXPANSION = 1100  # bytes that one byte of a compressed file may become; deflate reaches 1032
MODEST_BYTES = 1 << 27  # may be decoded at once from a file of any size
MODEST_EXPANSION = 64  # bytes that one byte may become if they are decoded at once and are more than that

NUMBER_TYPE = re.compile("bool|u?int(8|16|32|64)|float(16|32|64)|[<>|=]?(b1|[iu][1248]|f[248])")  # float32 or <f4
COMPRESSORS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")  # of zarr arrays
HDF5_FILTERS = frozenset((1, 2, 3, 4, 32000))  # deflate, shuffle, fletcher32, szip, lzf
ZARR_FILTERS = ("delta", "fixedscaleoffset", "shuffle")


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
            raise error(f"{subject} must be a file of its own. It is a link.")
    try:
        handle = os.open(path, flags)
    except (OSError, ValueError) as cause:
        reason = getattr(cause, "strerror", None) or cause
        raise error(f"{subject} could not be read: {reason}.") from cause
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise error(f"{subject} must be a regular file. It is a folder, a pipe or a device.")
    return os.fdopen(handle, "rb", buffering=0)


def check_folder(path: Path, subject: str, error: type[FusehashError] = DataError) -> set[str]:
    """The names of all files below a folder; raises if something there is a link, pipe or device."""
    names, prefixes = set(), [""]
    try:
        while prefixes:
            prefix = prefixes.pop()
            with os.scandir(path / prefix) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        prefixes.append(f"{prefix}{entry.name}/")
                    elif entry.is_file(follow_symlinks=False):
                        names.add(prefix + entry.name)
                    else:
                        raise error(f"{subject} must hold regular files only. {entry.path} is a link, pipe or device.")
    except (OSError, ValueError) as cause:
        if isinstance(cause, error):
            raise
        raise error(f"{subject} could not be read: {getattr(cause, 'strerror', None) or cause}.") from cause
    return names


def check_size(
    subject: str, needed: int, file_bytes: int, error: type[FusehashError] = DataError, *, compressed: bool = False
) -> None:
    """Raise if a header claims more bytes than its file can hold, before memory is taken for them."""
    if needed < 0 or needed > file_bytes * (MAX_EXPANSION if compressed else 1):
        raise error(f"{subject} claims {needed:,} bytes of content. Its file has {file_bytes:,}.")


def check_memory(subject: str, needed: int, file_bytes: int, error: type[FusehashError] = DataError) -> None:
    """Raise if what is decoded at once is large, and far larger than what it is decoded from."""
    if needed > max(MODEST_BYTES, file_bytes * MODEST_EXPANSION):
        raise error(f"{subject} claims {needed:,} bytes at once. It is made of {file_bytes:,}.")


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


def check_hdf5(dataset: Any, subject: str = "", error: type[FusehashError] = DataError) -> None:
    """Raise unless an h5py dataset is in its own file, which can hold it, and needs no unusual filter."""
    subject = subject or f"The HDF5 dataset {dataset.name}"
    layout = dataset.id.get_create_plist()  # before its shape is asked for, which may open other files
    if layout.get_external_count() or layout.get_layout() not in (0, 1, 2):  # compact, contiguous, chunked
        raise error(f"{subject} must be stored in its own file. It refers to others.")
    filters = {layout.get_filter(i)[0] for i in range(layout.get_nfilters())}
    if not filters <= HDF5_FILTERS:
        codes = ", ".join(map(str, sorted(filters - HDF5_FILTERS)))
        raise error(f"{subject} must be compressed by gzip, szip or lzf, or not at all. Got filter {codes}.")
    needed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
    file_bytes = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    check_size(subject, needed, file_bytes, error, compressed=bool(filters))
