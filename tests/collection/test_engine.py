"""A collection whose codes are searched on a real server: the same answers, no password kept, nothing left behind."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import servers
from fusehash.collection import Collection, CollectionError, NewItem, mirror
from fusehash.errors import ParameterError
from fusehash.search import HammingIndex, IndexServerError
from fusehash.search.servers import address as addresses


@pytest.fixture(params=["postgresql", "milvus-lite"])
def server(request: pytest.FixtureRequest) -> servers.Server:
    return servers.server(request.param)


def answers(collection: Collection) -> list[Any]:
    questions = [
        {"text": "a red thing"}, {"text": "a blue thing number1", "label": "blue"}, {"like": 2},
        {"like": 2, "label": "mod1"}, {"text": "green", "rerank": False, "k": 100},
    ]  # fmt: skip
    return [[(hit.id, hit.distance, hit.score, hit.code) for hit in collection.search(**asked)] for asked in questions]


def in_memory(collection: Collection) -> list[Any]:
    """What the same folder answers without the server."""
    with Collection.open(collection.path, engine="scan") as local:
        assert "engine" not in local.stats()
        return answers(local)


def on_server(collection: Collection) -> HammingIndex:
    index = collection._now().index
    assert "address" in index.stats()
    return index


def test_every_change_reaches_the_server(tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server) -> None:
    address = server.address()
    with Collection.create(tmp_path / "c", n_bits=32, engine=address) as collection:
        assert collection.stats()["engine"] == address
        assert collection.stats()["codes"] == 0
        collection.build(items(20))
        assert answers(collection) == in_memory(collection)
        first = on_server(collection)
        collection.add(items(30)[20:])
        collection.remove([1, 5, 21])
        collection.update([NewItem("green1", items(40)[38].image, "a blue thing")])
        assert answers(collection) == in_memory(collection)
        assert on_server(collection) is first
        assert len(first) == 27
        collection.reindex()
        assert answers(collection) == in_memory(collection)
        before = on_server(collection).stats()["address"]
        collection.build(items(40))
        collection.reindex()
        assert answers(collection) == in_memory(collection)
        assert len(list(tmp_path.glob("c/mirror-*.db"))) == 1
        assert on_server(collection).n_bits == 32
        assert collection.clusters(3)
        assert before
    with Collection.open(tmp_path / "c") as again:  # the server is remembered
        assert answers(again) == in_memory(again)
        assert on_server(again)


def test_another_reader_follows(tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server) -> None:
    with Collection.create(tmp_path / "c", n_bits=32, engine=server.address()) as writer:
        writer.build(items(12))
        with Collection.open(tmp_path / "c") as reader:
            assert answers(reader) == answers(writer)
            writer.add(items(16)[12:])
            assert answers(reader) == answers(writer)
            for _ in range(3):  # indexes of former models are removed under the reader's feet
                writer.reindex()
                writer.remove([int(writer.items()[-1].id)])
                writer.build(items(14))
            assert answers(reader) == answers(writer) == in_memory(writer)


def test_what_was_not_sent_is_sent_later(
    tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = Collection.create(tmp_path / "c", n_bits=32, engine=server.address())
    collection.build(items(12))
    old = answers(collection)

    def cut_off(*values: Any) -> None:
        raise IndexServerError("The server went away.")

    monkeypatch.setattr(mirror.Mirror, "send", cut_off)
    with pytest.raises(CollectionError, match="has changed, but its server does not know yet"):
        collection.add(items(16)[12:])
    assert answers(collection) == old  # whole, if old
    assert len(collection) == 16
    with pytest.raises(CollectionError, match="has changed, but its server"):
        Collection.open(tmp_path / "c")
    monkeypatch.undo()
    with Collection.open(tmp_path / "c") as again:
        assert answers(again) == in_memory(again)
        assert again.stats()["codes"] == 16
    assert answers(collection) == in_memory(collection)
    collection.close()


def test_a_server_that_somebody_changed_is_noticed_and_set_right(
    tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server
) -> None:
    with Collection.create(tmp_path / "c", n_bits=32, engine=server.address()) as collection:
        collection.build(items(12))
        index = on_server(collection)
        index.remove([3])
        index.add(np.zeros((1, 4), np.uint8), [77])
        index.replace(np.zeros((1, 4), np.uint8), [4])
    with Collection.open(tmp_path / "c") as collection:
        with pytest.raises(CollectionError, match="somebody else has changed it, and a reindex sets it right"):
            collection.search("a red thing")
        assert len(in_memory(collection)) == 5
        collection.reindex()
        assert answers(collection) == in_memory(collection)
        assert on_server(collection).ids.tolist() == list(range(1, 13))
    with Collection.open(tmp_path / "c", engine="scan") as local:
        local.add(items(13)[12:])  # without the server, which then lags behind
    with Collection.open(tmp_path / "c") as again:
        assert answers(again) == in_memory(again)
        assert on_server(again).ids.tolist() == list(range(1, 14))


def test_a_lost_mirror_file_and_a_dropped_index_are_made_anew(
    tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server
) -> None:
    with Collection.create(tmp_path / "c", n_bits=32, engine=server.address()) as collection:
        collection.build(items(12))
        for file in tmp_path.glob("c/mirror-*.db*"):
            file.unlink()
        collection.add(items(14)[12:])
        assert answers(collection) == in_memory(collection)
        addresses.drop(on_server(collection).stats()["address"])
        with pytest.raises(CollectionError, match="a reindex sets it right"):
            collection.search("a red thing")
        collection.add(items(16)[14:])
        assert answers(collection) == in_memory(collection)
        addresses.drop(on_server(collection).stats()["address"])
        collection.add(items(18)[16:])  # noticed by the writer first
        assert answers(collection) == in_memory(collection)
        left = tmp_path / "c" / "mirror-12345678.db-wal"
        left.write_bytes(b"")
        collection.reindex()
        assert not left.exists()
        assert answers(collection) == in_memory(collection)


def test_items_that_are_removed_during_a_search(
    tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search and the reading of the codes, another process removes what was found."""
    with Collection.create(tmp_path / "c", n_bits=32, engine=server.address()) as collection:
        collection.build(items(12))
        removed: list[int] = []
        get = HammingIndex.get

        def late(index: HammingIndex, ids: Any) -> Any:
            if len(removed) < 3 and "address" in index.stats():
                removed.append(int(np.asarray(ids)[0]))
                with monkeypatch.context() as paused:
                    paused.setattr(HammingIndex, "get", get)
                    with Collection.open(tmp_path / "c") as other:
                        other.remove(removed[-1:])
            return get(index, ids)

        monkeypatch.setattr(HammingIndex, "get", late)
        found = {hit.id for hit in collection.search("a red thing", k=50)}
        assert removed
        assert not found & set(removed)
        collection.clusters(3)
        collection.code_stats()
        monkeypatch.undo()
        assert len(removed) == len(set(removed)) == 3
        assert len(collection.search("a red thing", k=50)) == 9
        assert answers(collection) == in_memory(collection)


