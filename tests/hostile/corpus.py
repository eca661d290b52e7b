"""Valid files of every kind that fusehash reads, built by fusehash and the libraries that users write them with.

A sample is a small tree of files. `build` writes all samples below a folder; `load` reads them into memory, where the
mutators change them. The name of what is opened is the same for all samples of a kind.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

N_ROWS, N_BITS = 48, 16
COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "yellow": (200, 200, 30)}
# Fast to fit, and each stores other classes and arrays.
METHODS = ("fusehash", "agsfh", "cca_itq", "cvh", "random", "regression", "scm", "seph", "agh", "lssh", "jimfh", "imh")


@dataclass(frozen=True)
class Link:
    """A symbolic link; `{canary}` in its target stands for a folder outside of the case."""

    target: str


@dataclass(frozen=True)
class Fifo:
    """A named pipe that nobody writes to."""


Tree: TypeAlias = dict[str, bytes | Link | Fifo]  # by relative path
Builder: TypeAlias = Callable[[Path], Iterator[None]]


@dataclass(frozen=True)
class Kind:
    """One kind of file: what is opened, how to build samples, and how many of 100 cases are of this kind."""

    name: str
    main: str
    build: Builder
    share: float  # 0: only tests use it


KINDS: dict[str, Kind] = {}


def kind(name: str, main: str, share: float) -> Callable[[Builder], Builder]:
    """Register a generator that writes one sample into a new folder each time before it yields."""

    def register(build: Builder) -> Builder:
        KINDS[name] = Kind(name, main, build, share)
        return build

    return register


def build(root: Path, names: Iterable[str] = (), most: int | None = None) -> None:
    """Write samples of all or some kinds, all of a kind or at most some: root/kind/number/main."""
    warnings.simplefilter("ignore")
    for name in names or KINDS:
        draft = root / name / "draft"
        draft.mkdir(parents=True)
        for number, _ in enumerate(islice(KINDS[name].build(draft), most)):
            draft.rename(root / name / str(number))
            draft.mkdir()
        shutil.rmtree(draft)


def load(root: Path) -> dict[str, list[Tree]]:
    """All samples in memory."""
    return {
        name: [read_tree(folder) for folder in sorted((root / name).iterdir(), key=lambda path: int(path.name))]
        for name in KINDS
        if (root / name).is_dir()
    }


def read_tree(folder: Path) -> Tree:
    """The files below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def write_tree(tree: Tree, folder: Path, canary: Path) -> None:
    """Write a tree into an empty folder; a path that another one makes impossible is left out."""
    for name, content in tree.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(content.target.replace("{canary}", str(canary)))
            elif isinstance(content, Fifo):
                os.mkfifo(path)
            else:
                path.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue


# -- data ---------------------------------------------------------------------------------------------------------


def paired(seed: int = 7) -> dict[str, Any]:
    """Two small views that share three directions, and class numbers."""
    rng = np.random.default_rng(seed)
    labels = np.arange(N_ROWS) % 4
    latent = rng.standard_normal((4, 3))[labels] * 2.0 + 0.6 * rng.standard_normal((N_ROWS, 3))
    image = latent @ rng.standard_normal((3, 10)) + 0.5 * rng.standard_normal((N_ROWS, 10))
    text = np.abs(latent @ rng.standard_normal((3, 7)) + 0.5 * rng.standard_normal((N_ROWS, 7)))
    return {"image": image.astype(np.float32), "text": text.astype(np.float32), "labels": labels}


def picture(seed: int, format: str = "PNG", side: int = 24, **options: Any) -> bytes:
    """The bytes of a small noisy image."""
    from PIL import Image

    rng = np.random.default_rng([seed, 5])
    color = list(COLORS.values())[seed % 4]
    pixels = np.clip(np.array(color) + rng.normal(0, 25, (side, side, 3)), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format, **options)
    return file.getvalue()


