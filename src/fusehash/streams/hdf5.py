"""Datasets of HDF5 files, read with h5py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.streams.chunked import even_edges, in_chunks, read_rows
from fusehash.streams.stored import Matrix, RowReader, StoredMatrix


def open_hdf5(dataset: Any) -> StoredMatrix:
    """A dataset of an HDF5 file (h5py lets one thread read at a time)."""
    path, name = Path(dataset.file.filename).absolute(), str(dataset.name)
    source, first = f"The dataset {name} of {path.name}", _file_and_size(path)
    trust.check_hdf5(dataset, source)

    def load(start: int, stop: int) -> Matrix:
        rows = read_rows(dataset, start, stop, source)
        file, size = _file_and_size(path)
        if file == first[0] and size < first[1]:  # HDF5 reads zeros after the end of a file
            raise DataError(f"{source} must not become shorter while it is read. Its file ends at byte {size}.")
        return rows

    options: dict[str, Any] = {"recipe": (_open_hdf5_path, (path, name)), "is_shared": True}
    if not dataset.chunks:  # nothing to decode: read just the rows that are asked for
        return StoredMatrix(source, dataset.shape, dataset.dtype, RowReader(load), **options)
    return in_chunks(source, dataset, even_edges(source, dataset, dataset.chunks[0]), load, **options)


def _open_hdf5_path(path: Path, name: str) -> StoredMatrix:
    return open_hdf5(require("h5py", "Reading HDF5 files").File(path, "r")[name])


def _file_and_size(path: Path) -> tuple[Any, int]:
    """Which file is at a path, and its size; nothing if there is none (HDF5 files may also be elsewhere)."""
    try:
        status = path.stat()
    except OSError:
        return None, 0
    return (status.st_dev, status.st_ino), status.st_size
