"""Files of views that somebody else made: they run nothing, reach nothing outside and take no absurd memory."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import pickle
import socket
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from fusehash.commands.inputs import load_npy
from fusehash.datasets.folders import read_folder
from fusehash.encoders.reading import ImageError, open_image
from fusehash.errors import DataError
from fusehash.streams import open_view
from fusehash.streams.parquet import pages

X = np.arange(40.0, dtype=np.float32).reshape(10, 4) + 1
OLD = {"zarr_format": 2, "shape": [10, 4], "chunks": [5, 4], "dtype": "<f4", "order": "C", "fill_value": 0}
OLD |= {"compressor": None, "filters": None}
CHUNK = {"name": "bytes", "configuration": {"endian": "little"}}
NEW = {
    "zarr_format": 3, "node_type": "array", "shape": [10, 4], "data_type": "float32", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 4]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": [CHUNK], "attributes": {},
}  # fmt: skip


def write_old(path: Path, encode=bytes, **changes) -> Path:
    """A zarr array of format 2 whose chunks are encoded by hand."""
    path.mkdir()
    (path / ".zarray").write_text(json.dumps(OLD | changes))
    for i in range(2):
        (path / f"{i}.0").write_bytes(encode(X[5 * i : 5 * i + 5].tobytes()))
    return path


def write_new(path: Path, encode=bytes, **changes) -> Path:
    """The same in format 3."""
    path.mkdir()
    (path / "zarr.json").write_text(json.dumps(NEW | changes))
    for i in range(2):
        (path / "c" / str(i)).mkdir(parents=True)
        (path / "c" / str(i) / "0").write_bytes(encode(X[5 * i : 5 * i + 5].tobytes()))
    return path


def zipped(folder: Path) -> Path:
    path = folder.with_name(folder.name + ".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.rglob("*"):
            archive.write(file, file.relative_to(folder).as_posix())
    return path


class Payload:
    """What unpickling it writes down."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


# ---- nothing is run


@pytest.mark.parametrize("in_zip", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {"filters": [{"id": "pickle"}]},
        {"compressor": {"id": "pickle"}},
        {"filters": [{"id": "delta", "dtype": "<f4"}, {"id": "pickle"}]},
        {"filters": [{"id": "pickle"}], "dtype": "|O"},
        {"dtype": [["a", "<f4"]]},
        {"filters": [{"id": "delta", "dtype": "<f4", "astype": "|O"}]},
        {"compressor": {"id": "json2"}},
        {"compressor": {"id": ["zlib"]}},
    ],
)
def test_a_zarr_array_runs_no_codec_that_can_run_code(tmp_path, optional, changes, in_zip):
    optional("zarr")
    content = pickle.dumps(Payload(tmp_path / "ran"))
    path = write_old(tmp_path / "x.zarr", lambda _: content, **changes)
    with pytest.raises(DataError, match=r"\.$"):
        open_view(zipped(path) if in_zip else path)[:]
    assert not (tmp_path / "ran").exists()


def test_a_codec_that_another_package_registered_is_not_called(tmp_path, optional):
    numcodecs, codec = optional("numcodecs"), optional("numcodecs.abc").Codec
    optional("zarr")
    called = []

    class Foreign(codec):
        codec_id = "foreign-of-this-test"

        def encode(self, buf):
            return buf

        def decode(self, buf, out=None):
            called.append(1)
            return buf

    numcodecs.register_codec(Foreign)
    path = write_old(tmp_path / "x.zarr", compressor={"id": "foreign-of-this-test"})
    with pytest.raises(DataError, match=r"must have one of these as compressor: blosc.* Got 'foreign-of-this-test'"):
        open_view(path)[:]
    assert not called


@pytest.mark.parametrize(
    "changes",
    [
        {"codecs": [CHUNK, {"name": "vlen-bytes"}]},
        {"codecs": [CHUNK, {"name": "gzip"}, {"name": "gzip"}]},
        {"codecs": []},
        {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [5, 2]}}]},
        {"data_type": {"name": "fixed_length_utf32", "configuration": {"length_bytes": 4000000000}}},
        {"data_type": "object"},
        {"chunk_grid": {"name": "rectilinear"}},
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}},
        {"storage_transformers": [{"name": "anything"}]},
        {"shape": [10**15, 4]},
        {"shape": [2**70, 4]},
        {"shape": [-1, 4]},
        {"shape": [1e3, 4]},
        {"shape": None},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**12, 10**6]}}},
        {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}},
        {"zarr_format": 4},
    ],
)
def test_what_the_metadata_of_a_zarr_array_may_not_say(tmp_path, optional, changes):
    optional("zarr")
    with pytest.raises(DataError, match=r"\.$"):
        open_view(write_new(tmp_path / "x.zarr", **changes))[:]