def new_items(count: int) -> list[Any]:
    """Items with pictures, texts and labels."""
    from fusehash.collection import NewItem

    names = [list(COLORS)[i % 4] for i in range(count)]
    return [NewItem(f"{name}{i}", picture(i), f"a {name} thing {i % 5}", (name,)) for i, name in enumerate(names)]


@kind("npy", "x.npy", 6)
def _npy(folder: Path) -> Iterator[None]:
    matrix = paired()["image"]
    half, columns = matrix.astype(np.float16), np.asfortranarray(matrix)
    for array in (matrix, half, columns, matrix.astype(">f8"), (matrix > 0), matrix.astype(np.int16), matrix[:, :1]):
        np.save(folder / "x.npy", array)
        yield
    with (folder / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, matrix, version=(2, 0))
    yield


@kind("codes", "codes.npy", 4)
def _codes(folder: Path) -> Iterator[None]:
    rng = np.random.default_rng(0)
    np.save(folder / "codes.npy", rng.integers(0, 256, (40, 8), dtype=np.uint8))
    np.save(folder / "ids.npy", np.arange(40) * 3)
    yield
    np.save(folder / "codes.npy", rng.integers(0, 256, (1, 2), dtype=np.uint8))
    np.save(folder / "ids.npy", np.array([5]))
    yield


@kind("exchange_numpy", "codes.npz", 2)
def _exchange_numpy(folder: Path) -> Iterator[None]:
    yield from _exported(folder / "codes.npz")


@kind("exchange_json", "codes.milvus.json", 1)
def _exchange_json(folder: Path) -> Iterator[None]:
    yield from _exported(folder / "codes.milvus.json")


@kind("exchange_sql", "codes.sql", 1)
def _exchange_sql(folder: Path) -> Iterator[None]:
    yield from _exported(folder / "codes.sql")


def _exported(path: Path) -> Iterator[None]:
    """Codes as a file for another library."""
    from fusehash import HammingIndex
    from fusehash.search.exchange import export_codes

    index, rng = HammingIndex(16, engine="numpy", vectors="int8", dim=3, factors=True), np.random.default_rng(0)
    codes, vectors = rng.integers(0, 256, (20, 2), dtype=np.uint8), rng.standard_normal((20, 3))
    index.add(codes, ids=np.arange(20) * 3, vectors=vectors, factors=rng.random((20, 2)))
    export_codes(index, path)
    yield


@kind("npz", "d.npz", 7)
def _npz(folder: Path) -> Iterator[None]:
    data = paired()
    np.savez(folder / "d.npz", **data)
    yield
    names = np.array(["a", "b", "c", "d"])
    rows = {"train_idx": np.arange(30), "test_idx": np.arange(30, N_ROWS), "label_names": names}
    np.savez_compressed(folder / "d.npz", **data, **rows, extra=data["image"][:, :2])
    yield


@kind("mat5", "d.mat", 8)
def _mat5(folder: Path) -> Iterator[None]:
    import scipy.sparse as sp
    from scipy.io import savemat

    data = paired()
    one_hot = np.eye(4, dtype=np.uint8)[data["labels"]]
    parts = {}
    for part, rows in (("tr", slice(0, 30)), ("te", slice(30, None))):
        parts |= {f"I_{part}": data["image"][rows], f"T_{part}": data["text"][rows], f"L_{part}": one_hot[rows]}
    for compress in (False, True):
        savemat(folder / "d.mat", parts, do_compression=compress)
        yield
        sparse = sp.csc_array(data["text"] * (data["text"] > 1))
        savemat(folder / "d.mat", {"XAll": data["image"], "YAll": sparse, "LAll": one_hot}, do_compression=compress)
        yield
    structs = {"YAll": data["text"], "IAll": {"a": 1, "b": ["x", "yz"]}, "LAll": one_hot, "XAll": data["image"]}
    savemat(folder / "d.mat", structs, do_compression=False)
    yield


