"""How the arrays of a file become paired rows: the three layouts that public benchmark files come in.

NumPy     image, text, and optionally labels, train_idx, test_idx; other matrices of equal length are further views
parts     I_tr, T_tr, L_tr (train), I_te, T_te, L_te (query), optionally I_db, T_db, L_db (database)
deep      XAll, IAll or images (picture features), YAll (text), LAll (labels), without a split
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.datasets.arrays import ArrayFile, NpzFile
from fusehash.datasets.normalize import tidy_labels, tidy_view
from fusehash.errors import DataError
from fusehash.views import BLOCK_ROWS, to_dense

LAYOUTS = (
    "image, text, labels (without which one can learn but not evaluate); "
    "or I_tr, T_tr, L_tr, I_te, T_te, L_te; or XAll (IAll, images), YAll, LAll"
)


@dataclass(frozen=True)
class Content:
    """What a file holds: views and, where it has them, labels row by row, and its own split where it has one."""

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


def read_content(file: ArrayFile) -> Content:
    """Read whichever layout the names of the arrays show."""
    keys = file.shapes
    if isinstance(file, NpzFile) and {"image", "text"} <= keys.keys():
        return _read_numpy(file)
    if {"I_tr", "T_tr", "L_tr", "I_te", "T_te", "L_te"} <= keys.keys():
        return _read_parts(file)
    if {"YAll", "LAll"} <= keys.keys() and {"XAll", "IAll", "images"} & keys.keys():
        return _read_deep(file)
    raise DataError(
        f"The file {file.path.name} must hold the arrays {LAYOUTS}. Found instead: {file.keys}. "
        "Views of other names come as one file each: image=a.npy text=b.npy."
    )


def _read_numpy(file: ArrayFile) -> Content:
    n_rows = file.shapes["image"][0] if file.shapes["image"] else 0
    names = [
        key
        for key, shape in file.shapes.items()
        if key in ("image", "text")
        or (len(shape) == 2 and shape[0] == n_rows and not key.startswith("label") and not key.endswith("_idx"))
    ]
    views = {name: _view(file, name, name) for name in names}
    labels = _labels(file, "labels", n_rows) if "labels" in file.shapes else None
    check_pairing(file, views, labels)
    train, query, database = (
        file.read(key) if key in file.shapes else None for key in ("train_idx", "test_idx", "database_idx")
    )
    if (train is None) != (query is None):
        raise DataError(
            f"The file {file.path.name} must hold both train_idx and test_idx, or neither. Found: {file.keys}."
        )
    return Content(views, labels, train, query, train if database is None else database, _label_names(file))


def _read_parts(file: ArrayFile) -> Content:
    parts = ["tr", "te"]
    found = [key for key in ("I_db", "T_db", "L_db") if key in file.shapes]
    if found:
        if len(found) < 3:
            raise DataError(
                f"The file {file.path.name} must hold all of I_db, T_db and L_db, or none. Found: {file.keys}."
            )
        parts.append("db")
    pieces: dict[str, dict[str, Any]] = {}
    labels: dict[str, Any] = {}
    for part in parts:
        pieces[part] = {"image": _view(file, f"I_{part}", "image"), "text": _view(file, f"T_{part}", "text")}
        labels[part] = _labels(file, f"L_{part}", pieces[part]["image"].shape[0])
        check_pairing(file, pieces[part], labels[part], suffix=f"_{part}")
    _check_alike(file, pieces, labels)
    n_train, n_query = labels["tr"].shape[0], labels["te"].shape[0]
    train = np.arange(n_train)
    query = np.arange(n_train, n_train + n_query)
    database = train
    if "db" in parts:
        n_database = labels["db"].shape[0]
        database = np.arange(n_train + n_query, n_train + n_query + n_database)
        twin = find_twins(pieces["tr"], pieces["db"])
        # Files often repeat the training pairs inside the database: they are one row, not two.
        keep = np.concatenate([np.flatnonzero(twin < 0), query, database])
        moved = np.full(n_train + n_query + n_database, -1)
        moved[keep] = np.arange(keep.size)
        train = moved[np.where(twin < 0, train, n_train + n_query + twin)]
        query, database = moved[query], moved[database]
    else:
        keep = np.arange(n_train + n_query)
    views = {name: tidy_view(_stack([pieces[part][name] for part in parts])[keep], name) for name in ("image", "text")}
    return Content(views, _stack([labels[part] for part in parts])[keep], train, query, database)


def _read_deep(file: ArrayFile) -> Content:
    pictures = [key for key in ("XAll", "IAll", "images") if key in file.shapes]
    flat = [key for key in pictures if sum(size != 1 for size in file.shapes[key]) <= 2]
    if not flat:
        shape = file.shapes[pictures[0]]
        raise DataError(
            f"The file {file.path.name} must hold picture features as a matrix under XAll, IAll or images. "
            f"Got raw pictures of shape {shape} under {pictures[0]} instead; turn them into features first."
        )
    views = {"image": _view(file, flat[0], "image"), "text": _view(file, "YAll", "text")}
    labels = _labels(file, "LAll", views["image"].shape[0])
    check_pairing(file, views, labels)
    return Content(views, labels)


def _view(file: ArrayFile, key: str, name: str) -> Any:
    matrix = file.read(key)
    if not sp.issparse(matrix) and matrix.ndim > 2:
        matrix = matrix.reshape([size for size in matrix.shape if size != 1])
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(
            f"The array {key} of {file.path.name} must be a matrix (rows, features). "
            f"Got shape {file.shapes[key]} instead."
        )
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
    for key in ("label_names", "class_names"):
        if key in file.shapes and len(file.shapes[key]) == 1:
            return tuple(str(name) for name in file.read(key))
    return None


def check_pairing(file: ArrayFile, views: Mapping[str, Any], labels: Any, suffix: str = "") -> None:
    """Every view and the labels, where there are any, must have the same number of rows."""
    known = views if labels is None else {**views, "labels": labels}
    rows = {f"{name}{suffix}": matrix.shape[0] for name, matrix in known.items()}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise DataError(f"Rows of {file.path.name} must pair one to one. Got different numbers of rows: {listed}.")


def _check_alike(file: ArrayFile, pieces: Mapping[str, Mapping[str, Any]], labels: Mapping[str, Any]) -> None:
    for what, widths in (
        *((name, {part: piece[name].shape[1] for part, piece in pieces.items()}) for name in ("image", "text")),
        ("labels", {part: 1 if matrix.ndim == 1 else matrix.shape[1] for part, matrix in labels.items()}),
    ):
        if len(set(widths.values())) > 1:
            listed = ", ".join(f"_{part} has {count}" for part, count in widths.items())
            raise DataError(f"The parts of {file.path.name} must have equally wide {what}. Got columns: {listed}.")


def _stack(parts: list[Any]) -> Any:
    if any(sp.issparse(part) for part in parts):
        return sp.vstack([sp.csr_array(part) for part in parts], format="csr")
    return np.concatenate(parts)


def find_twins(part: Mapping[str, Any], whole: Mapping[str, Any]) -> Any:
    """For each row of ``part`` the row of ``whole`` that is equal in every view, each used once; -1 where none is."""
    places: dict[bytes, list[int]] = {}
    for row, content in enumerate(_row_digests(whole)):
        places.setdefault(content, []).append(row)
    for rows in places.values():
        rows.reverse()  # so that pop() takes the first
    return np.array([rows.pop() if (rows := places.get(content, [])) else -1 for content in _row_digests(part)])


def _row_digests(views: Mapping[str, Any]) -> Iterator[bytes]:
    """A short digest of each row's values in all views, block by block."""
    n_rows = next(iter(views.values())).shape[0]
    for start in range(0, n_rows, BLOCK_ROWS):
        blocks = [to_dense(matrix[start : start + BLOCK_ROWS]) + 0.0 for matrix in views.values()]  # no -0.0
        for row in np.ascontiguousarray(np.concatenate(blocks, axis=1)):
            yield blake2b(row.data, digest_size=16).digest()
