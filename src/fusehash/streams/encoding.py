"""Codes of what does not fit in memory: to a file, as a lazy dask array, or block after block."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash import bits
from fusehash.errors import DataError
from fusehash.numerics.arrays import host
from fusehash.streams.base import StoredMatrix
from fusehash.streams.blocks import SOURCE
from fusehash.streams.checked import CheckedView
from fusehash.streams.sinks import sink

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

Report = Callable[[int, int, str], None]
ENCODE_ROWS = 8192  # a multiple of the 64 rows in which hashers encode, so that a row always gives the same products
ENCODE_ENTRIES = 2**22


def encode_rows(
    hasher: CrossModalHasher,
    views: Mapping[str, Any],
    *,
    fused: bool,
    out: str | os.PathLike[str] | None = None,
    report: Report | None = None,
) -> Any:
    """The codes of stored views, block by block: as an array, or written to a file (whose path is returned).

    ``views`` holds one opened view, or with ``fused`` those to fuse; the codes are the same as of arrays in memory.
    """
    n_rows, n_bytes = next(iter(views.values())).shape[0], bits.n_bytes(hasher.n_bits)
    blocks = paired_blocks(views, allow_missing=fused, report=report)
    if fused:
        parts = (hasher.encode_fused(block) for block in blocks)
    else:
        parts = (hasher.encode(matrix, view=name) for block in blocks for name, matrix in block.items())
    if out is not None:
        return write_codes(parts, n_rows, n_bytes, out)
    codes, done = np.empty((n_rows, n_bytes), np.uint8), 0
    for part in parts:
        codes[done : done + len(part)] = part
        done += len(part)
    return codes


def paired_blocks(
    views: Mapping[str, Any], *, allow_missing: bool = False, report: Report | None = None
) -> Iterator[dict[str, Any]]:
    """Paired rows of stored views, in memory, a few thousand at a time; checked while they are read."""
    matrices = {name: _checked(matrix, name, allow_missing=allow_missing) for name, matrix in views.items()}
    counts = {name: matrix.shape[0] for name, matrix in matrices.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"'{name}' has {n}" for name, n in counts.items())
        raise DataError(f"Rows of the views must pair one to one. Got different numbers of rows: {listed}.")
    n_rows, size = next(iter(counts.values())), rows_at_once(matrices.values())
    for start in range(0, n_rows, size):
        if report is not None:
            report(start, n_rows, f"row {start:,} of {n_rows:,}")
        yield {name: matrix[start : start + size] for name, matrix in matrices.items()}


def _checked(matrix: Any, name: str, *, allow_missing: bool) -> Any:
    if isinstance(matrix, CheckedView):
        matrix = matrix.matrix
    return CheckedView(matrix, name, allow_missing=allow_missing) if isinstance(matrix, StoredMatrix) else matrix


def write_codes(blocks: Iterable[bits.Codes], n_rows: int | None, n_bytes: int, out: str | os.PathLike[str]) -> Path:
    """Write blocks of codes to a file, which is complete or not there."""
    with sink(out, n_rows, n_bytes, np.uint8) as codes:
        for block in blocks:
            codes.write(host(block))
    return Path(out)


def rows_at_once(matrices: Iterable[Any]) -> int:
    """How many rows to encode at a time, so that wide views take no more memory than narrow ones."""
    width = max(matrix.shape[1] for matrix in matrices)
    return int(np.clip(ENCODE_ENTRIES // max(1, width) // 64 * 64, 64, ENCODE_ROWS))


def is_dask(source: Any) -> bool:
    """Whether something is a dask array; dask is not imported to find out."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(source, module.Array)


def encode_lazily(hasher: CrossModalHasher, X: Any, view: str) -> Any:
    """The codes of a dask array as a dask array of the same row chunks; nothing is computed."""
    if X.ndim != 2:
        raise DataError(f"View '{view}' must be a matrix (rows, features). Got shape {X.shape} instead.")
    expected = hasher.n_features_[view]
    if X.shape[1] != expected:
        raise DataError(f"View '{view}' must have {expected} features, as in fit. Got {X.shape[1]} instead.")
    X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
    n_bytes = bits.n_bytes(hasher.n_bits)
    encode = BlockEncoder(hasher, view)
    return X.map_blocks(encode, dtype=np.uint8, chunks=(X.chunks[0], (n_bytes,)), meta=np.empty((0, n_bytes), np.uint8))


class BlockEncoder:
    """Encodes one block of one view: a model without its training codes, light enough to travel."""

    def __init__(self, hasher: CrossModalHasher, view: str) -> None:
        self.hasher, self.view = copy.copy(hasher), view
        self.hasher.codes_ = hasher.codes_[:0].copy()
        self.hasher.__dict__.pop("sums_", None)  # encoding does not need them
        if getattr(hasher, "callback", None) is not None:
            self.hasher.callback = None

    def __call__(self, block: Any) -> bits.Codes:
        if not block.shape[0]:
            return np.empty((0, bits.n_bytes(self.hasher.n_bits)), np.uint8)
        return self.hasher.encode(block, view=self.view)


def encode_blocks(hasher: CrossModalHasher, stream: Any, view: str | None) -> Iterator[bits.Codes]:
    """The codes of every block of a stream, in order: of one view, or (view None) fused from those it holds.

    A block is a mapping from name to matrix, or a tuple in the order of fit; for one view also the matrix itself.
    """
    for block in stream() if callable(stream) else stream:
        if _has_no_rows(block):  # as in fit
            yield np.empty((0, bits.n_bytes(hasher.n_bits)), np.uint8)
        elif view is None:
            yield hasher.encode_fused(list(block) if isinstance(block, tuple) else block)
        elif isinstance(block, tuple):
            yield hasher.encode(block[hasher.view_names_.index(view)], view=view)
        elif isinstance(block, Mapping):
            if view not in block:
                raise DataError(f"{SOURCE} must hold the view {view!r}. Got a block with {list(block)}.")
            yield hasher.encode(block[view], view=view)
        else:
            yield hasher.encode(block, view=view)


def _has_no_rows(block: Any) -> bool:
    parts = list(block.values()) if isinstance(block, Mapping) else block if isinstance(block, tuple) else [block]
    return bool(parts) and all(getattr(part, "shape", (1,))[:1] == (0,) for part in parts)


def stored_blocks(matrix: StoredMatrix, size: int) -> Iterator[Any]:
    """The rows of a stored matrix in blocks of ``size``, read several at a time."""
    most = max(size, rows_at_once([matrix]) // size * size)
    for _, rows in matrix.blocks(most):
        for start in range(0, len(rows), size):
            yield rows[start : start + size]