def test_a_name_too_long_for_what_is_added_to_it_is_refused(tmp_path: Path) -> None:
    server = servers.server("postgresql")
    with pytest.raises(ParameterError, match="the name of an index"):
        Collection.create(tmp_path / "c", engine=server.address("n" * 45))
    assert not (tmp_path / "c").exists()


def test_a_collection_moves_to_a_server_and_no_password_is_kept(
    tmp_path: Path, fakes: ModuleType, items: Any, server: servers.Server
) -> None:
    with Collection.create(tmp_path / "c", n_bits=32) as collection:
        collection.build(items(12))
        expected = answers(collection)
    address = server.address()
    secret = address.replace("tester@", "tester:s3cret@")
    if address.startswith("milvus"):
        secret = address.replace("://", "://root:s3cret@")
    with Collection.open(tmp_path / "c", engine=secret) as moved:
        assert answers(moved) == expected
        assert "s3cret" not in f"{moved.stats()} {moved!r} {on_server(moved)!r}"
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and b"s3cret" in file.read_bytes()]
    assert json.loads((tmp_path / "c" / "engine.json").read_text())["engine"] == addresses.without_secrets(secret)
    with Collection.open(tmp_path / "c") as again:
        assert answers(again) == expected


def test_a_server_that_is_away_changes_nothing(tmp_path: Path, fakes: ModuleType, items: Any) -> None:
    server = servers.server("postgresql")
    collection = Collection.create(tmp_path / "c", n_bits=32, engine=server.address())
    collection.build(items(12))
    collection.reindex_beside(measure=False, random_state=3)
    with pytest.raises(IndexServerError, match="cannot be reached"):
        Collection.create(tmp_path / "other", engine="postgresql://127.0.0.1:1/nowhere")
    assert not (tmp_path / "other").exists()
    with pytest.raises(ParameterError, match="'engine' parameter"):
        Collection.open(tmp_path / "c", engine="magic")
    server.kill()
    try:
        with pytest.raises(IndexServerError, match="cannot be reached"):
            collection.add(items(14)[12:])
        with pytest.raises(IndexServerError, match="cannot be reached"):
            collection.search("a red thing")
        for call in (collection.switch, lambda: collection.drop(2), collection.reindex_beside):
            with pytest.raises(IndexServerError, match="cannot be reached"):
                call()
        assert len(collection) == 12
        assert [(one.number, one.in_force) for one in collection.generations()] == [(1, True), (2, False)]
        with Collection.open(tmp_path / "c") as other:
            assert len(other.items()) == 12
            with pytest.raises(IndexServerError, match="cannot be reached"):
                other.search("a red thing")
    finally:
        server.start()
    collection.add(items(14)[12:])
    assert answers(collection) == in_memory(collection)
    collection.close()


def test_a_server_to_move_to_that_is_away_is_told_and_not_remembered(small: Collection) -> None:
    pytest.importorskip("psycopg")
    away = f"postgresql://nobody@127.0.0.1:{servers.free_port()}/x"
    with pytest.raises(IndexServerError, match="cannot be reached"):
        Collection.open(small.path, engine=away)
    assert mirror.read(small.path) is None
