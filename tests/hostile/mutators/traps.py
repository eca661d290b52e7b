"""Traps that are built from scratch: links, pipes, archives that explode, pickles, names that lead elsewhere."""

from __future__ import annotations

import json
import pickle
import sqlite3
import zlib
from pathlib import Path
from random import Random

import numpy as np

from hostile.corpus import KINDS, Fifo, Link, Tree
from hostile.mutators.arrays import change_footer
from hostile.mutators.documents import dumps
from hostile.mutators.values import PICKLE, Executed


def link_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file inside a folder of data becomes a link to a file outside."""
    kind = rng.choice(("bin", *(name for name in KINDS)))
    inside = [name for name in tree if "/" in name]
    name = rng.choice(inside)
    target = rng.choice(
        (f"{{canary}}/secret.{kind}", f"../../canary/secret.{kind}", "{canary}", "/dev/zero", "/etc/passwd", name)
    )
    if "/" in name and rng.random() < 0.2:
        parent = name.rpartition("/")[0]
        if "/" in parent:
            return {
                **{other: data for other, data in tree.items() if not other.startswith(parent)},
                parent: Link("{canary}"),
            }
    return {**tree, name: Link(target)}


def pipe(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file becomes a pipe, which waits forever for a writer."""
    return {**tree, rng.choice(list(tree)): Fifo()}


def foreign(samples: dict[str, list[Tree]], tree: Tree, rng: Random) -> Tree:
    """The content of another kind under this name, or the head of one and the body of the other."""
    if not tree:
        return tree
    other = rng.choice(
        [data for data in rng.choice(rng.choice(list(samples.values()))).values() if isinstance(data, bytes)]
    )
    name = rng.choice(list(tree))
    length = rng.choice((8, 64, 512))
    mixed = other if rng.random() < 0.6 or not isinstance(tree[name], bytes) else other[:length] + tree[name][length:]
    return {**tree, name: mixed}


