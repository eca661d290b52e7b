""".npz files with `codes`, `ids` and `bit_order`; .npy files with codes alone are read, too."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fusehash import trust
from fusehash.errors import DataError
from fusehash.search.exchange.codes import ORDERS, CodesFormat, Export, Imported, as_ids, unreadable


def _write(file: BinaryIO, export: Export) -> None:
    ids, codes = export.all()
    if export.suffix == ".npy":  # codes alone
        np.save(file, codes, allow_pickle=False)
    else:
        np.savez(file, codes=codes, ids=ids, bit_order=np.array(export.order))


def _read(path: Path) -> Imported:
    subject = f"The file {path}"
    with trust.open_file(path, subject) as file:
        is_archive = zipfile.is_zipfile(file)
        if is_archive:
            trust.check_archive(file, subject)
        file.seek(0)
        try:
            content = np.load(file, allow_pickle=False)
            if not is_archive:
                return Imported(content)
            codes, ids, order = (content.get(name) for name in ("codes", "ids", "bit_order"))
        except (ValueError, EOFError, OSError, MemoryError, zipfile.BadZipFile) as error:
            raise unreadable(path, "a .npy or .npz file of codes", error) from error
    if codes is None:
        raise DataError(f"'{path}' must have an array 'codes'. It has {', '.join(content.files) or 'none'}.")
    if order is not None and str(order) not in ORDERS:
        raise DataError(f"The bit order in '{path}' must be big or little. Got {str(order)[:20]!r} instead.")
    return Imported(codes, None if ids is None else as_ids(ids, path), None if order is None else str(order))


NUMPY = CodesFormat((".npy", ".npz"), _write, _read, "NumPy arrays")
