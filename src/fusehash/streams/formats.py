"""`open_view`: the formats of views that are not in memory. No optional package is imported before it is used.

`.npy` files and memory maps are read with positioned reads, which do not count as memory of this process as maps do.
zarr, HDF5 and dask arrays are read chunk by chunk. Parquet files are copied to a temporary `.npy` file once.
"""

from __future__ import annotations

import math
import mmap
import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from fusehash import trust
from fusehash.errors import DataError, FusehashError
from fusehash.extras import require
from fusehash.numerics.parallel import n_cores
from fusehash.streams.parquet import check_pages
from fusehash.streams.stored import PIECE_BYTES, Matrix, PieceReader, Recipe, RowReader, StoredMatrix, check_dtype
from fusehash.streams.writers import NpyWriter
from fusehash.streams.zarr import ZARR_FILES, ZarrArray
from fusehash.views import check_shape

PARQUET = (".parquet", ".pq")
KEPT_BYTES = 2**28  # of decoded chunks
MAX_DIMENSIONS = 32  # of an array; NumPy takes 64, older versions 32
READ_BYTES = 2**30  # Linux reads at most 2 GiB at a time
INDEX_COLUMN = "__index_level_"  # what pandas calls an index without a name


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
        return _open_memmap(source)
    if isinstance(source, StoredMatrix | np.ndarray):
        return source
    if _is_a(source, "zarr", "Array"):
        return _open_zarr_array(source)
    if _is_a(source, "h5py", "Dataset"):
        return _open_hdf5(source)
    return _open_dask(source) if is_dask(source) else source


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
        return _open_parquet(path, columns)
    if columns is not None:
        raise DataError(f"Only the columns of a Parquet file can be chosen. Got {path.name} instead.")
    if has_suffix and names[0].endswith(".npy"):
        return open_npy(path)
    if has_suffix or set(names).intersection(ZARR_FILES):
        return _open_zarr(path)
    _check_exists(path)
    raise DataError(f"A view must be a .npy, .zarr or .parquet file, or a folder of Parquet files. Got {path.name}.")


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise DataError(f"The path of a view must exist. At {path} there is no file and no folder.")


def _unreadable(source: str, error: BaseException) -> DataError:
    """What to raise for an error of a reader of foreign bytes: its first line."""
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return DataError(f"{source} could not be read: {reason}.")


class FileReader(RowReader):
    """Rows of one dtype from byte `offset` of a file; `owner` keeps a temporary file alive."""

    owner: Any = None

    def __init__(self, path: Path, offset: int, shape: Sequence[int], dtype: np.dtype[Any], by_columns: bool) -> None:
        self.source, self._offset, self._shape, self._dtype = f"The file {path.name}", offset, tuple(shape), dtype
        self._by_columns, self._lock, self._file = by_columns, threading.Lock(), _open_file(path)
        size, needed = os.fstat(self._file.fileno()).st_size, offset + math.prod(shape) * dtype.itemsize
        if size < needed:
            content = f"{needed} bytes for its shape {self._shape}"
            raise DataError(f"{self.source} must have {content}. It ends after {size}.")

    def read(self, start: int, stop: int) -> Matrix:
        if self._by_columns:
            try:
                whole = np.memmap(self._file, self._dtype, "r", self._offset, self._shape, order="F")
            except ValueError:
                raise self._shortened(os.fstat(self._file.fileno()).st_size) from None
            return np.array(whole[start:stop], order="C")
        block = np.empty((stop - start, self._shape[1]), self._dtype)
        self._fill(block, self._offset + start * self._shape[1] * self._dtype.itemsize)
        return block

    def _fill(self, block: Matrix, position: int) -> None:
        rest = block.view(np.uint8).reshape(-1).data
        while len(rest):
            if hasattr(os, "preadv"):
                count = os.preadv(self._file.fileno(), [rest[:READ_BYTES]], position)
            else:  # no positioned reads on this platform
                with self._lock:
                    self._file.seek(position)
                    count = self._file.readinto(rest[:READ_BYTES])  # type: ignore[attr-defined]
            if count == 0:
                raise self._shortened(position)
            rest, position = rest[count:], position + count

    def _shortened(self, end: int) -> DataError:
        return DataError(f"{self.source} must not become shorter while it is read. It ends at byte {end}.")


