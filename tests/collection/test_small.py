"""Collections of few items, of one view, of pairs that never meet: they work or say what is missing."""

from __future__ import annotations

import pytest

from fusehash.collection import Collection, NewItem
from fusehash.errors import DataError


@pytest.fixture
def collection(tmp_path, fakes):
    with Collection.create(tmp_path / "c", n_bits=64, image_encoder="classical", text_encoder="tfidf") as made:
        yield made


def test_nothing(collection):
    report = collection.build([])
    assert report.added == 0
    assert len(collection) == 0
    assert collection.clusters() == []
    assert collection.code_stats()["codes"] == 0
    with pytest.raises(DataError, match="at least 2 items"):
        collection.search("anything")
    with pytest.raises(DataError, match="at least 2 items"):
        collection.reindex()


def test_one_item_is_kept_and_the_second_makes_it_searchable(collection, items):
    first, second = items(2)
    report = collection.build([first])
    assert report.added == 1
    assert not report.trained
    assert any("at least 2 items" in note for note in report.notes)
    assert "at least 2 items" in collection.stats()["advice"]
    with pytest.raises(DataError, match="at least 2 items"):
        collection.search("red")
    assert collection.add([second]).trained
    assert collection.search(second.text, k=1)[0].item.key == second.key
    assert len(collection.search(first.text)) == 2


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_few_items(collection, items, count):
    assert collection.build(items(count)).trained
    assert len(collection.search("a red thing")) == count
    assert len(collection.clusters()) >= 1
    assert collection.code_stats()["codes"] == count


def test_the_same_thing_twice(collection, draw):
    same = [NewItem(f"item{i}", draw("red", 1), "the same text") for i in range(3)]
    report = collection.build(same)
    assert report.added == 3
    assert not report.trained
    collection.add([NewItem("other", draw("blue", 1), "another text")])
    assert collection.search("another text", k=1)[0].item.key == "other"


def test_images_alone(collection, items):
    collection.build([NewItem(item.key, item.image) for item in items(12)])
    assert collection.search(like=1, k=3)
    with pytest.raises(DataError, match="made without texts, so it cannot be searched by text"):
        collection.search("red")
    report = collection.add([NewItem("words", None, "a red thing")])
    assert "before a reindex" in report.skipped["words"]
    assert len(collection) == 13
    assert collection.stats()["codes"] == 12


def test_texts_alone(collection, items, draw):
    collection.build([NewItem(item.key, None, item.text) for item in items(12)])
    assert collection.search("a red thing", k=1)[0].item.text.startswith("a red")
    with pytest.raises(DataError, match="made without images"):
        collection.search(image=draw("red", 1))


def test_views_that_never_meet(collection, items):
    some = items(24)
    collection.build([NewItem(i.key, i.image) if n % 2 else NewItem(i.key, None, i.text) for n, i in enumerate(some)])
    assert collection.stats()["codes"] == 24
    assert len(collection.search("a red thing", k=24)) == 24


def test_a_view_that_only_one_item_has(collection, items):
    some = [NewItem(item.key, item.image) for item in items(12)]
    some[4] = NewItem(some[4].key, some[4].image, "the only text")
    collection.build(some)
    assert len(collection.search(like=1, k=20)) == 11
