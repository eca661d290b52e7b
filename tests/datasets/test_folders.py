"""Folders, captions and lists of texts become items; nothing outside the folder is ever read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fusehash.collection import NewItem, read_folder
from fusehash.errors import DataError, FusehashWarning


def read(*paths: Path) -> dict[str, NewItem]:
    return {item.key: item for item in read_folder(*paths)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    for name in ("a.jpg", "b.PNG", "sub/c.webp", ".hidden.jpg", "notes.md"):
        (root / name).write_bytes(b"x")
    (root / "a.txt").write_text("  text of a\n")
    return root


def test_images_with_texts_beside_them(folder):
    found = read(folder)
    assert list(found) == ["a.jpg", "b.PNG", "sub/c.webp"]
    assert found["a.jpg"] == NewItem("a.jpg", folder / "a.jpg", "text of a")
    assert found["b.PNG"].text is None


def test_a_captions_table(folder):
    table = folder.parent / "captions.csv"
    table.write_text('image,caption,labels\na.jpg,"one, two",x;y; x\nsub/c.webp,three,\na.jpg,four,z\n,alone,\n')
    found = read(folder, table)
    assert found["a.jpg"].text == "one, two\nfour"
    assert found["a.jpg"].labels == ("x", "y", "z")
    assert found["sub/c.webp"].labels == ()
    assert found["b.PNG"].text is None  # not captioned, still there
    (alone,) = (item for item in found.values() if item.image is None)
    assert alone.text == "alone"
    assert len(found) == 4


def test_captions_inside_the_folder_are_found_and_may_name_images_below_it(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(b"x")
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,hello\n")
    found = read(tmp_path)
    assert list(found) == ["images/a.jpg"]
    assert found["images/a.jpg"].text == "hello"


def test_json_lines(folder):
    table = folder.parent / "captions.jsonl"
    rows = [{"image": "a.jpg", "text": "é", "labels": ["x"]}, {"id": 7, "text": "only text"}]
    table.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    found = read(folder, table)
    assert found["a.jpg"].text == "é"
    assert found["7"] == NewItem("7", None, "only text")


def test_texts_without_images(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("\ufefftext,labels\nfirst,a\nsecond,\nfirst,b\n", encoding="utf-8")
    found = list(read(table).values())
    assert [item.text for item in found] == ["first", "second"]
    assert found[0].labels == ("a", "b")
    assert all(item.image is None for item in found)
    again = read(table)
    assert list(again) == [item.key for item in found]


def test_one_image(folder):
    assert list(read_folder(folder / "a.jpg")) == [NewItem("a.jpg", folder / "a.jpg", "text of a")]


def test_a_missing_image_is_left_to_the_report(folder):
    table = folder.parent / "captions.csv"
    table.write_text("image,caption\nmissing.jpg,words\n")
    assert read(folder, table)["missing.jpg"].text == "words"


@pytest.mark.parametrize("name", ["../secret.jpg", "/etc/passwd", "sub/../../secret.jpg", "a\\..\\b.jpg", "a\0.jpg"])
def test_names_that_leave_the_folder_are_refused(folder, name):
    (folder.parent / "secret.jpg").write_bytes(b"x")
    table = folder.parent / "captions.jsonl"
    table.write_text(json.dumps({"image": name, "text": "t"}))
    with pytest.raises(DataError, match=r"captions.jsonl, line 1"):
        read(folder, table)


def test_links_that_leave_the_folder_are_refused(folder):
    secret = folder.parent / "secret.jpg"
    secret.write_bytes(b"x")
    (folder / "link.jpg").symlink_to(secret)
    (folder / "inner.jpg").symlink_to(folder / "a.jpg")
    (folder / "b.txt").symlink_to(folder.parent / "captions.csv")
    table = folder.parent / "captions.csv"
    table.write_text("image,caption\nlink.jpg,t\n")
    with pytest.raises(DataError, match="leads out of it"):
        read(folder, table)
    with pytest.warns(FusehashWarning, match="leads out of the folder"):
        found = read(folder)
    assert "link.jpg" not in found
    assert "inner.jpg" in found
    assert found["b.PNG"].text is None


def test_a_linked_folder_is_not_walked(folder):
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "z.jpg").write_bytes(b"x")
    (folder / "door").symlink_to(outside, target_is_directory=True)
    assert list(read(folder)) == ["a.jpg", "b.PNG", "sub/c.webp"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("captions.csv", b"foo,bar\n1,2\n"),
        ("captions.csv", b""),
        ("captions.csv", b"image,caption\n\xff\xfe\n"),
        ("captions.csv", b"image,caption\na.jpg," + b"x" * (1 << 21)),
        ("captions.jsonl", b"{not json"),
        ("captions.jsonl", b"[1]"),
        ("captions.jsonl", b'{"image": ["a"]}'),
        ("captions.jsonl", b'{"text": "t", "labels": 3}'),
        ("captions.xlsx", b"x"),
    ],
)
def test_captions_that_cannot_be_used_take_one_sentence(folder, name, content):
    table = folder.parent / name
    table.write_bytes(content)
    with pytest.raises(DataError, match=r"captions|labels|image"):
        read(folder, table)


def test_what_is_not_there(tmp_path):
    for paths in ((tmp_path / "no",), (tmp_path, tmp_path / "no.csv")):
        with pytest.raises(DataError, match="There is no"):
            read(*paths)


def test_captions_in_another_encoding_are_told(folder):
    (folder / "captions.csv").write_bytes("image,caption\na.jpg,ein schöner Tag\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"captions\.csv must be UTF-8 text\. It is in another encoding"):
        read(folder)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('image,caption\na.jpg,"never closed\nb.PNG,two\n', "After line 1 it is not: unexpected end"),
        ("image,caption\na.jpg,a dog, a cat\n", "at most 2 fields.*captions.csv, line 2"),
    ],
)
def test_a_table_that_would_lose_text_is_refused(folder, content, told):
    (folder / "captions.csv").write_text(content)
    with pytest.raises(DataError, match=told):
        read(folder)


def test_empty_fields_and_a_column_without_a_name_do_no_harm(folder):
    (folder / "captions.csv").write_text(",image,caption\n0,a.jpg,one,,\n1,b.PNG,two\n")
    assert [item.text for item in read(folder).values()] == ["one", "two", None]


@pytest.mark.parametrize("content", ['{"text": "a", "id": ' + "1" * 5000 + "}", "[" * 100_000, '{"image": "\\ud800"}'])
def test_json_that_python_cannot_take_is_told_with_its_line(folder, content):
    (folder / "captions.jsonl").write_text('{"text": "fine"}\n' + content)
    with pytest.raises(DataError, match=r"captions.jsonl, line 2"):
        read(folder)


def test_half_a_character_in_a_text_and_a_name_too_long_for_a_file_are_left_to_the_report(folder):
    rows = [{"text": "\ud800 half"}, {"image": "x" * 400, "text": "long"}]
    (folder / "captions.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    assert [item.text for item in read(folder).values()][:2] == ["\ud800 half", "long"]


def test_a_link_to_itself_is_left_to_the_report(folder):
    (folder / "loop.jpg").symlink_to("loop.jpg")
    assert "loop.jpg" in read(folder)


def test_a_folder_that_cannot_be_read_is_not_taken_for_empty(folder, monkeypatch):
    scan = os.scandir

    def refusing(path):
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(DataError, match=r"sub cannot be read: Permission denied"):
        read(folder)
