"""What a folder or a file is: its kind, what it holds, and a command that uses it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash import trust
from fusehash.commands import collection
from fusehash.commands.locations import FolderKind, kept_by, kind_of
from fusehash.errors import DataError, ModelFileError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

_VECTORS_OF = re.compile(r"(.+)-vectors-[0-9]+")  # the file next to an index that keeps vectors
_SQLITE = b"SQLite format 3\x00"


@dataclass(frozen=True)
class Contents:
    """Facts by name, "kind" first, and the next command."""

    facts: dict[str, Any]
    next: str = ""


def contents_of(path: Path) -> Contents:
    """What is at a path. Raises DataError if it is missing or not of fusehash."""
    if path.is_dir():
        kinds = {FolderKind.collection: _collection, FolderKind.retriever: _retriever, FolderKind.codes: _codes}
        return kinds[kind_of(path)](path)
    with trust.open_file(path, f"The file {path}") as file:
        start = file.read(len(_SQLITE))
    if owner := _VECTORS_OF.fullmatch(path.name):
        index = path.with_name(owner[1])
        return Contents({"kind": "vectors of an index", "index": str(index)}, f"fusehash inspect {index}")
    if not start:
        raise DataError(f"The file {path} must hold something. It is empty.")
    if start == _SQLITE:
        return _index(path)
    if start.startswith(b"\x93NUMPY"):
        return _matrix(path)
    if path.suffix in (".safetensors", ".encoder"):
        return _model_or_encoder(path)
    raise DataError(
        f"{path} must be a collection, a retriever, a folder of quantize, an index, a model, an encoder "
        "or a .npy file. It is something else."
    )


def _collection(path: Path) -> Contents:
    with collection.open_collection(path) as opened:
        return Contents({"kind": "collection", **opened.stats()}, f'fusehash search {path} "some words"')


def _retriever(path: Path) -> Contents:
    from fusehash.retriever import Retriever

    with Retriever.open(path) as retriever:
        encoders = {name: type(encoder).__name__ for name, encoder in retriever.encoders.items()}
        facts = {"kind": "retriever", "items": len(retriever), **_of_model(retriever.model, encoders)}
        first = next(iter(retriever.encoders), None)
        asked = '"some words"' if first and retriever.encoders[first].modality == "text" else "queries.npy"
        view = first or retriever.model.view_names_[-1]
        return Contents(facts | kept_by(retriever.index), f"fusehash search {path} {asked} --view {view}")


def _codes(path: Path) -> Contents:
    from fusehash.hashers import load

    model = load(path / "model.safetensors")
    rows = {}
    for view in model.view_names_:
        if (path / f"{view}.npy").is_file():
            rows[view] = _header(path / f"{view}.npy")[0][0]
    items = ", ".join(f"{view}.npy ({count:,} rows)" for view, count in rows.items())
    facts = {"kind": "folder of quantize", **_of_model(model), "codes": items, "factors": (path / "factors").is_dir()}
    return Contents(facts, f"fusehash search {path} queries.npy --view {model.view_names_[-1]}")


def _index(path: Path) -> Contents:
    from fusehash.search import HammingIndex

    with HammingIndex.open(path, warm=False) as index:
        return Contents({"kind": "index", **index.stats()}, f"fusehash search {path} query-codes.npy")


def _matrix(path: Path) -> Contents:
    """Codes or embeddings, by their numbers."""
    import numpy as np

    from fusehash.streams import open_view

    shape, dtype = _header(path)
    facts: dict[str, Any] = {"shape": " x ".join(f"{n:,}" for n in shape), "dtype": str(dtype)}
    if len(shape) == 2 and dtype == np.uint8:
        facts["bits"] = 8 * shape[1]
        return Contents({"kind": "codes", **facts}, f"fusehash index add codes.db {path}")
    if len(shape) != 2 or 0 in shape or dtype.kind not in "fiu":
        return Contents({"kind": "array", **facts})
    facts |= {"rows_with_NaN_or_infinity": 0, "rows_of_zeros": 0}
    lengths = []
    for _, rows in open_view(path).blocks():
        block = rows.astype(np.float64)
        finite = np.isfinite(block).all(axis=1)
        zero = ~block.any(axis=1)
        facts["rows_with_NaN_or_infinity"] += int((~finite).sum())
        facts["rows_of_zeros"] += int(zero.sum())
        lengths.append(np.linalg.norm(block[finite & ~zero], axis=1))
    norms = np.concatenate([np.empty(0), *lengths])
    if len(norms):
        facts["lengths"] = f"{norms.min():.4g} to {norms.max():.4g}"
    other = "text.npy" if path.name != "text.npy" else "image.npy"
    return Contents({"kind": "rows of a view", **facts}, f"fusehash inspect {path} {path.with_name(other)}")


def _header(path: Path) -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of a .npy file."""
    from fusehash.streams.npy import read_npy_header

    with trust.open_file(path, f"The file {path}") as file:
        shape, _, dtype = read_npy_header(file, str(path))
    return tuple(shape), dtype


def _model_or_encoder(path: Path) -> Contents:
    from fusehash import encoders
    from fusehash.hashers import load

    try:
        model = load(path)
    except ModelFileError as error:
        try:
            encoder = encoders.load(path)
        except ModelFileError:
            raise error from None
        facts = {"name": encoder.name, "modality": encoder.modality, "features": encoder.n_features_}
        return Contents({"kind": "encoder", **facts})
    view = model.view_names_[-1]
    return Contents(
        {"kind": "model", **_of_model(model)}, f"fusehash encode {path} new.npy --view {view} --out new-codes.npy"
    )


def _of_model(model: CrossModalHasher, encoders: dict[str, str] | None = None) -> dict[str, Any]:
    views = []
    for name, width in model.n_features_.items():
        encoder = (encoders or {}).get(name)
        views.append(f"{name} ({width:,} columns{f', {encoder}' if encoder else ''})")
    return {"method": type(model).__name__, "n_bits": model.n_bits, "views": ", ".join(views)}
