"""Items as the world has them: names that are not text, pipes, ids that cannot be, words without an end."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from fusehash.collection import Collection, NewItem, read_folder
from fusehash.collection.searching import Words
from fusehash.errors import DataError


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux alone")
def test_file_names_that_are_not_utf8_are_indexed_and_found_again(tmp_path, fakes, draw):
    photos = tmp_path / "photos"
    photos.mkdir()
    names = [os.fsdecode(name) for name in (b"a\xfe.png", b"a\xff.png")]
    for number, name in enumerate(names):
        (photos / name).write_bytes(draw("red", number))
        os.utime(photos / name, (1, 1))
    with Collection.create(tmp_path / os.fsdecode(b"c\xff"), n_bits=16) as collection:
        assert collection.build(read_folder(photos)).added == 2
        assert [item.key for item in collection.items()] == ["a\\udcfe.png", "a\\udcff.png"]
        assert collection.build(read_folder(photos)).unchanged == 2
        assert [entry.path for entry in collection._stored().values()] == [photos / name for name in names]


def test_a_label_that_no_text_can_have_finds_nothing(small):
    assert small.search("a red thing", label="\udcff") == []
    assert small.items(label="\udcff") == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")
def test_a_pipe_is_not_waited_for(tmp_path, fakes, draw):
    os.mkfifo(tmp_path / "pipe.png")
    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        report = collection.add([NewItem("pipe", tmp_path / "pipe.png", "a text"), NewItem("nul", "a\0b", "another")])
    assert report.added == 2
    assert "must be a file" in report.skipped["pipe"]
    assert "cannot be read" in report.skipped["nul"]


@pytest.mark.parametrize("ids", [[1.7], ["1"], [2**63], [True], np.array([1.0])])
def test_what_is_no_id_removes_nothing(small, ids):
    count = len(small)
    with pytest.raises(DataError, match="Ids must be"):
        small.remove(ids)
    assert len(small) == count


@pytest.mark.parametrize("id", [2**63, -(2**70), 1.5, "1", None])
def test_what_is_no_id_is_not_there(small, id):
    with pytest.raises(DataError, match="is not"):
        small.item(id)
    assert small.thumbnail(id) is None


def test_a_page_may_be_larger_than_any_collection(small):
    assert len(small.items(limit=2**70)) == len(small)
    assert small.items(offset=2**70) == []


@pytest.mark.parametrize("labels", ["red", 5])
def test_labels_must_be_several(small, labels):
    with pytest.raises(DataError, match="labels of 'new'"):
        small.add([NewItem("new", text="a text", labels=labels)])


def test_a_word_without_an_end_is_looked_up_at_once():
    words = Words.read([(1, "play"), (2, "z" * 100)])
    assert words.forms("playe") == ["play"]
    assert words.forms("z" * 1_000_000) == []  # takes minutes where every beginning of it is tried
