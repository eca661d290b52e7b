"""`open_view`: whatever a user passes for one view, as something whose rows can be cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.errors import DataError
from fusehash.streams.base import StoredMatrix
from fusehash.streams.npy import open_memmap, open_npy

PARQUET = (".parquet", ".pq")
SUFFIXES = (".npy", ".zarr", *PARQUET)


def open_view(source: Any, *, columns: Sequence[str] | None = None) -> Any:
    """A view that is not in memory as a `StoredMatrix`; anything else is returned as it is.

    Parameters
    ----------
    source : the path of a `.npy` file, of a `.zarr` folder or zip file, of a Parquet file or a folder of them; a
        memory map, an h5py.Dataset, a zarr.Array or a dask array; or an array of any kind.
    columns : which columns of a Parquet file
    """
    if isinstance(source, str | os.PathLike):
        return open_path(Path(source), columns)
    if columns is not None:
        raise DataError(f"Columns can be chosen of a Parquet file. Got {type(source).__name__} instead.")
    if isinstance(source, np.memmap):
        return open_memmap(source)
    if isinstance(source, StoredMatrix | np.ndarray):
        return source
    # An object of one of these packages exists only where the package has been imported.
    for package, kind, wrapper in (
        ("zarr", "Array", "ZarrMatrix"),
        ("h5py", "Dataset", "Hdf5Matrix"),
        ("dask.array", "Array", "DaskMatrix"),
    ):
        module = sys.modules.get(package)
        if module is not None and isinstance(source, getattr(module, kind, ())):
            from fusehash.streams import chunked

            return getattr(chunked, wrapper)(source)
    return source


def is_view_path(path: Any) -> bool:
    """Whether a path looks like that of a view."""
    name = str(path).lower()
    return name.endswith((*SUFFIXES, ".zarr.zip"))


def open_path(path: Path, columns: Sequence[str] | None = None) -> StoredMatrix:
    """The matrix at a path."""
    path = path.expanduser()
    kind = _kind(path)
    if kind == "parquet":
        from fusehash.streams.parquet import ParquetMatrix

        return ParquetMatrix(path, columns)
    if columns is not None:
        raise DataError(f"Columns can be chosen of a Parquet file. Got {path.name} instead.")
    if kind == "npy":
        return open_npy(path)
    from fusehash.streams.chunked import ZarrFile

    return ZarrFile(path)


def _kind(path: Path) -> str:
    """What a path holds: by the end of its name, or by what a folder contains."""
    name = path.name.lower()
    if name.endswith((".zarr", ".zarr.zip")):
        return "zarr"
    if name.endswith(PARQUET):
        return "parquet"
    if name.endswith(".npy"):
        return "npy"
    if path.is_dir():
        if any((path / file).exists() for file in ("zarr.json", ".zarray", ".zgroup")):
            return "zarr"
        if any(file.suffix.lower() in PARQUET for file in path.iterdir()):
            return "parquet"
    elif not path.exists():
        raise DataError(f"The matrix was looked for at {path}, where there is no file and no folder.")
    raise DataError(f"A view must be a .npy, .zarr or .parquet file, or a folder of Parquet files. Got {path.name}.")
