"""Binary indexes of faiss: IndexBinaryIDMap over IndexBinaryFlat is written; both are read."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.extras import require
from fusehash.search.exchange.codes import CodesFormat, Export, ImportedRows, as_ids, unreadable


def _write(file: BinaryIO, export: Export) -> None:
    faiss = require("faiss", "Writing faiss indexes")
    flat = faiss.IndexBinaryFlat(export.n_bits)
    index = faiss.IndexBinaryIDMap(flat)
    for block in export.blocks():
        index.add_with_ids(block.codes, block.ids)
    file.write(faiss.serialize_index_binary(index).data)


def _read(path: Path) -> ImportedRows:
    faiss = require("faiss", "Reading faiss indexes")
    with trust.open_file(path, f"The file {path}") as file:
        content = np.frombuffer(file.read(), np.uint8)
    try:
        whole = index = faiss.deserialize_index_binary(content)  # `whole` owns what is inside it
    except RuntimeError as error:
        raise unreadable(path, "a binary index of faiss", error) from error
    ids = None
    if isinstance(index, faiss.IndexBinaryIDMap | faiss.IndexBinaryIDMap2):
        ids, index = faiss.vector_to_array(whole.id_map), faiss.downcast_IndexBinary(whole.index)
    if not isinstance(index, faiss.IndexBinaryFlat):
        raise DataError(
            f"'{path}' must be an IndexBinaryFlat of faiss, or an IndexBinaryIDMap of one. Got {type(index).__name__}."
        )
    codes = faiss.vector_to_array(index.xb).reshape(index.ntotal, -1)
    return ImportedRows(codes, None if ids is None else as_ids(ids, path))


FAISS = CodesFormat((".faiss",), _write, _read, "a binary index of faiss", lambda suffix: True)
