"""Sinks: what is written is what was given; a file is complete or not there."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.errors import DataError
from fusehash.streams import open_view, sink, sinks

SUFFIXES = (".npy", ".zarr", ".parquet")
X = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)


@pytest.fixture(autouse=True)
def packages(optional):
    optional("zarr")
    optional("pyarrow")


def write(path, blocks, n_rows, dtype=np.uint8):
    with sink(path, n_rows, 8, dtype) as out:
        for block in blocks:
            out.write(block)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64, np.int64])
def test_it_is_what_was_written(tmp_path, suffix, known, dtype):
    path, whole = tmp_path / f"x{suffix}", X.astype(dtype)
    write(path, [whole[:1], whole[1:1], whole[1:700], whole[700:]], len(X) if known else None, dtype)
    matrix = open_view(path)
    assert matrix.dtype == dtype
    np.testing.assert_array_equal(matrix[:], whole)
    assert list(tmp_path.iterdir()) == [path]


@given(cuts=st.lists(st.integers(0, len(X)), max_size=12), small=st.integers(120, 700))
@settings(max_examples=12, deadline=None)
def test_any_blocks_give_the_same_file(tmp_path_factory, cuts, small):
    folder = tmp_path_factory.mktemp("cuts")
    before = sinks.PIECE_BYTES
    sinks.PIECE_BYTES = small * 8  # many chunks and row groups
    try:
        for suffix in SUFFIXES:
            bounds = [0, *sorted(cuts), len(X)]
            buffer = np.empty_like(X)  # one buffer, filled anew for every block

            def blocks(bounds=bounds, buffer=buffer):
                for start, stop in pairwise(bounds):
                    buffer[: stop - start] = X[start:stop]
                    yield buffer[: stop - start]

            write(folder / f"x{suffix}", blocks(), len(X))
            np.testing.assert_array_equal(open_view(folder / f"x{suffix}")[:], X)
    finally:
        sinks.PIECE_BYTES = before


def test_npy_is_byte_for_byte_what_numpy_saves(tmp_path):
    np.save(tmp_path / "numpy.npy", X)
    for name, n_rows in (("known.npy", len(X)), ("unknown.npy", None)):
        write(tmp_path / name, [X[:300], X[300:]], n_rows)
        np.testing.assert_array_equal(np.load(tmp_path / name), X)
    assert (tmp_path / "known.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


def test_a_row_group_for_every_portion(tmp_path, optional, monkeypatch):
    monkeypatch.setattr(sinks, "PIECE_BYTES", 8 * 100)
    write(tmp_path / "x.parquet", [X[:450], X[450:]], len(X))
    found = optional("pyarrow.parquet").ParquetFile(tmp_path / "x.parquet").metadata
    assert found.num_row_groups == 10


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_error_in_the_middle_leaves_nothing(tmp_path, suffix, old, after):
    path = tmp_path / f"x{suffix}"
    if old:
        write(path, [X], len(X))

    def blocks():
        for start in range(after):
            yield X[start : start + 1] + 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, blocks(), len(X))
    if old:
        np.testing.assert_array_equal(open_view(path)[:], X)
    assert list(tmp_path.iterdir()) == ([path] if old else [])


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("n_rows", [999, 1001, 0])
def test_rows_must_be_as_many_as_announced(tmp_path, suffix, n_rows):
    blocks = [X] if n_rows else []
    with pytest.raises(DataError, match=r"must get .* rows. Got \d+ instead; nothing was written\.$"):
        write(tmp_path / f"x{suffix}", blocks, n_rows or None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_new_file_replaces_the_old_one(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write(path, [X], len(X))
    write(path, [X[::-1]], len(X))
    np.testing.assert_array_equal(open_view(path)[:], X[::-1])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_rights_are_those_of_any_file(tmp_path, suffix):
    (tmp_path / "plain").touch()
    write(tmp_path / f"x{suffix}", [X], len(X))
    mode = (tmp_path / f"x{suffix}").stat().st_mode & 0o666
    assert mode == (tmp_path / "plain").stat().st_mode & 0o666


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x.csv", "must end in .npy, .zarr or .parquet. Got 'x.csv' instead."),
        ("gone/x.npy", "The folder of"),
        ("folder.npy", "could not be written"),
        ("folder.zarr", "must be a zarr array to be replaced. It is something else."),
        ("folder.parquet", "must not be a folder"),
    ],
)
def test_where_nothing_can_be_written_is_told_in_one_sentence(tmp_path, name, sentence):
    for folder in ("folder.npy", "folder.zarr", "folder.parquet"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine").write_text("keep")
    with pytest.raises(DataError) as caught:
        write(tmp_path / name, [X], len(X))
    assert sentence in str(caught.value)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder.npy", "folder.parquet", "folder.zarr"]
    assert all((file / "mine").read_text() == "keep" for file in tmp_path.iterdir())


def test_wrong_blocks_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"must have 8 columns. Got shape \(2, 7\)"):
        write(tmp_path / "x.npy", [X[:2, :7]], 2)
    with pytest.raises(DataError, match=r"must hold uint8, as the first did. Got float64"):
        write(tmp_path / "x.npy", [X[:2] / 2], 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="files cannot be made in advance here")
def test_a_full_disk_is_found_out_before_the_work(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="No space left on device"):
        write(tmp_path / "x.npy", iter(()), 10)
    assert list(tmp_path.iterdir()) == []
