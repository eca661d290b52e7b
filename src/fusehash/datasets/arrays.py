"""Dataset files: NumPy .npz and MATLAB .mat (v5 to v7.3), and how their arrays become paired rows.

Opening a file reads only the names and shapes of its arrays, so arrays that are not needed cost nothing. Nothing is
ever unpickled. Public benchmark files come in three layouts:

NumPy     image, text, and optionally labels, train_idx, test_idx; other matrices of equal length are further views
parts     I_tr, T_tr, L_tr (train), I_te, T_te, L_te (query), optionally I_db, T_db, L_db (database)
deep      XAll, IAll or images (picture features), YAll (text), LAll (labels), without a split
"""

from __future__ import annotations

import io
import math
import zipfile
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash import trust
from fusehash.datasets import matlab
from fusehash.datasets.base import SPARSE_COLUMNS, tidy_labels, tidy_view
from fusehash.errors import DataError, FusehashError, first_line
from fusehash.extras import require
from fusehash.views import BLOCK_ROWS, to_dense

HEADER_BYTES = 1 << 14  # of an array in an archive; NumPy refuses headers of more than 10,000
LAYOUTS = "image, text, labels; or I_tr, T_tr, L_tr, I_te, T_te, L_te; or XAll (IAll, images), YAll, LAll"


class ArrayFile(ABC):
    """One file of named arrays; `shapes` are as the author of the file saw them (HDF5 stores axes in reverse)."""

    kind: str

    def __init__(self, path: Path) -> None:
        self.path, self.title = path, f"The file {path.name}"
        with self._intact():
            self.shapes: dict[str, tuple[int, ...]] = self._shapes()

    def read(self, key: str) -> Any:
        """One array; scipy.sparse if the file stores it so."""
        with self._intact(f" (array '{key}')"):
            array = self._read(key)
            if sp.issparse(array):
                needed = 8 * array.shape[0] * min(array.shape[1], SPARSE_COLUMNS)  # see `tidy_view`
                trust.check_size(f"Array {key} of {self.path.name}", needed, self.path.stat().st_size, compressed=True)
        return array

    @property
    def keys(self) -> str:
        return ", ".join(self.shapes) if self.shapes else "none"

    @contextmanager
    def _intact(self, where: str = "") -> Iterator[None]:
        try:
            yield
        except FusehashError:
            raise
        except Exception as error:  # parsers raise many classes on damaged files
            rule = f"{self.path.name} must be an intact {self.kind} file."
            raise DataError(f"{rule} It could not be read{where}: {first_line(error)}.") from error

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]: ...

    @abstractmethod
    def _read(self, key: str) -> Any: ...


class NpzFile(ArrayFile):
    """NumPy's .npz, without pickle."""

    kind = ".npz"

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        with trust.open_file(self.path, self.title) as file:
            trust.check_archive(file, self.title)
            with zipfile.ZipFile(file) as archive:
                yield archive

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        with self._open() as archive:
            keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            return {key: self._header(archive, key)[0] for key in keys}

    def _header(self, archive: zipfile.ZipFile, key: str) -> tuple[tuple[int, ...], Any, int]:
        """Shape and type of an array, and the bytes of its header."""
        with archive.open(f"{key}.npy") as member:
            stream = io.BytesIO(member.read(HEADER_BYTES))
            is_first = np.lib.format.read_magic(stream) == (1, 0)
            header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
            shape, _, dtype = header(stream)
            return tuple(shape), dtype, stream.tell()

    def _read(self, key: str) -> Any:
        with self._open() as archive:
            shape, dtype, start = self._header(archive, key)
            if dtype.kind not in "biufcSU" or not dtype.itemsize or min(shape, default=0) < 0:
                raise ValueError(f"it is of type {dtype} and shape {shape}; nothing is unpickled")
            needed, available = math.prod(shape) * dtype.itemsize, archive.getinfo(f"{key}.npy").file_size - start
            trust.check_size(f"Array {key} of {self.path.name}", needed, available)
            with archive.open(f"{key}.npy") as stream:
                array = np.lib.format.read_array(stream, allow_pickle=False)
                if stream.read(1):  # reading to the end also compares the checksum
                    raise ValueError("there is more than the array")
                return array


class MatFile(ArrayFile):
    """MATLAB's .mat up to version 7."""

    kind = ".mat"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        with trust.open_file(self.path, self.title) as file:
            self._variables = matlab.list_variables(file)
        return {name: variable.shape for name, variable in self._variables.items()}

    def _read(self, key: str) -> Any:
        with trust.open_file(self.path, self.title) as file:
            return matlab.read_variable(file, self._variables[key])


