"""Matrices in chunks that other packages read: zarr, HDF5 (h5py) and dask. None is imported before it is used."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.errors import DataError
from fusehash.streams.base import Block, StoredMatrix, check_dtype, check_shape, reopen
from fusehash.streams.pieces import ChunkedMatrix, even_edges, joined_edges


class ZarrMatrix(ChunkedMatrix):
    """A zarr array (format 2 or 3)."""

    def __init__(self, array: Any, source: str = "The zarr array") -> None:
        shape = check_shape(source, array.shape)
        width = max(1, shape[1] * check_dtype(source, array.dtype).itemsize)
        super().__init__(source, shape, array.dtype, even_edges(shape[0], array.chunks[0], width))
        self._array = array

    def __reduce__(self) -> Any:
        return reopen, (ZarrMatrix, (self._array, self.source), self.shape)

    def _load(self, start: int, stop: int) -> Block:
        try:
            return np.asarray(self._array[start:stop])
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(f"{self.source} could not be read: {_first_line(error)}.") from error


class ZarrFile(ZarrMatrix):
    """A zarr array in a folder or a zip file."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        super().__init__(open_zarr_array(path), f"The zarr array {path.name}")

    def __reduce__(self) -> Any:
        return reopen, (ZarrFile, (self.path,), self.shape)

    def _load(self, start: int, stop: int) -> Block:
        rows = super()._load(start, stop)
        if not self.path.exists():  # zarr takes chunks that are not there for empty ones
            raise DataError(f"{self.source} must stay where it is while it is read. It is gone from {self.path}.")
        return rows


def open_zarr_array(path: Path) -> Any:
    """Open the array, or say what is there instead."""
    zarr = import_zarr()
    if not path.exists():
        raise DataError(f"The zarr array was looked for at {path}, where there is no file and no folder.")
    try:
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else str(path)
        found = zarr.open(store, mode="r")
    except Exception as error:  # parsers of foreign bytes raise all sorts of things
        raise DataError(f"{path.name} must be a zarr array. It could not be read: {_first_line(error)}.") from error
    if not isinstance(found, zarr.Array):
        inside = ", ".join(sorted(found.array_keys())) or "none"
        raise DataError(f"{path.name} must be one zarr array. Got a group with the arrays: {inside}.")
    return found


def import_zarr() -> Any:
    try:
        import zarr
        import zarr.storage
    except ImportError as error:
        raise DataError("Zarr arrays need the package zarr; pip install 'fusehash[zarr]' brings it.") from error
    return zarr


class Hdf5Matrix(ChunkedMatrix):
    """A dataset of an HDF5 file (h5py lets one thread read at a time)."""

    def __init__(self, dataset: Any) -> None:
        self.path, self._name = Path(dataset.file.filename).absolute(), str(dataset.name)
        source = f"The dataset {self._name} of {self.path.name}"
        shape = check_shape(source, dataset.shape)
        width = max(1, shape[1] * check_dtype(source, dataset.dtype).itemsize)
        chunk_rows = dataset.chunks[0] if dataset.chunks else 1
        super().__init__(source, shape, dataset.dtype, even_edges(shape[0], chunk_rows, width))
        self._dataset, self._in_chunks = dataset, bool(dataset.chunks)
        self._file = file_and_size(self.path)

    def __reduce__(self) -> Any:
        return reopen, (_open_hdf5, (self.path, self._name), self.shape)

    def _load(self, start: int, stop: int) -> Block:
        try:
            rows = np.asarray(self._dataset[start:stop])
        except (OSError, ValueError, RuntimeError) as error:
            raise DataError(f"{self.source} could not be read: {_first_line(error)}.") from error
        file, size = file_and_size(self.path)
        if file == self._file[0] and size < self._file[1]:  # HDF5 reads zeros behind the end of a file
            raise DataError(f"{self.source} must not become shorter while it is read. Its file ends at byte {size}.")
        return rows

    def _read(self, start: int, stop: int) -> Block:
        if self._in_chunks:
            return super()._read(start, stop)
        return self._load(start, stop).astype(self.dtype, copy=False)  # nothing to unpack: read just these rows

    def _take(self, rows: Any) -> Block:
        return super()._take(rows) if self._in_chunks else StoredMatrix._take(self, rows)


def file_and_size(path: Path) -> tuple[Any, int]:
    """Which file lies at a path, and its size; nothing where there is none (HDF5 may be elsewhere, too)."""
    try:
        found = path.stat()
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size


def _open_hdf5(path: Path, name: str) -> Hdf5Matrix:
    import h5py

    return Hdf5Matrix(h5py.File(path, "r")[name])


class DaskMatrix(ChunkedMatrix):
    """A dask array, computed chunk by chunk: by the thread that asks, or by a cluster where a client is connected."""

    def __init__(self, array: Any) -> None:
        if any(np.isnan(size) for size in array.shape):
            raise DataError("A dask array must know its shape. Got unknown chunks; compute_chunk_sizes() finds it.")
        if isinstance(array._meta, np.ma.MaskedArray):
            raise DataError("A dask array must not be masked. Got a masked one; dask.array.ma.filled(x, nan) helps.")
        shape = check_shape("The dask array", array.shape)
        given = array
        if len(array.chunks[1]) > 1:
            array = array.rechunk({1: -1})  # rows are read whole
        width = max(1, shape[1] * check_dtype("The dask array", array.dtype).itemsize)
        super().__init__("The dask array", shape, array.dtype, joined_edges(array.chunks[0], width))
        self._given, self._array = given, array

    @property
    def array(self) -> Any:
        """The dask array itself."""
        return self._given

    def __reduce__(self) -> Any:
        return reopen, (DaskMatrix, (self._given,), self.shape)

    def _load(self, start: int, stop: int) -> Block:
        options = {} if _has_client() else {"scheduler": "synchronous"}
        chunk = self._array[start:stop].compute(**options)
        chunk = chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)
        if chunk.shape != (stop - start, self.shape[1]):
            raise DataError(
                f"A chunk of the dask array must have the shape {(stop - start, self.shape[1])} that it announces. "
                f"Got {chunk.shape} instead."
            )
        return chunk


def _has_client() -> bool:
    """Whether a client of a dask cluster is connected, which alone can reach what the cluster holds."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        return distributed.default_client() is not None
    except ValueError:
        return False


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
