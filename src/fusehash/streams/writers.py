"""Rows that are written block by block to `.npy` files, and codes of views that are not in memory."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import bits
from fusehash.errors import DataError
from fusehash.files import replacing
from fusehash.numerics.arrays import host
from fusehash.parameters import Progress
from fusehash.streams.stored import Matrix, StoredMatrix
from fusehash.views import check_paired, check_shape

Hasher = Any  # a fitted CrossModalHasher; hashers are below streams in the tree
Out = str | os.PathLike[str] | None
ENCODE_ROWS = 8192  # a multiple of the 64 rows in which hashers encode, so that a row always gives the same products
ENCODE_ENTRIES = 2**22


class NpyWriter:
    """Writes rows in order to a `.npy` file that is complete in the end or not there at all.

    After an error, or with other rows than announced, nothing is left and an older file is still there.

    Parameters
    ----------
    path : str or path
        The file to write or replace. Its name ends in .npy.
    n_rows : int or None
        How many rows will come, if that is known. A full disk then raises before the work is done.
    n_columns : int
    dtype : dtype

    Raises
    ------
    DataError
        If the file cannot be written, or the rows are not as announced.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fusehash.streams import NpyWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with NpyWriter(f"{folder}/x.npy", None, 3, np.float32) as out:
    ...         out.write(np.ones((2, 3), np.float32))
    ...         out.write(np.zeros((1, 3), np.float32))
    ...     np.load(f"{folder}/x.npy").shape
    (3, 3)
    """

    def __init__(self, path: str | os.PathLike[str], n_rows: int | None, n_columns: int, dtype: Any) -> None:
        self.path, self.n_rows, self.n_columns, self.dtype = Path(path), n_rows, int(n_columns), np.dtype(dtype)
        self.n_written = 0
        check_npy_path(self.path)

    def __enter__(self) -> NpyWriter:
        with ExitStack() as stack:
            self._file = stack.enter_context(replacing(self.path))
            header = npy_header((self.n_rows or 0, self.n_columns), self.dtype)
            self._file.write(header)
            if self.n_rows is not None and hasattr(os, "posix_fallocate"):
                size = len(header) + self.n_rows * self.n_columns * self.dtype.itemsize
                os.posix_fallocate(self._file.fileno(), 0, size)
            self._replacing = stack.pop_all()
        return self

    def write(self, block: Any) -> None:
        """Add rows."""
        rows = np.asarray(block)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            raise DataError(f"A block to write must have {self.n_columns} columns. Got shape {rows.shape} instead.")
        if not np.can_cast(rows.dtype, self.dtype, "safe"):
            raise DataError(f"A block to write must hold {self.dtype}, as the first did. Got {rows.dtype} instead.")
        self.n_written += len(rows)
        if self.n_rows is not None and self.n_written > self.n_rows:
            raise self._miscounted()
        self._file.write(np.ascontiguousarray(rows, dtype=self.dtype).data)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        is_complete = self.n_written > 0 and self.n_rows in (None, self.n_written)
        if kind is None and is_complete:
            self._file.seek(0)
            self._file.write(npy_header((self.n_written, self.n_columns), self.dtype))
        error = error if kind is not None or is_complete else self._miscounted()
        self._replacing.__exit__(None if error is None else type(error), error, trace)
        if kind is None and error is not None:
            raise error

    def _miscounted(self) -> DataError:
        rows = f"{'some' if self.n_rows is None else self.n_rows} rows"
        return DataError(f"{self.path.name} must get {rows}. Got {self.n_written} instead; nothing was written.")


def check_npy_path(path: str | os.PathLike[str]) -> None:
    if Path(path).suffix.lower() != ".npy":
        raise DataError(f"The file to write must end in .npy. Got {Path(path).name!r} instead.")


def npy_header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of a `.npy` file; numpy leaves room in them for the number of rows to grow."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue()


def encode_rows(
    hasher: Hasher, views: Mapping[str, Any], *, fused: bool, out: Out = None, report: Progress | None = None
) -> Any:
    """The codes of stored views, block by block: as an array, or written to a `.npy` file (whose path is returned).

    ``views`` holds one opened view, or with ``fused`` those to fuse; the codes are the same as of arrays in memory.
    """
    n_rows, n_bytes = next(iter(views.values())).shape[0], bits.n_bytes(hasher.n_bits)
    blocks = paired_blocks(views, allow_missing=fused, report=report)
    if fused:
        parts = (hasher.encode_fused(block) for block in blocks)
    else:
        parts = (hasher.encode(matrix, view=name) for block in blocks for name, matrix in block.items())
    return np.concatenate(list(parts)) if out is None else write_codes(parts, n_rows, n_bytes, out)


def encode_with_factors(
    hasher: Hasher, name: str, matrix: Any, *, out: Path, factors: Path, report: Progress | None = None
) -> None:
    """Write the codes of one view to one `.npy` file and the two numbers of each code to another."""
    n_rows = int(matrix.shape[0])
    with (
        NpyWriter(out, n_rows, bits.n_bytes(hasher.n_bits), np.uint8) as codes,
        NpyWriter(factors, n_rows, 2, np.float32) as pairs,
    ):
        for block in paired_blocks({name: matrix}, report=report):
            parts = hasher.encode(block[name], view=name, with_factors=True)
            for file, part in zip((codes, pairs), parts, strict=True):
                file.write(host(part))


def project_rows(hasher: Hasher, name: str, matrix: Any, *, out: Path, report: Progress | None = None) -> None:
    """Write the projections of one view, one real number per bit, to a `.npy` file."""
    with NpyWriter(out, int(matrix.shape[0]), hasher.n_bits, np.float64) as file:
        for block in paired_blocks({name: matrix}, report=report):
            file.write(host(hasher.project(block[name], view=name)))


def paired_blocks(
    views: Mapping[str, Any], *, allow_missing: bool = False, report: Progress | None = None
) -> Iterator[dict[str, Any]]:
    """Paired rows of stored views, in memory, a few thousand at a time; checked while they are read."""
    matrices = dict(views)
    for name, matrix in views.items():
        if isinstance(matrix, StoredMatrix):
            matrices[name] = matrix.checked(name, allow_missing=allow_missing)
    n_rows, size = check_paired(matrices), rows_at_once(matrices.values())
    for start in range(0, n_rows, size):
        if report is not None:
            report(start, n_rows, f"row {start:,} of {n_rows:,}")
        yield {name: matrix[start : start + size] for name, matrix in matrices.items()}


def write_codes(blocks: Iterable[bits.Codes], n_rows: int | None, n_bytes: int, out: str | os.PathLike[str]) -> Path:
    """Write blocks of codes to a `.npy` file, which is complete or not there."""
    with NpyWriter(out, n_rows, n_bytes, np.uint8) as codes:
        for block in blocks:
            codes.write(host(block))
    return Path(out)


def rows_at_once(matrices: Iterable[Any]) -> int:
    """How many rows to encode at a time, so that wide views take no more memory than narrow ones."""
    width = max(matrix.shape[1] for matrix in matrices)
    return int(np.clip(ENCODE_ENTRIES // max(1, width) // 64 * 64, 64, ENCODE_ROWS))


def encode_lazily(hasher: Hasher, X: Any, view: str) -> Any:
    """The codes of a dask array as a dask array of the same row chunks; nothing is computed."""
    if X.ndim != 2:
        check_shape(f"View '{view}'", X.shape)
    expected = hasher.n_features_[view]
    if X.shape[1] != expected:
        raise DataError(f"View '{view}' must have {expected} features, as in fit. Got {X.shape[1]} instead.")
    X, n_bytes = X.rechunk({1: -1}), bits.n_bytes(hasher.n_bits)
    chunks, meta = (X.chunks[0], (n_bytes,)), np.empty((0, n_bytes), np.uint8)
    return X.map_blocks(BlockEncoder(hasher, view), dtype=np.uint8, chunks=chunks, meta=meta)


class BlockEncoder:
    """Encodes one block of one view by a copy of the model that is small enough to send to workers."""

    def __init__(self, hasher: Hasher, view: str) -> None:
        self.hasher, self.view = copy(hasher), view
        self.hasher.codes_ = hasher.codes_[:0].copy()
        self.hasher.__dict__.pop("sums_", None)  # encoding does not need them
        if getattr(hasher, "callback", None) is not None:
            self.hasher.callback = None

    def __call__(self, block: Any) -> bits.Codes:
        return next(encode_blocks(self.hasher, [block], self.view))


def encode_blocks(hasher: Hasher, stream: Any, view: str | None) -> Iterator[bits.Codes]:
    """The codes of every block of a stream, in order: of one view, or (view None) fused from those in the block.

    A block is a mapping from name to matrix, or a tuple in the order of fit; for one view also the matrix itself.
    """
    for block in stream() if callable(stream) else stream:
        if _has_no_rows(block):
            yield np.empty((0, bits.n_bytes(hasher.n_bits)), np.uint8)
        elif view is None:
            yield hasher.encode_fused(list(block) if isinstance(block, tuple) else block)
        elif isinstance(block, tuple):
            yield hasher.encode(block[hasher.view_names_.index(view)], view=view)
        elif isinstance(block, Mapping) and view not in block:
            raise DataError(f"The stream of blocks must hold the view {view!r}. Got a block with {list(block)}.")
        else:
            yield hasher.encode(block[view] if isinstance(block, Mapping) else block, view=view)


def _has_no_rows(block: Any) -> bool:
    parts = list(block.values()) if isinstance(block, Mapping) else block if isinstance(block, tuple) else [block]
    return bool(parts) and all(getattr(part, "shape", (1,))[:1] == (0,) for part in parts)


def stored_blocks(matrix: StoredMatrix, size: int) -> Iterator[Matrix]:
    """The rows of a stored matrix in blocks of ``size``, read several at a time."""
    most = max(size, rows_at_once([matrix]) // size * size)
    for _, rows in matrix.blocks(most):
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