def _open_file(path: Path) -> BinaryIO:
    _check_exists(path)
    return trust.open_file(path, f"The file {path}")


def read_npy_header(file: BinaryIO, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order (by columns or not) and dtype of a `.npy` file that is large enough for them."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except Exception as error:  # a header is parsed as Python, in which anything can be wrong
        raise _unreadable(f"The file {name} must be an intact .npy file. It", error) from error
    if len(shape) > MAX_DIMENSIONS or not all(type(length) is int and 0 <= length < 2**63 for length in shape):
        raise DataError(f"The file {name} must be an intact .npy file. It has the shape {repr(shape)[:80]}.")
    size, needed = os.fstat(file.fileno()).st_size, file.tell() + math.prod(shape) * dtype.itemsize
    if size < needed and not dtype.hasobject:
        raise DataError(f"The file {name} must have {needed} bytes for its shape {shape}. It ends after {size}.")
    return shape, by_columns, dtype


def open_npy(path: Path, owner: Any = None) -> StoredMatrix:
    """A `.npy` file, never unpickled; `owner` removes a temporary file."""
    with _open_file(path) as file:
        shape, by_columns, dtype = read_npy_header(file, path.name)
        offset = file.tell()
    path = path.absolute()  # another process may run in another folder
    matrix = _open_raw(path, offset, shape, dtype, by_columns and len(shape) == 2 and shape[1] > 1, (open_npy, (path,)))
    matrix.reader.owner, matrix.is_shared = owner, owner is None  # type: ignore[attr-defined]
    return matrix


def _open_raw(
    path: Path, offset: int, shape: Sequence[int], dtype: Any, by_columns: bool, recipe: Recipe | None = None
) -> StoredMatrix:
    """A matrix that begins at byte `offset` of a file."""
    source = f"The file {path.name}"
    check_shape(source, shape)
    check_dtype(source, dtype)
    reader = FileReader(path, offset, shape, np.dtype(dtype), by_columns)
    recipe = recipe or (_open_raw, (path, offset, shape, dtype, by_columns))
    return StoredMatrix(source, shape, dtype, reader, recipe=recipe, is_shared=True)


def _open_memmap(array: np.memmap[Any, Any]) -> Any:
    """The file behind a memory map; the map itself if it is not simply the rows of a file."""
    root: Any = array
    while isinstance(root.base, np.memmap):  # a cut of a map has the offset of the whole map
        root = root.base
    if not isinstance(root.base, mmap.mmap) or root.filename is None or array.ndim != 2 or array.mode == "c":
        return array  # "c": changes to the map are not in the file
    if not (array.flags.c_contiguous or array.flags.f_contiguous) or array.dtype.kind not in "fiub" or not array.size:
        return array
    offset = root.offset + array.ctypes.data - root.ctypes.data
    if array.mode != "r":
        root.flush()
    try:
        path = Path(root.filename).absolute()
        return _open_raw(path, offset, array.shape, array.dtype, not array.flags.c_contiguous)
    except DataError:  # the file was moved or removed; the map still has it
        return array


def spool(blocks: Iterable[Mapping[str, Matrix]], source: str) -> dict[str, StoredMatrix]:
    """Copy blocks of paired rows to one `.npy` file per view; the files are removed with the last of the views."""
    folder = Path(tempfile.mkdtemp(prefix="fusehash-"))
    owner = TemporaryFolder(folder)
    writers: dict[str, NpyWriter] = {}
    with ExitStack() as stack:
        for block in blocks:
            for name, part in block.items():
                if name not in writers:
                    path = folder / f"{len(writers)}.npy"
                    writers[name] = stack.enter_context(NpyWriter(path, None, part.shape[1], part.dtype))
                writers[name].write(part)
        if not writers:
            raise DataError(f"{source} must hold rows. It was empty.")
    return {name: open_npy(writer.path, owner) for name, writer in writers.items()}


class TemporaryFolder:
    """Removes a folder when nothing refers to this object any more."""

    def __init__(self, path: Path) -> None:
        weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)


