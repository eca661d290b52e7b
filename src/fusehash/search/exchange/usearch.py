"""Binary indexes of usearch: metric Hamming, one bit per dimension."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from fusehash import trust
from fusehash.bits import n_bytes
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows, as_ids, check_unsigned, unreadable


def _write(file: BinaryIO, export: Export) -> None:
    usearch = require("usearch.index", "Writing usearch indexes")
    kinds = {"metric": usearch.MetricKind.Hamming, "dtype": usearch.ScalarKind.B1}
    index = usearch.Index(ndim=export.n_bits, **kinds)
    for block in export.blocks():
        check_unsigned(block.ids, "usearch")
        index.add(block.ids.astype(np.uint64), block.codes)
    file.write(index.save())


def _read(path: Path) -> ImportedRows:
    usearch = require("usearch.index", "Reading usearch indexes")
    with trust.open_file(path, f"The file {path}"):
        pass  # a regular file; usearch reads it by its name
    try:
        index = usearch.Index.restore(str(path))
    except Exception as error:  # it raises many classes
        raise unreadable(path, "an index of usearch", error) from error
    if index is None:
        raise DataError(f"'{path}' must be an index of usearch. It is damaged or something else.")
    if index.dtype != usearch.ScalarKind.B1:
        raise DataError(f"'{path}' must hold one bit per dimension (b1). Got {index.dtype} instead.")
    if index.multi:
        raise DataError(f"'{path}' must hold one code per key. It may hold several.")
    keys = np.sort(np.fromiter(index.keys, np.uint64, len(index)))
    if not len(keys):
        return ImportedRows(np.empty((0, n_bytes(index.ndim)), np.uint8), np.empty(0, np.int64))
    codes = np.asarray(index.get(keys, usearch.ScalarKind.B1), np.uint8).reshape(len(keys), -1)
    return ImportedRows(codes, as_ids(keys, path))


USEARCH = CodesFormat((".usearch",), _write, _read, "a binary index of usearch", lambda suffix: True)
