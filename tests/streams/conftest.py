"""One matrix, stored in every way that fusehash reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fusehash.streams import open_blocks, open_view

X = np.random.default_rng(0).standard_normal((537, 7)).astype(np.float32)
KINDS = (
    "npy", "npy by columns", "npy big-endian", "memmap", "memmap cut", "zarr", "zarr 2", "zarr zip", "zarr object",
    "parquet columns", "parquet lists", "parquet fixed lists", "parquet folder", "hdf5", "hdf5 chunks", "dask",
    "dask columns", "blocks", "block function", "generator", "selected",
)  # fmt: skip

Optional = Callable[[str], ModuleType]


def pieces(step: int = 50) -> list[dict[str, Any]]:
    return [{"a": X[i : i + step], "b": -X[i : i + step, :3]} for i in range(0, len(X), step)]


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory, optional: Optional) -> Callable[[str], Any]:
    """`stored(kind)`: X, stored in that way and opened."""
    folder = tmp_path_factory.mktemp("stored")
    made: dict[str, Any] = {}

    def find(kind: str) -> Any:
        if kind not in made:
            made[kind] = make(kind, folder, optional)
        return made[kind]

    return find


def make(kind: str, folder: Path, optional: Optional) -> Any:
    first, _, rest = kind.partition(" ")
    maker = {
        "npy": make_npy, "memmap": make_memmap, "zarr": make_zarr, "parquet": make_parquet, "hdf5": make_hdf5,
        "dask": make_dask,
    }.get(first)  # fmt: skip
    if maker is not None:
        return open_view(maker(rest, folder, optional))
    if kind == "selected":
        np.save(folder / "selected.npy", np.vstack([X[::-1], X]))
        return open_view(folder / "selected.npy").select(np.arange(len(X))[::-1])
    if kind == "generator":
        return open_blocks(block for block in pieces())["a"]
    return open_blocks(pieces() if kind == "blocks" else pieces)["a"]


def make_npy(rest: str, folder: Path, optional: Optional) -> Path:
    path = folder / f"{rest}.npy"
    np.save(path, {"": X, "by columns": np.asfortranarray(X), "big-endian": X.astype(">f4")}[rest])
    return path


def make_memmap(rest: str, folder: Path, optional: Optional) -> Any:
    path = folder / f"map {rest}.bin"
    path.write_bytes(b"head" + np.vstack([X, X + 1, X]).tobytes())
    whole = np.memmap(path, np.float32, "r", 4, (3 * len(X), 7))
    return whole[2 * len(X) :] if rest == "cut" else whole[: len(X)]


def make_zarr(rest: str, folder: Path, optional: Optional) -> Any:
    zarr = optional("zarr")
    path = folder / f"{rest}.zarr{'.zip' if rest == 'zip' else ''}"
    store = zarr.storage.ZipStore(path, mode="w") if rest == "zip" else str(path)
    array = zarr.create_array(store, shape=X.shape, chunks=(64, 4), dtype=X.dtype, zarr_format=2 if rest == "2" else 3)
    array[:] = X
    if rest == "zip":
        store.close()
    return array if rest == "object" else path


def make_parquet(rest: str, folder: Path, optional: Optional) -> Path:
    pa, pq = optional("pyarrow"), optional("pyarrow.parquet")
    path = folder / f"{rest}.parquet"
    if rest == "columns":
        pq.write_table(pa.table({f"c{j}": X[:, j] for j in range(7)}), path, row_group_size=100)
    elif rest == "folder":
        path = folder / "many"
        path.mkdir()
        for number, start in enumerate(range(0, len(X), 200)):
            table = pa.table({"x": list(X[start : start + 200])})
            pq.write_table(table, path / f"{number}.parquet", row_group_size=70)
    else:
        kind = pa.list_(pa.float32(), 7) if rest == "fixed lists" else pa.list_(pa.float32())
        pq.write_table(pa.table({"x": pa.array(list(X), kind)}), path, row_group_size=100)
    return path


def make_hdf5(rest: str, folder: Path, optional: Optional) -> Any:
    h5py = optional("h5py")
    options = {"chunks": (60, 5), "compression": "gzip"} if rest else {}
    with h5py.File(folder / f"{rest}.h5", "w") as file:
        file.create_dataset("inside/x", data=X, **options)
    return h5py.File(folder / f"{rest}.h5", "r")["inside/x"]


def make_dask(rest: str, folder: Path, optional: Optional) -> Any:
    return optional("dask.array").from_array(X, chunks=(100, 3 if rest else 7))