@pytest.mark.parametrize(
    "document", [b"", b"[]", b"3", b"[" * 100_000, b"\xff", b'{"zarr_format": 3}', b"{}" + b" " * 2**24]
)
def test_metadata_that_is_none(tmp_path, optional, document):
    optional("zarr")
    path = write_new(tmp_path / "x.zarr")
    (path / "zarr.json").write_bytes(document)
    with pytest.raises(DataError, match=r"x\.zarr.*\.$"):
        open_view(path)


# ---- chunks that are missing, links, pipes


@pytest.mark.parametrize("in_zip", [False, True])
def test_a_missing_chunk_is_named_and_not_read_as_zeros(tmp_path, optional, in_zip):
    optional("zarr")
    path = write_new(tmp_path / "x.zarr")
    (path / "c" / "1" / "0").unlink()
    with pytest.raises(DataError, match=r"must have a file for every chunk. c/1/0 is missing.*write_empty_chunks"):
        open_view(zipped(path) if in_zip else path)


def test_a_chunk_that_goes_away_later_is_not_read_as_zeros(tmp_path, optional):
    optional("zarr")
    matrix = open_view(write_new(tmp_path / "x.zarr"))
    (tmp_path / "x.zarr" / "c" / "1" / "0").unlink()
    with pytest.raises(DataError, match=r"c/1/0 of x\.zarr could not be read: No such file"):
        matrix[:]


def test_chunks_that_zarr_left_out_are_read_if_the_user_opens_the_array(tmp_path, optional):
    zarr = optional("zarr")
    whole = np.where(np.arange(10)[:, None] < 5, X, 0)
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(10, 4), chunks=(5, 4), dtype="f4")[:] = whole
    with pytest.raises(DataError, match="c/1/0 is missing"):
        open_view(tmp_path / "x.zarr")
    np.testing.assert_array_equal(open_view(zarr.open_array(str(tmp_path / "x.zarr"), mode="r"))[:], whole)


@pytest.mark.parametrize("name", ["zarr.json", "c/1/0", "c/1", "unused"])
def test_a_zarr_folder_leads_nowhere_else(tmp_path, optional, name):
    optional("zarr")
    path, outside = write_new(tmp_path / "x.zarr"), write_new(tmp_path / "y.zarr")
    inside = path / name
    if inside.exists():
        inside.rename(tmp_path / "old")
    inside.symlink_to(outside / name)
    with pytest.raises(DataError, match="must hold regular files only"):
        open_view(path)


def test_a_link_that_the_user_gives_is_followed(tmp_path, optional):
    optional("zarr")
    (tmp_path / "link.zarr").symlink_to(write_new(tmp_path / "x.zarr"))
    np.testing.assert_array_equal(open_view(tmp_path / "link.zarr")[:], X)
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "link.npy").symlink_to(tmp_path / "x.npy")
    np.testing.assert_array_equal(open_view(tmp_path / "link.npy")[:], X)


@pytest.mark.parametrize("name", ["/etc/zarr.json", "../zarr.json"])
def test_names_in_a_zarr_zip_stay_inside(tmp_path, optional, name):
    optional("zarr")
    path = zipped(write_new(tmp_path / "x.zarr"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"{}")
    with pytest.raises(DataError, match="must be relative and below its top"):
        open_view(path)


@pytest.mark.parametrize("name", ["x.npy", "x.zarr", "x.zarr.zip", "x.parquet", "many/x.parquet", "x.zarr/c/0/0"])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_pipe_or_socket_is_refused_at_once(tmp_path, optional, name, kind, monkeypatch):
    optional("zarr")
    optional("pyarrow")
    path = tmp_path / name
    if "/" in name and path.suffix != ".parquet":
        write_new(tmp_path / "x.zarr")
        path.unlink()
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        monkeypatch.chdir(path.parent)  # the path of a socket has at most 107 characters
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    with pytest.raises(DataError, match=r"\.$"):
        open_view(tmp_path / name.split("/")[0])


def test_a_folder_of_parquet_files_holds_no_links(tmp_path, optional):
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"x": X[:, 0]}), tmp_path / "x.parquet")
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "0.parquet").symlink_to(tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"0\.parquet of many must be a file of its own\. It is a link\."):
        open_view(tmp_path / "many")


