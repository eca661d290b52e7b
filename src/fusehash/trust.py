"""The only home of what is trusted in data: which files are opened, which sizes, codecs and classes are believed.

A path that the user gives is trusted and may be a link. Nothing inside the data is trusted: no link, no
absolute path, no address, no codec or class outside a list here, no size that the file itself cannot hold.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from fusehash.errors import DataError, FusehashError

MAX_DOCUMENT_BYTES = 1 << 24  # of JSON
MAX_DEPTH = 64  # of nested lists and objects in a document
MAX_EXPANSION = 1100  # bytes that one byte of a compressed file may become; deflate reaches 1032
MODEST_BYTES = 1 << 27  # may be decoded at once from a file of any size
MODEST_EXPANSION = 64  # bytes that one byte may become if they are decoded at once and are more than that
NUMBER_TYPE = re.compile("bool|u?int(8|16|32|64)|float(16|32|64)|[<>|=]?(b1|[iu][1248]|f[248])")  # float32 or <f4
COMPRESSORS = ("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd")  # of zarr arrays
ZARR_FILTERS = ("delta", "fixedscaleoffset", "shuffle")
MAX_YAML_BYTES = 1 << 18  # of a YAML document, whose parser is slow
MAX_YAML_EXPANSION = 1 << 20  # characters that it may become when every alias is replaced by what it stands for
YAML_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "merge")
)
HDF5_FILTERS = frozenset((1, 2, 3, 4, 32000))  # deflate, shuffle, fletcher32, szip, lzf
MODEL_PARAMS = {  # of encoders: names of other files
    "onnx": ("path", "tokenizer"), "clip": ("model", "pretrained"), "sentence-transformers": ("model",)
}  # fmt: skip
TRUSTED_MODELS = "FUSEHASH_TRUSTED_MODELS"  # environment variable: models that the user confirms, separated by commas
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_confirmed: set[str] = set()


def open_file(
    path: Path, subject: str, error: type[FusehashError] = DataError, *, follow_links: bool = True
) -> BinaryIO:
    """Open a regular file for reading, unbuffered; a FIFO, device or socket is refused without waiting for it.

    Use `follow_links=False` for a file whose name comes from data or that is inside a folder of data.
    """
    return os.fdopen(open_descriptor(path, subject, error, follow_links=follow_links), "rb", buffering=0)


def open_descriptor(path: Path, subject: str, error: type[FusehashError], *, follow_links: bool) -> int:
    """The same as a number that the caller closes."""
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
    return handle


def sha256_of(file: BinaryIO) -> str:
    """The SHA-256 of an open file, from where it stands to its end."""
    digest = hashlib.sha256()
    while part := file.read(1 << 20):
        digest.update(part)
    return digest.hexdigest()


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


def check_expansion(subject: str, needed: int, file_bytes: int, error: type[FusehashError] = DataError) -> None:
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


def parse_yaml(text: str, subject: str, error: type[FusehashError] = DataError) -> Any:
    """A YAML document of bounded size, depth and expansion that holds plain values only; needs the package yaml."""
    import yaml

    if len(text) > MAX_YAML_BYTES:
        raise error(f"{subject} must have at most {MAX_YAML_BYTES:,} characters. It has {len(text):,}.")
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_yaml(root, subject, error)
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError, RecursionError) as cause:
        if isinstance(cause, FusehashError):
            raise
        mark = getattr(cause, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise error(f"{subject} must be a YAML file. It cannot be read{where}.") from cause


def _check_yaml(root: Any, subject: str, error: type[FusehashError]) -> None:
    """Raise if the nodes of a document, which share what aliases stand for, are too many, too deep or not plain."""
    measured: dict[int, tuple[int, int] | None] = {}  # None while what is below a node is being measured

    def measure(node: Any) -> tuple[int, int]:
        """The characters and levels below a node when aliases are replaced."""
        if node.tag not in YAML_TAGS:
            kind = node.tag.removeprefix("tag:yaml.org,2002:")[:80]
            raise error(f"{subject} must hold plain values. Got {kind!r} in line {node.start_mark.line + 1}.")
        if id(node) not in measured:
            measured[id(node)] = None
            if isinstance(node.value, str):
                inner = [(len(node.value), 0)]
                if node.tag.endswith(":int") and len(node.value) > 20:
                    raise error(f"{subject} must hold numbers of at most 20 digits. Got one of {len(node.value):,}.")
            else:
                items = (item if isinstance(item, tuple) else (item,) for item in node.value)
                inner = [measure(part) for item in items for part in item]
            size, depth = 1 + sum(size for size, _ in inner), 1 + max((depth for _, depth in inner), default=0)
            if size > MAX_YAML_EXPANSION or depth > MAX_DEPTH:
                limits = f"{MAX_YAML_EXPANSION:,} characters and {MAX_DEPTH} levels"
                raise error(f"{subject} must have at most {limits} when its aliases are replaced. It has more.")
            measured[id(node)] = size, depth
        if (below := measured[id(node)]) is None:
            raise error(f"{subject} must not contain itself. An alias in it does.")
        return below

    measure(root)


def check_archive(source: Path | BinaryIO, subject: str, error: type[FusehashError] = DataError) -> None:
    """Raise unless a zip archive holds plain files side by side that cannot expand beyond what its size allows."""
    try:
        with zipfile.ZipFile(source) as archive:
            members, end = archive.infolist(), archive.start_dir
    except Exception as cause:  # zipfile raises many classes on damaged files
        raise error(f"{subject} must be an intact zip archive. It is truncated or damaged.") from cause
    members.sort(key=lambda member: member.header_offset)
    names = [member.filename for member in members]
    if len(set(names)) < len(names):
        raise error(f"{subject} must hold every file once. A name in it is used twice.")
    ends = [*(member.header_offset for member in members), end][1:]
    for member, following in zip(members, ends, strict=True):
        name, path = member.filename[:80], PurePosixPath(member.filename)
        is_link = stat.S_ISLNK(member.external_attr >> 16)
        if is_link or path.is_absolute() or ".." in path.parts or "\\" in member.filename:
            raise error(f"{subject} must hold files of its own. {name!r} leads out of it.")
        if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise error(
                f"{subject} must be stored plainly or by deflate. {name!r} is encrypted or compressed otherwise."
            )
        start = member.header_offset + 30 + len(member.orig_filename)
        if member.header_offset < 0 or start + member.compress_size > following:
            raise error(f"{subject} must hold files side by side. {name!r} overlaps with what follows it.")
        deflated = member.compress_type == zipfile.ZIP_DEFLATED
        inside = f"The file {name!r} in {subject}"
        check_size(inside, member.file_size, member.compress_size, error, compressed=deflated)


def check_hdf5(dataset: Any, subject: str = "", error: type[FusehashError] = DataError) -> None:
    """Raise unless an h5py dataset is in its own file, which can hold it, and needs no unusual filter."""
    subject = subject or f"The HDF5 dataset {dataset.name}"
    try:
        layout = dataset.id.get_create_plist()  # before its shape is asked for, which may open other files
        if layout.get_external_count() or layout.get_layout() not in (0, 1, 2):  # compact, contiguous, chunked
            raise error(f"{subject} must be stored in its own file. It refers to others.")
        listed = [layout.get_filter(i)[0] for i in range(layout.get_nfilters())]
        chunk_bytes = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
        needed = math.prod(dataset.shape or ()) * dataset.dtype.itemsize
        file_bytes = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    except FusehashError:
        raise
    except Exception as cause:  # HDF5 has many words for damage
        raise error(f"{subject} must be intact. It is damaged.") from cause
    if not HDF5_FILTERS.issuperset(listed) or len(set(listed)) < len(listed):
        codes = ", ".join(map(str, listed[:10]))
        raise error(f"{subject} must be compressed once by gzip, szip or lzf, or not at all. Got the filters {codes}.")
    check_size(subject, needed, file_bytes, error, compressed=bool(listed))
    check_expansion(f"A chunk of {subject}", chunk_bytes, file_bytes, error)


def open_hdf5(group: Any, name: str, subject: str = "", error: type[FusehashError] = DataError) -> Any:
    """A member of an h5py group, a dataset checked; a link to elsewhere is not followed."""
    subject = subject or f"'{name}' of the HDF5 file"
    for part in name.strip("/").split("/"):
        if type(group.get(part, getlink=True)).__name__ != "HardLink":
            raise error(f"{subject} must be in its own file. It is a link.")
        group = group[part]
    if type(group).__name__ == "Dataset":
        check_hdf5(group, subject, error)
    return group


def confirm_models(encoder: str, params: Mapping[str, Any]) -> None:
    """Trust the models that the user names as parameters of an encoder, in this process and in later ones."""
    names = {_located(str(params.get(param) or "")) for param in MODEL_PARAMS.get(encoder, ())}
    new = sorted(name for name in names - _confirmed_models() if not _is_harmless(name) and "\n" not in name)
    _confirmed.update(new)
    with contextlib.suppress(OSError):  # without a home folder, other processes ask again
        if new:
            _memory().parent.mkdir(parents=True, exist_ok=True)
            with _memory().open("a", encoding="utf-8") as file:
                file.write("".join(f"{name}\n" for name in new))


def check_models(encoder: str, params: Mapping[str, Any], subject: str, error: type[FusehashError] = DataError) -> None:
    """Raise unless the models that an encoder in data names may be loaded.

    These are plain names, which only the list of a library can resolve, and what the user has confirmed: by using the
    model himself on this machine, or by the environment variable FUSEHASH_TRUSTED_MODELS.
    """
    for param in MODEL_PARAMS.get(encoder, ()):
        name = str(params.get(param) or "")
        if not _is_harmless(name) and not {name, _located(name)} & _confirmed_models():
            raise error(
                f"{subject} names the model {name!r} for its encoder {encoder!r}, which data may not choose. "
                f"If you trust this model, set {TRUSTED_MODELS} to its name."
            )


def _located(name: str) -> str:
    """The same with a path in full."""
    return name if ":" in name or _is_harmless(name) else str(Path(name).absolute())


def _is_harmless(name: str) -> bool:
    return not name or (_PLAIN_NAME.fullmatch(name) is not None and not os.path.lexists(name))


def _confirmed_models() -> set[str]:
    remembered: list[str] = []
    with contextlib.suppress(OSError, UnicodeDecodeError):
        remembered = _memory().read_text(encoding="utf-8").splitlines()
    return {*_confirmed, *remembered, *os.environ.get(TRUSTED_MODELS, "").split(",")}


def _memory() -> Path:
    """Where the models that the user has named are remembered; never inside data."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "fusehash" / "trusted-models"
