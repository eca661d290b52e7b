"""load: the real files, every layout written small, the paper's splits, and one sentence for whatever is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fusehash.datasets import load, names
from fusehash.datasets.arrays import ArrayContent
from fusehash.datasets.loading import GENERIC
from fusehash.datasets.splits import make_split
from fusehash.errors import DataError, FusehashWarning, MissingPackageError, ParameterError

Write = Callable[[Path, dict[str, Any]], Path]


def content(n: int = 60, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return (
        rng.random((n, 5)),
        (rng.random((n, 80)) < 0.04).astype(np.uint8),
        (rng.random((n, 4)) < 0.4).astype(np.uint8),
    )


def dense(matrix: Any) -> Any:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def write_v5(path: Path, arrays: dict[str, Any]) -> Path:
    scipy.io.savemat(path, arrays, do_compression=True)
    return path


def write_v73(path: Path, arrays: dict[str, Any]) -> Path:
    """As MATLAB does: a 512 byte header block, axes reversed, sparse matrices as groups."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            if sp.issparse(array):
                columns = sp.csc_array(array)
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = np.uint64(array.shape[0])
                group["jc"], group["ir"], group["data"] = columns.indptr, columns.indices, columns.data.astype(float)
            else:
                file[name] = np.atleast_2d(array).T if np.ndim(array) < 2 else np.transpose(array)
        file.create_group("#refs#")
    with path.open("r+b") as stream:
        stream.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")
    return path


def write_npz(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **{name: dense(array) for name, array in arrays.items()})
    return path


WRITERS = {"v5": (write_v5, ".mat"), "v73": (write_v73, ".mat"), "npz": (write_npz, ".npz")}