@kind("mat73", "d.mat", 6)
def _mat73(folder: Path) -> Iterator[None]:
    import h5py

    data = paired()
    one_hot = np.eye(4)[data["labels"]]
    for chunks in (None, True):
        with h5py.File(folder / "d.mat", "w", userblock_size=512) as file:
            options = {} if chunks is None else {"chunks": (5, 16), "compression": "gzip"}
            file.create_dataset("XAll", data=data["image"].T, **options)
            file.create_dataset("LAll", data=one_hot.T)
            if chunks is None:
                file.create_dataset("YAll", data=data["text"].T)
            else:
                sparse = __import__("scipy.sparse").sparse.csc_array(data["text"] * (data["text"] > 1))
                group = file.create_group("YAll")
                group.attrs["MATLAB_sparse"] = np.uint64(N_ROWS)
                group["data"], group["ir"], group["jc"] = sparse.data, sparse.indices, sparse.indptr
        content = bytearray((folder / "d.mat").read_bytes())
        content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM"
        (folder / "d.mat").write_bytes(content)
        yield


@kind("hdf5", "x.h5", 4)
def _hdf5(folder: Path) -> Iterator[None]:
    import h5py

    for options in ({}, {"chunks": (10, 10), "compression": "gzip", "shuffle": True}, {"chunks": (10, 4), "lzf": True}):
        if options.pop("lzf", False):
            options["compression"] = "lzf"
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", data=paired()["image"], **options)
        yield


@kind("zarr", "x.zarr", 8)
def _zarr(folder: Path) -> Iterator[None]:
    import zarr

    matrix = paired()["image"]
    for options in ({}, {"compressors": None}, {"shards": (32, 10)}):
        array = zarr.create_array(folder / "x.zarr", data=matrix, chunks=(16, 10), zarr_format=3, **options)
        assert array.shape == matrix.shape
        yield
    for compressor in ("zlib", "blosc", "zstd"):
        import numcodecs

        codec = numcodecs.get_codec({"id": compressor})
        array = zarr.create_array(
            folder / "x.zarr", shape=matrix.shape, dtype=matrix.dtype, chunks=(16, 10), zarr_format=2, compressors=codec
        )
        array[:] = matrix
        yield


@kind("zarr_zip", "x.zarr.zip", 4)
def _zarr_zip(folder: Path) -> Iterator[None]:
    import zarr

    matrix = paired()["image"]
    for version in (2, 3):
        store = zarr.storage.ZipStore(folder / "x.zarr.zip", mode="w", compression=zipfile.ZIP_DEFLATED)
        array = zarr.create_array(store, shape=matrix.shape, dtype="f4", chunks=(16, 10), zarr_format=version)
        array[:] = matrix
        store.close()
        yield


