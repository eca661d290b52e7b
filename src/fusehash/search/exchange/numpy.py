""".npz files with all that an index keeps, and .npy files with codes alone.

The arrays of a .npz file are `codes`, `ids` and `bit_order`, and `vectors` and `factors` if the index keeps them.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fusehash import trust
from fusehash.errors import DataError
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, ExportedRows, ImportedRows, as_ids, unreadable
from fusehash.search.vectors import KINDS


def _write(file: BinaryIO, export: Export) -> None:
    if export.suffix == ".npy":
        np.save(file, _joined(block.codes for block in export.blocks()).reshape(-1, export.n_bits // 8))
        return
    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        rest = _write_vectors(archive, export)
        arrays = {
            "codes": _joined(block.codes for block in rest).reshape(-1, export.n_bits // 8),
            "ids": _joined((block.ids for block in rest), np.int64),
            "bit_order": np.array(export.order),
        }
        if export.has_factors:
            arrays["factors"] = _joined((block.factors for block in rest), np.float32).reshape(-1, 2)
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                npy.write_array(entry, array, allow_pickle=False)


def _write_vectors(archive: zipfile.ZipFile, export: Export) -> list[ExportedRows]:
    """Write the vectors block by block, since they may be larger than memory; everything else of the rows."""
    if export.vector_kind is None:
        return list(export.blocks())
    rest, dtype = [], KINDS[export.vector_kind]
    with archive.open("vectors.npy", "w", force_zip64=True) as entry:
        shape = (export.count, export.dim)
        npy.write_array_header_1_0(entry, {"descr": dtype.str, "fortran_order": False, "shape": shape})
        for block in export.blocks():
            entry.write(np.ascontiguousarray(block.vectors, dtype).data)
            rest.append(block._replace(vectors=None))
    return rest


def _joined(parts: Any, dtype: Any = np.uint8) -> NDArray[Any]:
    return np.concatenate([np.empty((0,), dtype), *(part.ravel() for part in parts)])


def _read(path: Path) -> ImportedRows:
    subject = f"The file {path}"
    with trust.open_file(path, subject) as file:
        is_archive = zipfile.is_zipfile(file)
        if is_archive:
            trust.check_archive(file, subject)
        file.seek(0)
        try:
            content = np.load(file, allow_pickle=False)
            if not is_archive:
                return ImportedRows(content)
            names = ("codes", "ids", "bit_order", "vectors", "factors")
            codes, ids, order, vectors, factors = map(content.get, names)
        except (ValueError, EOFError, OSError, MemoryError, zipfile.BadZipFile) as error:
            raise unreadable(path, "a .npy or .npz file of codes", error) from error
    if codes is None:
        raise DataError(f"'{path}' must have an array 'codes'. It has {', '.join(content.files) or 'none'}.")
    if order is not None and str(order) not in ORDERS:
        raise DataError(f"The bit order in '{path}' must be big or little. Got {str(order)[:20]!r} instead.")
    bit_order = None if order is None else str(order)
    return ImportedRows(codes, None if ids is None else as_ids(ids, path), bit_order, vectors, factors)


NUMPY = CodesFormat((".npy", ".npz"), _write, _read, "NumPy arrays", lambda suffix: suffix == ".npy")
