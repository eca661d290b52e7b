"""Captions, keys, labels and paths with control characters or markup: the terminal shows them and obeys none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.table import Table
from typer.testing import CliRunner

from fusehash.cli import app
from fusehash.collection import Collection, NewItem
from fusehash.commands import terminal

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202egnp.exe \x08\x7f [bold red]x[/] [/nothing] \\"
CONTROLS = ("\x1b", "\x07", "\x9b", "\r", "\u202e", "\x08", "\x7f")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("[bold]hostile\x1b[2J") / "x\x1b[31m.collection"
    texts = ["a red house", "a blue lake", f"a red boat {HOSTILE}", "the blue sea"]
    with Collection.create(path, n_bits=16, image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build([NewItem(f"{i}{HOSTILE}", None, text, (HOSTILE,)) for i, text in enumerate(texts)])
    return path


@pytest.mark.parametrize("words", [("search", "FOLDER", "red"), ("index", "stats", "FOLDER")], ids=["search", "stats"])
@pytest.mark.parametrize("as_json", [False, True], ids=["table", "json"])
def test_what_a_collection_holds_is_shown_and_not_obeyed(
    folder: Path, words: tuple[str, ...], as_json: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    kept: list[str] = []
    command = [str(folder) if word == "FOLDER" else word for word in words]
    shown = CliRunner().invoke(app, [*command, *(["--json"] if as_json else [])])
    assert shown.exit_code == 0, shown.output
    assert not [control for control in CONTROLS if control in shown.output]
    assert "[bold]hostile" in shown.output or "[bold red]x[/]" in shown.output
    if as_json:
        json.loads(shown.output, object_hook=lambda content: kept.extend(map(str, content.values())))
        assert "\x1b" in "".join(kept)  # programs get it whole


def test_errors_and_reports_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    missing = tmp_path / "[bold]\x1b[2J.collection"
    for words in (("search", missing, "red"), ("index", "stats", missing), ("serve", missing)):
        shown = CliRunner().invoke(app, [str(word) for word in words])
        assert shown.exit_code == 1
        assert "[bold]\\x1b[2J" in shown.output
        assert "\x1b" not in shown.output


def test_every_table_goes_through_the_same_door(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("column")
    table.add_row("\x1b[2J")
    terminal.stdout().print(table)
    terminal.say(HOSTILE)
    terminal.complain(HOSTILE)
    with terminal.progress(HOSTILE) as report:
        report(1, 2, HOSTILE)
    shown = "".join(capsys.readouterr())
    assert not [control for control in CONTROLS if control in shown]
    assert "\\x1b[2J" in shown


def test_ordinary_text_stays_as_it_is() -> None:
    text = "Zürich, Ελλάδα, 日本, עברית, 👩‍👩‍👧 \t[a] \\ \n"
    assert terminal.printable(text) == text
