"""`open_view`: the formats of views that are not in memory. No optional package is imported before it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.errors import DataError
from fusehash.streams.dask_arrays import open_dask
from fusehash.streams.hdf5 import open_hdf5
from fusehash.streams.npy import open_memmap, open_npy
from fusehash.streams.parquet import PARQUET, open_parquet
from fusehash.streams.stored import StoredMatrix, check_exists
from fusehash.streams.zarr import ZARR_FILES, open_zarr, open_zarr_array


def open_view(source: Any, *, columns: Sequence[str] | None = None) -> Any:
    """Open a view that is not in memory.

    Parameters
    ----------
    source : str, path or array
        The path of a `.npy` file, a `.zarr` folder or zip file, a Parquet file or a folder of them; or a memory map, an
        h5py.Dataset, a zarr.Array or a dask array. A file may come from anybody; a `.zarr` must have all of its chunks.
    columns : sequence of str, optional
        Which columns of a Parquet file to read, in this order. By default all of them.

    Returns
    -------
    StoredMatrix
        Reads rows when you cut it. Any other `source`, such as a NumPy array, is returned as it is.

    Raises
    ------
    DataError
        If there is no such file, or it does not hold a matrix of real numbers.
    MissingPackageError
        If the package that reads the format is not installed.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fusehash.streams import open_view
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(12.0).reshape(4, 3))
    ...     matrix = open_view(f"{folder}/x.npy")
    >>> matrix
    StoredMatrix('The file x.npy', 4 x 3, float64)
    >>> matrix[[3, 0]]
    array([[ 9., 10., 11.],
           [ 0.,  1.,  2.]])
    """
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source).expanduser(), columns)
    if columns is not None:
        raise DataError(f"Only the columns of a Parquet file can be chosen. Got {type(source).__name__} instead.")
    if isinstance(source, np.memmap):
        return open_memmap(source)
    if isinstance(source, StoredMatrix | np.ndarray):
        return source
    if _is_a(source, "zarr", "Array"):
        return open_zarr_array(source)
    if _is_a(source, "h5py", "Dataset"):
        return open_hdf5(source)
    return open_dask(source) if is_dask(source) else source


def _is_a(source: Any, package: str, kind: str) -> bool:
    """Whether something is of a class of a package, which is not imported to find out."""
    return isinstance(source, getattr(sys.modules.get(package), kind, ()))


def is_dask(source: Any) -> bool:
    """Whether something is a dask array."""
    return _is_a(source, "dask.array", "Array")


def is_view_path(path: Any) -> bool:
    """Whether a path looks like that of a view."""
    return str(path).lower().endswith((".npy", ".zarr", ".zarr.zip", *PARQUET))


def _open_path(path: Path, columns: Sequence[str] | None = None) -> StoredMatrix:
    """Open a path by the end of its name, or by what a folder contains."""
    names, has_suffix = [path.name.lower()], is_view_path(path)
    if not has_suffix:
        names = [file.name.lower() for file in path.iterdir()] if path.is_dir() else []
    if any(name.endswith(PARQUET) for name in names) and not set(names).intersection(ZARR_FILES):
        return open_parquet(path, columns)
    if columns is not None:
        raise DataError(f"Only the columns of a Parquet file can be chosen. Got {path.name} instead.")
    if has_suffix and names[0].endswith(".npy"):
        return open_npy(path)
    if has_suffix or set(names).intersection(ZARR_FILES):
        return open_zarr(path)
    check_exists(path)
    raise DataError(f"A view must be a .npy, .zarr or .parquet file, or a folder of Parquet files. Got {path.name}.")
