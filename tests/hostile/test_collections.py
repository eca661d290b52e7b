"""Collections that are damaged, or that somebody else has made to do harm."""

from __future__ import annotations

import functools
import json
import shutil
import socket
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash import hashers, trust
from fusehash.collection import Collection, CollectionError, CorruptCollectionError, NewItem, store
from fusehash.collection.encoding import load_encoder
from fusehash.collection.features import FeatureCache
from fusehash.collection.store import rows, settings
from fusehash.errors import FusehashError

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from scale import cases  # noqa: E402

from untuned import UNTUNED  # noqa: E402

OLD = HERE.parent / "golden" / "2026-11-second-design" / "small.collection"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed collection with pictures, texts, labels and two generations; nobody changes it."""
    folder = tmp_path_factory.mktemp("whole") / "whole.collection"
    shutil.copytree(OLD, folder)
    with pytest.MonkeyPatch.context() as patch, Collection.open(folder) as collection:
        patch.setattr(hashers, "make", functools.partial(hashers.make, **UNTUNED))
        collection.add([NewItem("new", None, "a new red thing", ("red", "späte"))])
        collection.build_generation(measure=False, n_bits=16)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "copy.collection")
    return tmp_path / "copy.collection"


def answers(folder: Path) -> list[Any]:
    """What a collection answers to everything that it can be asked without writing."""
    with Collection.open(folder) as collection:
        items = collection.items(limit=1000)
        return [
            collection.search("a red thing number2", k=8),
            collection.search("green", k=5, label="green", rerank=False),
            collection.search(like=items[0].id, k=60),
            collection.search(like=items[1].id, k=9, label="red"),
            items,
            [collection.item(item.id) for item in items],
            collection.items(3, 5, "blue"),
            collection.labels(),
            [collection.thumbnail(item.id) for item in items],
            {name: value for name, value in collection.stats().items() if name != "bytes"},
            collection.generations(),
            collection.settings,
            collection.code_stats(),
            len(collection),
        ]


def flips(folder: Path, count: int, seed: int, names: str = "*") -> Iterator[str]:
    """Flip one bit at a time, half of them in items.db; yields where, and repairs the folder afterwards."""
    intact = {path.name: path.read_bytes() for path in sorted(folder.glob(names)) if path.stat().st_size}
    rng, others = np.random.default_rng(seed), sorted(intact)
    for _ in range(count):
        name = "items.db" if rng.random() < 0.5 and names == "*" else others[rng.integers(len(others))]
        position, bit = int(rng.integers(len(intact[name]))), int(rng.integers(8))
        damaged = bytearray(intact[name])
        damaged[position] ^= 1 << bit
        (folder / name).write_bytes(damaged)
        yield f"bit {bit} of byte {position} of {name}"
        for path in folder.iterdir():
            if path.name not in intact or path.name == name or path.read_bytes() != intact[path.name]:
                path.unlink()
        for each, content in intact.items():
            if not (folder / each).exists():
                (folder / each).write_bytes(content)


def check_flips(folder: Path, count: int, seed: int, ask: Callable[[Path], Any] = answers, expected: Any = None) -> int:
    """Every flip is refused with our own error or changes no answer; returns how many were refused."""
    expected, refused, silent = expected or ask(folder), 0, []
    for where in flips(folder, count, seed):
        try:
            if ask(folder) != expected:
                silent.append(where)
        except FusehashError:
            refused += 1
    assert not silent, f"{len(silent)} of {count} flips changed answers in silence: {silent[:5]}"
    return refused


def test_a_flipped_bit_changes_no_answer_in_silence(copy: Path) -> None:
    assert check_flips(copy, 120, seed=0) > 20


@pytest.mark.slow
def test_many_flipped_bits_change_no_answer_in_silence(copy: Path) -> None:
    assert check_flips(copy, cases(600, 6000), seed=1)


def test_a_flipped_bit_in_the_feature_cache_gives_the_same_features_or_none(copy: Path) -> None:
    """Whatever the cache still has is right; the rest is made again."""
    with Collection.open(copy) as collection:
        state = collection._now().state
        entries = list(collection._stored().values())
        width = load_encoder(copy, "text", state.text_encoder).encoder.n_features_
    contents = [entry.text_content for entry in entries if entry.text_content]

    def features() -> tuple[set[bytes], Any]:
        cache = FeatureCache(copy / "features.db")
        try:
            return cache.missing(state.text_encoder, contents), cache.matrix(state.text_encoder, contents, width)
        finally:
            cache.close()

    nothing, expected = features()
    assert not nothing
    lost = 0
    for where in flips(copy, cases(150, 2000), seed=2, names="features.db"):
        missing, matrix = features()
        there = [i for i, content in enumerate(contents) if content not in missing]
        np.testing.assert_array_equal(matrix[there], expected[there], err_msg=where)
        lost += bool(missing)
    assert lost


@pytest.mark.slow
def test_writing_after_a_flipped_bit_loses_nothing_in_silence(copy: Path) -> None:
    def add_and_ask(folder: Path) -> list[Any]:
        with Collection.open(folder) as collection:
            collection.add([NewItem("another", None, "a red thing", ("red",))])
        return answers(folder)[4:9]

    shutil.copytree(copy, copy.parent / "intact")
    expected = add_and_ask(copy.parent / "intact")
    check_flips(copy, cases(100, 1000), 3, add_and_ask, expected)


def forge(folder: Path, **columns: object) -> None:
    """Give the first item other values, with all checksums right."""
    with sqlite3.connect(folder / "items.db") as database:
        state = store.CollectionState.read(database)
        [row] = store.read_rows(database, "ORDER BY id LIMIT 1")
        names = rows._NAMES
        content = tuple({**dict(zip(names, row, strict=False)), **columns}.values())
        forged = rows._with_checksum(content)
        database.execute(
            f"UPDATE item SET ({', '.join(names)}, checksum) = ({', '.join('?' * 15)}) WHERE id = ?", (*forged, row[0])
        )
        assert state.totals is not None
        replace(state, totals=state.totals.changed([row], [forged])).write(database)


@pytest.mark.parametrize(
    "columns",
    [
        {"labels": "[" * 100_000},
        {"labels": '[["nested"]]'},
        {"labels": "[NaN, 1e999]"},
        {"labels": '{"red": 1}'},
        {"labels": "12"},
        {"labels": None},
        {"labels": b"[]"},
        {"key": b"bytes"},
        {"text": b"bytes"},
        {"text": 3.5},
        {"image": "text"},
        {"width": "wide"},
        {"height": 1.5},
        {"trained": b"1"},
        {"taken": 2019},
        {"taken": "some day"},
        {"taken": "2019-05-03T"},
    ],
)
def test_items_of_the_wrong_type_are_refused(copy: Path, columns: dict[str, object]) -> None:
    forge(copy, **columns)
    with pytest.raises(CorruptCollectionError, match="damaged"):
        answers(copy)


@pytest.mark.parametrize(
    "values",
    [
        {"model": "../../../etc/passwd"},
        {"model": "a/b"},
        {"image_encoder": ".."},
        {"text_encoder": 7},
        {"n_bits": 1 << 40},
        {"n_bits": 12},
        {"codes": 1 << 70},
        {"codes": -1},
        {"quality": float("nan")},
        {"quality": "good"},
        {"made": None},
        {"settings": {"n_bits": 32}},
        {"settings": []},
        {"checksums": {"model": "1"}},
        {"totals": {"items": 1, "others": 2}},
        {"totals": None},
        {"kept": [1, 2, 3]},
        {"kept": "12"},
        {"other": 1},
    ],
)
def test_a_state_that_cannot_be_is_refused(copy: Path, values: dict[str, object]) -> None:
    with sqlite3.connect(copy / "items.db") as database:
        [content] = database.execute("SELECT content FROM state").fetchone()
        content = json.dumps({**json.loads(content), **values})
        database.execute("UPDATE state SET content = ?, checksum = ?", (content, zlib.crc32(content.encode())))
    with pytest.raises(CorruptCollectionError):
        answers(copy)


@pytest.mark.parametrize(
    "values",
    [
        {"n_bits": 1 << 60},
        {"n_bits": 32.5},
        {"n_bits": True},
        {"n_bits": "32"},
        {"random_state": -1},
        {"random_state": float("nan")},
        {"image": "classical"},
        {"image": {"name": 1, "params": {}}},
        {"text": {"name": "tfidf", "params": [1]}},
        {"text": {"name": "tfidf"}},
    ],
)
def test_settings_that_cannot_be_are_refused(copy: Path, values: dict[str, object]) -> None:
    content = {**json.loads((copy / "collection.json").read_text()), **values}
    del content["checksum"]
    content["checksum"] = settings._checksum_of(content)
    (copy / "collection.json").write_text(json.dumps(content))
    with pytest.raises(CorruptCollectionError, match=r"collection\.json is damaged"):
        Collection.open(copy)


@pytest.mark.parametrize("text", ["[" * 100_000, " " * (1 << 24) + "{}", "\ud800".encode("utf-8", "surrogatepass")])
def test_a_monstrous_description_is_refused(copy: Path, text: str | bytes) -> None:
    (copy / "collection.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CorruptCollectionError):
        Collection.open(copy)


@pytest.mark.parametrize("name", ["collection.json", "items.db", "features.db", "writer.lock"])
def test_a_link_in_the_folder_is_not_followed(copy: Path, name: str) -> None:
    (copy / name).rename(copy.parent / name)
    (copy / name).symlink_to(copy.parent / name)
    with pytest.raises(CorruptCollectionError, match=f"{name} is a link"):
        Collection.open(copy)


@pytest.mark.parametrize("pattern", ["model-*", "text-*"])
def test_a_link_in_place_of_a_model_is_not_followed(copy: Path, pattern: str) -> None:
    for path in copy.glob(pattern):
        path.rename(copy.parent / path.name)
        path.symlink_to(copy.parent / path.name)
    with Collection.open(copy) as collection, pytest.raises(FusehashError, match="is a link"):
        collection.search("a red thing")


def test_an_item_that_is_missing_is_noticed(copy: Path) -> None:
    with sqlite3.connect(copy / "items.db") as database:
        database.execute("DELETE FROM item WHERE id = 7")
    with Collection.open(copy) as collection:
        for ask in (
            lambda: collection.search(like=1, k=100),
            lambda: collection.item(7),
            lambda: collection.items(limit=3),
            lambda: collection.search("red"),
            collection.labels,
            collection.clusters,
        ):
            with pytest.raises(CorruptCollectionError, match="missing"):
                ask()


def test_ids_are_not_used_again_when_sqlite_forgets_the_highest(copy: Path) -> None:
    with Collection.open(copy) as collection:
        [id] = collection.add([NewItem("last", None, "a red thing")]).ids
        collection.remove([id])
    with sqlite3.connect(copy / "items.db") as database:
        database.execute("DELETE FROM sqlite_sequence")
    with Collection.open(copy) as collection:
        assert collection.add([NewItem("next", None, "a red thing")]).ids == [id + 1]


@pytest.mark.slow
def test_damaged_models_are_made_again_by_a_reindex(copy: Path) -> None:
    for pattern in ("model-*", "text-*", "image-*"):
        for path in copy.glob(pattern):
            content = bytearray(path.read_bytes())
            content[-5] ^= 16
            path.write_bytes(content)
    with Collection.open(copy) as collection:
        with pytest.raises(CorruptCollectionError, match="damaged; a reindex makes it again"):
            collection.search("a red thing")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hashers, "make", functools.partial(hashers.make, **UNTUNED))
            collection.reindex()
        assert collection.search("a red thing", k=3)


def test_a_reader_goes_on_while_a_writer_adds_checksums_to_an_old_collection(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "old")
    with Collection.open(tmp_path / "old") as reader:
        before = [reader.search("a red thing", k=5), reader.items(), reader.labels(), reader.thumbnail(1)]
        total, stats = len(reader), reader.stats()
        with Collection.open(tmp_path / "old") as writer:
            id = writer.add([NewItem("another", None, "something else")]).ids[0]
            writer.remove([id])
        assert [reader.search("a red thing", k=5), reader.items(), reader.labels(), reader.thumbnail(1)] == before
        assert len(reader) == total
        assert {**reader.stats(), "bytes": 0} == {**stats, "bytes": 0}
    with sqlite3.connect(tmp_path / "old" / "items.db") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (store.ITEMS.format,)
        assert database.execute("SELECT count(*) FROM item WHERE checksum IS NULL").fetchone() == (0,)
    assert "checksum" in json.loads((tmp_path / "old" / "collection.json").read_text())


def test_nothing_in_the_folder_makes_us_connect(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection that somebody sends cannot ask for a password: engine.json and other foreign files are ignored."""
    from fusehash.app import create_app

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        address = f"postgresql://user@127.0.0.1:{server.getsockname()[1]}/data"
        monkeypatch.setenv("PGPASSWORD", "secret")
        (copy / "engine.json").write_text(json.dumps({"engine": address, "address": address, "url": address}))
        (copy / "foreign.txt").write_text(address)
        content = json.loads((copy / "collection.json").read_text()) | {"engine": address}
        del content["checksum"]
        (copy / "collection.json").write_text(json.dumps(content | {"checksum": settings._checksum_of(content)}))
        answers(copy)
        with Collection.open(copy) as collection:
            create_app(collection)
            collection.check()
            collection.add([NewItem("another", None, "a red thing")])
        with pytest.raises(BlockingIOError):  # nobody has called
            server.accept()
    with pytest.raises(FusehashError, match="local engine"):
        Collection.open(copy, engine=address)


