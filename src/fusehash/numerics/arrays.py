"""One code path for NumPy, PyTorch and CuPy: which library an array belongs to, and the few steps that differ.

Numerics compute with the library of their input, on its device. All arrays of a model are NumPy (`host`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg import cholesky as host_cholesky
from scipy.linalg import eigh as host_eigh
from scipy.linalg import solve_triangular as host_solve_triangular

from fusehash.errors import DataError, first_line

Array = Any  # of NumPy, PyTorch or CuPy
Floats = NDArray[np.float64]
T = TypeVar("T")
HOST = "cpu"  # the device of NumPy arrays
BLOCK_ROWS = 2048  # rows that are worked on at a time


def is_foreign(array: Array) -> bool:
    """Whether this is an array of PyTorch or CuPy."""
    if isinstance(array, np.ndarray | np.generic | list | tuple) or sp.issparse(array):
        return False
    from array_api_compat import is_cupy_array, is_torch_array

    return bool(is_torch_array(array) or is_cupy_array(array))


def namespace(array: Array) -> Any:
    """The array library of an array, with the names of the Array API."""
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def device_of(array: Array) -> tuple[str, str]:
    """(library, device) of an array, as strings; arrays with the same pair can be combined."""
    if isinstance(array, np.ndarray):
        return "numpy", HOST
    return namespace(array).__name__.split(".")[-1], str(array.device)


def is_accelerated(array: Array) -> bool:
    """Whether the array is on a GPU, where single precision is fast and starting a kernel is slow."""
    return not isinstance(array, np.ndarray) and not device_of(array)[1].startswith(HOST)


def cast(array: Array, dtype: str) -> Array:
    """The array in another precision; not copied if it has it already."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, copy=False)
    xp = namespace(array)
    return xp.astype(array, getattr(xp, dtype), copy=False)


def precision(array: Array) -> str:
    """Name of an array's dtype, such as "float32"."""
    return str(array.dtype).rsplit(".", 1)[-1]


def host(array: Array) -> np.ndarray[Any, Any]:
    """The array as a NumPy array."""
    if isinstance(array, np.ndarray):
        return array
    if hasattr(array, "detach"):  # torch, on any device, with or without gradients
        there = array.detach().cpu()
        return np.asarray(there.float() if precision(there) == "bfloat16" else there)  # NumPy has no bfloat16
    return np.asarray(array.get() if is_foreign(array) else array)


def unmasked(array: Array) -> Array:
    """A masked array as a plain one with NaN for what is masked."""
    if not isinstance(array, np.ma.MaskedArray):
        return array
    if not np.ma.is_masked(array):
        return np.asarray(array)
    return np.ma.filled(array.astype(np.result_type(array.dtype, np.float16)), np.nan)


def to_device_of(array: np.ndarray[Any, Any], other: Array) -> Array:
    """A NumPy array copied to the library and device of another array."""
    if isinstance(other, np.ndarray):
        return array
    return namespace(other).asarray(np.ascontiguousarray(array), device=other.device)


def to_device(array: np.ndarray[Any, Any], device: str) -> Array:
    """A NumPy array on a device: "cuda", "cuda:1", "cpu" (PyTorch), or "cupy"."""
    if device.startswith("cupy"):
        return import_library("cupy", device).asarray(array)
    return import_library("torch", device).as_tensor(np.ascontiguousarray(array), device=device)


def import_library(name: str, device: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        message = f"device={device!r} needs {name}, which is not installed: pip install 'fusehash[gpu]'."
        raise DataError(message) from None


def check_device(device: str) -> None:
    """Raise unless arrays can be copied to a device."""
    library = import_library("cupy" if device.startswith("cupy") else "torch", device).__name__
    try:
        to_device(np.zeros(1), device)
    except Exception as error:  # every library has errors of its own
        raise DataError(f"device={device!r} must be there for {library}. It says: {first_line(error)}.") from None


def load_linear_algebra(like: Array) -> None:
    """Load the solvers of a device now: PyTorch cannot do so on several threads at once."""
    if hasattr(like, "detach"):
        cholesky(zeros((1, 1), like) + 1.0)


def zeros(shape: tuple[int, ...], like: Array, dtype: str = "float64") -> Array:
    """Zeros in the library and on the device of another array."""
    if isinstance(like, np.ndarray):
        return np.zeros(shape, dtype)
    xp = namespace(like)
    return xp.zeros(shape, dtype=getattr(xp, dtype), device=like.device)


def take_rows(array: Array, rows: Any) -> Array:
    """Rows by a slice or by an index on the host."""
    if not is_foreign(array) or (isinstance(rows, slice) and (rows.step or 1) > 0):
        return array[rows]
    if isinstance(rows, slice):  # tensors have no negative steps
        rows = np.arange(*rows.indices(len(array)))
    index = np.asarray(rows)
    return array[to_device_of(np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64), array)]


