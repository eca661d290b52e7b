"""Export and import by the name of a format or the suffix of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes, check_codes, looks_reversed
from fusehash.errors import DataError, FusehashError, ParameterError, warn
from fusehash.files import replacing
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, ExportedRows, reordered, unreadable
from fusehash.search.ids import check_different, check_ids
from fusehash.search.rows import NO_IDS, Ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusehash.search.index import HammingIndex

FORMATS = ("numpy", "faiss", "usearch", "pgvector", "milvus", "qdrant", "elasticsearch", "parquet", "arrow")
_SUFFIXES = {  # the longest one that fits decides
    ".npy": "numpy", ".npz": "numpy", ".faiss": "faiss", ".usearch": "usearch", ".sql": "pgvector",
    ".milvus.json": "milvus", ".qdrant.jsonl": "qdrant", ".ndjson": "elasticsearch", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
_BLOCK, _BLOCK_NUMBERS = 1 << 16, 1 << 22  # codes, and numbers of vectors, in memory at a time


def format_of(path: str | os.PathLike[str], name: str | None = None) -> str:
    """The name of a format; by default from the suffix of a path.

    Raises ParameterError if there is no such format.
    """
    file = Path(path).name.lower()
    if name is None:
        fitting = [suffix for suffix in _SUFFIXES if file.endswith(suffix)]
        name = _SUFFIXES[max(fitting, key=len)] if fitting else Path(path).suffix
    if name not in FORMATS:
        expected = f"one of {', '.join(FORMATS)}, or a path that ends with one of {', '.join(_SUFFIXES)}"
        raise ParameterError("export_codes and import_codes", "format", expected, name)
    return name


def holds_vectors(path: str | os.PathLike[str], name: str | None = None) -> bool:
    """Whether a file has a place for vectors and factors. Raises ParameterError if there is no such format."""
    return not _format(format_of(path, name)).holds_codes_alone(Path(path).suffix.lower())


def export_codes(
    index: HammingIndex, path: str | os.PathLike[str], format: str | None = None, *, bit_order: str = "big"
) -> int:
    """Write the codes, ids, vectors and factors of an index to a file for another library or database.

    A file of faiss or usearch, and a .npy file, holds codes alone; a warning says what is left out.

    Parameters
    ----------
    index : HammingIndex
    path : str or path-like
        The file; written completely or not at all.
    format : str, optional
        One of `FORMATS`; by default from the suffix of the path.
    bit_order : {"big", "little"}, default "big"
        Which bit of a byte is the first one: the highest, as NumPy and most others have it, or the lowest, as
        fusehash does. "pgvector" and "qdrant" have single bits and no order.

    Returns
    -------
    count : int
        How many codes were written.

    Raises
    ------
    ParameterError
        If the format or the order of bits is unknown.
    DataError
        If the file cannot be written, or the format cannot hold the ids.
    MissingPackageError
        If the library of the format is not installed.
    """
    chosen, target = _format(format_of(path, format)), Path(path)
    _check_order(bit_order)

    suffix, kind, dim, has_factors = target.suffix.lower(), _kind_of_numbers(index), index.dim, index.has_factors
    if left_out := "" if holds_vectors(target, format) else _left_out(index):
        warn(
            f"'{target}' has no place for the {left_out} of the index, which are left out; "
            "put them into a file for numpy (.npz), arrow, parquet, qdrant, pgvector, milvus or elasticsearch."
        )
        kind, dim, has_factors = None, None, False

    def blocks() -> Iterator[ExportedRows]:
        for ids, codes in index.blocks(_BLOCK if dim is None else max(1, _BLOCK_NUMBERS // dim)):
            vectors = None if kind is None else index.get_vectors(ids)
            yield ExportedRows(
                ids, reordered(codes, bit_order), vectors, index.get_factors(ids) if has_factors else None
            )

    export = Export(index.n_bits, len(index), bit_order, blocks, suffix, kind, dim, has_factors)
    with replacing(target) as file:
        chosen.write(file, export)
    return export.count


def _kind_of_numbers(index: HammingIndex) -> str | None:
    """That of what `get_vectors` returns, with half precision as such."""
    return index.get_vectors(NO_IDS).dtype.name if index.vector_kind == "int8" else index.vector_kind


def _left_out(index: HammingIndex) -> str:
    """What a file with codes alone leaves out, in words."""
    parts = {"vectors": index.dim is not None, "factors": index.has_factors}
    return " and ".join(name for name, is_kept in parts.items() if is_kept)


@dataclass(frozen=True)
class Imported:
    """What a file holds, in the order of bits of fusehash.

    Parameters
    ----------
    ids : int64 array, shape (n,), or None
        None if the file has none.
    codes : uint8 array, shape (n, n_bits / 8)
    vectors : int8, float16 or float32 array, shape (n, dim), or None
    factors : float32 array, shape (n, 2), or None
    source : str
        The file.
    """

    ids: Ids | None
    codes: Codes
    vectors: NDArray[Any] | None
    factors: NDArray[np.float32] | None
    source: str

    @property
    def n_bits(self) -> int:
        """Width of the codes."""
        return 8 * self.codes.shape[1]

    @property
    def index_options(self) -> dict[str, Any]:
        """The arguments of `HammingIndex` for an index that keeps everything without loss."""
        if self.vectors is None:
            return {"factors": self.factors is not None}
        kind = "float16" if self.vectors.dtype == np.float16 else "float32"
        return {"vectors": kind, "dim": self.vectors.shape[1], "factors": self.factors is not None}

    def add_to(self, index: HammingIndex) -> Ids:
        """Add everything that the index keeps; a warning says what it does not keep.

        Parameters
        ----------
        index : HammingIndex

        Returns
        -------
        ids : int64 array, shape (n,)

        Raises
        ------
        DataError
            If the index keeps vectors or factors and the file has none, or the rows cannot be added.
        """
        keeps = {"vectors": index.dim is not None, "factors": index.has_factors}
        has = {"vectors": self.vectors is not None, "factors": self.factors is not None}
        for name, is_kept in keeps.items():
            if is_kept and not has[name]:
                raise DataError(f"The index keeps {name}, one row for each code. '{self.source}' has none.")
        unused = " and ".join(name for name in keeps if has[name] and not keeps[name])
        if unused:
            warn(
                f"The index keeps no {unused}, so that those in '{self.source}' are left out; "
                "import into a new index to keep them."
            )
        vectors = self.vectors.astype(np.float32) if self.vectors is not None and keeps["vectors"] else None
        return index.add(self.codes, self.ids, vectors, self.factors if keeps["factors"] else None)


def import_codes(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    bit_order: str | None = None,
    like: Codes | None = None,
) -> Imported:
    """Read codes from a file of another library or database, in the order of bits of fusehash.

    Vectors and factors are read from files that `export_codes` has written, and from those with the same names.

    Parameters
    ----------
    path : str or path-like
        The file.
    format : str, optional
        One of `FORMATS`; by default from the suffix of the path.
    bit_order : {"big", "little"}, optional
        By default what the file says, and "big" if it does not.
    like : uint8 array, shape (m, bytes), optional
        Codes of the same model in the order of fusehash. A warning says so if those in the file look reversed next to
        them.

    Returns
    -------
    imported : Imported
        Has `ids`, `codes`, `vectors` and `factors`; `imported.add_to(index)` adds them to an index.

    Raises
    ------
    ParameterError
        If the format or the order of bits is unknown.
    DataError
        If the file is damaged, or is not of this format.
    MissingPackageError
        If the library of the format is not installed.
    """
    source = Path(path)
    chosen = _format(format_of(path, format))
    if bit_order is not None:
        _check_order(bit_order)
    if source.is_file() and not source.stat().st_size:
        raise DataError(f"'{source}' must be {chosen.what}. It is empty.")
    try:
        content = chosen.read(source)
    except FusehashError:
        raise
    except Exception as error:  # libraries raise many classes for a damaged file
        raise unreadable(source, chosen.what, error) from error
    order = bit_order or content.order or "big"
    if bit_order is not None and content.order is not None and bit_order != content.order:
        warn(f"'{source}' says that its bits are in the order {content.order!r}; they are read as {bit_order!r}.")
    codes = reordered(check_codes(content.codes, what=f"Codes in '{source}'"), order)
    ids = content.ids
    if ids is not None:
        ids = check_ids(ids, len(codes))
        check_different(ids)
    if like is not None and looks_reversed(codes, like):
        other = next(o for o in ORDERS if o != order)
        warn(
            f"The codes in '{source}' look bit-reversed: read with the bit order {other!r}, they resemble the codes "
            f"that are here; read with {order!r}, as now, they do not."
        )
    vectors, factors = (_checked(matrix, len(codes), source) for matrix in (content.vectors, content.factors))
    return Imported(ids, codes, vectors, factors, str(source))


def _checked(matrix: Any, count: int, source: Path) -> Any:
    """Vectors or factors: there must be one row for each code."""
    if matrix is not None and (matrix.ndim != 2 or len(matrix) != count or matrix.dtype.kind not in "if"):
        expected = f"Vectors and factors in '{source}' must have {count} rows of numbers, one for each code."
        raise DataError(f"{expected} Got {matrix.dtype} of shape {matrix.shape} instead.")
    return matrix


def _format(name: str) -> CodesFormat:
    module = "arrow" if name == "parquet" else name
    chosen: CodesFormat = getattr(import_module(f"fusehash.search.exchange.{module}"), name.upper())
    return chosen


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise ParameterError("export_codes and import_codes", "bit_order", f"one of {', '.join(ORDERS)}", order)
