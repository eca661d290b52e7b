"""Raw results on disk: what goes in comes out, equal runs have equal keys, and damage is noticed."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash.errors import DataError, FusehashWarning
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, now, searched, versions
from fusehash.experiments.store import settings as module

PRINT = "ab" * 32
SETTINGS = RunSettings(PRINT, "regression", {}, 16, 0, "train")
N_TRAIN, N_QUERY, N_NEW = 10, 4, 6


def codes(n_rows: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n_rows, 2), dtype=np.uint8)


def train_run(**changes: Any) -> RunRecord:
    content = {
        "unified": codes(N_TRAIN, 0), "hashed:image": codes(N_TRAIN, 1), "hashed:text": codes(N_TRAIN, 2),
        "query:image": codes(N_QUERY, 3), "query:text": codes(N_QUERY, 4),
    }  # fmt: skip
    record = RunRecord(
        SETTINGS, content, np.array([3.0, 2.5]), 1.25, {"image": 0.5, "text": 0.25}, versions(), now(), ["Look out."]
    )
    return replace(record, **changes)


def dataset(*, new: bool = False, **changes: Any) -> DatasetRecord:
    train, query = np.arange(N_TRAIN), np.arange(N_TRAIN, N_TRAIN + N_QUERY)
    rows = N_TRAIN + N_QUERY + (N_NEW if new else 0)
    database = np.concatenate([train, np.arange(N_TRAIN + N_QUERY, rows)])
    labels = np.arange(rows) % 3
    record = DatasetRecord(
        PRINT, "small", "made", labels, train, query, database, {"image": 5, "text": 4}, rows, source="small.npz"
    )
    return replace(record, created=now(), **changes)


def assert_same(first: RunRecord, other: RunRecord | None) -> None:
    assert other is not None
    for name, value in vars(first).items():
        if name == "codes":
            assert value.keys() == other.codes.keys()
            assert all(np.array_equal(value[key], other.codes[key]) for key in value)
        elif name == "objective" and value is not None:
            assert np.array_equal(value, other.objective)
        else:
            assert getattr(other, name) == value


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results")


# ---- round trips


@pytest.mark.parametrize("objective", [None, np.array([3.0, 2.5]), np.array([])])
def test_a_run_comes_back_as_it_went_in(store, objective):
    record = train_run(objective=objective)
    assert store.get(SETTINGS) is None
    store.put(record)
    assert_same(record, store.get(SETTINGS))
    assert store.get(SETTINGS) is not None
    assert len(store) == 1
    assert_same(record, next(iter(store)))


def test_file_names_can_be_read(store):
    store.put(train_run())
    store.put_dataset(dataset(fingerprint="cd" * 32, name="My data (stand-in)"))
    other = replace(SETTINGS, dataset="cd" * 32, seed=3, stage="half")
    store.put(train_run(settings=other))
    names = {file.relative_to(store.folder / "runs").as_posix() for file in store.folder.glob("runs/*/*")}
    assert names == {
        f"{PRINT[:12]}/regression-16bits-seed0-{SETTINGS.key[:8]}.safetensors",
        f"my-data-stand-in/regression-16bits-seed3-half-{other.key[:8]}.safetensors",
    }
    assert repr(store.get(other)) == f"RunRecord({other.file_name})"


def test_a_run_is_found_after_its_data_set_has_got_another_name(store):
    store.put_dataset(dataset(name="first"))
    store.put(train_run())
    store.put_dataset(dataset(name="second"))
    assert store.get(SETTINGS) is not None
    store.put(train_run(fit_seconds=7.0))
    assert [record.fit_seconds for record in store] == [7.0]


def test_a_file_of_format_1_is_named_by_its_key(store):
    store.put(train_run())
    [file] = store.folder.glob("runs/*/*")
    old = store.folder / "runs" / SETTINGS.key[:2] / f"{SETTINGS.key}.safetensors"
    old.parent.mkdir()
    file.rename(old)
    assert_same(train_run(created=store.get(SETTINGS).created), store.get(SETTINGS))
    assert len(store) == 1


def test_a_later_run_takes_the_place_of_an_earlier_one(store):
    store.put(train_run(fit_seconds=1.0))
    store.put(train_run(fit_seconds=2.0))
    assert store.get(SETTINGS).fit_seconds == 2.0
    assert len(store) == 1


@pytest.mark.parametrize("labels", [np.arange(14) % 3, np.eye(14, 5, dtype=np.uint8)])
def test_a_data_set_comes_back_as_it_went_in(store, labels):
    record = dataset(labels=labels, options={"n_train": 5}, stand_in=True)
    record.rows.new  # noqa: B018  (a cached value must not get into the file)
    store.put_dataset(record)
    back = store.dataset(PRINT)
    for name in DatasetRecord.__dataclass_fields__:
        assert np.array_equal(getattr(record, name), getattr(back, name))
    assert back.labels.dtype == labels.dtype


def test_an_unknown_data_set_is_said(store):
    with pytest.raises(DataError, match="must hold the data set abababababab"):
        store.dataset(PRINT)


def test_an_empty_folder_holds_nothing(store):
    assert (len(store), list(store), store.datasets(), store.get(SETTINGS)) == (0, [], [], None)
    assert not store.folder.exists()


def test_the_data_set_of_a_specification(store):
    assert store.find_dataset("small.npz", {}) is None
    generated = dataset(fingerprint="0" * 64, stand_in=True)
    store.put_dataset(generated)
    assert store.find_dataset("small.npz", {}).fingerprint == generated.fingerprint
    older, newer = dataset(), dataset(fingerprint="cd" * 32)
    store.put_dataset(newer)
    store.put_dataset(older)
    assert store.find_dataset("small.npz", {}).fingerprint == newer.fingerprint
    assert store.find_dataset("small.npz", {"n_train": 3}) is None
    assert store.find_dataset("other.npz", {}) is None
    assert len(store.datasets()) == 3


# ---- keys


def test_equal_settings_have_equal_keys():
    assert RunSettings(PRINT, "regression", {}, 16, 0, "train").key == SETTINGS.key
    assert len(SETTINGS.key) == 64


def test_a_default_that_is_written_out_is_the_same_run():
    plain = RunSettings(PRINT, "agsfh", {}, 16, 0, "train")
    spelled = replace(plain, params={"smoothness": 10, "regression_weight": 300})
    assert plain.key == spelled.key
    assert plain.key != replace(plain, params={"smoothness": 11}).key


@pytest.mark.parametrize(
    "change",
    [
        {"dataset": "cd" * 32}, {"method": "random"}, {"params": {"max_iter": 3}}, {"n_bits": 24}, {"seed": 1},
        {"stage": "half"},
    ],
)  # fmt: skip
def test_any_other_setting_is_another_run(change):
    assert replace(SETTINGS, **change).key != SETTINGS.key


def test_without_randomness_all_seeds_are_one_run_but_halves_differ(monkeypatch):
    monkeypatch.setattr(module, "settings_of", lambda method: ({}, False))
    assert replace(SETTINGS, seed=1).key == replace(SETTINGS, seed=2).key
    half = replace(SETTINGS, stage="half")
    assert replace(half, seed=1).key != replace(half, seed=2).key


def test_where_bits_can_run_out_of_directions_seeds_count():
    """CVH draws directions once its own are used up: on Wiki from 16 bits on."""
    settings = replace(SETTINGS, method="cvh")
    assert replace(settings, seed=1).key != settings.key


def test_keys_do_not_change_between_versions():
    """Stored results must be found again: whoever changes this on purpose makes all of them worthless."""
    text = module.canonical_json({"b": [1.0, 2.5, True, None, "ä"], "a": {"y": (1, 2), "x": 1e-4}})
    assert text == '{"a":{"x":0.0001,"y":[1,2]},"b":[1,2.5,true,null,"\\u00e4"]}'


# ---- damage


@pytest.fixture
def file(store) -> Path:
    store.put(train_run())
    return next(store.folder.glob("runs/*/*"))


def assert_missing(store: ResultStore, file: Path) -> None:
    fresh = ResultStore(store.folder)
    with pytest.warns(FusehashWarning, match="It counts as missing") as caught:
        assert list(fresh) == []
    assert str(file) in str(caught[0].message)
    with warnings.catch_warnings():  # warned once
        warnings.simplefilter("error")
        assert fresh.get(SETTINGS) is None
        assert list(fresh) == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.999])
def test_a_file_cut_short_counts_as_missing(store, file, share):
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    assert_missing(store, file)


def test_any_flipped_bit_is_noticed(store, file):
    content = file.read_bytes()
    for position in np.linspace(0, len(content) - 1, 40).astype(int):
        flipped = bytearray(content)
        flipped[position] ^= 1
        file.write_bytes(bytes(flipped))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FusehashWarning)
            record = ResultStore(store.folder).get(SETTINGS)
        if record is not None:  # white space at the end of the header carries nothing
            assert content[position] == ord(" ")
            assert_same(record, train_run(created=record.created))


def test_a_foreign_file_counts_as_missing(store, file):
    from safetensors.numpy import save_file

    save_file({"x": np.zeros(3)}, str(file))
    assert_missing(store, file)


@pytest.mark.parametrize("name", ["0" * 64, "regression-16bits-seed0-00000000"])
def test_a_file_under_another_name_counts_as_missing(store, file, name):
    assert_missing(store, file.rename(file.with_name(f"{name}.safetensors")))


def test_files_of_another_kind_are_left_alone(store, file):
    (file.parent / f".{file.name}.abc").write_text("half a file")
    (file.parent / "notes.safetensors").write_text("notes")
    assert [record.settings for record in store] == [SETTINGS]


# ---- what a protocol searches


@pytest.mark.parametrize(("protocol", "name"), [("U", "unified"), ("H", "hashed:text")])
def test_training_rows(protocol, name):
    record, data = train_run(), dataset()
    query, database, query_labels, labels = searched(record, data, protocol, "image", "text")
    assert np.array_equal(query, record.codes["query:image"])
    assert np.array_equal(database, record.codes[name])
    assert np.array_equal(query_labels, data.labels[data.query])
    assert np.array_equal(labels, data.labels[data.train])


@pytest.mark.parametrize(("protocol", "name"), [("HN", "hashed:text"), ("FN", "fused")])
def test_the_other_half(protocol, name):
    from fusehash.evaluation.protocols import halves

    half = N_TRAIN // 2
    content = {"fused": codes(half, 5), "hashed:text": codes(half, 6), "query:image": codes(N_QUERY, 7)}
    record = train_run(settings=replace(SETTINGS, stage="half", seed=3), codes=content)
    data = dataset()
    _, database, _, labels = searched(record, data, protocol, "image", "text")
    assert np.array_equal(database, content[name])
    assert np.array_equal(labels, data.labels[halves(data.train, 3)[1]])
    assert data.rows.stages(("U", "FN")) == ("train", "half")


@pytest.mark.parametrize(("protocol", "name"), [("HN", "new:hashed:text"), ("FN", "new:fused")])
def test_new_rows(protocol, name):
    content = {**train_run().codes, "new:fused": codes(N_NEW, 8), "new:hashed:text": codes(N_NEW, 9)}
    record, data = train_run(codes=content), dataset(new=True)
    _, database, _, labels = searched(record, data, protocol, "image", "text")
    assert np.array_equal(database, content[name])
    assert np.array_equal(labels, data.labels[-N_NEW:])
    assert data.rows.stages(("U", "HN", "FN")) == ("train",)


@pytest.mark.parametrize(
    ("record", "data", "protocol", "views", "sentence"),
    [
        (train_run(), dataset(), "X", ("image", "text"), "must be one of U, H, HN, FN"),
        (train_run(), dataset(), "HN", ("image", "text"), "needs a run of stage 'half' here. Got stage 'train'"),
        (train_run(), dataset(), "H", ("image", "sound"), "must hold the codes 'hashed:sound'"),
        (train_run(), dataset(), "U", ("sound", "text"), "must hold the codes 'query:sound'"),
        (train_run(), dataset(new=True), "FN", ("image", "text"), "must hold the codes 'new:fused'"),
        (train_run(), dataset(fingerprint="cd" * 32), "U", ("image", "text"), "It is of another one"),
        (train_run(codes={**train_run().codes, "unified": codes(3, 0)}), dataset(), "U", ("image", "text"), "10 rows"),
    ],
)  # fmt: skip
def test_what_a_run_has_not_got(record, data, protocol, views, sentence):
    with pytest.raises(DataError, match=sentence):
        searched(record, data, protocol, *views)


def test_a_default_that_became_auto_keeps_its_key_and_what_it_was_gets_another():
    def key(**params):
        return RunSettings("data", "fusehash", params, 64, 0, "train").key

    assert key() == key(n_rotation_steps="auto") != key(n_rotation_steps=50) != key(n_rotation_steps=15)
