"""`fusehash index` and `fusehash search` as a user sees them: results on stdout, one line per error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from fusehash.commands import index as commands
from fusehash.commands.terminal import FusehashGroup
from fusehash.search import HammingIndex

app = typer.Typer(cls=FusehashGroup)
app.add_typer(commands.index_app, name="index")
app.command(epilog=commands.SEARCH_EXAMPLE)(commands.search)


def call(*words: object) -> Result:
    return CliRunner().invoke(
        app, [str(word) for word in words], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    )


def output(*words: object) -> Any:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
def codes(tmp_path: Path) -> Path:
    path = tmp_path / "codes.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (100, 8), dtype=np.uint8))
    return path


def test_create_add_search_remove_compact(tmp_path: Path, codes: Path) -> None:
    index = tmp_path / "codes.db"
    assert output("index", "create", index, "--bits", 64)["count"] == 0
    assert output("index", "add", index, codes) == {"added": 100, "lowest_id": 0, "highest_id": 99, "count": 100}
    ids = tmp_path / "ids.npy"
    np.save(ids, np.arange(1000, 1100))
    assert output("index", "add", index, codes, "--ids", ids)["count"] == 200
    queries = tmp_path / "queries.npy"
    np.save(queries, np.load(codes)[:3])
    first = output("search", index, queries, "-k", 2)
    assert first[0] == {"query": 0, "ids": [0, 1000], "distances": [0, 0]}
    assert output("search", index, queries, "-k", 1, "--allowed", ids)[2]["ids"] == [1002]
    assert output("search", index, queries, "--radius", 0, "--engine", "numpy")[1]["ids"] == [1, 1001]
    assert output("search", codes, queries, "-k", 1)[2]["ids"] == [2]
    assert output("index", "remove", index, 0, 1) == {"removed": 2, "count": 198}
    assert output("index", "remove", index, "--ids", ids) == {"removed": 100, "count": 98}
    assert output("index", "compact", index)["count"] == 98
    assert output("index", "stats", index)["n_bits"] == 64
    assert "98" in call("index", "stats", index).stdout
    table = call("search", index, queries, "-k", 1)
    assert table.exit_code == 0
    assert "distance" in table.stdout
    with HammingIndex.open(index, warm=False) as kept:
        assert len(kept) == 98


def test_add_creates_an_index_of_the_right_width(tmp_path: Path, codes: Path) -> None:
    output("index", "add", tmp_path / "new.db", codes)
    assert output("index", "stats", tmp_path / "new.db")["n_bits"] == 64


def test_errors_take_one_line_and_status_1(tmp_path: Path, codes: Path) -> None:
    index, text, floats = tmp_path / "codes.db", tmp_path / "text.npy", tmp_path / "floats.npy"
    output("index", "add", index, codes)
    text.write_text("hello")
    np.save(floats, np.zeros((3, 8)))
    for words in (
        ("index", "create", index),
        ("index", "create", tmp_path / "new.db", "--bits", 12),
        ("index", "add", index, tmp_path / "missing.npy"),
        ("index", "add", index, text),
        ("index", "add", tmp_path / "new.db", floats),
        ("index", "remove", index, 1000),
        ("index", "stats", tmp_path / "missing.db"),
        ("index", "stats", text),
        ("search", index, floats),
        ("search", text, codes),
        ("search", index, codes, "--engine", "magic"),
    ):
        result = call(*words)
        assert result.exit_code == 1, words
        assert not result.stdout
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        assert "Traceback" not in result.stderr
    assert not (tmp_path / "new.db").exists()
    assert output("index", "stats", index)["count"] == 100


@pytest.mark.parametrize(
    "words", [("index", "remove", "codes.db"), ("index", "fly"), ("search",), ("search", "a.db", "b.npy", "-k", "0")]
)
def test_wrong_usage_is_status_2(words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == 2


@pytest.mark.parametrize(
    "words", [("search",), *(("index", name) for name in ("create", "add", "remove", "compact", "stats"))]
)
def test_help_shows_an_example(words: tuple[str, ...]) -> None:
    help_text = " ".join(call(*words, "--help").stdout.split())
    assert f"Example: fusehash {' '.join(words)}" in help_text


def test_help_names_every_engine() -> None:
    from fusehash.search.engines import NAMES

    assert ", ".join(NAMES) == commands.ENGINES