def gone(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A file is missing, empty, or a folder."""
    name = rng.choice(list(tree))
    rest = {other: data for other, data in tree.items() if other != name}
    return rng.choice((rest, {**tree, name: b""}, {**rest, f"{name}/inside": b"x"}))


def zarr_code(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Codecs that would run code, read other files or take much memory."""
    meta = next((name for name in tree if name.endswith((".zarray", "zarr.json"))), None)
    if meta is None or not isinstance(tree[meta], bytes):
        return tree
    document = json.loads(tree[meta])
    codec = rng.choice(("pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "categorize", "lz4", "lzma", "bz2",
                        "gzip", "fixedscaleoffset", "astype", "delta", "packbits", "zfpy", "pcodec", "n5_wrapper",
                        "numcodecs.pickle", "numcodecs.json2", "sharding_indexed", "transpose", "crc32c", "base64",
                        "quantize", "bitround"))  # fmt: skip
    extra = rng.choice(
        (
            {},
            {"dtype": "|O"},
            {"encode_dtype": "<f4", "decode_dtype": "|O"},
            {"level": 10**9},
            {"keepbits": 99},
            {"order": [0, 0, 9]},
        )
    )
    if "zarr_format" in document and document.get("zarr_format") == 2:
        target = rng.choice(("filters", "compressor"))
        document[target] = [{"id": codec, **extra}] if target == "filters" else {"id": codec, **extra}
        if rng.random() < 0.7:
            document["dtype"] = rng.choice(("|O", "|O", "<U9", "|V8", document["dtype"]))
            document["fill_value"] = rng.choice((None, 0, "", "gASVAA==", float("nan")))
    else:
        codecs = document.setdefault("codecs", [])
        codecs.insert(rng.randrange(len(codecs) + 1), {"name": codec, "configuration": extra})
        if rng.random() < 0.3:
            document["data_type"] = rng.choice(
                ("object", "string", "variable_length_bytes", {"name": "struct"}, "r8", "r99999999")
            )
    changed: Tree = {**tree, meta: dumps(document)}
    for name in changed:
        if name != meta and rng.random() < 0.7:
            changed[name] = pickle.dumps(np.array([Executed()] * 2, object), 2) if rng.random() < 0.5 else PICKLE
    return changed


def zarr_bomb(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Absurd shapes and chunks, and chunks that grow when they are decoded."""
    meta = next((name for name in tree if name.endswith((".zarray", "zarr.json"))), None)
    if meta is None or not isinstance(tree[meta], bytes):
        return tree
    document = json.loads(tree[meta])
    shape = rng.choice(
        ([2**40, 2**20], [10**6, 1000], [10**9, 10], [48, 2**40], [48, 10**8], [0, 0], [-1, 10], [10**12, 1])
    )
    if document.get("zarr_format") == 2:
        document["shape"], document["chunks"] = (
            shape,
            rng.choice((shape, document["chunks"], [1, 1], [0, 1], [2**40, 2**40])),
        )
        document["compressor"] = {"id": "zlib", "level": 1}
    else:
        document["shape"] = shape
        grid = document.setdefault("chunk_grid", {}).setdefault("configuration", {})
        grid["chunk_shape"] = rng.choice((shape, [1, 1], [16, 10], [10**9, 10**9], [0, 1]))
    bomb = zlib.compress(b"\0" * 10**7, 9)
    return {
        name: dumps(document) if name == meta else bomb if rng.random() < 0.5 else data for name, data in tree.items()
    }


def hdf5_trap(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """HDF5 that points outside: external links and storage, virtual data sets; or that claims huge arrays."""
    import h5py

    path = workshop / "trap.h5"
    [main] = tree
    matlab = main.endswith(".mat")
    names = ("XAll", "YAll", "LAll") if matlab else ("x",)
    trap = rng.randrange(0 if matlab else 1, 9)  # a link out of a file that the user opened is the user's choice
    with h5py.File(path, "w", userblock_size=512) as file:
        for name in names:
            if name != names[0] and rng.random() < 0.7:
                file.create_dataset(name, data=np.ones((4, 48)))
            elif trap == 0:
                file[name] = h5py.ExternalLink(rng.choice(("../canary/secret.hdf5", "../canary/secret.mat73")), "/x")
            elif trap == 1:
                file.create_dataset(name, (4, 48), "u1", external=[("../canary/secret.bin", 0, 192)])
            elif trap == 2:
                layout = h5py.VirtualLayout(shape=(48, 10), dtype="f4")
                layout[:] = h5py.VirtualSource("../canary/secret.hdf5", "x", shape=(48, 10))
                file.create_virtual_dataset(name, layout)
            elif trap == 3:
                file.create_dataset(
                    name,
                    rng.choice(((2**33, 2**20), (10**6, 10**4), (48, 2**40), (10**9, 4))),
                    "f8",
                    chunks=rng.choice((True, (1, 1), (1000, 1000))),
                )
            elif trap == 4:
                file.create_dataset(name, (4000, 3000), "f4", chunks=(4000, 3000), compression="gzip", fillvalue=1)
                file[name][:1, :1] = 0
            elif trap == 5:
                file[name] = h5py.SoftLink(rng.choice((f"/{name}", "/missing", "/")))
            elif trap == 6:
                kind = rng.choice(
                    (
                        h5py.string_dtype(),
                        h5py.ref_dtype,
                        np.dtype([("a", "f4"), ("b", "i8")]),
                        h5py.vlen_dtype("i4"),
                        np.dtype("S9"),
                        np.dtype("c16"),
                    )
                )
                file.create_dataset(name, (4, 48), kind)
            elif trap == 7:
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = rng.choice(
                    (np.uint64(48), np.uint64(2**63), np.int64(-1), 1e300, "x", np.arange(3))
                )
                group["data"], group["ir"] = (
                    np.ones(5),
                    np.array(rng.choice(([0, 1, 2, 3, 4], [-1] * 5, [2**40] * 5, [0.5] * 5))),
                )
                group["jc"] = np.array(rng.choice(([0, 2, 5], [0, 5, 2], [0, 2**40], [-1, 5], [[0, 5]])))
            else:
                file.create_dataset(name, shape=rng.choice(((), (0,), (0, 0), (1,) * 30)), dtype="f4")
        if matlab and trap == 8:
            group = file
            for _ in range(200):
                group = group.create_group("deep")
    content = bytearray(path.read_bytes())
    path.unlink()
    if matlab:
        content[:128] = b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM"
    return {main: bytes(content)}


def parquet_bomb(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Very many rows or columns in few bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    shape = rng.choice(((2 * 10**6, 3), (10, 5000), (2 * 10**5, 1), (3, 1)))
    key = workshop / f"bomb-{shape[0]}-{shape[1]}.parquet"
    if not key.exists():
        if shape[1] == 1:
            lists = pa.array([[0.0] * 10] * shape[0] if shape[0] < 10**4 else [[]] * shape[0], pa.list_(pa.float32()))
            table = pa.table({"x": lists})
        else:
            zeros = pa.array(np.zeros(shape[0], np.float32))
            table = pa.table({f"c{i}": zeros for i in range(shape[1])})
        parquet.write_table(table, key, compression="zstd")
    data = key.read_bytes()
    data = change_footer(data, rng) if rng.random() < 0.5 else data
    return dict.fromkeys(tree, data)


def captions_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """Captions that name files outside, ids twice, absurd fields."""
    name = rng.choice(
        (
            "../canary/secret.bin",
            "/etc/passwd",
            "..",
            "images/../../x",
            "\0",
            "a" * 300,
            "out.png",
            "C:\\x",
            "images",
            ".",
            "\ud800",
            "\x1b[2J",
        )
    )
    row = {
        "image": name,
        "text": rng.choice(("x", "", None, 5, ["a"], "y" * 10**6, {"a": 1})),
        "labels": rng.choice(([], "a;b", [1], "x" * 10**5, None, ["\ud800"])),
        "id": rng.choice(("", "k1", 7, None, "x" * 10**4)),
    }
    extra: Tree = {
        "photos/out.png": Link(rng.choice(("{canary}/secret.image", "../../canary/secret.image", "/etc/passwd")))
    }
    if rng.random() < 0.5:
        extra["photos/captions.jsonl"] = (
            dumps(row)
            + b"\n"
            + rng.choice(
                (b"", b"[" * 10**5, b"{}", b'{"image": NaN}', b"9" * 10**5, b'{"image": ' + b"9" * 6000 + b"}")
            )
        )
        tree = {key: data for key, data in tree.items() if not key.endswith(".csv")}
    else:
        line = f'"{name}","text","{row["labels"]}","{row["id"]}"\n'
        extra["photos/captions.csv"] = b"image,caption,labels,id\n" + line.encode(
            "utf-8", "surrogatepass"
        ) * rng.choice((1, 2))
    if rng.random() < 0.2:
        extra["photos/5.txt"] = rng.choice((Link("{canary}/secret.bin"), Fifo(), b"\xff" * 10**6))
    return {**tree, **extra}


def names_out(tree: Tree, rng: Random, workshop: Path) -> Tree:
    """A collection whose state names models and encoders outside of its folder."""
    path = workshop / "names.db"
    data = tree.get("c.collection/items.db")
    if not isinstance(data, bytes):
        return tree
    path.write_bytes(data)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=DELETE")
        [(content,)] = connection.execute("SELECT content FROM state").fetchall()
        state = json.loads(content)
        field = rng.choice(("model", "image_encoder", "text_encoder"))
        state[field] = rng.choice(
            ("x/../../../canary/secret", "../../canary/secret.model", "/etc/passwd", "\0", "x" * 5000, ".", "")
        )
        text = json.dumps(state)
        connection.execute("UPDATE state SET content = ?, checksum = ?", (text, zlib.crc32(text.encode())))
    except sqlite3.Error:
        pass
    finally:
        connection.close()
    content = bytearray(path.read_bytes())
    path.unlink()
    content[18:20] = b"\x02\x02"
    return {**tree, "c.collection/items.db": bytes(content)}
