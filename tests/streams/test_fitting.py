"""Stored views in `fit` and `encode` give the codes of arrays in memory, whatever the format."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest

from fusehash import hashers
from fusehash.datasets import make_paired
from fusehash.errors import DataError
from fusehash.streams import StoredMatrix, open_blocks, open_view
from fusehash.streams.writers import BlockEncoder
from fusehash.views import PairedViews, check_view

DATA = make_paired(700, n_classes=5, views={"image": 20, "text": 12}, random_state=0).views
ARRAYS = {name: np.ascontiguousarray(DATA.block(name, slice(None))) for name in DATA}
KINDS = ("npy", "zarr", "parquet", "memmap", "hdf5", "dask", "blocks", "generator", "function")


def blocks(step: int = 90):
    for start in range(0, 700, step):
        yield {name: matrix[start : start + step] for name, matrix in ARRAYS.items()}


@pytest.fixture
def store(tmp_path, optional):
    """`store(kind)`: both views, stored in that way."""

    def make(kind):
        if kind == "blocks":
            return list(blocks())
        if kind in ("generator", "function"):
            return blocks() if kind == "generator" else blocks
        if kind == "dask":
            da = optional("dask.array")
            return {name: da.from_array(matrix, chunks=(110, -1)) for name, matrix in ARRAYS.items()}
        if kind == "hdf5":
            file = optional("h5py").File(tmp_path / "x.h5", "w")
            return {name: file.create_dataset(name, data=matrix) for name, matrix in ARRAYS.items()}
        paths = {name: tmp_path / f"{name}.{'npy' if kind == 'memmap' else kind}" for name in ARRAYS}
        for name, matrix in ARRAYS.items():
            if kind == "zarr":
                optional("zarr").create_array(str(paths[name]), data=matrix, chunks=(200, matrix.shape[1]))
            elif kind == "parquet":
                table = optional("pyarrow").table({"values": list(matrix)})
                optional("pyarrow.parquet").write_table(table, paths[name], row_group_size=150)
            else:
                np.save(paths[name], matrix)
        if kind == "memmap":
            return {name: np.load(path, mmap_mode="r") for name, path in paths.items()}
        return {name: str(path) for name, path in paths.items()}

    return make


def refuses(part: str):
    return pytest.raises(DataError, match=re.escape(part))


@pytest.fixture(scope="module")
def models():
    return {name: hashers.make(name, n_bits=16, random_state=0).fit(ARRAYS) for name in ("fusehash", "regression")}


@pytest.mark.parametrize(("name", "kind"), [*(("regression", kind) for kind in KINDS), ("fusehash", "function")])
def test_fit_gives_the_codes_of_the_arrays(store, models, name, kind):
    model, expected = hashers.make(name, n_bits=16, random_state=0).fit(store(kind)), models[name]
    np.testing.assert_array_equal(model.codes_, expected.codes_)
    assert model.view_names_ == ["image", "text"]
    np.testing.assert_array_equal(model.encode(ARRAYS["text"], view=1), expected.encode(ARRAYS["text"], view=1))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("blocks", "generator", "function")])
@pytest.mark.parametrize("name", ["fusehash", "regression"])
def test_encode_gives_the_codes_of_the_arrays(store, models, kind, name, tmp_path):
    model, views = models[name], store(kind)
    one, fused = model.encode(ARRAYS["image"], view="image"), model.encode_fused(ARRAYS)
    np.testing.assert_array_equal(np.asarray(model.encode(views["image"], view="image")), one)
    np.testing.assert_array_equal(model.encode_fused(views), fused)
    np.testing.assert_allclose(model.project(views["text"], view="text"), model.project(ARRAYS["text"], view="text"))
    np.testing.assert_allclose(model.project_fused(views), model.project_fused(ARRAYS))
    assert model.encode(views["image"], view="image", out=tmp_path / "one.npy") == tmp_path / "one.npy"
    model.encode_fused(views, out=tmp_path / "fused.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), one)
    np.testing.assert_array_equal(np.load(tmp_path / "fused.npy"), fused)


def test_encode_of_arrays_can_be_written_too(models, tmp_path):
    model = models["regression"]
    model.encode(ARRAYS["image"].tolist(), view=0, out=tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), model.encode(ARRAYS["image"], view=0))
    model.encode_fused([ARRAYS["image"].tolist(), ARRAYS["text"]], out=tmp_path / "x.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), model.encode_fused(ARRAYS))


def test_encode_of_a_dask_array_is_lazy(optional, models):
    da = optional("dask.array")
    computed = []

    def count(block):
        computed.append(len(block))
        return block

    X = da.from_array(ARRAYS["image"], chunks=(130, 7)).map_blocks(count, dtype=float, meta=np.empty((0, 0)))
    codes = models["fusehash"].encode(X, view="image")
    assert isinstance(codes, da.Array)
    assert (codes.shape, codes.dtype, codes.chunks[0]) == ((700, 2), np.uint8, X.chunks[0])
    assert computed == []
    np.testing.assert_array_equal(codes.compute(), models["fusehash"].encode(ARRAYS["image"], view="image"))
    light = pickle.loads(pickle.dumps(BlockEncoder(models["fusehash"], "image")))
    assert len(light.hasher.codes_) == 0  # the codes of the training rows do not travel
    assert len(models["fusehash"].codes_) == 700
    np.testing.assert_array_equal(light(ARRAYS["image"][:9]), codes[:9].compute())
    assert light(ARRAYS["image"][:0]).shape == (0, 2)
    with refuses("must have 20 features, as in fit. Got 12 instead."):
        models["fusehash"].encode(da.from_array(ARRAYS["text"]), view="image")


@pytest.mark.parametrize("form", [blocks, list, iter])
def test_encode_of_a_stream_gives_the_codes_of_each_block(models, form, tmp_path):
    model, stream = models["fusehash"], form if form is blocks else form(blocks())
    codes = model.encode(stream, view="text")
    first = next(codes)
    assert len(first) == 90
    np.testing.assert_array_equal(np.vstack([first, *codes]), model.encode(ARRAYS["text"], view="text"))
    fused = model.encode_fused(blocks)
    np.testing.assert_array_equal(np.vstack(list(fused)), model.encode_fused(ARRAYS))
    matrices = (block["text"] for block in blocks())
    assert model.encode(matrices, view="text", out=tmp_path / "x.npy") == tmp_path / "x.npy"
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), model.encode(ARRAYS["text"], view="text"))


def test_blocks_may_be_empty_or_frames_or_one_buffer_that_is_refilled(models, tmp_path, optional):
    pandas = optional("pandas")
    model, buffers = models["fusehash"], {name: np.empty((70, matrix.shape[1])) for name, matrix in ARRAYS.items()}

    def empty():
        yield {name: matrix[:0] for name, matrix in ARRAYS.items()}
        yield from blocks()
        yield {name: matrix[:0] for name, matrix in ARRAYS.items()}

    def frames():
        for block in blocks():
            yield {name: pandas.DataFrame(matrix) for name, matrix in block.items()}

    def refilled():
        for block in blocks(70):
            for name, matrix in block.items():
                buffers[name][:] = matrix
            yield buffers

    for stream in (empty, frames, refilled):
        views = PairedViews(stream)
        for name, matrix in ARRAYS.items():
            np.testing.assert_array_equal(views.block(name, slice(None)), matrix)
            np.testing.assert_array_equal(views.block(name, slice(60, 700)), matrix[60:])
        codes = model.encode(stream, view="text", out=tmp_path / "x.npy")
        np.testing.assert_array_equal(np.load(codes), model.encode(ARRAYS["text"], view="text"))
    assert [len(codes) for codes in model.encode_fused(empty)] == [0, *[90] * 7, 70, 0]


# ---- checks while reading


def save(path, matrix):
    np.save(path, matrix)
    return path


def test_views_are_opened_cut_and_sent_without_being_read(tmp_path, monkeypatch):
    path = save(tmp_path / "x.npy", ARRAYS["image"])
    monkeypatch.setattr("fusehash.streams.npy.FileReader._fill", lambda *_: pytest.fail("rows were read"))
    views = PairedViews({"image": path, "text": ARRAYS["text"]})
    rows = np.array([5, 600, 3])
    cut = pickle.loads(pickle.dumps(views.rows(rows)))
    assert isinstance(cut["image"], StoredMatrix)
    assert cut.n_features == {"image": 20, "text": 12}
    assert views[10:20].shape == (10, 32)
    monkeypatch.undo()
    np.testing.assert_array_equal(cut.block("image", slice(1, 3)), ARRAYS["image"][[600, 3]])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_raise_when_their_block_is_read(tmp_path, value, models):
    bad = ARRAYS["image"].copy()
    bad[650, 3] = value
    views = PairedViews({"image": save(tmp_path / "x.npy", bad), "text": ARRAYS["text"]})
    np.testing.assert_array_equal(views.block("image", slice(0, 64)), bad[:64])
    sentence = (
        "View 'image' must hold finite numbers. Got NaN or infinity in 1 of the rows 640 to 699, first in row 650."
    )
    with refuses(sentence):
        views.block("image", slice(640, 700))
    with refuses("first in row 650."):
        hashers.make("regression", n_bits=8, random_state=0).fit(views)
    with refuses("first in row 650."):
        models["regression"].encode(tmp_path / "x.npy", view="image", out=tmp_path / "codes.npy")
    with refuses("first in row 650."):
        models["regression"].encode_fused(views, out=tmp_path / "codes.npy")
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]


def test_missing_rows_are_found_in_a_pass_of_blocks(tmp_path, models):
    holed = ARRAYS["text"].copy()
    holed[[3, 699]] = np.nan
    path = save(tmp_path / "x.npy", holed)
    with refuses('Rows that are all NaN are allowed with missing="allow".'):
        PairedViews({"text": path}).block("text", slice(None))
    stored = PairedViews({"image": ARRAYS["image"], "text": path}, allow_missing=True)
    memory = PairedViews({"image": ARRAYS["image"], "text": holed}, allow_missing=True)
    np.testing.assert_array_equal(stored.is_present("text"), memory.is_present("text"))
    np.testing.assert_array_equal(stored.block("text", slice(0, 9)), memory.block("text", slice(0, 9)))
    cut = PairedViews(stored.rows([3, 4]), allow_missing=True)
    assert cut.is_present("text").tolist() == [False, True]
    np.testing.assert_array_equal(models["fusehash"].encode_fused(stored), models["fusehash"].encode_fused(memory))
    codes = [
        hashers.make("fusehash", n_bits=8, random_state=0, missing="allow").fit(views).codes_
        for views in (stored.rows(slice(0, 200)), memory.rows(slice(0, 200)))
    ]
    np.testing.assert_array_equal(codes[0], codes[1])
    holed[5, 0] = np.nan
    with refuses("first in row 5."):
        check_view(open_view(save(tmp_path / "y.npy", holed)), "text", allow_missing=True)


def test_stored_views_must_pair(tmp_path):
    path = save(tmp_path / "x.npy", ARRAYS["image"][:699])
    with refuses("Rows of the views must pair one to one. Got different numbers of rows: 'a' has 699, 'b' has 700."):
        PairedViews({"a": path, "b": ARRAYS["text"]})


def test_a_stream_stands_for_all_views():
    views = PairedViews(blocks)
    assert views.names == ["image", "text"]
    np.testing.assert_array_equal(views.block("text", np.array([699, 0])), ARRAYS["text"][[699, 0]])
    views = PairedViews(open_blocks(tuple(block.values()) for block in blocks()))
    assert views.names == ["view0", "view1"]
