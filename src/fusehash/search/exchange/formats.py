"""Export and import by the name of a format or the suffix of a file."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fusehash.bits import Codes, check_codes, looks_reversed
from fusehash.errors import FusehashError, ParameterError, warn
from fusehash.files import replacing
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, reordered, unreadable
from fusehash.search.rows import Ids, check_different, check_ids

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fusehash.search.index import HammingIndex

FORMATS = ("numpy", "faiss", "usearch", "pgvector", "milvus", "qdrant", "elasticsearch", "parquet", "arrow")
_SUFFIXES = {  # the longest one that fits decides
    ".npy": "numpy", ".npz": "numpy", ".faiss": "faiss", ".usearch": "usearch", ".sql": "pgvector",
    ".milvus.json": "milvus", ".qdrant.jsonl": "qdrant", ".ndjson": "elasticsearch", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow",
}  # fmt: skip
_BLOCK = 1 << 16


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


def export_codes(
    index: HammingIndex, path: str | os.PathLike[str], format: str | None = None, *, bit_order: str = "big"
) -> int:
    """Write the codes and ids of an index to a file for another library or database.

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

    def blocks() -> Iterator[tuple[Ids, Codes]]:
        for ids, codes in index.blocks(_BLOCK):
            yield ids, reordered(codes, bit_order)

    export = Export(index.n_bits, len(index), bit_order, blocks, target.suffix.lower())
    with replacing(target) as file:
        chosen.write(file, export)
    return export.count


def import_codes(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    bit_order: str | None = None,
    like: Codes | None = None,
) -> tuple[Ids | None, Codes]:
    """Read codes from a file of another library or database, in the order of bits of fusehash.

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
    ids : int64 array, shape (n,), or None if the file has none
    codes : uint8 array, shape (n, bytes)

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
    try:
        imported = chosen.read(source)
    except FusehashError:
        raise
    except Exception as error:  # libraries raise many classes for a damaged file
        raise unreadable(source, chosen.what, error) from error
    order = bit_order or imported.order or "big"
    if bit_order is not None and imported.order is not None and bit_order != imported.order:
        warn(f"'{source}' says that its bits are in the order {imported.order!r}; they are read as {bit_order!r}.")
    codes = reordered(check_codes(imported.codes, what=f"Codes in '{source}'"), order)
    ids = imported.ids
    if ids is not None:
        ids = check_ids(ids, len(codes))
        check_different(ids)
    if like is not None and looks_reversed(codes, like):
        other = next(o for o in ORDERS if o != order)
        warn(
            f"The codes in '{source}' look bit-reversed: read with the bit order {other!r}, they resemble the codes "
            f"that are here; read with {order!r}, as now, they do not."
        )
    return ids, codes


def _format(name: str) -> CodesFormat:
    module = "arrow" if name == "parquet" else name
    chosen: CodesFormat = getattr(import_module(f"fusehash.search.exchange.{module}"), name.upper())
    return chosen


def _check_order(order: str) -> None:
    if order not in ORDERS:
        raise ParameterError("export_codes and import_codes", "bit_order", f"one of {', '.join(ORDERS)}", order)