@kind("parquet", "x.parquet", 8)
def _parquet(folder: Path) -> Iterator[None]:
    import pyarrow as pa
    from pyarrow import parquet

    matrix = paired()["image"]
    columns = pa.table({f"c{i}": matrix[:, i] for i in range(4)})
    lists = pa.table({"x": [row.tolist() for row in matrix[:, :4]]})
    fixed = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(matrix.ravel()), 10)})
    whole = pa.table({"a": (matrix[:, 0] > 0).astype(np.int32), "b": pa.array([1, None] * (N_ROWS // 2), pa.float64())})
    for table, options in (
        (columns, {"row_group_size": 16}), (lists, {"compression": "none"}), (fixed, {"compression": "zstd"}),
        (whole, {"use_dictionary": True, "compression": "gzip"}),
        (columns, {"compression": "brotli", "version": "1.0"}),
    ):  # fmt: skip
        parquet.write_table(table, folder / "x.parquet", **options)
        yield


@kind("parquet_folder", "parts", 2)
def _parquet_folder(folder: Path) -> Iterator[None]:
    import pyarrow as pa
    from pyarrow import parquet

    matrix = paired()["image"]
    (folder / "parts").mkdir()
    for i, part in enumerate(np.array_split(matrix, 3)):
        parquet.write_table(pa.table({f"c{j}": part[:, j] for j in range(3)}), folder / "parts" / f"{i}.parquet")
    yield


# -- what fusehash writes -----------------------------------------------------------------------------------------


@kind("model", "m.safetensors", 9)
def _model(folder: Path) -> Iterator[None]:
    from fusehash import hashers

    data = paired()
    views = {name: data[name] for name in ("image", "text")}
    for method in METHODS:
        model = hashers.make(method, n_bits=N_BITS, random_state=0)
        model.fit(views, data["labels"] if model.supervised else None)
        model.save(folder / "m.safetensors")
        yield
    model = hashers.make("fusehash", n_bits=N_BITS, random_state=0)
    for rows in (slice(0, 24), slice(24, None)):
        model.partial_fit({name: X[rows] for name, X in views.items()})
    model.save(folder / "m.safetensors")
    yield


@kind("encoder", "e.encoder", 5)
def _encoder(folder: Path) -> Iterator[None]:
    from fusehash import encoders

    texts = [f"a {word} on the {other}" for word in ("cat", "dog", "bird", "fish") for other in ("mat", "tree", "sea")]
    pictures = [picture(i) for i in range(8)]
    for name, items, params in (
        ("tfidf", texts, {"n_components": 4}), ("lda", texts, {"n_topics": 3}), ("classical", pictures, {}),
        ("sift", [picture(i, side=48) for i in range(8)], {"n_words": 4}),
    ):  # fmt: skip
        encoders.save(encoders.make(name, **params).fit(items), folder / "e.encoder")
        yield


@kind("onnx_encoder", "e.encoder", 2)
def _onnx_encoder(folder: Path) -> Iterator[None]:
    from fusehash import encoders

    for modality in ("image", "text"):
        params = _write_onnx(folder, modality)
        cwd = Path.cwd()
        os.chdir(folder)  # the model is named relative to the case
        try:
            relative = {name: Path(value).name for name, value in params.items() if name in ("path", "tokenizer")}
            encoder = encoders.make("onnx", modality=modality, **params | relative).fit([])
        finally:
            os.chdir(cwd)
        encoders.save(encoder, folder / "e.encoder")
        yield


@kind("onnx", "model.onnx", 2)
def _onnx(folder: Path) -> Iterator[None]:
    for modality in ("image", "text"):
        _write_onnx(folder, modality)
        yield


def _write_onnx(folder: Path, modality: str) -> dict[str, Any]:
    import onnx
    import tokenizers

    rng = np.random.default_rng(3)
    node, info, number = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.TensorProto
    path = folder / "model.onnx"
    if modality == "image":
        table = onnx.numpy_helper.from_array(rng.random((3, 6), np.float32), "table")
        nodes = [
            node("GlobalAveragePool", ["pixels"], ["pooled"]), node("Flatten", ["pooled"], ["flat"]),
            node("MatMul", ["flat", "table"], ["features"]),
        ]  # fmt: skip
        inputs = [info("pixels", number.FLOAT, ["rows", 3, 16, 16])]
        outputs = [info("features", number.FLOAT, ["rows", 6])]
    else:
        words = tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "red": 2, "thing": 3}, unk_token="[UNK]")
        tokenizer = tokenizers.Tokenizer(words)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.save(str(folder / "tokenizer.json"))
        table = onnx.numpy_helper.from_array(rng.random((4, 5), np.float32), "table")
        nodes = [node("Gather", ["table", "input_ids"], ["tokens"])]
        inputs = [info("input_ids", number.INT64, ["rows", "length"])]
        outputs = [info("tokens", number.FLOAT, ["rows", "length", 5])]
    graph = onnx.helper.make_graph(nodes, "tiny", inputs, outputs, [table])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    if modality == "image":
        return {"path": path, "size": 16}
    return {"path": path, "tokenizer": folder / "tokenizer.json", "max_length": 6}


@kind("index", "i.fhi", 6)
def _index(folder: Path) -> Iterator[None]:
    from fusehash import HammingIndex

    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (60, 4), dtype=np.uint8)
    with HammingIndex.open(folder / "i.fhi", 32, warm=False) as index:
        index.add(codes, ids=np.arange(60) * 2)
        index.remove([0, 14])
        index.replace(codes[1:2], ids=[8])
    yield
    with HammingIndex.open(folder / "i.fhi", 32, warm=False):
        pass
    yield
    with HammingIndex.open(folder / "live.fhi", 32, warm=False) as index:
        index.add(codes[:30])
        index.add(codes[30:])
        for end in ("", "-wal"):  # as a process that was killed leaves them
            shutil.copy(folder / f"live.fhi{end}", folder / f"i.fhi{end}")
    for path in folder.glob("live.fhi*"):
        path.unlink()
    yield


@kind("vectors", "v.fhi", 3)
def _vectors(folder: Path) -> Iterator[None]:
    from fusehash import HammingIndex

    rng = np.random.default_rng(4)
    codes, X = rng.integers(0, 256, (40, 4), dtype=np.uint8), rng.standard_normal((40, 5))
    for number, kind in enumerate(("int8", "float16", "float32")):
        options = {"vectors": kind, "dim": 5, "warm": False}
        with HammingIndex.open(folder / "v.fhi", 32, factors=number == 1, **options) as index:
            more = {"factors": np.ones((40, 2), np.float32)} if number == 1 else {}
            index.add(codes, ids=np.arange(40) * 3, vectors=X, **more)
            index.remove([0, 9])
            index.replace(codes[1:2], ids=[6], vectors=X[:1], **{name: rows[:1] for name, rows in more.items()})
            if number == 2:
                index.compact()
        yield


@kind("collection", "c.collection", 8)
def _collection(folder: Path) -> Iterator[None]:
    from fusehash.collection import Collection

    items, path = new_items(24), folder / "c.collection"
    with Collection.create(path, n_bits=N_BITS, image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build(items[:20])
        collection.add(items[20:])
        collection.remove([3])
    _without_locks(path)
    yield
    shutil.copytree(folder.with_name("0") / "c.collection", path)
    with Collection.open(path) as collection:
        collection.build_generation(n_bits=24, measure=False)
        collection.switch()
    _without_locks(path)
    yield
    with Collection.create(path, n_bits=N_BITS, image_encoder="classical", text_encoder="tfidf"):
        pass
    _without_locks(path)
    yield


def _without_locks(path: Path) -> None:
    for file in path.iterdir():
        if file.name.endswith((".lock", "-shm", "-wal")):
            file.unlink()


@kind("retriever", "r.retriever", 2)
def _retriever(folder: Path) -> Iterator[None]:
    from fusehash import Retriever, hashers

    path = folder / "r.retriever"
    X = np.random.default_rng(0).standard_normal((30, 6)).astype(np.float32)
    model = hashers.make("random", n_bits=16, random_state=0).fit({"image": X, "text": X})
    with Retriever.create(path, model, vectors="int8", dim=6) as retriever:
        retriever.add(X, view="image")
    _without_locks(path)
    yield


@kind("results", "results", 3)
def _results(folder: Path) -> Iterator[None]:
    from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, now, versions

    data, rng = paired(), np.random.default_rng(1)
    train, query = np.arange(36), np.arange(36, N_ROWS)
    store, name = ResultStore(folder / "results"), "5e" * 32
    pictures = [np.frombuffer(picture(i, "JPEG", side=8), np.uint8) for i in range(N_ROWS)]
    record = DatasetRecord(
        name, "small", "36 / 12", data["labels"], train, query, train, {"image": 10, "text": 7}, N_ROWS,
        texts=[f"row {i}" for i in range(N_ROWS)], thumbnails=np.concatenate(pictures), created=now(),
        ends=np.cumsum([len(part) for part in pictures]), label_names=["a", "b", "c", "d"], source="small.npz",
    )  # fmt: skip
    store.put_dataset(record)
    for seed in (0, 1):
        settings = RunSettings(name, "random", {}, N_BITS, seed, "train")
        sizes = {"query:image": 12, "query:text": 12, "hashed:image": 36, "hashed:text": 36, "unified": 36}
        codes = {key: rng.integers(0, 256, (size, N_BITS // 8), dtype=np.uint8) for key, size in sizes.items()}
        store.put(RunRecord(settings, codes, np.arange(3.0), 0.1, {"image": 0.1}, versions(), now()))
    yield


# -- text and pictures --------------------------------------------------------------------------------------------


@kind("spec", "s.yaml", 5)
def _spec(folder: Path) -> Iterator[None]:
    from fusehash.experiments.spec import SHIPPED

    for file in sorted(SHIPPED.rglob("*.yaml"))[::3]:
        (folder / "s.yaml").write_bytes(file.read_bytes())
        yield
    text = """
title: Small
dataset: {name: wiki, options: {split_seed: 1}, stand_in: {n_samples: 100}}
bits: [16, 32]
seeds: [0, 1]
k: 50
ties: expected
methods:
  - fusehash
  - {method: agsfh, label: A, params: {max_iter: 3}, bits: [16]}
sweep: {method: agsfh, over: {regression_weight: [1, 10, 100]}}
"""
    (folder / "s.yaml").write_text(text)
    yield


@kind("photos", "photos", 6)
def _photos(folder: Path) -> Iterator[None]:
    from fusehash.datasets.folders import DEFAULT_CAPTIONS

    assert "captions.csv" in DEFAULT_CAPTIONS
    for captions in ("csv", "jsonl", "none"):
        photos = folder / "photos"
        (photos / "images").mkdir(parents=True)
        rows = [
            {"image": f"{i}.png", "text": f"thing {i}, red", "labels": ["red", "b"], "id": f"k{i}"} for i in range(4)
        ]
        for i in range(4):
            (photos / "images" / f"{i}.png").write_bytes(picture(i, side=8))
        (photos / "5.jpg").write_bytes(picture(5, "JPEG", side=8))
        (photos / "5.txt").write_text("a blue sea")
        if captions == "jsonl":
            (photos / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        elif captions == "csv":
            lines = [f'{row["image"]},"{row["text"]}",{";".join(row["labels"])},{row["id"]}\n' for row in rows]
            (photos / "captions.csv").write_text("image,caption,labels,id\n" + "".join(lines))
        yield


@kind("image", "p.png", 6)
def _image(folder: Path) -> Iterator[None]:
    import PIL.Image

    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    for format, options in (
        ("PNG", {}), ("PNG", {"exif": exif}), ("JPEG", {"exif": exif}), ("JPEG", {"progressive": True}), ("GIF", {}),
        ("WEBP", {}), ("WEBP", {"lossless": True}), ("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "jpeg"}), ("TIFF", {"compression": "tiff_deflate"}),
    ):  # fmt: skip
        (folder / "p.png").write_bytes(picture(1, format, **options))
        yield
    frames = [PIL.Image.new("P", (12, 12), i) for i in range(5)]
    frames[0].save(folder / "p.png", "GIF", save_all=True, append_images=frames[1:])
    yield


@kind("address", "address.txt", 2)
def _address(folder: Path) -> Iterator[None]:
    for text in (
        "postgresql://me:secret@host:5432/base?table=codes&sslmode=require&timeout=3", "milvus://root:pw@host:19530/x",
        "postgres://a,b:1/c", "https://example.org/x", "plain.fhi",
    ):  # fmt: skip
        (folder / "address.txt").write_text(text)
        yield


@kind("probe", "probe.txt", 0)
def _probe(folder: Path) -> Iterator[None]:
    (folder / "probe.txt").write_text("nothing")
    yield