class Mat73File(ArrayFile):
    """MATLAB's .mat v7.3, an HDF5 file with reversed axes, through h5py."""

    kind = ".mat v7.3 (HDF5)"

    def _open(self) -> Any:
        return require("h5py", f"Reading {self.path.name} (.mat v7.3, HDF5)").File(self.path, "r")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {}
        with self._open() as file:
            for name in file:
                if name.startswith("#"):  # MATLAB's own references
                    continue
                node = trust.open_hdf5(file, name, f"Array {name} of {self.path.name}")
                if hasattr(node, "shape"):
                    shapes[name] = tuple(reversed(node.shape))
                elif "jc" in node and "MATLAB_sparse" in node.attrs:
                    ends = trust.open_hdf5(node, "jc", f"Array {name} of {self.path.name}")
                    shapes[name] = (int(node.attrs["MATLAB_sparse"]), ends.shape[0] - 1)
        return shapes

    def _read(self, key: str) -> Any:
        subject = f"Array {key} of {self.path.name}"
        with self._open() as file:
            node = trust.open_hdf5(file, key, subject)
            if hasattr(node, "shape"):
                return self._numbers(node, subject).T
            values, rows, ends = (
                self._numbers(trust.open_hdf5(node, part, subject), subject) if part in node else np.zeros(0, np.int64)
                for part in ("data", "ir", "jc")
            )
            return matlab.sparse_matrix(values, rows, ends, self.shapes[key])

    def _numbers(self, dataset: Any, subject: str) -> Any:
        if dataset.dtype.kind not in "biuf":  # values of any length could all be the same long one
            raise DataError(f"{subject} must hold numbers. Got {dataset.dtype} instead.")
        return dataset[()]


def open_arrays(path: Path) -> ArrayFile:
    """Open a file of arrays; its first bytes decide the format, not its name."""
    with trust.open_file(path, f"The file {path}") as stream:
        head = stream.read(520)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return NpzFile(path)
    if head.startswith((b"\x89HDF\r\n\x1a\n", b"MATLAB 7.3")) or head[512:520] == b"\x89HDF\r\n\x1a\n":
        return Mat73File(path)
    if head.startswith((b"MATLAB 5.0", b"MATLAB 7.0")):
        return MatFile(path)
    raise DataError(f"{path.name} must be a .npz or .mat (v5 to v7.3) file. Its first bytes are neither's.")


@dataclass(frozen=True)
class ArrayContent:
    """What a file holds: views, and if it has them labels and a split."""

    views: dict[str, Any]
    labels: Any
    train: Any = None
    query: Any = None
    database: Any = None
    label_names: tuple[str, ...] | None = None

    @property
    def n_rows(self) -> int:
        rows = next(iter(self.views.values())) if self.labels is None else self.labels
        return int(rows.shape[0])


def read_content(file: ArrayFile) -> ArrayContent:
    """Read the layout that the names of the arrays show."""
    keys = file.shapes.keys()
    if isinstance(file, NpzFile) and {"image", "text"} <= keys:
        return _read_numpy(file)
    if {"I_tr", "T_tr", "L_tr", "I_te", "T_te", "L_te"} <= keys:
        return _read_parts(file)
    if {"YAll", "LAll"} <= keys and {"XAll", "IAll", "images"} & keys:
        return _read_deep(file)
    raise DataError(
        f"The file {file.path.name} must hold the arrays {LAYOUTS}. Found instead: {file.keys}. "
        "Views of other names come as one file each: image=a.npy text=b.npy."
    )


def read_side(file: ArrayFile) -> ArrayContent | None:
    """The content of a file that holds only one view, and labels; None for any other file."""
    sides = {"image": ("image", "XAll", "IAll", "images"), "text": ("text", "YAll")}
    there = {name: [key for key in keys if key in file.shapes] for name, keys in sides.items()}
    label_keys = [key for key in ("labels", "LAll") if key in file.shapes]
    names = [name for name, keys in there.items() if keys]
    if len(names) != 1 or not label_keys:
        return None
    views = {names[0]: _view(file, there[names[0]][0], names[0])}
    labels = _labels(file, label_keys[0], views[names[0]].shape[0])
    check_pairing(file, views, labels)
    return ArrayContent(views, labels)


def _read_numpy(file: ArrayFile) -> ArrayContent:
    n_rows = file.shapes["image"][0] if file.shapes["image"] else 0
    others = [key for key in file.shapes if not key.startswith("label") and not key.endswith("_idx")]
    matrices = [key for key in others if len(file.shapes[key]) == 2 and file.shapes[key][0] == n_rows]
    views = {key: _view(file, key, key) for key in file.shapes if key in ("image", "text", *matrices)}
    labels = _labels(file, "labels", n_rows) if "labels" in file.shapes else None
    check_pairing(file, views, labels)
    train, query, database = (
        file.read(key) if key in file.shapes else None for key in ("train_idx", "test_idx", "database_idx")
    )
    if (train is None) != (query is None):
        raise DataError(f"{file.path.name} must hold both train_idx and test_idx, or neither. Found: {file.keys}.")
    return ArrayContent(views, labels, train, query, train if database is None else database, _label_names(file))


