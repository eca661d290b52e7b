"""Where rows are written block by block: `.npy`, `.zarr` or `.parquet`, complete in the end or not there at all.

    with sink("codes.npy", n_rows, n_columns, np.uint8) as out:
        out.write(block)

What is written lies beside the target under another name until the last row is on disk, and takes its place then. After
an error, or with fewer or more rows than announced, nothing is left and an older file is still there.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from fusehash.errors import DataError
from fusehash.streams.base import PIECE_BYTES, Block


class Sink(ABC):
    """Takes rows in order; used in a `with` block.

    Parameters
    ----------
    path : the file or folder that will be there
    n_rows : how many rows will come; None where that is not known before
    n_columns, dtype : what a row is
    """

    def __init__(self, path: Path, n_rows: int | None, n_columns: int, dtype: Any) -> None:
        self.path, self.n_rows, self.n_columns, self.dtype = Path(path), n_rows, int(n_columns), np.dtype(dtype)
        self.n_written = 0
        self._held: list[Block] = []
        self._n_held = 0
        self._part: Path | None = None

    @property
    def rows_at_once(self) -> int:
        """Rows of a chunk or row group."""
        return max(1, PIECE_BYTES // max(1, self.n_columns * self.dtype.itemsize))

    def __enter__(self) -> Sink:
        try:
            self._begin()
        except OSError as error:
            self._clean()
            raise self._unwritable(error) from error
        except BaseException:
            self._clean()
            raise
        return self

    def write(self, block: Any) -> None:
        """Add rows."""
        rows = np.asarray(block)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            raise DataError(f"A block to write must have {self.n_columns} columns. Got shape {rows.shape} instead.")
        if not np.can_cast(rows.dtype, self.dtype, "safe"):
            raise DataError(f"A block to write must hold {self.dtype}, as the first did. Got {rows.dtype} instead.")
        if self.n_rows is not None and self.n_written + len(rows) > self.n_rows:
            raise self._miscounted(self.n_written + len(rows))
        self.n_written += len(rows)
        self._held.append(rows)
        self._n_held += len(rows)
        try:
            self._write_held(whole=True)
        except OSError as error:
            raise self._unwritable(error) from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is not None:
                return
            if self.n_rows not in (None, self.n_written) or not self.n_written:
                raise self._miscounted(self.n_written)
            try:
                self._write_held(whole=False)
                self._finish()
                self._replace()
            except OSError as failure:
                raise self._unwritable(failure) from failure
        finally:
            self._clean()

    def _write_held(self, *, whole: bool) -> None:
        """Write what has come, in portions of `rows_at_once`."""
        size = self.rows_at_once
        while self._n_held >= size or (self._n_held and not whole):
            rows = np.concatenate(self._held) if len(self._held) > 1 else self._held[0]
            cut = min(size, len(rows))
            self._store(np.ascontiguousarray(rows[:cut], dtype=self.dtype))
            self._held, self._n_held = [rows[cut:]], len(rows) - cut
        if self._n_held:
            self._held[-1] = self._held[-1].copy()  # whoever gave the block may fill it anew

    def _miscounted(self, got: int) -> DataError:
        expected = self.n_rows if self.n_rows is not None else "some"
        return DataError(f"{self.path.name} must get {expected} rows. Got {got} instead; nothing was written.")

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(f"'{self.path}' could not be written ({error.strerror or error}); nothing was changed.")

    @abstractmethod
    def _begin(self) -> None:
        """Make the unfinished file `_part` beside the target, with `_beside`."""

    @abstractmethod
    def _store(self, rows: Block) -> None:
        """Write rows behind those that are there."""

    @abstractmethod
    def _finish(self) -> None:
        """Bring everything to the disk."""

    def _replace(self) -> None:
        assert self._part is not None
        self._part.replace(self.path)
        sync_folder(self.path.parent)

    def _clean(self) -> None:
        self._held, self._n_held = [], 0
        if self._part is not None:
            self._close()
            if self._part.is_dir():
                shutil.rmtree(self._part, ignore_errors=True)
            else:
                self._part.unlink(missing_ok=True)

    @abstractmethod
    def _close(self) -> None:
        """Let go of the unfinished file, which may not have been opened."""

    def _beside(self) -> int:
        """Make `_part`, a new file beside the target, with the rights of any other file; returns its handle."""
        if not self.path.parent.is_dir():
            raise DataError(f"The folder of '{self.path}' must exist. '{self.path.parent}' does not.")
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.", suffix=".part")
        self._part = Path(name)
        mask = os.umask(0)
        os.umask(mask)
        self._part.chmod(0o666 & ~mask)  # mkstemp's 0600 is for secrets
        return handle


class NpySink(Sink):
    """A `.npy` file of its final size from the start, where the number of rows is known."""

    @property
    def rows_at_once(self) -> int:
        return 1  # there is nothing to gather

    def _begin(self) -> None:
        self._file = os.fdopen(self._beside(), "wb", buffering=0)
        header = npy_header((self.n_rows or 0, self.n_columns), self.dtype)
        self._file.write(header)
        self._header_bytes = len(header)
        if self.n_rows is not None and hasattr(os, "posix_fallocate"):  # a full disk is found out now
            size = len(header) + self.n_rows * self.n_columns * self.dtype.itemsize
            os.posix_fallocate(self._file.fileno(), 0, size)

    def _write_held(self, *, whole: bool) -> None:
        for rows in self._held:
            self._store(np.ascontiguousarray(rows, dtype=self.dtype))
        self._held, self._n_held = [], 0

    def _store(self, rows: Block) -> None:
        rest = rows.view(np.uint8).reshape(-1).data
        while len(rest):
            rest = rest[self._file.write(rest) :]

    def _finish(self) -> None:
        header = npy_header((self.n_written, self.n_columns), self.dtype)
        assert len(header) == self._header_bytes
        self._file.seek(0)
        self._file.write(header)
        os.fsync(self._file.fileno())
        self._file.close()

    def _close(self) -> None:
        with suppress(OSError, AttributeError):
            self._file.close()


def npy_header(shape: tuple[int, int], dtype: np.dtype[Any]) -> bytes:
    """The first bytes of a `.npy` file; numpy leaves room in them for the number of rows to grow."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


def sync_folder(folder: Path) -> None:
    """Bring a rename to the disk, where the platform lets one."""
    with suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sink(path: Any, n_rows: int | None, n_columns: int, dtype: Any) -> Sink:
    """The sink for a path: the end of its name says what is written."""
    target = Path(path)
    kind = target.suffix.lower()
    if kind == ".npy":
        return NpySink(target, n_rows, n_columns, dtype)
    if kind in (".zarr", ".parquet", ".pq"):
        from fusehash.streams.sink_formats import ParquetSink, ZarrSink

        return (ZarrSink if kind == ".zarr" else ParquetSink)(target, n_rows, n_columns, dtype)
    raise DataError(f"The file to write must end in .npy, .zarr or .parquet. Got {target.name!r} instead.")