def to_dense(block: Any) -> Array:
    """A few rows of a view as a dense matrix in double precision; on a GPU, single precision stays."""
    if is_foreign(block):
        return block if is_accelerated(block) and precision(block) == "float32" else cast(block, "float64")
    if sp.issparse(block):
        block = block.toarray()
    return np.asarray(block, dtype=np.float64)


def clip_at_zero(X: Array) -> Array:
    """max(X, 0), in place where the library can."""
    if isinstance(X, np.ndarray):
        return np.maximum(X, 0.0, out=X)
    return X.clamp_(min=0.0) if hasattr(X, "clamp_") else namespace(X).clip(X, 0.0, None)


def mask_rows(X: Array, seen: Array) -> Array:
    """The rows of X where `seen` is true, and zeros in the others."""
    return namespace(X).where(seen[:, None], X, zeros((1, 1), X, precision(X)))


def squares(X: Array) -> Array:
    """||x||^2 of every row."""
    return dots(X, X)


def dots(X: Array, Y: Array) -> Array:
    """<x, y> of every pair of rows."""
    if isinstance(X, np.ndarray):
        return np.einsum("ij,ij->i", X, Y)
    return namespace(X).linalg.vecdot(X, Y, axis=1)


def cholesky(A: Array) -> Array:
    """Lower Cholesky factor; LinAlgError where the matrix is not positive definite."""
    if isinstance(A, np.ndarray):
        return host_cholesky(A, lower=True, check_finite=False)
    if hasattr(A, "detach"):
        import torch

        factor, info = torch.linalg.cholesky_ex(A)
        if int(info):
            raise LinAlgError(f"{int(info)}-th leading minor is not positive definite")
        return factor
    factor = namespace(A).linalg.cholesky(A)
    if not bool(namespace(A).all(namespace(A).isfinite(factor))):
        raise LinAlgError("not positive definite")
    return factor


def solve_lower(factor: Array, rhs: Array, *, transposed: bool = False) -> Array:
    """L^-1 rhs, or L'^-1 rhs, for a lower triangular L."""
    if isinstance(factor, np.ndarray):
        return host_solve_triangular(factor, rhs, lower=True, trans=int(transposed), check_finite=False)
    if hasattr(factor, "detach"):
        import torch

        return torch.linalg.solve_triangular(factor.T if transposed else factor, rhs, upper=transposed)
    from cupyx.scipy.linalg import solve_triangular

    return solve_triangular(factor, rhs, lower=True, trans=int(transposed))


def top_eigh(A: Array, r: int) -> tuple[Array, Array]:
    """The r largest eigenvalues of a symmetric matrix, descending, and their eigenvectors, by the dense solver."""
    n = A.shape[0]
    if isinstance(A, np.ndarray):
        w, V = host_eigh(A, subset_by_index=[n - r, n - 1])
        return w[::-1], with_signs(np.ascontiguousarray(V[:, ::-1]))
    xp = namespace(A)
    w, V = xp.linalg.eigh(A)
    return xp.flip(w[n - r :], axis=0), with_signs(xp.flip(V[:, n - r :], axis=1))


def with_signs(V: Array) -> Array:
    """Eigenvectors with the same sign in all libraries: a positive product with one fixed vector."""
    direction = cast(to_device_of(np.random.default_rng(0).standard_normal(len(V)), V), precision(V))
    return V * (1.0 - 2.0 * cast(direction @ V < 0.0, precision(V)))


def nearest_columns(D: Array, count: int) -> tuple[Array, Array]:
    """The `count` smallest entries of every row, ascending, and their columns."""
    if hasattr(D, "detach"):
        import torch

        nearest = torch.topk(D, count, dim=1, largest=False)
        return nearest.values, nearest.indices
    xp = namespace(D)
    columns = xp.argsort(D, axis=1, stable=True)[:, :count]
    return xp.take_along_axis(D, columns, axis=1), columns


def put_rows(shape: tuple[int, int], columns: Array, values: Array) -> Array:
    """A matrix of zeros with values[i, j] at (i, columns[i, j])."""
    matrix = zeros(shape, values, precision(values))
    if hasattr(matrix, "scatter_"):
        return matrix.scatter_(1, columns, values)
    xp = namespace(values)
    matrix[xp.arange(shape[0])[:, None], columns] = values
    return matrix


def convert(value: T, change: Callable[[Array], Array]) -> T:
    """The same dictionary, list or dataclass with every array in it changed."""
    if isinstance(value, np.ndarray) or is_foreign(value):
        return change(value)  # type: ignore[no-any-return, unused-ignore]
    if isinstance(value, dict):
        return type(value)({key: convert(item, change) for key, item in value.items()})  # type: ignore[return-value, unused-ignore]
    if isinstance(value, list | tuple):
        return type(value)(convert(item, change) for item in value)  # type: ignore[return-value, unused-ignore]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: convert(getattr(value, f.name), change) for f in fields(value) if f.init})
    return value
