"""What an update does not give stays as it is stored; what it gives and cannot be used changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fusehash.collection import Collection, NewItem
from fusehash.errors import DataError


def test_a_text_alone_leaves_picture_and_labels(small):
    before, thumbnail = small.item(1), small.thumbnail(1)
    assert small.update([NewItem(before.key, text="a purple thing")]).changed == 1
    after = small.item(1)
    assert after.text == "a purple thing"
    assert (after.has_image, after.width, after.labels) == (True, before.width, before.labels)
    assert small.thumbnail(1) == thumbnail
    assert small.search("a purple thing", label="red", k=1)[0].id == 1


def test_labels_alone_and_a_picture_alone(small, draw):
    before = small.item(1)
    small.update([NewItem(before.key, labels=("new",))])
    assert (small.item(1).text, small.item(1).labels, small.item(1).has_image) == (before.text, ("new",), True)
    thumbnail = small.thumbnail(1)
    small.update([NewItem(before.key, draw("yellow", 7))])
    assert (small.item(1).text, small.item(1).labels) == (before.text, ("new",))
    assert small.thumbnail(1) != thumbnail


def test_nothing_at_all_is_no_change(small):
    report = small.update([NewItem("red0")])
    assert (report.unchanged, report.changed, report.skipped) == (1, 0, {})


def test_a_picture_that_has_changed_on_disk_stays_as_it_is_stored(tmp_path, fakes, draw):
    for number, color in enumerate(("red", "blue")):
        (tmp_path / f"{color}.png").write_bytes(draw(color, number))
        os.utime(tmp_path / f"{color}.png", (1, 1))
    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        collection.build([NewItem(color, tmp_path / f"{color}.png", f"a {color} thing") for color in ("red", "blue")])
        thumbnail = collection.thumbnail(1)
        (tmp_path / "red.png").write_bytes(draw("green", 5))
        collection.update([NewItem("red", text="other words")])
        assert collection.thumbnail(1) == thumbnail
        (tmp_path / "blue.png").unlink()
        assert collection.update([NewItem("blue", text="other words")]).changed == 1
        assert collection.item(2).has_image


@pytest.mark.parametrize("image", [b"broken", Path("/nowhere/at/all.png")])
def test_a_picture_that_cannot_be_used_changes_nothing(small, image):
    before = small.items(0, 100), small.stats(), small.thumbnail(2)
    with pytest.raises(
        DataError, match=r"'green1' cannot be used, so nothing has been changed: the image.*cannot be read"
    ):
        small.update([NewItem("red0", text="other words"), NewItem("green1", image, "other words")])
    assert (small.items(0, 100), small.stats(), small.thumbnail(2)) == before