HOSTILE_MODELS = [
    "hf-hub:somebody/model",
    "evil.onnx",
    "../evil.onnx",
    "~/evil.onnx",
    "https://example.org/evil.onnx",
    "/\0",
]


@pytest.mark.parametrize("name", [*HOSTILE_MODELS, "inside", "outside"])
def test_data_does_not_choose_a_model(copy: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model by an address or by a path is loaded only if the user has named it."""
    monkeypatch.chdir(copy)
    for folder in (copy, copy.parent):
        (folder / "evil.onnx").write_bytes(b"evil")
    name = {"inside": str(copy / "evil.onnx"), "outside": str(copy.parent / "evil.onnx")}.get(name, name)
    for encoder, param in (("onnx", "path"), ("clip", "model"), ("clip", "pretrained")):
        with pytest.raises(CollectionError, match="data may not choose"):
            trust.check_models(encoder, {param: name}, "The collection", CollectionError)
    monkeypatch.setenv(trust.TRUSTED_MODELS, f"other,{name}".replace("\0", ""))
    trust.check_models("onnx", {"path": name.replace("\0", "")}, "The collection")


def test_models_of_the_libraries_and_those_that_the_user_has_named_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust.check_models("clip", {"model": "ViT-B-32", "pretrained": "laion2b_s34b_b79k"}, "The collection")
    trust.check_models("clip", {"model": "ViT-B-32", "pretrained": None}, "The collection")
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").write_bytes(b"model")
    trust.confirm_models("onnx", {"path": Path("model.onnx"), "tokenizer": None})
    monkeypatch.setattr(trust, "_confirmed", set())  # another process
    trust.check_models("onnx", {"path": str(tmp_path / "model.onnx")}, "The collection")


def test_a_collection_that_names_a_model_of_its_own_is_not_trained(copy: Path) -> None:
    (copy / "evil.onnx").write_bytes(b"evil")
    with sqlite3.connect(copy / "items.db") as database:
        state = store.CollectionState.read(database)
        other = json.loads((copy / "collection.json").read_text())
        other["image"] = {"name": "onnx", "params": {"path": str(copy / "evil.onnx")}}
        replace(state, settings=other, image_encoder="").write(database)
    with Collection.open(copy) as collection:
        for write in (collection.reindex, collection.build_generation):
            with pytest.raises(CollectionError, match="data may not choose"):
                write()
