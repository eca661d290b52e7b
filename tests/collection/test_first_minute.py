"""What a newcomer meets first: hints that can be followed, and plain words when there is nothing to show."""

from __future__ import annotations

import re
import socket
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
    assert "--like" in made.stdout
    assert follow(made.stdout).exit_code == 0


def test_a_folder_of_which_nothing_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_text("no picture")
    made = call("index", tmp_path / "photos", "--out", tmp_path / "c")
    assert made.exit_code == 1
    assert "Next:" not in made.stdout
    assert "None of the 1 items could be used" in made.stderr
    assert "Traceback" not in made.output


def test_nothing_found_is_said(photos: Path, tmp_path: Path, fakes: Any) -> None:
    call("index", photos, "--out", tmp_path / "c", "--bits", 16)
    assert call("search", tmp_path / "c", "a red thing", "--label", "none such").stdout == "Nothing was found.\n"


def test_wrong_bits_are_told_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def work() -> None:
        raise AssertionError

    monkeypatch.setattr(demo, "learn_features", work)
    told = call("demo", "--bits", 7)
    assert told.exit_code == 1
    assert "multiple of 8. Got 7 instead." in told.stderr


def test_a_port_in_use_comes_with_a_way_out() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DataError, match="--port 0 takes a free one"):
            server.bind("127.0.0.1", taken.getsockname()[1])
