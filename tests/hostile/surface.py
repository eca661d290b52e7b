"""Everything that can be done with a file of each kind: `use(kind, path, rng)` opens it and puts it to use."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeAlias
from unittest import mock

import numpy as np

from hostile.corpus import picture

Use: TypeAlias = Callable[[Path, Random], None]
USES: dict[str, Use] = {}
COMMAND_SHARE = 0.05  # of the cases that go through the command line
MAX_FITTED_NUMBERS = 1_000_000
MAX_FITTED_BYTES = 1 << 16  # a larger file may hold more numbers, compressed, than can be learned from in 5 s
WRITING_SHARE = 0.1  # of the cases that also change an index or a collection


state = {"writes": False}


class RefusedByLibraryError(Exception):
    """A library that the user calls, not fusehash, has refused the file."""


class CommandError(Exception):
    """A command ended in another way than with a result or one sentence."""


def use(kind: str, path: Path, rng: Random) -> None:
    """Open a file and use it; raises what fusehash raises."""
    through_command = kind in COMMANDS and rng.random() < COMMAND_SHARE
    if through_command and not (COMMANDS[kind] is _fit and _is_large(path)):
        run_command(COMMANDS[kind](path))
    else:
        USES[kind](path, rng)


def _is_large(path: Path) -> bool:
    from fusehash.streams import open_view

    with contextlib.suppress(Exception):  # what is no view is a file of arrays
        return int(np.prod(open_view(path).shape, dtype=float)) > MAX_FITTED_NUMBERS
    return path.is_file() and path.stat().st_size > MAX_FITTED_BYTES


def uses(*kinds: str) -> Callable[[Use], Use]:
    def register(function: Use) -> Use:
        USES.update(dict.fromkeys(kinds, function))
        return function

    return register


def writes(rng: Random) -> bool:
    """Whether this case also writes; then its files may change."""
    state["writes"] = rng.random() < WRITING_SHARE
    return state["writes"]


@uses("npy", "zarr", "zarr_zip", "parquet", "parquet_folder")
def use_view(path: Path, rng: Random) -> None:
    from fusehash.streams import open_view

    _use_matrix(open_view(path), rng)
    if path.suffix == ".npy":
        from fusehash.commands.inputs import read_labels
        from fusehash.datasets.base import tidy_labels
        from fusehash.errors import DataError

        with contextlib.suppress(DataError):  # most matrices are no labels
            tidy_labels(read_labels(path))


@uses("hdf5")
def use_hdf5(path: Path, rng: Random) -> None:
    import h5py

    from fusehash.streams import open_view

    try:
        dataset = h5py.File(path, "r")["x"]
        if not isinstance(dataset, h5py.Dataset):
            raise TypeError
        dataset.dtype, dataset.shape, dataset.chunks  # noqa: B018
    except Exception as error:
        raise RefusedByLibraryError from error
    _use_matrix(open_view(dataset), rng)


def _use_matrix(matrix: Any, rng: Random) -> None:
    matrix[:2]
    matrix[[len(matrix) - 1, 0]]
    if matrix.shape[0] * matrix.shape[1] <= 10**7:
        matrix[:]
    if matrix.shape[0] <= 1000 and matrix.shape[1] <= 100 and rng.random() < 0.1:
        from fusehash import hashers

        hashers.make("random", n_bits=8, random_state=0).fit({"image": matrix, "text": matrix})


@uses("codes")
def use_codes(path: Path, rng: Random) -> None:
    from fusehash import HammingIndex
    from fusehash.bits import check_codes
    from fusehash.commands.contents import contents_of
    from fusehash.commands.inputs import load_npy

    contents_of(path)
    codes, ids = check_codes(load_npy(path)), load_npy(path.with_name("ids.npy"))
    index = HammingIndex(codes.shape[1] * 8, engine="numpy")
    index.add(codes, ids)
    index.search(codes[:1], k=2, allowed=ids)
    index.remove(ids)


@uses("exchange_numpy", "exchange_json", "exchange_sql")
def use_exchanged_codes(path: Path, rng: Random) -> None:
    from fusehash import HammingIndex
    from fusehash.search.exchange import import_codes

    imported = import_codes(path)
    index = HammingIndex(imported.n_bits, engine="numpy", **imported.index_options)
    imported.add_to(index)
    index.search(imported.codes[:1], k=2)


@uses("npz", "mat5", "mat73")
def use_dataset(path: Path, rng: Random) -> None:
    from fusehash import datasets, hashers

    dataset = datasets.load(path, n_query=5, stack_images=rng.random() < 0.1)
    if rng.random() < 0.1 and max(view.shape[1] for view in dataset.views.values()) <= 100:
        hashers.make("random", n_bits=8, random_state=0).fit(dataset.views.rows(dataset.train))


@uses("model")
def use_model(path: Path, rng: Random) -> None:
    import fusehash

    model = fusehash.load(path)
    rows = {name: np.ones((2, min(int(width), 1000)), np.float32) for name, width in model.n_features_.items()}
    for name, X in rows.items():
        model.encode(X, view=name)
    if hasattr(model, "encode_fused"):
        model.encode_fused(rows)
    repr(model)
    if writes(rng):
        model.save(path.with_name("again.safetensors"))


@uses("encoder", "onnx_encoder")
def use_encoder(path: Path, rng: Random) -> None:
    from fusehash import encoders, trust

    # The user has used these models before; those of a mutated file are others.
    trust.confirm_models("onnx", {"path": path.with_name("model.onnx"), "tokenizer": path.with_name("tokenizer.json")})
    encoder = encoders.load(path)
    items = [picture(3), b"no picture"] if encoder.modality == "image" else ["a cat on a red thing", ""]
    encoder.transform(items)
    repr(encoder)


@uses("onnx")
def use_onnx(path: Path, rng: Random) -> None:
    from fusehash import encoders

    if (path.with_name("tokenizer.json")).exists():
        tokenizer = path.with_name("tokenizer.json")
        encoder = encoders.make("onnx", modality="text", path=path, tokenizer=tokenizer, max_length=6)
        encoder.fit([]).transform(["a red thing", ""])
    else:
        encoder = encoders.make("onnx", modality="image", path=path, size=16)
        encoder.fit([]).transform([picture(3)])


@uses("index")
def use_index(path: Path, rng: Random) -> None:
    from fusehash import HammingIndex

    with HammingIndex.open(path, warm=False, timeout=1.0, engine="numpy") as index:
        query = np.zeros((1, index.n_bits // 8), np.uint8)
        index.search(query, k=3)
        index.range_search(query, 4)
        index.stats()
        ids = [part for part, _ in index.blocks(16)]
        if writes(rng):
            index.add(query)
            index.remove(index.ids[:1])
            index.compact()
        elif ids:
            index.get(ids[0])


@uses("vectors")
def use_vectors(path: Path, rng: Random) -> None:
    from fusehash import HammingIndex

    with HammingIndex.open(path, warm=False, timeout=1.0, engine="numpy") as index:
        query = np.zeros((1, index.n_bits // 8), np.uint8)
        X = np.ones((1, index.dim or 1), np.float32)
        index.search(query, k=3, rescore=X, candidates=20)
        index.stats()
        index.get_vectors(index.ids)
        if writes(rng):
            more = {"factors": X[:, [0, 0]]} if index.has_factors else {}
            index.add(query, vectors=X, **more)
            index.replace(query, index.ids[-1:], **more)
            index.remove(index.ids[:1])
            index.compact()


@uses("retriever")
def use_retriever(path: Path, rng: Random) -> None:
    from fusehash import Retriever
    from fusehash.commands.contents import contents_of

    contents_of(path)
    with Retriever.open(path, engine="numpy", timeout=1.0) as retriever:
        retriever.search(np.ones((1, 6), np.float32), k=2, view="text", candidates=5)
        if writes(rng):
            retriever.add(np.ones((1, 6), np.float32), view="image", ids=[1000])


@uses("collection")
def use_collection(path: Path, rng: Random) -> None:
    from fusehash.collection import Collection, NewItem

    with Collection.open(path, timeout=1.0, engine="numpy") as collection:
        len(collection)
        items = collection.items(limit=50)
        list(collection.labels())
        collection.generations()
        if items:
            collection.item(items[0].id)
            collection.thumbnail(items[0].id)
            part = rng.random()
            if part < 0.4:
                collection.search("a red thing", k=3)
            elif part < 0.6:
                collection.search(image=picture(1), k=3, label="red")
            elif part < 0.8:
                collection.search(like=items[0].id, k=3)
            elif part < 0.9:
                collection.clusters(3)
                collection.code_stats()
            else:
                collection.check()
        collection.stats()
        if writes(rng):
            collection.add([NewItem("new", picture(2), "a green thing")])
            collection.update([NewItem("new", text="a blue thing", labels=("new",))])
            if rng.random() < 0.3:
                collection.reindex()


@uses("results")
def use_results(path: Path, rng: Random) -> None:
    from fusehash.evaluation import PROTOCOLS
    from fusehash.experiments.store import ResultStore, searched

    store = ResultStore(path)
    len(store)
    datasets = store.datasets()
    for record in store:
        store.get(record.settings)
        for dataset in datasets:
            searched(record, dataset, next(iter(PROTOCOLS)), "image", "text")
            dataset.thumbnail(0)


@uses("spec")
def use_spec(path: Path, rng: Random) -> None:
    from fusehash.experiments.spec import load_spec

    load_spec(path).points()


@uses("photos")
def use_photos(path: Path, rng: Random) -> None:
    from fusehash import datasets
    from fusehash.commands.inputs import check_captions
    from fusehash.datasets.folders import read_folder
    from fusehash.encoders.reading import ImageError, open_image

    items = list(read_folder(path))
    check_captions(items, path, None)
    for item in items[:3]:
        if isinstance(item.image, Path):
            with contextlib.suppress(ImageError):
                open_image(item.image)
    if rng.random() < 0.01:
        datasets.load(path, n_query=1)


@uses("image")
def use_image(path: Path, rng: Random) -> None:
    from fusehash.app.cache import check_image
    from fusehash.app.errors import ApiError
    from fusehash.app.guard import Limits
    from fusehash.collection.dates import day_taken
    from fusehash.encoders.reading import open_image, thumbnail

    data = path.read_bytes() if path.is_file() else b""
    with contextlib.suppress(ApiError):
        check_image(data, Limits())
    day_taken(data)
    if rng.random() < 0.3:
        from fusehash import encoders
        from fusehash.collection.items import NewItem

        NewItem("x", data)
        encoder = encoders.make("classical")
        with contextlib.suppress(ValueError):
            encoder.fit([data])
    thumbnail(open_image(path, side=16))


@uses("address")
def use_address(path: Path, rng: Random) -> None:
    from fusehash.search.servers import address

    text = path.read_bytes().decode("utf-8", "surrogateescape") if path.is_file() else ""
    if address.is_address(text):
        parsed = address.parse(text)
        address.without_secrets(text)
        parsed.hide("text of a driver")
    elif address.is_other_address(text):
        address.scheme_of(text)


@uses("probe")
def use_probe(path: Path, rng: Random) -> None:
    """Do what the file says, to see that it is noticed."""
    import os
    import pickle
    import socket
    import time

    word, canary = path.read_text(), path.parents[1] / "canary"
    if word == "refused":
        from fusehash.errors import DataError

        raise DataError("The file must be another. It is not.")
    if word == "foreign":
        {}["missing"]
    elif word == "memory":
        np.zeros(3 << 30, np.uint8)
    elif word == "cpu":
        while True:
            pass
    elif word == "hang":
        time.sleep(1000)
    elif word == "crash":
        os.abort()
    elif word == "executed":
        (canary / "executed").mkdir()
    elif word == "unpickled":
        pickle.loads(pickle.dumps(time.time))
    elif word == "outside":
        os.close(os.open(canary / "secret.bin", os.O_RDONLY))
    elif word == "network":
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(0.01)
            connection.connect(("127.0.0.1", 9))
    elif word == "modified":
        path.write_text("changed")


# -- the same through the command line ----------------------------------------------------------------------------


def _fit(path: Path) -> list[str]:
    out = str(path.with_name("out.safetensors"))
    data = [f"image={path}", f"text={path}"] if path.suffix not in (".npz", ".mat") else [str(path)]
    return ["fit", *data, "--method", "random", "--bits", "8", "--out", out]


COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "npy": _fit, "zarr": _fit, "zarr_zip": _fit, "parquet": _fit, "npz": _fit, "mat5": _fit, "mat73": _fit,
    "codes": lambda path: ["search", str(path), str(path), "-k", "2", "--engine", "numpy"],
    "index": lambda path: ["index", "stats", str(path)],
    "collection": lambda path: ["search", str(path), "a red thing", "-k", "2", "--engine", "numpy"],
    "spec": lambda path: ["bench", "report", str(path), "--results", "none", "--out", str(path.with_name("o"))],
}  # fmt: skip


def run_command(arguments: list[str]) -> None:
    """Run a command in this process; exit codes 1 and 2 count as refused if stderr holds one sentence."""
    from fusehash import cli
    from fusehash.errors import DataError

    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), mock.patch.object(sys, "argv", ["fusehash"]):
        try:
            cli.app(arguments, prog_name="fusehash")
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    complaint = [line for line in err.getvalue().splitlines() if line.strip()]
    if code == 0:
        return
    if code not in (1, 2) or not complaint or "Traceback" in err.getvalue():
        raise CommandError(f"exit code {code}: {err.getvalue()[-300:]}")
    if any(ord(letter) < 32 and letter not in "\n\t\r" for letter in err.getvalue()):
        raise CommandError(f"control characters on the terminal: {err.getvalue()[-300:]!r}")
    raise DataError(complaint[-1])


def clear(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()