@pytest.fixture(params=list(WRITERS))
def write(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """Writes the arrays in one container after the other: .mat v5, .mat v7.3, .npz."""
    writer, suffix = WRITERS[request.param]

    def to_file(stem: str = "data", **arrays: Any) -> Path:
        return writer(tmp_path / f"{stem}{suffix}", arrays)

    return to_file


# ---- the real files


def test_wiki_is_the_canonical_split(data_file: Callable[[str], Path]) -> None:
    file = data_file("wiki.npz")
    data = load("wiki", file)
    assert data.name == "wiki"
    assert data.views.n_features == {"image": 128, "text": 10}  # labels_onehot is no view
    assert data.train.tolist() == data.database.tolist() == list(range(2173))
    assert data.query.tolist() == list(range(2173, 2866))
    assert data.label_names is not None
    assert len(data.label_names) == 10
    assert data.fingerprint == load("WIKI", file.parent, split_seed=3).fingerprint == load(file).fingerprint
    fewer = load("wiki", file, n_train=500, n_query=100, split_seed=1)
    assert (fewer.train.size, fewer.query.size, fewer.database.size) == (500, 100, 2173)
    assert "500 of its 2,173 training pairs drawn with seed 1" in fewer.split


@pytest.mark.slow
def test_iaprtc12_has_four_views_or_two(data_file: Callable[[str], Path]) -> None:
    file = data_file("iaprtc12.npz")
    data = load("iaprtc12", file)
    assert data.views.n_features == {"image": 512, "image_ehd": 150, "image_cm": 225, "text": 2823}
    assert sp.issparse(data.views["text"])
    assert sp.issparse(data.labels)
    assert (data.train.size, data.query.size) == (17664, 1962)
    stacked = load("iaprtc12", file, stack_images=True)
    assert stacked.views.n_features == {"image": 887, "text": 2823}
    block = stacked.views["image"][stacked.train][:, 512:662].astype(np.float64)
    np.testing.assert_allclose(block.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(block.var(axis=0).sum(), 1, rtol=1e-4)


def test_mirflickr_tags_alone_are_not_paired_data(data_file: Callable[[str], Path]) -> None:
    file = data_file("mirflickr25k_tags_labels.npz")
    with pytest.raises(DataError, match=r"must hold the arrays image, text, labels.*Found instead: text, labels\."):
        load("mirflickr25k", file)


# ---- the layouts


@pytest.mark.parametrize("with_database", [False, True])
@pytest.mark.parametrize("label_form", ["matrix", "column", "row"])
@pytest.mark.parametrize("sparse", [False, True])
def test_parts(write: Callable[..., Path], with_database: bool, label_form: str, sparse: bool) -> None:
    image, text, labels = content()
    if label_form != "matrix":
        labels = labels.argmax(axis=1)[:, None] + 1
    cuts = {"tr": slice(0, 30), "te": slice(30, 40), **({"db": slice(40, 60)} if with_database else {})}
    arrays = {}
    for part, rows in cuts.items():
        arrays[f"I_{part}"] = image[rows]
        arrays[f"T_{part}"] = sp.csc_array(text[rows].astype(float)) if sparse else text[rows]
        arrays[f"L_{part}"] = labels[rows].T if label_form == "row" else labels[rows]
    data = load(write(**arrays))
    order = np.arange(60 if with_database else 40)
    np.testing.assert_array_equal(data.views["image"], image[order])
    np.testing.assert_array_equal(dense(data.views["text"]), text[order])
    np.testing.assert_array_equal(data.labels, np.squeeze(labels[order]))
    assert data.train.tolist() == list(range(30))
    assert data.query.tolist() == list(range(30, 40))
    assert data.database.tolist() == (list(range(40, 60)) if with_database else list(range(30)))


def test_training_pairs_repeated_in_the_database_are_one_row(write: Callable[..., Path]) -> None:
    image, text, labels = content()
    image[7], text[7] = image[3], text[3]  # a true duplicate pair in the database
    chosen = np.array([50, 3, 7, 20])
    extra_image, extra_text, extra_labels = content(2, seed=1)
    data = load(
        write(
            I_tr=np.concatenate([image[chosen], extra_image]),
            T_tr=np.concatenate([text[chosen], extra_text]),
            L_tr=np.concatenate([labels[chosen], extra_labels]),
            I_te=image[:2] + 1, T_te=text[:2], L_te=labels[:2],
            I_db=image, T_db=text, L_db=labels,
        )
    )  # fmt: skip
    assert data.views.n_rows == 2 + 2 + 60
    np.testing.assert_array_equal(data.views["image"][data.database], image)
    np.testing.assert_array_equal(data.views["image"][data.train], np.concatenate([image[chosen], extra_image]))
    np.testing.assert_array_equal(data.labels[data.train], np.concatenate([labels[chosen], extra_labels]))
    assert np.isin(data.train, data.database).tolist() == [True] * 4 + [False] * 2


@pytest.mark.parametrize("key", ["XAll", "IAll", "images"])
def test_deep_form(write: Callable[..., Path], key: str) -> None:
    image, text, labels = content()
    arrays = {key: image, "YAll": text, "LAll": labels}
    if key != "images":
        arrays["images"] = np.zeros((2, 2, 3, 60), np.uint8)  # raw pictures beside the features are not read
    data = load(write("FLICKR-25K", **arrays), n_query=7, n_train=20, split_seed=4)
    np.testing.assert_array_equal(data.views["image"], image)
    np.testing.assert_array_equal(dense(data.views["text"]), text)
    assert (data.query.size, data.database.size, data.train.size) == (7, 53, 20)
    assert np.isin(data.train, data.database).all()
    assert "7 queries drawn at random (seed 4), the other 53 as database, 20 of it for training" in data.split


def test_raw_pictures_are_not_features(write: Callable[..., Path]) -> None:
    _, text, labels = content()
    file = write(IAll=np.zeros((2, 2, 3, 60), np.uint8), YAll=text, LAll=labels)
    with pytest.raises(DataError, match=r"Got raw pictures of shape \(2, 2, 3, 60\) under IAll"):
        load(file)


def test_numpy_layout_with_further_views(tmp_path: Path) -> None:
    image, text, labels = content()
    file = write_npz(
        tmp_path / "mine.npz",
        {
            "image": image.astype(np.float16), "text": text, "image_two": image * 2, "labels": labels,
            "labels_onehot": labels, "query_idx": np.zeros((60, 2), int), "vocab": np.array(["a", "b"]),
            "train_idx": np.arange(40), "test_idx": np.arange(40, 60), "label_names": np.array(list("abcd")),
        },
    )  # fmt: skip
    data = load("paired", tmp_path)
    assert data.name == "mine"
    assert data.views.n_features == {"image": 5, "text": 80, "image_two": 5}
    assert data.label_names == tuple("abcd")
    assert data.fingerprint == load("mine.npz", path=tmp_path).fingerprint == load(str(file)).fingerprint
    assert load(file, stack_images=True).views.n_features == {"image": 10, "text": 80}


def test_labels_may_be_absent(tmp_path: Path) -> None:
    image, text, labels = content()
    arrays = {"image": image, "text": text, "train_idx": np.arange(40), "test_idx": np.arange(40, 60)}
    data = load(write_npz(tmp_path / "bare.npz", arrays))
    assert data.labels is None
    assert (data.train.size, data.query.size) == (40, 20)
    assert "labels: none" in data.describe()
    labeled = load(write_npz(tmp_path / "full.npz", {**arrays, "labels": labels}))
    np.testing.assert_array_equal(data.views["image"], labeled.views["image"])
    assert data.fingerprint != labeled.fingerprint
    drawn = load(write_npz(tmp_path / "drawn.npz", {"image": image, "text": text}), n_query=10)
    assert (drawn.train.size, drawn.query.size) == (50, 10)
    with pytest.raises(DataError, match="text has 59"):
        load(write_npz(tmp_path / "odd.npz", {"image": image, "text": text[:59]}))


# ---- the splits of the papers


@pytest.mark.parametrize("name", ["mirflickr25k", "nuswide"])
def test_split_of_the_paper(name: str, tmp_path: Path) -> None:
    n = 20015
    arrays = {"image": np.arange(n)[:, None], "text": np.ones((n, 1)), "labels": np.arange(n) % 24}
    write_npz(tmp_path / f"{name}.npz", arrays)
    data = load(name, tmp_path)
    assert (data.query.size, data.database.size, data.train.size) == (2000, 18015, 5000)
    assert np.isin(data.train, data.database).all()
    assert np.array_equal(np.sort(np.concatenate([data.query, data.database])), np.arange(n))
    again, other = load(name, tmp_path), load(name, tmp_path, split_seed=1)
    assert again.fingerprint == data.fingerprint
    assert other.fingerprint != data.fingerprint
    more = load(name, tmp_path, n_train=18015)
    assert more.query.tolist() == data.query.tolist()  # does not depend on n_train
    assert more.train.tolist() == more.database.tolist()


def test_a_small_stand_in_gets_a_smaller_split_and_a_warning(write: Callable[..., Path]) -> None:
    image, text, labels = content()
    file = write("nuswide", XAll=image, YAll=text, LAll=labels)
    with pytest.warns(FusehashWarning, match="too few for 2,000 queries; 6 are drawn"):
        data = load("nuswide", file.parent)
    assert (data.query.size, data.train.size, data.database.size) == (6, 54, 54)


def test_the_warning_is_told_to_the_caller() -> None:
    rows = ArrayContent({}, content()[2])
    with pytest.warns(FusehashWarning) as told:
        make_split(rows, GENERIC, n_query=None, n_train=None, seed=0, name="views")
    assert [warning.filename for warning in told] == [__file__]


def test_one_row_cannot_be_divided(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    image, text, labels = content(1)
    with pytest.raises(DataError, match=r"^one\.npz must have at least 2 rows: .* Got 1\.$"):
        load(write_npz(tmp_path / "one.npz", {"image": image, "text": text, "labels": labels}))
    assert not recwarn.list


# ---- what is wrong


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="one of wiki, mirflickr25k, nuswide, iaprtc12, paired"):
        load("cifar")
    assert names() == ["wiki", "mirflickr25k", "nuswide", "iaprtc12", "paired"]
    with pytest.raises(ParameterError, match="'name' parameter of load"):
        load(7)  # type: ignore[arg-type]


def test_missing_files_say_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"wiki\.npz, wiki\.mat, wikiData\.mat\. None was found"):
        load("wiki", tmp_path)
    monkeypatch.setenv("FUSEHASH_DATA", str(tmp_path))
    with pytest.raises(DataError, match=tmp_path.name):
        load("wiki")
    with pytest.raises(DataError, match="no file and no folder"):
        load("wiki", tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"at .*nowhere.npz. None was found"):
        load(tmp_path / "nowhere.npz")
    with pytest.raises(DataError, match=r"exactly one .npz or .mat file; else name one. Found: none"):
        load("paired", tmp_path)
    with pytest.raises(ParameterError, match="'path' parameter of load"):
        load("paired")


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"a": np.ones((3, 2)), "b": np.ones(3)}, "Found instead: a, b."),
        ({}, "Found instead: none."),
        (dict(zip(("XAll", "YAll", "LAll"), (np.ones((4, 2)), np.ones((5, 2)), np.ones(4)), strict=True)), "pair one"),
        (dict(zip(("XAll", "YAll", "LAll"), (np.ones((4, 2)), np.ones((4, 2)), np.ones((5, 2))), strict=True)),
         "labels has 5"),
        (dict(zip(("XAll", "YAll", "LAll"), (np.ones((4, 2)), np.ones((4, 2)), np.full((4, 2), 7)), strict=True)),
         "LAll of data.* cannot be used as labels. .*only 0 and 1"),
        (dict(zip(("XAll", "YAll", "LAll"), (np.full((4, 2), np.nan), np.ones((4, 2)), np.ones(4)), strict=True)),
         "View 'image' must hold finite numbers"),
        ({f"{m}_{p}": np.ones((4, 3 if (m, p) == ("T", "te") else 2)) for m in "ITL" for p in ("tr", "te")},
         "equally wide text. Got columns: _tr has 2, _te has 3"),
        ({f"{m}_{p}": np.ones((4, 2)) for m in "ITL" for p in ("tr", "te")} | {"I_db": np.ones((4, 2))}, "or none"),
    ],
)  # fmt: skip
def test_wrong_content(write: Callable[..., Path], arrays: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        load(write(**arrays), n_query=1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train_idx": np.arange(60)}, "must not be among the rows of 'train'"),
        ({"test_idx": np.arange(50, 61)}, "between 0 and 59"),
        ({"test_idx": None}, "both train_idx and test_idx, or neither"),
        ({"labels": np.zeros(59)}, "labels has 59"),
        ({"text": np.ones((59, 3))}, "pair one to one.*text has 59"),
        ({"text": np.ones(60)}, "Array text of data.npz must be a matrix"),
        ({"image": np.array([["a"] * 3] * 60)}, "View 'image' must hold real numbers"),
    ],
)
def test_wrong_numpy_layout(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    image, text, labels = content()
    arrays = {"image": image, "text": text, "labels": labels, "train_idx": np.arange(50), "test_idx": np.arange(50, 60)}
    arrays = {key: value for key, value in {**arrays, **changes}.items() if value is not None}
    with pytest.raises(DataError, match=sentence):
        load(write_npz(tmp_path / "data.npz", arrays))


@pytest.mark.parametrize(
    ("options", "parameter"),
    [({"n_query": 60}, "n_query"), ({"n_query": 0}, "n_query"), ({"n_train": 56}, "n_train"),
     ({"n_train": 1.5}, "n_train"), ({"split_seed": -1}, "split_seed")],
)  # fmt: skip
def test_wrong_counts(tmp_path: Path, options: dict[str, Any], parameter: str) -> None:
    image, text, labels = content()
    file = write_npz(tmp_path / "data.npz", {"image": image, "text": text, "labels": labels})
    with pytest.raises(ParameterError, match=f"'{parameter}' parameter of load"):
        load(file, **{"n_query": 5, **options})


def test_truncated_files(write: Callable[..., Path]) -> None:
    image, text, labels = content(400)
    file = write(XAll=image, YAll=text, LAll=labels)
    whole = file.read_bytes()
    for size in (len(whole) // 3, len(whole) // 2, len(whole) - 40):
        file.write_bytes(whole[:size])
        with pytest.raises(DataError, match=f"{file.name} must"):
            load(file, n_query=5)


def test_foreign_files(tmp_path: Path) -> None:
    file = tmp_path / "data.npz"
    for foreign in (b"", b"hello", b"\x93NUMPY\x01\x00", b"\x89PNG\r\n" * 200):
        file.write_bytes(foreign)
        with pytest.raises(DataError, match="Its first bytes are neither's"):
            load(file)
    for foreign in (b"PK\x03\x04" + b"x" * 700, b"MATLAB 5.0" + b"x" * 700, b"\x89HDF\r\n\x1a\n" + b"x" * 700):
        file.write_bytes(foreign)
        with pytest.raises(DataError, match="must be an intact"):
            load(file)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    image, _, labels = content()
    file = tmp_path / "data.npz"
    np.savez(file, image=image, labels=labels, text=np.array([[{}]] * 60, dtype=object))
    with pytest.raises(DataError, match="nothing is unpickled"):
        load(file)


def test_v73_without_h5py_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, text, labels = content()
    file = write_v73(tmp_path / "data.mat", {"XAll": image, "YAll": text, "LAll": labels})
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingPackageError, match=r'needs the package h5py.*pip install "fusehash\[mat\]"'):
        load(file)


def test_h5py_is_there_where_everything_must_be(optional: Callable[[str], ModuleType]) -> None:
    assert optional("h5py")


def test_a_sparse_matrix_with_places_outside_of_it_is_refused(tmp_path: Path) -> None:
    """SciPy believes them, and the process ends when such a matrix is used."""
    image, text, labels = content()
    damaged = sp.csc_array(text.astype(float))
    path = write_v73(tmp_path / "d.mat", {"XAll": image, "YAll": damaged, "LAll": labels})
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "r+") as file:
        file["YAll"]["ir"][0] = len(text)
    with pytest.raises(DataError, match=r"d\.mat must be an intact .*array 'YAll'"):
        load(path)
