"""What cannot be read raises one sentence that says what was expected and what came."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from fusehash.errors import DataError
from fusehash.streams import is_block_stream, open_blocks, open_view

X = np.arange(40.0).reshape(10, 4)


def refuses(part: str):
    return pytest.raises(DataError, match=rf"{re.escape(part)}.*\.$")


# ---- .npy


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: np.save(path, X[:, 0]), "The file x.npy must be a matrix (rows, features). Got shape (10,)"),
        (lambda path: np.save(path, X[:0]), "The file x.npy must have rows and features. Got shape (0, 4)"),
        (lambda path: np.save(path, X.astype(complex)), "must hold real numbers. Got dtype complex128"),
        (lambda path: np.save(path, np.array([[{}]], object)), "must hold real numbers. Got Python objects"),
        (lambda path: path.write_bytes(b"hello"), "The file x.npy must be an intact .npy file."),
        (lambda path: path.write_bytes(b""), "The file x.npy must be an intact .npy file."),
        (lambda path: path.mkdir(), "must be a regular file"),
        (lambda path: None, "there is no file"),
    ],
)
def test_npy_that_is_none(tmp_path, make, sentence):
    make(tmp_path / "x.npy")
    with refuses(sentence):
        open_view(tmp_path / "x.npy")


@pytest.mark.parametrize("cut", [1, 8, 200, 319])
def test_a_truncated_npy_is_refused_when_it_is_opened(tmp_path, cut):
    np.save(tmp_path / "x.npy", X)
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-cut])
    with refuses("The file x.npy must have 448 bytes for its shape (10, 4). It ends after"):
        open_view(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_shrinks_while_it_is_read(tmp_path, order):
    np.save(tmp_path / "x.npy", np.asarray(X, order=order))
    matrix = open_view(tmp_path / "x.npy")
    with (tmp_path / "x.npy").open("r+b") as file:
        file.truncate(200)
    with refuses("must not become shorter while it is read"):
        matrix[:]


def test_a_file_that_was_replaced_is_not_mixed_with_the_old(tmp_path):
    np.save(tmp_path / "x.npy", X)
    matrix = open_view(tmp_path / "x.npy")
    np.save(tmp_path / "y.npy", -X[:3])
    (tmp_path / "y.npy").replace(tmp_path / "x.npy")
    np.testing.assert_array_equal(matrix[:], X)
    with refuses("must still have the shape (10, 4). Got (3, 4)"):
        pickle.loads(pickle.dumps(matrix))


# ---- other paths


@pytest.mark.parametrize("name", ["x.csv", "folder"])
def test_a_path_of_another_kind(tmp_path, name):
    (tmp_path / "x.csv").write_text("1,2")
    (tmp_path / "folder").mkdir()
    with refuses("A view must be a .npy, .zarr or .parquet file, or a folder of Parquet files. Got"):
        open_view(tmp_path / name)


@pytest.mark.parametrize("name", ["x", "x.npy", "x.zarr", "x.parquet"])
def test_a_path_where_nothing_is(tmp_path, optional, name):
    optional("zarr")
    optional("pyarrow")
    with refuses("there is no file"):
        open_view(tmp_path / name)


def test_zarr_that_is_no_matrix(tmp_path, optional):
    zarr = optional("zarr")
    group = zarr.open_group(str(tmp_path / "g.zarr"), mode="w")
    group.create_array("inner", shape=(3, 2), dtype="f4")
    with refuses("g.zarr must be one zarr array. Got a group with the arrays: inner"):
        open_view(tmp_path / "g.zarr")
    zarr.create_array(str(tmp_path / "line.zarr"), shape=(3,), dtype="f4")
    with refuses("The zarr array line.zarr must be a matrix (rows, features). Got shape (3,)"):
        open_view(tmp_path / "line.zarr")
    (tmp_path / "empty.zarr").mkdir()
    (tmp_path / "foreign.zarr").write_bytes(b"hello")
    for name in ("empty.zarr", "foreign.zarr"):
        with refuses(f"{name} must be a zarr array. It could not be read"):
            open_view(tmp_path / name)


def test_zarr_with_a_damaged_chunk(tmp_path, optional):
    zarr = optional("zarr")
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(10, 4), chunks=(5, 4), dtype="f8")[:] = X
    next((tmp_path / "x.zarr" / "c" / "1").iterdir()).write_bytes(b"hello")
    with refuses("The zarr array x.zarr could not be read"):
        open_view(tmp_path / "x.zarr")[:]


def test_zarr_that_goes_away_while_it_is_read(tmp_path, optional):
    zarr = optional("zarr")
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(10, 4), chunks=(5, 4), dtype="f8")[:] = X
    matrix = open_view(tmp_path / "x.zarr")
    (tmp_path / "x.zarr").rename(tmp_path / "y.zarr")
    with refuses("The zarr array x.zarr must stay where it is while it is read."):
        matrix[:]


@pytest.mark.parametrize("chunks", [None, (5, 4)])
def test_hdf5_that_shrinks_or_is_closed_while_it_is_read(tmp_path, optional, chunks):
    h5py = optional("h5py")
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=np.tile(X, (100, 1)), chunks=chunks)
    with h5py.File(path, "r") as file:
        matrix, closed = open_view(file["x"]), open_view(file["x"])
        with path.open("r+b") as content:
            content.truncate(path.stat().st_size // 2)
        with refuses("must not become shorter while it is read"):
            matrix[:]
    with refuses("The dataset /x of x.h5 could not be read"):
        closed[:]


def write_parquet(path: Path, optional, **columns):
    optional("pyarrow.parquet").write_table(optional("pyarrow").table(columns), path)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": ["a", "b"], "x": [1.0, 2.0]}, "Got the column 'id' of type string; open_view(path, columns=...)"),
        ({"x": [[1.0], [2.0]], "y": [[1.0], [2.0]]}, "Got the column 'x' of type list"),
        ({"x": [["a"], ["b"]]}, "Got the column 'x' of type string"),
        ({"x": [1, None]}, "must have no nulls among whole numbers. Got 1"),
        ({"x": [[1.0, 2.0], [3.0]]}, "must hold lists of equal length, 2. Got 1 in row 1"),
        ({"x": [[1.0], None, [3.0, 4.0]]}, "must hold lists of equal length, 1. Got 2 in row 2"),
        ({"__index_level_0__": [1, 2]}, "must have the column 'of numbers'"),
    ],
)
def test_parquet_that_is_no_matrix(tmp_path, optional, columns, sentence):
    write_parquet(tmp_path / "x.parquet", optional, **columns)
    with refuses(sentence):
        open_view(tmp_path / "x.parquet")[:]


def test_parquet_columns_can_be_chosen_and_nulls_are_nan(tmp_path, optional):
    write_parquet(tmp_path / "x.parquet", optional, id=["a", "b"], y=[1, 2], x=[0.5, None])
    matrix = open_view(tmp_path / "x.parquet", columns=["x", "y"])
    np.testing.assert_array_equal(matrix[:], [[0.5, 1], [np.nan, 2]])
    with refuses("must have the column 'z'"):
        open_view(tmp_path / "x.parquet", columns=["z"])
    write_parquet(tmp_path / "l.parquet", optional, x=[None, [1.0, None], None, [3.0, 4.0]])
    nan = np.nan
    np.testing.assert_array_equal(open_view(tmp_path / "l.parquet")[:], [[nan, nan], [1, nan], [nan, nan], [3, 4]])


def test_parquet_that_is_broken_or_foreign(tmp_path, optional):
    write_parquet(tmp_path / "x.parquet", optional, x=X[:, 0])
    whole = (tmp_path / "x.parquet").read_bytes()
    for content in (b"", b"hello", whole[:-9], whole[9:]):
        (tmp_path / "bad.parquet").write_bytes(content)
        with refuses("bad.parquet must be an intact Parquet file."):
            open_view(tmp_path / "bad.parquet")[:]
    (tmp_path / "many").mkdir()
    write_parquet(tmp_path / "many" / "0.parquet", optional, x=X[:, 0])
    write_parquet(tmp_path / "many" / "1.parquet", optional, y=X[:, 0])
    with refuses("Every file of The Parquet folder many must have the same columns. 1.parquet differs"):
        open_view(tmp_path / "many")


def test_a_dask_array_must_not_be_masked(optional):
    da = optional("dask.array")
    with refuses("A dask array must not be masked."):
        open_view(da.ma.masked_greater(da.from_array(X), 30))


def test_a_dask_array_must_know_its_rows(optional):
    da = optional("dask.array")
    unknown = da.from_array(X)[da.from_array(X[:, 0]) > 3]
    with refuses("A dask array must know its shape."):
        open_view(unknown)
    with refuses("The dask array must be a matrix (rows, features). Got shape (10,)"):
        open_view(da.from_array(X[:, 0]))


# ---- streams of blocks


@pytest.mark.parametrize(
    ("blocks", "sentence"),
    [
        ([{"a": X, "b": X[:3]}], "Rows of a block must pair one to one."),
        ([{"a": X}, {"a": X[:, :2]}], "must give blocks of {'a': 4} features. Got {'a': 2} at row 10"),
        ([{"a": X}, {"b": X}], "must give blocks of {'a': 4} features. Got {'b': 4} at row 10"),
        ([{"a": X[0]}], "must give matrices. Got shape (4,) for 'a' at row 0"),
        ([{"a": X.astype(str)}], "must hold real numbers"),
        ([{"": X}], "must give blocks with named views"),
        ([{"a": X[:0]}], "must hold rows. It was empty"),
        ([3], "must give mappings from name to matrix, or tuples. Got int at row 0"),
    ],
)
@pytest.mark.parametrize("form", [lambda blocks: blocks, iter, lambda blocks: lambda: iter(blocks)])
def test_wrong_blocks(blocks, sentence, form):
    with refuses(sentence):
        open_blocks(form(blocks))


def test_a_spooled_generator_is_removed_with_its_views_and_after_errors(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    views = open_blocks({"a": X[i : i + 3], "b": X[i : i + 3, :1].astype(np.float32)} for i in range(0, 10, 3))
    np.testing.assert_array_equal(views["a"][[9, 0]], X[[9, 0]])
    assert views["b"].dtype == np.float32
    assert len(list(tmp_path.iterdir())) == 1
    one = views.pop("b")
    del views
    np.testing.assert_array_equal(one[:], X[:, :1])
    del one
    assert list(tmp_path.iterdir()) == []
    with refuses("must give blocks of"):
        open_blocks({"a": X[:, :i]} for i in (1, 2))
    with refuses("must hold float32, as the first did. Got float64"):
        open_blocks({"a": X.astype(kind)} for kind in (np.float32, np.float64))
    assert list(tmp_path.iterdir()) == []


def test_tuples_of_matrices_are_named_in_order():
    views = open_blocks(lambda: iter([(X, X[:, :2])]))
    assert list(views) == ["view0", "view1"]
    np.testing.assert_array_equal(views["view1"][2:4], X[2:4, :2])


def test_what_is_a_stream_and_what_is_none():
    for source in ([{"a": X}], iter([]), (x for x in ()), lambda: iter([])):
        assert is_block_stream(source)
    for other in ({"a": X}, [X, X], (X, X), X, [[1.0]], [], "text", Path("x"), None, 3, X.dtype.type):
        assert not is_block_stream(other)
