"""A collection holds what it was given and finds it by text, by image, by likeness and by code."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fusehash import bits
from fusehash.collection import Collection, CollectionError, CorruptCollectionError, NewItem
from fusehash.errors import DataError, MissingPackageError, ParameterError


def texts(hits):
    return [hit.item.text for hit in hits]


def test_a_text_finds_pictures_and_a_picture_finds_texts(small, draw):
    assert all("red" in text for text in texts(small.search("a red thing", k=5)))
    assert all("blue" in text for text in texts(small.search(image=draw("blue", 99), k=5)))


def test_every_kind_of_image_query_gives_the_same(small, draw, tmp_path):
    data = draw("green", 3)
    path = tmp_path / "query.png"
    path.write_bytes(data)
    expected = small.search(image=data, k=7)
    assert small.search(image=path, k=7) == expected
    assert small.search(image=Image.open(io.BytesIO(data)), k=7) == expected


def test_hits_tell_the_truth(small):
    code = np.frombuffer(small.query_code(text="a yellow thing"), np.uint8)
    hits = small.search("a yellow thing", k=10)
    assert len(hits) == 10
    for hit in hits:
        assert hit.item == small.item(hit.id)
        assert hit.distance == np.bitwise_count(code ^ np.frombuffer(hit.code, np.uint8)).sum()
        assert -1 <= hit.score <= 1
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_without_reranking_the_order_is_distance_then_id(small):
    hits = small.search("a red thing", k=40, rerank=False)
    assert [(hit.distance, hit.id) for hit in hits] == sorted((hit.distance, hit.id) for hit in hits)
    assert len(hits) == 40


def test_reranking_is_the_asymmetric_distance_then_distance_then_id(small, draw):
    """For a picture; a text is ranked by its words too, see test_words.py."""
    snapshot, picture = small._now(), draw("red", 99)
    query = snapshot.project("image", picture)
    everything = snapshot.index.ids
    signs = bits.unpack(snapshot.index.get(everything), 32)
    hamming = (signs != np.where(query > 0, 1, -1)).sum(axis=1)
    scores = [sum(s * q for s, q in zip(row, query, strict=True)) / np.abs(query).sum() for row in signs]
    best = sorted(zip(np.round(-np.array(scores), 9), hamming, everything, strict=True))
    hits = small.search(image=picture, k=40)
    assert [hit.id for hit in hits] == [int(id) for _, _, id in best]
    assert np.allclose([hit.score for hit in hits], sorted(scores, reverse=True))


def test_like_does_not_find_itself(small):
    hits = small.search(like=1, k=40)
    assert len(hits) == 39
    assert 1 not in [hit.id for hit in hits]
    assert hits[0].item.labels[0] == small.item(1).labels[0]


def test_a_code_finds_what_has_it(small):
    first = small.search("a red thing", k=1)[0]
    assert small.search(code=first.code, k=1)[0].distance == 0


def test_labels_narrow_the_search(small):
    assert small.labels() == {"mod0": 20, "mod1": 20, "blue": 10, "green": 10, "red": 10, "yellow": 10}
    hits = small.search("a red thing", k=40, label="blue")
    assert len(hits) == 10
    assert all("blue" in hit.item.labels for hit in hits)
    assert small.search("a red thing", label="nothing") == []
    assert len(small.search(like=1, k=40, label="red")) == 9


def test_items_and_thumbnails(small, draw):
    assert [item.id for item in small.items(5, 3)] == [6, 7, 8]
    assert {item.labels[0] for item in small.items(0, 100, label="red")} == {"red"}
    item = small.item(1)
    assert (item.key, item.text, item.has_image, item.width) == ("red0", "a red thing number0", True, 16)
    assert Image.open(io.BytesIO(small.thumbnail(1))).format == "JPEG"
    with pytest.raises(DataError, match="Id 999 is not"):
        small.item(999)
    assert small.thumbnail(999) is None


def test_one_modality_is_enough_to_be_found(small, draw):
    report = small.add([NewItem("words", None, "a red thing"), NewItem("picture", draw("red", 77), None)])
    assert report.added == 2
    assert not report.skipped
    found = {hit.item.key for hit in small.search("a red thing", k=12)}
    assert {"words", "picture"} <= found
    assert small.thumbnail(report.ids[0]) is None


def test_added_items_get_the_code_that_a_build_would_have_given(small, items):
    again = items(40)[3]
    (id,) = small.add([NewItem("copy", again.image, again.text)]).ids
    assert small.search(like=id, k=1)[0].distance == 0


def test_a_broken_image_is_reported_and_its_text_kept(small):
    report = small.add([NewItem("both", b"broken", "a red thing"), NewItem("alone", b"broken"), NewItem("nothing")])
    assert set(report.skipped) == {"both", "alone", "nothing"}
    assert "cannot be read" in report.skipped["both"]
    assert report.added == 1
    assert not small.item(report.ids[0]).has_image
    assert "both" in {hit.item.key for hit in small.search("a red thing", k=12)}
    assert small.stats()["broken_images"] == 1


def test_remove_and_update(small, draw):
    assert small.remove([1, 2]).removed == 2
    assert len(small) == 38
    assert 1 not in {hit.id for hit in small.search("a red thing", k=40)}
    report = small.update([NewItem("blue2", draw("red", 5), "a red thing", ("new",))])
    assert (report.changed, report.ids) == (1, [3])
    assert small.item(3).labels == ("new",)
    assert 3 in {hit.id for hit in small.search("a red thing", k=12)}
    assert small.labels()["new"] == 1
    assert small.update([NewItem("blue2", draw("red", 5), "a red thing", ("new",))]).unchanged == 1
    (id,) = small.add([NewItem("later", None, "a blue thing")]).ids
    assert id == 41  # ids are never given out again


def test_a_call_that_raises_has_changed_nothing(small):
    before = small.items(0, 100), small.stats()
    for call, sentence in (
        (lambda: small.add([NewItem("new", None, "x"), NewItem("red0", None, "x")]), "'red0' is there already"),
        (lambda: small.add([NewItem("new", None, "x"), NewItem("new", None, "y")]), "more than once"),
        (lambda: small.add([NewItem("", None, "x")]), "non-empty"),
        (lambda: small.add([NewItem("new", 3, "x")]), "path or bytes"),
        (lambda: small.add([NewItem("new", None, 3)]), "must be a string"),
        (lambda: small.add(["new"]), "NewItem"),
        (lambda: small.update([NewItem("new", None, "x")]), "'new' is not"),
        (lambda: small.remove([1, 999]), "Id 999"),
    ):
        with pytest.raises(DataError, match=sentence):
            call()
    assert (small.items(0, 100), small.stats()) == before


def test_queries_that_make_no_sense(small):
    for arguments in (
        {},
        {"code": bytes(4), "like": 1},
        {"text": " "},
        {"like": 999},
        {"code": b"123"},
        {"image": b"x"},
        {"text": 3},
        {"text": "a", "k": 0},
    ):
        with pytest.raises((DataError, ParameterError)):
            small.search(**arguments)
    with pytest.raises(DataError):
        small.query_code()


def test_stats_recommend_a_reindex(small, items):
    assert not small.stats()["reindex_recommended"]
    more = [NewItem(f"more{i}", item.image, item.text) for i, item in enumerate(items(12))]
    report = small.add(more)
    assert not report.trained
    stats = small.stats()
    assert (stats["after_training"], stats["reindex_recommended"]) == (12, True)
    assert "12 of 52 items" in stats["advice"]
    assert stats["advice"] in report.notes
    assert small.reindex().trained
    assert small.stats()["after_training"] == 0
    assert small.stats()["codes"] == 52


def test_reindex_works_without_the_cache_and_without_the_files(photos, tmp_path, fakes):
    from fusehash.collection import read_folder

    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        collection.build(read_folder(photos))
        (tmp_path / "c" / "features.db").unlink()
        for path in photos.iterdir():
            path.unlink()
        assert collection.reindex().trained
        assert collection.stats()["codes"] == 24
        assert "red" in collection.search("a red thing", k=1)[0].item.text


def test_equal_items_give_equal_codes(tmp_path, fakes, items):
    found = []
    for name in ("one", "two"):
        with Collection.create(tmp_path / name, n_bits=32) as collection:
            collection.build(items(30))
            found.append([(hit.id, hit.code) for hit in collection.search("a red thing", k=30)])
    assert found[0] == found[1]


def test_it_is_still_there_after_opening_again(small):
    before = small.search("a red thing", k=40)
    with Collection.open(small.path) as again:
        assert again.search("a red thing", k=40) == before
        assert again.stats() == small.stats()


def test_overviews(small):
    groups = small.clusters(4)
    assert sum(group["size"] for group in groups) == 40
    assert {"red", "green", "blue", "yellow"} <= {word for group in groups for word in group["words"]}
    assert all(small.item(id) for group in groups for id in group["examples"])
    stats = small.code_stats()
    assert len(stats["bit_means"]) == len(stats["bit_entropy"]) == 32
    assert sum(stats["distances"]) == pytest.approx(1, abs=1e-3)
    assert 0 < stats["distinct"] <= 40


@pytest.mark.parametrize(
    "settings",
    [
        {"n_bits": 12},
        {"n_bits": 8192},
        {"image_encoder": "tfidf"},
        {"image_encoder": "none"},
        {"random_state": -1},
        {"text_params": {"x": object()}},
    ],
)
def test_wrong_settings_leave_nothing(tmp_path, fakes, settings):
    with pytest.raises(ParameterError):
        Collection.create(tmp_path / "c", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_build_shows_its_progress_if_asked(tmp_path, fakes, capsys, monkeypatch):
    from fusehash import console

    monkeypatch.setattr(console, "SECONDS_BETWEEN_LINES", 0.0)
    texts = [NewItem(str(i), None, f"a text of {i % 5}") for i in range(20)]
    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        collection.build(texts[:10])
        assert capsys.readouterr().err == ""
        collection.build(texts, verbose=True)
        assert capsys.readouterr().err.startswith("build: ")


def test_a_place_that_is_taken_or_empty(tmp_path, fakes):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(CollectionError, match="already"):
        Collection.create(tmp_path / "taken")
    with pytest.raises(CorruptCollectionError, match="not a fusehash collection"):
        Collection.open(tmp_path / "taken")
    with pytest.raises(CollectionError, match="no collection"):
        Collection.open(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    Collection.create(tmp_path / "empty").close()


def test_a_closed_collection_says_so(small):
    small.close()
    with pytest.raises(CollectionError, match="closed"):
        small.search("red")


def test_codes_of_many_items_are_read_quickly(tmp_path: Path, fakes, items):
    import time

    from fusehash.collection.store import CollectionState, write_codes

    with Collection.create(tmp_path / "c", n_bits=64) as collection:
        collection.build(items(8))
        rng = np.random.default_rng(0)
        codes = {id: rng.bytes(8) for id in range(9, 50_001)}
        with collection._items.writing() as database:
            state = CollectionState.read(database)
            write_codes(database, state, (), codes).write(database)
    started = time.process_time()
    with Collection.open(tmp_path / "c") as collection:
        seconds = time.process_time() - started
        assert collection._now().state.codes == 50_000
    assert seconds < 2  # 0.1 s on a quiet core


@pytest.mark.parametrize("address", ["postgresql://me:secret@host/codes", "milvus://host/codes"])
def test_a_server_is_for_an_index_not_for_a_collection(small, tmp_path, address):
    for call in (
        lambda: Collection.create(tmp_path / "c", engine=address),
        lambda: Collection.open(small.path, engine=address),
    ):
        with pytest.raises(ParameterError, match="HammingIndex is what works on a server") as caught:
            call()
        assert "secret" not in str(caught.value)
    assert not (tmp_path / "c").exists()
    with pytest.raises(ParameterError, match="'engine' parameter"):
        Collection.open(small.path, engine="magic")
    with Collection.open(small.path, engine="numpy") as other:
        assert other.search("a red thing", k=5) == small.search("a red thing", k=5)


def test_a_folder_that_remembers_a_server_still_opens(small):
    """Collections could once have a copy of their codes on a server."""
    before = small.search("a red thing", k=5)
    small.close()
    (small.path / "engine.json").write_text('{"engine": "postgresql://host/codes", "index": "0123abcd"}')
    (small.path / "mirror-0123abcd.db").write_bytes(b"")
    with Collection.open(small.path) as again:
        assert again.search("a red thing", k=5) == before
        again.reindex()
        assert "engine" not in again.stats()


def test_a_missing_package_is_reported_once_and_changes_nothing(small, fakes, draw, monkeypatch):
    new = [NewItem(f"new{i}", draw("red", i)) for i in range(12)]
    monkeypatch.setitem(sys.modules, "PIL", None)
    for call in (small.add, small.build):
        with pytest.raises(MissingPackageError, match="Reading images needs the package PIL"):
            call(new)
    assert len(small) == 40
    assert small.add([NewItem("words", text="a red thing")]).added == 1