def _read_parts(file: ArrayFile) -> ArrayContent:
    n_database_keys = len({"I_db", "T_db", "L_db"} & file.shapes.keys())
    if n_database_keys not in (0, 3):
        raise DataError(f"{file.path.name} must hold all of I_db, T_db and L_db, or none. Found: {file.keys}.")
    parts = ["tr", "te", "db"] if n_database_keys else ["tr", "te"]
    views: dict[str, dict[str, Any]] = {}
    labels: dict[str, Any] = {}
    for part in parts:
        views[part] = {"image": _view(file, f"I_{part}", "image"), "text": _view(file, f"T_{part}", "text")}
        labels[part] = _labels(file, f"L_{part}", views[part]["image"].shape[0])
        check_pairing(file, views[part], labels[part], suffix=f"_{part}")
    for name in ("image", "text", "labels"):
        shapes = {part: (labels[part] if name == "labels" else views[part][name]).shape for part in parts}
        if len({shape[1:] for shape in shapes.values()}) > 1:
            listed = ", ".join(f"_{part} has {(*shape, 1)[1]}" for part, shape in shapes.items())
            raise DataError(f"The parts of {file.path.name} must have equally wide {name}. Got columns: {listed}.")
    ends = np.cumsum([labels[part].shape[0] for part in parts])
    keep = np.arange(ends[-1])
    train, query = keep[: ends[0]], keep[ends[0] : ends[1]]
    database = keep[ends[1] :] if "db" in parts else train
    if "db" in parts:
        twin = find_twins(views["tr"], views["db"])
        # Files often repeat the training pairs in the database; keep one row of each.
        keep = np.concatenate([np.flatnonzero(twin < 0), query, database])
        moved = np.full(ends[-1], -1)
        moved[keep] = np.arange(keep.size)
        train = moved[np.where(twin < 0, train, ends[1] + twin)]
        query, database = moved[query], moved[database]
    joined = {name: _stack([views[part][name] for part in parts])[keep] for name in ("image", "text")}
    tidied = {name: tidy_view(matrix, name) for name, matrix in joined.items()}
    return ArrayContent(tidied, _stack([labels[part] for part in parts])[keep], train, query, database)


def _read_deep(file: ArrayFile) -> ArrayContent:
    pictures = [key for key in ("XAll", "IAll", "images") if key in file.shapes]
    flat = [key for key in pictures if sum(size != 1 for size in file.shapes[key]) <= 2]
    if not flat:
        raise DataError(
            f"{file.path.name} must hold picture features as a matrix under XAll, IAll or images; extract them first. "
            f"Got raw pictures of shape {file.shapes[pictures[0]]} under {pictures[0]} instead."
        )
    views = {"image": _view(file, flat[0], "image"), "text": _view(file, "YAll", "text")}
    labels = _labels(file, "LAll", views["image"].shape[0])
    check_pairing(file, views, labels)
    return ArrayContent(views, labels)


def _view(file: ArrayFile, key: str, name: str) -> Any:
    matrix = file.read(key)
    if not sp.issparse(matrix) and matrix.ndim > 2:
        matrix = matrix.reshape([size for size in matrix.shape if size != 1])
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(f"Array {key} of {file.path.name} must be a matrix (rows, features). Got {file.shapes[key]}.")
    return tidy_view(matrix, name)


def _labels(file: ArrayFile, key: str, n_rows: int) -> Any:
    labels = file.read(key)
    if labels.ndim == 2 and 1 in labels.shape and n_rows > 1:  # MATLAB has no 1-d arrays: a row or column of numbers
        labels = (labels.toarray() if sp.issparse(labels) else labels).ravel()
    try:
        return tidy_labels(labels)
    except DataError as error:
        raise DataError(f"The array {key} of {file.path.name} cannot be used as labels. {error}") from error


def _label_names(file: ArrayFile) -> tuple[str, ...] | None:
    keys = [key for key in ("label_names", "class_names") if len(file.shapes.get(key, ())) == 1]
    return tuple(str(name) for name in file.read(keys[0])) if keys else None


def check_pairing(file: ArrayFile, views: Mapping[str, Any], labels: Any, suffix: str = "") -> None:
    matrices = views if labels is None else {**views, "labels": labels}
    rows = {f"{name}{suffix}": matrix.shape[0] for name, matrix in matrices.items()}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise DataError(f"Rows of {file.path.name} must pair one to one. Got different numbers of rows: {listed}.")


def _stack(parts: list[Any]) -> Any:
    if any(sp.issparse(part) for part in parts):
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts)


def find_twins(part: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """For each row of ``part`` the row of ``whole`` that equals it in every view, each used once; -1 if none does."""
    rows_of: defaultdict[bytes, deque[int]] = defaultdict(deque)
    for row, content in enumerate(_row_digests(whole)):
        rows_of[content].append(row)
    return np.array([rows_of[content].popleft() if rows_of[content] else -1 for content in _row_digests(part)])


def _row_digests(views: Mapping[str, Any]) -> Iterator[bytes]:
    n_rows = next(iter(views.values())).shape[0]
    for start in range(0, n_rows, BLOCK_ROWS):
        blocks = [to_dense(matrix[start : start + BLOCK_ROWS]) + 0.0 for matrix in views.values()]  # no -0.0
        for row in np.ascontiguousarray(np.concatenate(blocks, axis=1)):
            yield blake2b(row.data, digest_size=16).digest()
