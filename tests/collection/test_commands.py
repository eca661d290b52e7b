"""`fusehash index PHOTOS` and `fusehash search COLLECTION` as a user meets them."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from fusehash.cli import app


def call(*words: object) -> Result:
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    )


def answer(*words: object) -> Any:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def wrong(*words: object) -> str:
    """Exit 1, one line on stderr, nothing on stdout."""
    result = call(*words)
    assert result.exit_code == 1, (words, result.output)
    assert not result.stdout
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.fixture
def made(photos: Path, tmp_path: Path, fakes: Any) -> Path:
    assert answer("index", photos, "--out", tmp_path / "my.collection", "--bits", 16)["added"] == 24
    return tmp_path / "my.collection"


def test_from_a_folder_to_results(made, photos):
    found = answer("search", made, "a red thing", "-k", 3)
    assert len(found) == 3
    assert all("red" in hit["text"] for hit in found)
    ranked = {"id", "distance", "score", "confidence", "matched", "same_image"}
    assert set(found[0]) == ranked | {"key", "path", "text", "labels", "day"}
    assert Path(found[0]["path"]).parent == photos
    assert answer("search", made, "--image", photos / "blue2.png", "-k", 1)[0]["text"].startswith("a blue")
    assert len(answer("search", made, "--like", 1, "-k", 5)) == 5
    plain = answer("search", made, "a red thing", "-k", 24, "--no-rerank")
    assert [hit["distance"] for hit in plain] == sorted(hit["distance"] for hit in plain)


def test_results_are_drawn_where_a_terminal_can_show_them(made, monkeypatch):
    from fusehash.commands import hits as commands
    from fusehash.console import DataConsole

    look = {"force_terminal": True, "color_system": "truecolor", "no_color": False, "width": 100}
    console = DataConsole(file=io.StringIO(), **look)
    monkeypatch.setattr(commands, "stdout", lambda: console)
    assert call("search", made, "a red thing", "-k", 3, "--pictures").exit_code == 0
    assert console.file.getvalue().count("▀") > 3 * 16
    plain = call("search", made, "a red thing", "-k", 3).stdout
    monkeypatch.setattr(commands, "stdout", lambda: DataConsole(file=io.StringIO(), force_terminal=False))
    assert call("search", made, "a red thing", "-k", 3, "--pictures").stdout == plain
    assert len(answer("search", made, "a red thing", "-k", 3, "--pictures")) == 3


def test_tables_and_words(made, photos):
    table = call("search", made, "a red thing", "-k", 2)
    assert table.exit_code == 0
    for word in ("id", "score", "distance", "key", "caption", "a red thing", ".png"):
        assert word in table.stdout
    assert f"{answer('search', made, 'a red thing', '-k', 1)[0]['score']:.3f}" in table.stdout  # what orders them
    again = call("index", photos, "--out", made)
    assert "unchanged 24" in again.stdout
    assert "Next: fusehash search" in again.stdout
    assert "24" in call("index", "stats", made).stdout


def test_options_may_come_first(photos, tmp_path, fakes):
    assert answer("index", "--out", tmp_path / "c", photos)["added"] == 24
    assert answer("index", "build", photos, "--out", tmp_path / "c")["unchanged"] == 24


def test_captions_labels_add_update_remove_reindex(photos, tmp_path, fakes, draw):
    table = tmp_path / "captions.csv"
    rows = [f"{path.name},a {path.stem} picture,{path.stem[:3]}" for path in sorted(photos.glob("*.png"))]
    table.write_text("\n".join(["image,caption,labels", *rows]))
    out = tmp_path / "c"
    assert answer("index", photos, "--captions", table, "--out", out)["trained"]
    assert {label for hit in answer("search", out, "red0", "--label", "red") for label in hit["labels"]} == {"red"}
    one = tmp_path / "one.png"
    one.write_bytes(draw("red", 90))
    report = answer("index", "add", out, one, "--text", "one more", "--label", "x", "--label", "y")
    assert report["added"] == 1
    (id,) = report["ids"]
    (hit,) = answer("search", out, "one more", "--label", "x")
    assert (hit["id"], hit["labels"]) == (id, ["x", "y"])
    assert answer("index", "update", out, one, "--text", "other words")["changed"] == 1
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"id": "t1", "text": "only text"}\n')
    assert answer("index", "add", out, texts)["added"] == 1
    assert answer("index", "remove", out, id)["removed"] == 1
    gone = tmp_path / "gone.npy"
    np.save(gone, np.array([1, 2]))
    assert answer("index", "remove", out, "--ids", gone)["removed"] == 2
    assert answer("index", "reindex", out)["trained"]
    assert answer("index", "stats", out)["items"] == 23


def test_captions_that_are_not_given_again_are_missed(made, photos, tmp_path, fakes):
    for path in photos.glob("*.txt"):
        path.rename(tmp_path / path.name)
    table = tmp_path / "captions.csv"
    table.write_text("\n".join(["image,caption", *(f"{path.name},a {path.stem}" for path in photos.glob("*.png"))]))
    kept = call("index", photos, "--captions", table, "--out", made)
    assert (kept.exit_code, "gone" in kept.stderr) == (0, False)
    bare = call("index", photos, "--out", made)
    assert "warning: 24 captions are gone." in bare.stderr
    assert answer("index", "stats", made)["texts"] == 0
    assert "gone" not in call("index", photos, "--out", made).stderr  # said once


def test_facts_are_words(made):
    shown = [line.strip("│ ").split("│") for line in call("index", "stats", made).stdout.splitlines() if "│" in line]
    facts = {name.strip(): value.strip() for name, value in shown}
    assert (facts["trained"], facts["reindex recommended"]) == ("yes", "no")
    assert all(facts.values())


def test_a_table_that_lies_elsewhere_changes_captions_alone(made, tmp_path):
    before = {hit["key"]: hit["labels"] for hit in answer("search", made, "a red thing", "-k", 24)}
    (tmp_path / "elsewhere").mkdir()
    table = tmp_path / "elsewhere" / "better.csv"
    table.write_text("image,caption\nred0.png,a purple cow\ngreen1.png,a purple sheep\n")
    result = call("index", "update", made, table)
    assert result.exit_code == 0
    assert "changed 2" in result.stdout
    assert result.stderr == (
        "fusehash: warning: 2 of 2 pictures are named but missing; those in the collection stay.\n"
    )
    stats = answer("index", "stats", made)
    assert (stats["images"], stats["broken_images"]) == (24, 0)
    found = answer("search", made, "a purple cow", "-k", 24)
    assert (found[0]["key"], found[0]["text"]) == ("red0.png", "a purple cow")
    assert {hit["key"]: hit["labels"] for hit in found} == before


def test_broken_pictures_are_reported_on_stderr(photos, tmp_path, fakes):
    for i in range(12):
        (photos / f"broken{i:02}.jpg").write_bytes(b"x")
    result = call("index", photos, "--out", tmp_path / "c")
    assert result.exit_code == 0
    assert "broken00.jpg: the image cannot be read." in result.stderr
    assert "and 2 more like these" in result.stderr
    assert "Added 24" in result.stdout


def test_what_is_wrong_takes_one_line_and_status_1(made, photos, tmp_path):
    outside = tmp_path / "bad.csv"
    outside.write_text("image,caption\n../x.jpg,t\n")
    (tmp_path / "nothing").mkdir()
    (tmp_path / "file").touch()
    codes = tmp_path / "codes.npy"
    np.save(codes, np.zeros((2, 4), dtype=np.uint8))
    (tmp_path / "head.csv").write_text("image,caption\n")
    (tmp_path / "half.png").write_bytes((photos / "red0.png").read_bytes()[:60])
    assert "nothing" in wrong("index", tmp_path / "missing", "--out", tmp_path / "c")
    assert "has none" in wrong("index", tmp_path / "nothing", "--out", tmp_path / "c")
    assert "be in it" in wrong("index", photos, "--captions", outside, "--out", tmp_path / "c")
    assert "already" in wrong("index", "create", made)
    assert "which stays" in wrong("index", photos, "--out", made, "--bits", 32)
    assert "not a fusehash collection" in wrong("index", photos, "--out", photos)
    wrong("index", photos, "--out", tmp_path / "file")
    assert f"{tmp_path / 'none'} does not exist" in wrong("index", photos, "--out", tmp_path / "none" / "c")
    assert f"{tmp_path / 'file'} is a file" in wrong("index", photos, "--out", tmp_path / "file" / "c")
    assert "none does not exist" in wrong("index", "create", tmp_path / "none" / "x.db")
    assert "none does not exist" in wrong("index", "add", tmp_path / "none" / "x.db", codes)
    wrong("index", photos, "--out", tmp_path / "c", "--bits", 12)
    wrong("index", photos, "--out", tmp_path / "c", "--image-encoder", "magic")
    assert "no collection" in wrong("search", tmp_path / "missing", "words")
    assert "not a fusehash collection" in wrong("search", photos, "words")
    assert "Id 999" in wrong("search", made, "--like", 999)
    wrong("search", made, "--image", tmp_path / "missing.jpg")
    wrong("index", "remove", made, 999)
    assert "an update changes it" in wrong("index", "add", made, photos)
    assert "must be added first" in wrong("index", "update", made, tmp_path / "half.png", "--text", "words")
    assert "pictures or texts to add" in wrong("index", "add", made, tmp_path / "nothing")
    assert "pictures or texts to update" in wrong("index", "update", made, tmp_path / "head.csv")
    assert "half.png could not be used: the image cannot be read" in wrong("index", "add", made, tmp_path / "half.png")
    assert "no collection at" in wrong("index", "add", tmp_path / "missing", photos)
    assert "that is a file" in wrong("index", "add", tmp_path / "file", photos)
    assert "file" in wrong("search", tmp_path / "file", "words")
    assert "There is no file 'words'" in wrong("search", codes, "words")
    assert not (tmp_path / "c").exists()
    assert answer("index", "stats", made)["items"] == 24


def test_without_out_the_collection_is_named_after_the_folder_and_the_command_says_so(
    photos, fakes, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    first = call("index", photos, "--bits", 16)
    assert first.exit_code == 0, first.output
    assert "The collection is the folder photos.collection. Next: fusehash search photos.collection" in first.stdout
    assert answer("index", "stats", "photos.collection")["items"] == 24
    other = shutil.copytree(photos, tmp_path / "elsewhere" / "photos")
    (other / "red0.png").unlink()
    refused = call("index", other)
    assert refused.exit_code == 1
    assert "Name this one or another one with --out." in " ".join(refused.stderr.split())
    assert answer("index", "stats", "photos.collection")["items"] == 24  # pictures of a namesake take no one's place
    assert answer("index", other, "--out", "photos.collection")["removed"] == 1  # if you say so
    monkeypatch.chdir(photos)  # inside, the collection is no part of what is indexed
    for _ in range(2):
        assert call("index", ".", "--bits", 16).exit_code == 0
    assert answer("index", "stats", "photos.collection")["items"] == 24


def test_files_that_are_no_pictures_are_counted(photos, fakes, tmp_path):
    for name in ("a.mp4", "b.MP4", "notes.txt", "LICENSE", ".hidden"):
        (photos / name).write_text("x")
    report = call("index", photos, "--out", tmp_path / "c", "--json")
    assert json.loads(report.stdout)["added"] == 24
    assert "4 files in" in report.stderr
    assert "neither a picture nor a caption and left out: 2 .mp4, 1 .txt, 1 no ending." in " ".join(
        report.stderr.split()
    ).replace("1 no ending, 1 .txt", "1 .txt, 1 no ending")


def test_other_settings_of_a_collection_are_named_as_options(made, photos):
    assert "has --bits 16, which stays" in wrong("index", photos, "--out", made, "--bits", 32)
    result = call("index", "reindex", made, "--bits", 32, "--seed", 1)
    assert result.exit_code == 2
    assert "'--bits' / '--seed': needs --keep-current" in " ".join(result.stderr.split())


def test_a_table_fits_into_a_narrow_terminal(made, photos, monkeypatch):
    monkeypatch.chdir(photos.parent)
    words = ["search", str(made), "a red thing", "-k", "3"]
    lines = CliRunner().invoke(app, words, env={"COLUMNS": "70"}).stdout.splitlines()
    assert len(lines) == 3 + 3 + 1  # nothing is folded
    assert f"{photos.name}/" in lines[3]
    assert str(photos) not in lines[3]


def test_wrong_usage_is_status_2(made, photos):
    for words in (
        ("search", made),
        ("search", made, "--min-confidence", 2, "a"),
        ("search", made, "a", "--radius", 1),
        ("index", "add", made, photos, "--text", "t"),
        ("index", "add", made, photos, "--ids", "x.npy"),
        ("index", "remove", made),
        ("index", "reindex"),
        ("index", photos, "--nonsense"),
    ):
        assert call(*words).exit_code == 2, words


@pytest.mark.parametrize(
    "words", [("index",), ("index", "build"), ("index", "add"), ("index", "update"), ("index", "reindex"), ("search",)]
)
def test_help_shows_an_example(words):
    help_text = " ".join(call(*words, "--help").stdout.split())
    assert f"Example: fusehash {words[0]}" in help_text
    assert ".collection" in help_text


def test_generations_from_the_command_line(made):
    assert [generation["current"] for generation in answer("index", "generations", made)] == [True]
    built = call("index", "reindex", made, "--keep-current", "--bits", 32, "--no-measure")
    assert built.exit_code == 0
    assert f"Next: fusehash index switch {made}" in built.stdout
    assert answer("index", "stats", made)["n_bits"] == 16
    assert answer("index", "switch", made)["generation"] == 2
    assert answer("index", "stats", made)["n_bits"] == 32
    table = call("index", "generations", made)
    for word in ("number", "16", "32", "classical", "tfidf", "pair AUC"):
        assert word in table.stdout
    assert "Generation 1 is" in call("index", "switch", made, "--back").stdout
    assert answer("index", "reindex", made, "--keep-current", "--no-measure", "--seed", 3)["generation"] == 3
    assert "2, 3" in wrong("index", "switch", made, "--to", 7)
    assert "is current" in wrong("index", "generations", made, "--drop", 1)
    assert [generation["number"] for generation in answer("index", "generations", made, "--drop", 2)] == [1, 3]
    assert answer("index", "switch", made, "--to", 3)["generation"] == 3
    assert call("index", "switch", made, "--to", 1, "--back").exit_code == 2
    assert call("index", "reindex", made, "--bits", 32).exit_code == 2
    assert answer("index", "reindex", made)["trained"]


def test_pictures_without_pillow_take_one_line_and_leave_nothing(photos, tmp_path, fakes, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert "needs the package PIL" in wrong("index", photos, "--out", tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_server_is_no_engine_of_a_collection(made):
    message = wrong("search", made, "red", "--engine", "postgresql://user:secret@host/codes")
    assert "a collection is a folder, and HammingIndex is what works on a server" in message
    assert "secret" not in message
