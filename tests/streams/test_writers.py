"""NpyWriter: the file has the rows that were written; it is complete or not there."""

from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.errors import DataError
from fusehash.streams import NpyWriter

X = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)


def write(path, blocks, n_rows, dtype=np.uint8):
    with NpyWriter(path, n_rows, 8, dtype) as out:
        for block in blocks:
            out.write(block)


@pytest.mark.parametrize("n_rows", [len(X), None])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_the_file_is_what_numpy_saves(tmp_path, n_rows, dtype):
    whole = X.astype(dtype)
    write(tmp_path / "x.npy", [whole[:1], whole[1:1], whole[1:700], whole[700:]], n_rows, dtype)
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]
    loaded = np.load(tmp_path / "x.npy")
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded, whole)
    np.save(tmp_path / "numpy.npy", whole)
    if n_rows is not None:
        assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()


@given(cuts=st.lists(st.integers(0, len(X)), max_size=12))
@settings(max_examples=12, deadline=None)
def test_any_blocks_give_the_same_file(tmp_path_factory, cuts):
    path = tmp_path_factory.mktemp("cuts") / "x.npy"

    buffer = np.empty_like(X)  # refilled for every block

    def blocks():
        for start, stop in pairwise([0, *sorted(cuts), len(X)]):
            buffer[: stop - start] = X[start:stop]
            yield buffer[: stop - start]

    write(path, blocks(), len(X))
    np.testing.assert_array_equal(np.load(path), X)


@pytest.mark.parametrize("has_old", [True, False])
@pytest.mark.parametrize("after", [0, 2])
def test_an_error_in_the_middle_leaves_nothing(tmp_path, has_old, after):
    path = tmp_path / "x.npy"
    if has_old:
        write(path, [X], len(X))

    def blocks():
        for start in range(after):
            yield X[start : start + 1] + 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, blocks(), len(X))
    if has_old:
        np.testing.assert_array_equal(np.load(path), X)
    assert list(tmp_path.iterdir()) == ([path] if has_old else [])


@pytest.mark.parametrize("n_rows", [999, 1001, 0])
def test_rows_must_be_as_many_as_announced(tmp_path, n_rows):
    with pytest.raises(DataError, match=r"must get .* rows. Got \d+ instead; nothing was written\.$"):
        write(tmp_path / "x.npy", [X] if n_rows else [], n_rows or None)
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_replaces_the_old_one(tmp_path):
    write(tmp_path / "x.npy", [X], len(X))
    write(tmp_path / "x.npy", [X[::-1]], len(X))
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), X[::-1])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("x.csv", "The file to write must end in .npy. Got 'x.csv' instead."),
        ("x.zarr", "The file to write must end in .npy. Got 'x.zarr' instead."),
        ("x.parquet", "The file to write must end in .npy. Got 'x.parquet' instead."),
        ("gone/x.npy", "The folder of"),
        ("folder.npy", "could not be written"),
    ],
)
def test_a_file_that_cannot_be_written_raises_one_sentence(tmp_path, name, sentence):
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(DataError) as caught:
        write(tmp_path / name, [X], len(X))
    assert sentence in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["folder.npy"]


def test_wrong_blocks_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"must have 8 columns. Got shape \(2, 7\)"):
        write(tmp_path / "x.npy", [X[:2, :7]], 2)
    with pytest.raises(DataError, match=r"must hold uint8, as the first did. Got float64"):
        write(tmp_path / "x.npy", [X[:2] / 2], 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this platform cannot reserve space for a file")
def test_a_full_disk_raises_before_the_work(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DataError, match="No space left on device"):
        write(tmp_path / "x.npy", iter(()), 10)
    assert list(tmp_path.iterdir()) == []
