"""Files of named arrays behind one face: NumPy .npz, MATLAB .mat v5 (scipy) and v7.3 (HDF5, h5py).

Only names and shapes are read when a file is opened; an array is read when asked for, so that gigabytes of pictures
beside the features cost nothing. Nothing is ever unpickled.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash.errors import DataError


class ArrayFile(ABC):
    """One file of named arrays.

    Attributes
    ----------
    path : where it is
    shapes : name -> shape, as the author of the file saw it (HDF5 axes are turned round)
    """

    kind: str

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.shapes: dict[str, tuple[int, ...]] = self._shapes()
        except DataError:
            raise
        except Exception as error:  # parsers of foreign bytes raise all sorts of things
            raise self._unreadable(error) from error

    def read(self, key: str) -> Any:
        """One array (scipy.sparse where the file holds it so)."""
        try:
            found = self._read(key)
            if sp.issparse(found):
                found.check_format(full_check=True)  # places outside of the matrix would end the process
            return found
        except (MemoryError, DataError):
            raise
        except Exception as error:
            raise self._unreadable(error, key) from error

    @property
    def keys(self) -> str:
        """The names that were found, for messages."""
        return ", ".join(self.shapes) if self.shapes else "none"

    def _unreadable(self, error: Exception, key: str | None = None) -> DataError:
        where = f" (array '{key}')" if key else ""
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        return DataError(
            f"The file {self.path.name} must be an intact {self.kind} file. It could not be read{where}: {reason}."
        )

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]: ...

    @abstractmethod
    def _read(self, key: str) -> Any: ...


class NpzFile(ArrayFile):
    """NumPy's .npz, without pickle."""

    kind = ".npz"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {}
        with zipfile.ZipFile(self.path) as archive:
            for member in archive.namelist():
                if not member.endswith(".npy"):
                    continue
                with archive.open(member) as stream:
                    version = np.lib.format.read_magic(stream)
                    header = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shapes[member.removesuffix(".npy")] = tuple(header(stream)[0])
        return shapes

    def _read(self, key: str) -> Any:
        with np.load(self.path, allow_pickle=False) as archive:
            return archive[key]


class MatFile(ArrayFile):
    """MATLAB's .mat up to version 7, through scipy."""

    kind = ".mat"

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        from scipy.io import whosmat

        return {name: tuple(shape) for name, shape, _ in whosmat(self.path)}

    def _read(self, key: str) -> Any:
        from scipy.io import loadmat

        return loadmat(self.path, variable_names=[key])[key]


class Mat73File(ArrayFile):
    """MATLAB's .mat v7.3, an HDF5 file whose axes come in the opposite order, through h5py."""

    kind = ".mat v7.3 (HDF5)"

    def _open(self) -> Any:
        try:
            import h5py
        except ImportError as error:
            raise DataError(
                f"Reading {self.path.name} (.mat v7.3, HDF5) needs the package h5py. "
                "Install it with: pip install 'fusehash[mat]'"
            ) from error
        return h5py.File(self.path, "r")

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes = {}
        with self._open() as file:
            for name, node in file.items():
                if name.startswith("#"):  # MATLAB's own references
                    continue
                if hasattr(node, "shape"):
                    shapes[name] = tuple(reversed(node.shape))
                elif "jc" in node and "MATLAB_sparse" in node.attrs:
                    shapes[name] = (int(node.attrs["MATLAB_sparse"]), node["jc"].shape[0] - 1)
        return shapes

    def _read(self, key: str) -> Any:
        with self._open() as file:
            node = file[key]
            if hasattr(node, "shape"):
                return node[()].T
            parts = [node[part][()] if part in node else np.zeros(0, np.int64) for part in ("data", "ir", "jc")]
            return sp.csc_array(tuple(parts), shape=self.shapes[key])


def open_arrays(path: Path) -> ArrayFile:
    """Open a file of arrays; its first bytes, not its name, decide what it is."""
    try:
        with path.open("rb") as stream:
            head = stream.read(520)
    except OSError as error:
        raise DataError(f"The file {path} could not be read: {error.strerror or error}.") from error
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return NpzFile(path)
    if head.startswith((b"\x89HDF\r\n\x1a\n", b"MATLAB 7.3")) or head[512:520] == b"\x89HDF\r\n\x1a\n":
        return Mat73File(path)
    if head.startswith((b"MATLAB 5.0", b"MATLAB 7.0")):
        return MatFile(path)
    raise DataError(
        f"The file {path.name} must be a NumPy .npz or a MATLAB .mat (v5 to v7.3) file. Its first bytes are neither's."
    )