def _in_chunks(source: str, array: Any, edges: Any, load: Callable[[int, int], Matrix], **options: Any) -> StoredMatrix:
    """A matrix whose chunks `load(start, stop)` decodes."""
    longest = int(np.diff(edges).max(initial=1))
    n_kept = KEPT_BYTES // max(1, longest * array.shape[1] * array.dtype.itemsize)
    reader = PieceReader(edges, load, max(2, min(n_cores() + 2, n_kept)))
    return StoredMatrix(source, array.shape, array.dtype, reader, chunk_rows=longest, in_chunks=True, **options)


def even_edges(source: str, array: Any, chunk_rows: int) -> Any:
    """Edges of pieces of whole chunks, several chunks per piece if they are small."""
    n_rows, width = check_shape(source, array.shape)
    chunk_bytes = chunk_rows * width * check_dtype(source, array.dtype).itemsize
    step = chunk_rows * max(1, PIECE_BYTES // max(1, chunk_bytes))
    return np.append(np.arange(0, n_rows, step), n_rows)


def joined_edges(chunks: Iterable[int], row_bytes: int) -> Any:
    """The same for chunks of any length: small neighbors are joined."""
    most = max(1, PIECE_BYTES // max(1, row_bytes))
    edges = [0, 0]
    for rows in filter(None, chunks):
        if edges[-1] + rows - edges[-2] > most and edges[-1] > edges[-2]:
            edges.append(edges[-1])
        edges[-1] += rows
    return np.array(edges)


def _read(array: Any, start: int, stop: int, source: str) -> Matrix:
    try:
        return np.asarray(array[start:stop])
    except FusehashError:
        raise
    except Exception as error:  # readers of foreign bytes raise all sorts of errors
        raise _unreadable(source, error) from error


def _open_zarr(path: Path) -> StoredMatrix:
    """A zarr array in a folder or a zip file."""
    _check_exists(path)
    path = path.absolute()  # another process may run in another folder
    return _chunked(ZarrArray(path), f"The zarr array {path.name}", recipe=(_open_zarr, (path,)), is_shared=True)


def _open_zarr_array(array: Any) -> StoredMatrix:
    """What the user opened with zarr, which reads it."""
    check_shape("The zarr array", array.shape)
    return _chunked(array, "The zarr array", recipe=(_open_zarr_array, (array,)))


def _chunked(array: Any, source: str, **options: Any) -> StoredMatrix:
    """An array with regular chunks, read by cutting it."""
    edges = even_edges(source, array, array.chunks[0])
    return _in_chunks(source, array, edges, partial(_read, array, source=source), **options)


def _open_hdf5(dataset: Any) -> StoredMatrix:
    """A dataset of an HDF5 file (h5py lets one thread read at a time)."""
    path, name = Path(dataset.file.filename).absolute(), str(dataset.name)
    source, first = f"The dataset {name} of {path.name}", _file_and_size(path)
    trust.check_hdf5(dataset, source)

    def load(start: int, stop: int) -> Matrix:
        rows = _read(dataset, start, stop, source)
        file, size = _file_and_size(path)
        if file == first[0] and size < first[1]:  # HDF5 reads zeros after the end of a file
            raise DataError(f"{source} must not become shorter while it is read. Its file ends at byte {size}.")
        return rows

    options: dict[str, Any] = {"recipe": (_open_hdf5_path, (path, name)), "is_shared": True}
    if not dataset.chunks:  # nothing to decode: read just the rows that are asked for
        return StoredMatrix(source, dataset.shape, dataset.dtype, RowReader(load), **options)
    return _in_chunks(source, dataset, even_edges(source, dataset, dataset.chunks[0]), load, **options)


def _file_and_size(path: Path) -> tuple[Any, int]:
    """Which file is at a path, and its size; nothing if there is none (HDF5 files may also be elsewhere)."""
    try:
        status = path.stat()
    except OSError:
        return None, 0
    return (status.st_dev, status.st_ino), status.st_size


def _open_hdf5_path(path: Path, name: str) -> StoredMatrix:
    return _open_hdf5(require("h5py", "Reading HDF5 files").File(path, "r")[name])


def _open_dask(array: Any) -> StoredMatrix:
    """A dask array, computed chunk by chunk: by the thread that asks, or by a cluster if a client is connected."""
    source = "The dask array"
    if any(np.isnan(size) for size in array.shape):
        raise DataError("A dask array must know its shape. Got unknown chunks; compute_chunk_sizes() finds it.")
    if isinstance(array._meta, np.ma.MaskedArray):
        raise DataError("A dask array must not be masked. Got a masked one; dask.array.ma.filled(x, nan) helps.")
    _, width = check_shape(source, array.shape)
    whole_rows = array.rechunk({1: -1})

    def load(start: int, stop: int) -> Matrix:
        chunk = whole_rows[start:stop].compute(**({} if active_client() else {"scheduler": "synchronous"}))
        return dense_chunk(chunk, (stop - start, width))

    edges = joined_edges(whole_rows.chunks[0], width * check_dtype(source, array.dtype).itemsize)
    return _in_chunks(source, array, edges, load, recipe=(_open_dask, (array,)), dask_array=array)


def dense_chunk(chunk: Any, shape: tuple[int, int]) -> Matrix:
    """A computed chunk of a dask array; raises if it does not have the shape that the array announces."""
    if chunk.shape != shape:
        raise DataError(f"A chunk of the dask array must have the announced shape {shape}. Got {chunk.shape} instead.")
    return chunk.toarray() if sp.issparse(chunk) else np.asarray(chunk)


def active_client() -> Any:
    """The client of a dask cluster that this process has opened, or None."""
    try:
        client = sys.modules["distributed"].default_client()
    except (KeyError, ValueError, AttributeError):
        return None
    return None if client.asynchronous or client.status in ("closing", "closed") else client


def _open_parquet(path: Path, columns: Sequence[str] | None = None) -> StoredMatrix:
    """One Parquet file, or a folder of them in the order of their names. A null is NaN."""
    files = _parquet_files(path)
    source = f"The Parquet {'file' if files == [path] else 'folder'} {path.name}"
    names = {file.name: _numeric_columns(file, columns) for file in files}
    for name, others in names.items():
        if others != names[files[0].name]:
            raise DataError(f"Every file of {source} must have the same columns. {name} differs from {files[0].name}.")
    matrix = spool(({"": batch} for batch in _batches(files, names[files[0].name], source)), source)[""]
    matrix.source = source
    return matrix


def _parquet_files(path: Path) -> list[Path]:
    """The file itself, or those of a folder."""
    _check_exists(path)
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in PARQUET and not file.is_dir())
    files = [file for file in files if not file.name.startswith((".", "_"))]
    if not files:
        raise DataError(f"The folder {path.name} must hold .parquet files. It has none.")
    for file in files:
        trust.open_file(file, f"The file {file.name} of {path.name}", follow_links=False).close()
    return files


@contextmanager
def _parquet_reader(path: Path, names: list[str] | None = None) -> Iterator[Any]:
    """A reader of a file, of which the pages of some columns are checked; whatever goes wrong is one sentence."""
    parquet = require("pyarrow.parquet", "Reading Parquet files")
    with trust.open_file(path, f"The file {path.name}") as file:
        try:
            with parquet.ParquetFile(path.absolute(), pre_buffer=False, buffer_size=2**20) as reader:
                if names is not None:
                    check_pages(file, names, path.name)
                yield reader
        except Exception as error:  # pyarrow raises all sorts of errors
            if isinstance(error, DataError):
                raise
            raise _unreadable(f"{path.name} must be an intact Parquet file. It", error) from error


def _numeric_columns(path: Path, columns: Sequence[str] | None) -> list[str]:
    """The columns that make the matrix: numbers, or one column of lists of numbers."""
    from pyarrow import types

    with _parquet_reader(path) as reader:
        kinds = _column_types(reader)
        counts = Counter(reader.schema_arrow.names)
        names = [name for name in kinds if not name.startswith(INDEX_COLUMN)]
        names = names if columns is None else list(columns)
        missing = [name for name in names if name not in kinds]
        if missing or not names:
            listed = ", ".join(map(repr, list(kinds)[:20])) + (" and more" if len(kinds) > 20 else "")
            raise DataError(f"{path.name} must have the column {(missing or ['of numbers'])[0]!r}. Got {listed}.")
        if len(set(names)) < len(names) or any(counts[name] > 1 for name in names):
            raise DataError(f"{path.name} must have columns of different names. Some have the same.")
        for name in names:
            kind = kinds[name]
            kind = kind.value_type if len(names) == 1 and _is_list(kind) else kind
            if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
                raise DataError(
                    f"{path.name} must hold columns of numbers, or one column of lists of numbers. "
                    f"Got the column {name!r} of type {kind}; open_view(path, columns=...) chooses columns."
                )
    return names


def _column_types(reader: Any) -> dict[str, Any]:
    """The types of the columns by name, which pyarrow makes again at every call."""
    schema = reader.schema_arrow
    return dict(zip(schema.names, schema.types, strict=True))


def _is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _batches(files: list[Path], names: list[str], source: str) -> Iterator[Matrix]:
    """The rows of some files in batches: a row group may be as large as a file."""
    row, width, dtype = 0, 0, None
    for file in files:
        with _parquet_reader(file, names) as reader:
            column_types = _column_types(reader)
            kinds = [column_types[name] for name in names]
            kinds = [kind.value_type if _is_list(kind) else kind for kind in kinds]
            dtype = dtype or np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
            width = width or _width(reader, names)
            n_bytes = reader.metadata.num_rows * width * dtype.itemsize
            if n_bytes > trust.MODEST_BYTES:
                trust.check_size(source, n_bytes, file.stat().st_size, compressed=True)
            size = max(1, PIECE_BYTES // max(1, width * dtype.itemsize))
            for batch in reader.iter_batches(size, columns=names):
                yield _to_matrix(batch, width, dtype, source, row)
                row += batch.num_rows


def _width(reader: Any, names: list[str]) -> int:
    """Columns of the matrix; if they are lists, the length of the first that is not null."""
    if not _is_list(reader.schema_arrow.field(names[0]).type):
        return len(names)
    batches = (batch.column(0).drop_null() for batch in reader.iter_batches(1024, columns=names))
    return next((len(lists[0]) for lists in batches if len(lists)), 0)


def _to_matrix(batch: Any, width: int, dtype: np.dtype[Any], source: str, first_row: int) -> Matrix:
    """The rows of one batch."""
    matrix = np.full((batch.num_rows, width), np.nan if dtype.kind == "f" else 0, dtype)
    if not _is_list(batch.column(0).type):
        for j, column in enumerate(batch.columns):
            matrix[:, j] = _numbers(column, dtype, source)
        return matrix
    column = batch.column(0)
    lists, present = column.drop_null(), column.is_valid().to_numpy(zero_copy_only=False)
    lengths = np.asarray(lists.value_lengths())
    wrong = np.flatnonzero(lengths != width)
    if len(wrong):
        row, length = first_row + int(np.flatnonzero(present)[wrong[0]]), lengths[wrong[0]]
        raise DataError(f"{source} must hold lists of equal length, {width}. Got {length} in row {row}.")
    matrix[present] = _numbers(lists.flatten(), dtype, source).reshape(len(lists), width)
    return matrix


def _numbers(column: Any, dtype: np.dtype[Any], source: str) -> Matrix:
    if column.null_count and dtype.kind != "f":
        raise DataError(f"{source} must have no nulls among whole numbers. Got {column.null_count} of them.")
    return np.asarray(column.to_numpy(zero_copy_only=False))
