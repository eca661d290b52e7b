"""zarr arrays are read by code of our own: it agrees with the zarr package for every layout that it reads."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fusehash.errors import MissingPackageError
from fusehash.streams import open_view

X = np.random.default_rng(0).integers(-9, 9, (53, 11))


def layouts(optional):
    """Options of zarr.create_array by a name."""
    codecs, numcodecs = optional("zarr.codecs"), optional("numcodecs")
    old = {"zarr_format": 2}
    old_compressors = (numcodecs.BZ2, numcodecs.LZMA, numcodecs.Zlib, numcodecs.Blosc)
    sharded = {"chunks": (5, 4), "shards": (10, 8)}
    yield from {
        "plain": {"compressors": None},
        "gzip": {"compressors": codecs.GzipCodec()},
        "zstd": {"compressors": codecs.ZstdCodec(checksum=True)},
        "blosc": {"compressors": codecs.BloscCodec(cname="lz4", shuffle="bitshuffle")},
        "checksum": {"compressors": [codecs.ZstdCodec(), codecs.Crc32cCodec()]},
        "by columns": {"filters": [codecs.TransposeCodec(order=(1, 0))]},
        "big-endian": {"serializer": codecs.BytesCodec(endian="big")},
        "other names": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
        "shards": sharded,
        "index first": {
            "chunks": (10, 8),
            "serializer": codecs.ShardingCodec(chunk_shape=(5, 4), index_location="start"),
            "compressors": None,
        },
        "shards by columns": sharded | {"filters": [codecs.TransposeCodec(order=(1, 0))]},
        "one chunk": {"chunks": (100, 100)},
        "old": old,
        "old plain": old | {"compressors": None},
        "old by columns": old | {"order": "F"},
        "old in folders": old | {"chunk_key_encoding": {"name": "v2", "separator": "/"}},
        "old delta": old | {"filters": [numcodecs.Delta("<f4"), numcodecs.Shuffle(4)], "compressors": numcodecs.LZ4()},
        "old scaled": old | {"filters": [numcodecs.FixedScaleOffset(0, 1, "<f4", "<i2")]},
        **{f"old {kind.codec_id}": old | {"compressors": kind()} for kind in old_compressors},
    }.items()


SLOW = [pytest.param(dtype, marks=pytest.mark.slow) for dtype in ("<f2", "<f8", "i1", "u1", "<i4", "<u8", "bool")]


@pytest.mark.parametrize("dtype", ["<f4", ">f4", *SLOW])
def test_it_reads_what_zarr_wrote(tmp_path, optional, dtype):
    zarr = optional("zarr")
    values = X.astype(dtype)
    for name, options in layouts(optional):
        if ("delta" in name or "scaled" in name) and dtype != "<f4":
            continue
        path = tmp_path / f"{name}.zarr"
        settings = {"chunks": (10, 4), "config": {"write_empty_chunks": True}} | options
        array = zarr.create_array(str(path), shape=values.shape, dtype=dtype, fill_value=1, **settings)
        array[:] = values
        matrix = open_view(path)
        assert matrix.dtype == values.dtype.newbyteorder("="), name
        np.testing.assert_array_equal(matrix[:], np.asarray(array[:]), name)
        for start, stop in ((0, 1), (7, 8), (9, 31), (49, 53)):
            np.testing.assert_array_equal(matrix[start:stop], values[start:stop], name)


@pytest.mark.parametrize(
    ("dtype", "fill"), [("f4", float("nan")), ("f8", -np.inf), ("f4", 2.5), ("i4", -3), ("bool", False)]
)
def test_an_empty_chunk_of_a_shard_holds_the_fill_value(tmp_path, optional, dtype, fill):
    zarr = optional("zarr")
    options = {"shape": (20, 8), "chunks": (5, 4), "shards": (20, 8), "dtype": dtype, "fill_value": fill}
    array = zarr.create_array(str(tmp_path / "x.zarr"), **options)
    array[:5] = 1
    np.testing.assert_array_equal(open_view(tmp_path / "x.zarr")[:], array[:])
    with (tmp_path / "x.zarr" / "c" / "0" / "0").open("r+b") as file:
        file.seek(-9, 2)
        file.write(b"\x07")  # in the index, which has a checksum
    with pytest.raises(ValueError, match=r"c/0/0 is damaged \(its checksum is that of other bytes\)\.$"):
        open_view(tmp_path / "x.zarr")[:]


def test_a_package_that_is_missing_is_no_damage(tmp_path, optional, monkeypatch):
    zarr = optional("zarr")
    options = {"shape": (20, 8), "chunks": (5, 4), "shards": (20, 8), "dtype": "f4"}
    zarr.create_array(str(tmp_path / "x.zarr"), **options)[:] = 1
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(MissingPackageError, match=r"needs the package google_crc32c.*fusehash\[zarr\]"):
        open_view(tmp_path / "x.zarr")[:]


def test_a_frame_that_does_not_tell_its_size_is_read(tmp_path, optional):
    zarr = optional("zarr")
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(1, 3), chunks=(1, 3), dtype="u1", compressors=None)
    array[:] = 7
    # An empty descriptor, a window of 1 KiB, and one last raw block of three bytes.
    document = (tmp_path / "x.zarr" / "zarr.json").read_text()
    changed = document.replace('"codecs": [', '"codecs": [{"name": "bytes"}, {"name": "zstd"}], "unused": [')
    (tmp_path / "x.zarr" / "zarr.json").write_text(changed)
    frame = b"\x28\xb5\x2f\xfd\x00\x00" + (1 | 3 << 3).to_bytes(3, "little") + b"abc"
    (tmp_path / "x.zarr" / "c" / "0" / "0").write_bytes(frame)
    np.testing.assert_array_equal(open_view(tmp_path / "x.zarr")[:], [list(b"abc")])
