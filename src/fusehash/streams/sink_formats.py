"""Sinks for zarr (one array in a folder) and Parquet (one column "values" of lists of equal length)."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from fusehash.errors import DataError
from fusehash.streams.base import Block
from fusehash.streams.chunked import import_zarr
from fusehash.streams.parquet import import_parquet
from fusehash.streams.sinks import Sink, sync_folder

ZARR_FILES = ("zarr.json", ".zarray", ".zgroup")
COLUMN = "values"


class ZarrSink(Sink):
    """A zarr array whose chunks are whole rows."""

    def _begin(self) -> None:
        zarr = import_zarr()
        if self.path.exists() and not any((self.path / name).exists() for name in ZARR_FILES):
            raise DataError(f"'{self.path}' must be a zarr array to be replaced. It is something else.")
        os.close(self._beside())
        assert self._part is not None
        self._part.unlink()
        self._part.mkdir()
        self._array = zarr.create_array(
            str(self._part),
            shape=(self.n_rows or 0, self.n_columns),
            chunks=(min(self.rows_at_once, self.n_rows or self.rows_at_once), self.n_columns),
            dtype=self.dtype,
        )
        self._stored = 0

    def _store(self, rows: Block) -> None:
        stop = self._stored + len(rows)
        if self.n_rows is None:
            self._array.resize((stop, self.n_columns))
        self._array[self._stored : stop] = rows
        self._stored = stop

    def _finish(self) -> None:
        assert self._part is not None
        for folder, _, files in os.walk(self._part):
            for name in files:
                with (Path(folder) / name).open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(folder))

    def _close(self) -> None:
        """Every chunk was closed when it was written."""

    def _replace(self) -> None:
        assert self._part is not None
        if not self.path.exists():
            super()._replace()
            return
        old = self._part.with_suffix(".old")  # a folder cannot be renamed over another
        self.path.rename(old)
        try:
            super()._replace()
        except BaseException:
            old.rename(self.path)
            raise
        shutil.rmtree(old, ignore_errors=True)


class ParquetSink(Sink):
    """A Parquet file with a row group for every few megabytes."""

    def _begin(self) -> None:
        parquet = import_parquet()
        import pyarrow as pa

        if self.path.is_dir():
            raise DataError(f"The file to write must not be a folder. Got {self.path}.")
        os.close(self._beside())
        self._type = pa.list_(pa.from_numpy_dtype(self.dtype), self.n_columns)
        self._schema = pa.schema([(COLUMN, self._type)])
        self._writer = parquet.ParquetWriter(self._part, self._schema)

    def _store(self, rows: Block) -> None:
        import pyarrow as pa

        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=self._type)
        self._writer.write_table(pa.table([lists], schema=self._schema), row_group_size=len(rows))

    def _finish(self) -> None:
        assert self._part is not None
        self._writer.close()
        with self._part.open("rb") as file:
            os.fsync(file.fileno())

    def _close(self) -> None:
        with suppress(Exception):  # an unfinished file is thrown away
            self._writer.close()