def test_an_hdf5_dataset_is_in_its_own_file(tmp_path, optional):
    h5py = optional("h5py")
    (tmp_path / "secret").write_bytes(X.tobytes())
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("outside", X.shape, "f4", external=[(str(tmp_path / "secret"), 0, X.nbytes)])
        file.create_dataset("huge", (10**12, 4), "f4", chunks=(100, 4))
    with h5py.File(tmp_path / "x.h5", "r") as file:
        with pytest.raises(DataError, match="must be stored in its own file"):
            open_view(file["outside"])
        with pytest.raises(DataError, match="claims 16,000,000,000,000 bytes"):
            open_view(file["huge"])


def test_an_image_is_a_regular_file_and_captions_stay_in_their_folder(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with pytest.raises(ImageError, match="must be a regular file"):
        open_image(tmp_path / "pipe.jpg")
    (tmp_path / "secret.csv").write_text("image,caption\n,a secret of this machine\n")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "captions.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(DataError, match="is a link that leads out of it"):
        list(read_folder(tmp_path / "photos"))
    assert [item.text for item in read_folder(tmp_path / "photos", tmp_path / "secret.csv")] == [
        "a secret of this machine"
    ]


# ---- sizes


def lz4_claim(data: bytes) -> bytes:
    return struct.pack("<I", 2**31 - 1) + data


def blosc_claim(data: bytes) -> bytes:
    return struct.pack("<BBBBIII", 2, 1, 0, 4, 2**31 - 1, 2**20, 16 + len(data)) + data


def zstd_claim(data: bytes) -> bytes:
    return struct.pack("<IBQ", 0xFD2FB528, 0xE0, 2**40) + data


ZEROS = bytes(2**20)


@pytest.mark.parametrize(
    ("compressor", "encode"),
    [
        ("zlib", lambda _: zlib.compress(ZEROS)),
        ("gzip", lambda _: gzip.compress(ZEROS)),
        ("bz2", lambda _: bz2.compress(ZEROS)),
        ("lzma", lambda _: lzma.compress(ZEROS, preset=0)),
        ("lz4", lz4_claim),
        ("blosc", blosc_claim),
        ("zstd", zstd_claim),
        ("zstd", lambda _: b""),
    ],
)
def test_a_chunk_that_explodes_is_not_decompressed(tmp_path, optional, compressor, encode):
    optional("zarr")
    path = write_old(tmp_path / "x.zarr", encode, compressor={"id": compressor})
    with pytest.raises(DataError, match=r"The zarr array x.zarr could not be read: 0.0 is damaged \(.*\)\."):
        open_view(path)[:]


LIMITED = """
import resource, sys
from pathlib import Path
from fusehash.errors import DataError
from fusehash.streams import open_view
import numcodecs.zstd, zarr
open_view(sys.argv[1])  # pyarrow reserves memory when it first reads
base = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (base + 2**30, base + 2**30))
resource.setrlimit(resource.RLIMIT_CPU, (5, 6))
for path in sys.argv[2:]:
    try:
        open_view(path)[:]
        print("read", path)
    except DataError as error:
        print("no memory" if isinstance(error.__cause__, MemoryError) else "refused", path)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of Linux")
def test_small_files_that_claim_gigabytes_are_refused_before_memory_is_taken(tmp_path, optional):
    optional("zarr")
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    chunk = {"name": "regular", "configuration": {"chunk_shape": [2**20, 2**10]}}
    paths = [write_new(tmp_path / "chunk.zarr", chunk_grid=chunk)]
    index = struct.pack("<QQ", 2**64 - 1, 2**64 - 1) * 2**16
    sharding = {"chunk_shape": [2**18, 4], "codecs": [CHUNK], "index_codecs": [CHUNK]}
    shards = {"name": "regular", "configuration": {"chunk_shape": [2**34, 4]}}
    codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    changes = {"shape": [2**35, 4], "chunk_grid": shards, "codecs": codecs}
    paths.append(write_new(tmp_path / "shard.zarr", lambda _: index, **changes))
    for name, shape in (("rows", (2**60, 4)), ("columns", (4, 2**60))):
        header = repr({"descr": "<f4", "fortran_order": False, "shape": shape}).encode()
        (tmp_path / f"{name}.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header)
        paths.append(tmp_path / f"{name}.npy")
    parquet.write_table(pyarrow.table({"x": X[:, 0]}), tmp_path / "honest.parquet")
    length = 2**25 + 1
    one_list = pyarrow.ListArray.from_arrays(pyarrow.array([0, length], pyarrow.int32()), np.zeros(length, np.int8))
    parquet.write_table(pyarrow.table({"x": one_list}), tmp_path / "list.parquet", compression="zstd")
    paths.append(tmp_path / "list.parquet")
    assert all(path.is_dir() or path.stat().st_size < 2**20 for path in paths)
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "honest.parquet"), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"refused {path}" for path in paths]


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, 4",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (10, True)}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-10, -4)}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 4)}" % 2**80,
        b"{'descr': ['<f4'], 'fortran_order': False, 'shape': (10, 4)}",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (10, 4)}",
        b"(" * 9000,
        b"  \n x\n\ty",
        b"\xff",
    ],
)
@pytest.mark.parametrize("read", [open_view, load_npy])
def test_a_damaged_npy_header_is_one_sentence(tmp_path, header, read):
    path = tmp_path / "x.npy"
    path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + X.tobytes())
    with pytest.raises(DataError, match=r"x\.npy.*\.$"):
        read(path)


def test_labels_and_codes_are_not_read_from_other_files(tmp_path):
    np.savez(tmp_path / "x.npz", X)
    os.mkfifo(tmp_path / "pipe.npy")
    for name in ("x.npz", "pipe.npy", ".", "none.npy"):
        with pytest.raises(DataError, match=r"\.$"):
            load_npy(tmp_path / name)
    for array in (X, np.asfortranarray(X), np.arange(7, dtype=">i4"), np.array(["a", "bc"]), np.array(3.0)):
        np.save(tmp_path / "x.npy", array)
        np.testing.assert_array_equal(load_npy(tmp_path / "x.npy"), array)


def test_a_parquet_page_that_claims_gigabytes_is_refused(tmp_path, optional):
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"x": X[:, 0]}), path, compression="zstd", use_dictionary=False)
    whole = path.read_bytes()
    assert whole[4:7] == b"\x15\x00\x15"  # the first page: its kind, then its size in one byte
    path.write_bytes(whole[:7] + b"\xfe\xff\xff\xff\x0f" + whole[8:])
    with pytest.raises(DataError, match=r"x\.parquet must be an intact Parquet file.* impossible size"):
        open_view(path)


def test_parquet_columns_of_one_name(tmp_path, optional):
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    parquet.write_table(pyarrow.table([X[:, 0], X[:, 1]], names=["x", "x"]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="must have columns of different names"):
        open_view(tmp_path / "x.parquet")


@pytest.mark.slow
def test_no_changed_byte_of_a_parquet_file_ends_in_a_foreign_error(tmp_path, optional):
    pyarrow, parquet = optional("pyarrow"), optional("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table({"x": [i / 2 if i % 3 else None for i in range(40)], "y": range(40)}), path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :])
        with contextlib.suppress(DataError):
            open_view(path)[:]


def test_a_list_in_the_metadata_of_a_parquet_file_is_no_longer_than_the_file():
    endless = b"\x19" + b"\xf1" + b"\xff" * 5 + b"\x01"  # a list of 2^41 truth values
    with pytest.raises(ValueError, match="too long"):
        pages._struct(endless + bytes(100))
    with pytest.raises(ValueError, match="too long"):
        pages._varint(b"\xff" * 100, 0)


def test_filters_of_a_zarr_array_do_not_multiply_its_values(tmp_path, optional):
    optional("zarr")
    widening = {"id": "fixedscaleoffset", "offset": 0, "scale": 1, "dtype": "<f8", "astype": "|u1"}
    bytes_again = {"id": "delta", "dtype": "|u1", "astype": "|u1"}
    path = write_old(tmp_path / "x.zarr", lambda data: bytes(len(data) // 8), filters=[widening, bytes_again, widening])
    with pytest.raises(DataError, match=r"could not be read|must have"):
        open_view(path)[0:5]
