"""`fusehash index` and `fusehash search` as a user sees them: results on stdout, one line per error."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from fusehash.commands import index as commands
from fusehash.commands import search as searching
from fusehash.commands.terminal import FusehashGroup
from fusehash.search import HammingIndex

app = typer.Typer(cls=FusehashGroup)
app.add_typer(commands.index_app, name="index")
app.command(epilog=searching.EXAMPLE)(searching.search)


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


def test_vectors_and_factors_are_kept_and_searched(tmp_path: Path, codes: Path) -> None:
    rng = np.random.default_rng(1)
    vectors, factors = rng.standard_normal((100, 12)).astype(np.float32), rng.random((100, 2), np.float32)
    projections, asked = rng.standard_normal((3, 64)), rng.standard_normal((3, 12))
    files = {}
    for name, array in {"vectors": vectors, "factors": factors, "queries": projections, "asked": asked}.items():
        files[name] = tmp_path / f"{name}.npy"
        np.save(files[name], array)
    memory = HammingIndex(64, vectors="float16", dim=12, factors=True)
    memory.add(np.load(codes), vectors=vectors, factors=factors)
    path, options = tmp_path / "codes.db", ["--vectors", files["vectors"], "--factors", files["factors"]]
    assert output("index", "add", path, codes, *options, "--vector-kind", "float16")["count"] == 100
    stats = output("index", "stats", path)
    assert (stats["vectors"], stats["dim"], stats["factors"]) == ("float16", 12, True)
    searched = output("search", path, files["queries"], "-k", 4)
    assert [row["ids"] for row in searched] == memory.search(projections, 4)[1].tolist()
    stages = output("search", path, files["queries"], "-k", 4, "--rescore", files["asked"], "--candidates", 30)
    distances, ids = memory.search(projections, 4, rescore=asked, candidates=30)
    assert [row["ids"] for row in stages] == ids.tolist()
    np.testing.assert_allclose([row["distances"] for row in stages], distances)
    near = output("search", path, files["queries"], "--radius", -2.5)
    assert [row["ids"] for row in near] == [ids.tolist() for ids in parted(memory.range_search(projections, -2.5))]
    empty = tmp_path / "empty.db"
    made = output("index", "create", empty, "--bits", 64, "--vector-kind", "int8", "--dim", 12, "--factors")
    assert (made["count"], made["vectors"], made["factors"]) == (0, "int8", True)
    assert output("index", "add", empty, codes, *options)["count"] == 100
    for words, sentence in [
        (("index", "add", path, codes), "The index keeps factors: pass two numbers for each code. Got none."),
        (("index", "add", path, codes, "--factors", files["factors"]), "pass one of 12 numbers for each code"),
        (("index", "add", path, codes, *options, "--vector-kind", "int8"), "is for a new index"),
        (("index", "add", tmp_path / "x.db", codes, "--vector-kind", "int8"), "needs --vectors"),
        (("index", "add", tmp_path / "x.db", codes, "--vectors", codes), "must be a matrix of floats"),
        (("index", "create", tmp_path / "x.db", "--vector-kind", "int8"), "needs both --vector-kind and --dim"),
        (("index", "add", tmp_path / "x.db", codes, "--vector-kind", "int9"), "must be one of int8, float16, float32."),
        (("search", path, files["queries"], "--radius", 1, "--candidates", 5), "order the results of -k"),
        (("search", path, files["queries"], "--candidates", 5), "--rescore FILE names those of the queries"),
        (("search", path, files["queries"], "--radius", "-inf"), "--radius must be"),
        (("search", path, path), "must be an intact .npy file. It is something else."),
        (("index", "stats", tmp_path / "x.db"), f"There is no index at {tmp_path / 'x.db'}."),
        (("search", codes, files["queries"], "--rescore", files["asked"]), "The index must keep vectors"),
        (("search", path, files["queries"], "--rescore", files["queries"]), r"floats of shape (n, 12)"),
    ]:
        result = call(*words)
        assert result.exit_code != 0
        assert sentence in " ".join(result.stderr.split()), result.stderr
    assert not (tmp_path / "x.db").exists()
    assert output("index", "stats", path)["count"] == 100


def parted(found: Any) -> list[np.ndarray]:
    offsets, _, ids = found
    return [ids[start:stop] for start, stop in pairwise(offsets)]


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
    "words", [("index", "remove", "codes.db"), ("index", "add"), ("search",), ("search", "a.db", "b.npy", "-k", "0")]
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

    assert ", ".join(NAMES) == searching.ENGINES
