"""docs/leaderboard.md is what the stored files make, and a row that contradicts itself is refused."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from fusehash.errors import DataError
from fusehash.experiments import leaderboard
from fusehash.experiments.leaderboard import GROUPS, page, read, read_entries
from fusehash.experiments.spec import load_spec
from fusehash.hashers.catalogue import KINDS, METHODS

ROOT = Path(__file__).parents[2]
ENTRIES = ROOT / "benchmarks" / "leaderboard.json"
TABLE = ROOT / "benchmarks" / "results" / "paper-table1-2026-11-19.csv"


def test_the_page_is_what_the_files_make():
    command = "run fusehash bench leaderboard benchmarks/leaderboard.json --out docs/leaderboard.md"
    assert (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8") == page(ENTRIES), command


def test_every_contributed_number_is_supported():
    """At least five seeds, one hash for each data set, and methods in their groups."""
    results = [r for i, e in enumerate(read_entries(ENTRIES)) for r in read(ENTRIES.parent / e["file"], e, i)]
    assert min(len(result.values) for result in results) >= 5
    assert len({(result.dataset, result.data_hash) for result in results}) == len({r.dataset for r in results})
    groups = {result.label: result.group for result in results}
    assert (groups["FuseHash"], groups["SCM-seq"], groups["REG"]) == ("unsupervised", "supervised", "control")
    assert groups["RaBitQ"] == "quantizer"
    marks = {result.label: result.marks for result in results}
    assert marks["PDH"] == ("reconstructed",)
    assert marks["CMFH"] == ()


def test_every_number_of_the_files_is_on_the_page():
    """No group is left out: as many numbers in tables and in cards as the files have."""
    results = [r for i, e in enumerate(read_entries(ENTRIES)) for r in read(ENTRIES.parent / e["file"], e, i)]
    lines = page(ENTRIES).splitlines()
    rows = [line.split(" | ")[1:-2] for line in lines if line.startswith("| ") and " ± " in line]
    assert sum(" ± " in cell for row in rows for cell in row) == len(results)
    runs = {(*result.board, result.protocol, result.name, result.bits) for result in results}
    assert sum("`fusehash bench run " in line for line in lines if line.startswith("| ")) == len(runs)


def test_every_kind_of_method_has_a_section():
    assert {*KINDS, "deep"} == set(GROUPS)
    kinds = {leaderboard._group(name, {}) for name in METHODS}
    assert kinds == set(GROUPS)
    assert leaderboard._group("dcmh", {}) == "deep"
    assert leaderboard._marks("dcmh", "deep") == ("labels",)


def test_an_unknown_kind_is_refused_and_not_left_out(folder, monkeypatch):
    monkeypatch.setattr(leaderboard, "kind_of_method", lambda method: "oracle")
    with pytest.raises(DataError, match=r"must be one of unsupervised.* It is 'oracle'"):
        page(entries(folder))


def test_the_commands_of_cards_can_be_given():
    """Each narrows its specification to one line and one length."""
    commands = {part for line in page(ENTRIES).splitlines() for part in line.split("`") if " --only " in part}
    assert len(commands) > 100
    for command in commands:
        words = shlex.split(command)
        spec, given = words[3], dict(zip(words[4::2], words[5::2], strict=True))
        narrowed = load_spec(spec).narrowed([given["--only"]], [int(given["--bits"])], None)
        assert [line.label for line in narrowed.lines] == [given["--only"]], command
        assert narrowed.bits == (int(given["--bits"]),), command


def test_a_cell_is_the_mean_and_spread_of_its_values():
    with TABLE.open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if (row["label"], row["protocol"]) == ("FuseHash", "HN"))
    values = np.array([float(value) for value in row["values"].split()])
    text = f"{values.mean():.4f} ± {values.std(ddof=1):.3f}".replace("0.", ".")
    lines = page(ENTRIES).partition("### wiki, protocol HN")[2].splitlines()
    assert text in next(line for line in lines if line.startswith("| FuseHash |"))


@pytest.fixture
def folder(tmp_path):
    """A list of one entry and its file."""
    (tmp_path / "mine.csv").write_text(TABLE.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def entries(folder, *more, **changes):
    entry = {"file": "mine.csv", "command": "fusehash bench run paper/table1", "by": "me", **changes}
    path = folder / "list.json"
    path.write_text(json.dumps([{k: v for k, v in entry.items() if v is not None}, *more]), encoding="utf-8")
    return path


def rewritten(folder, **changes):
    """The file with another first row."""
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    rows[0] |= changes
    with (folder / "mine.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_a_contributed_row_is_in_the_table(folder):
    rewritten(folder, label="MyNet", method="codes/MyNet")
    text = page(entries(folder, labels=["MyNet", "REG"], group=None))
    assert "| MyNet | .2505 ± .008 |" in text
    assert "FuseHash" not in text
    assert "**Deep**" in page(entries(folder, labels=["MyNet"], group="deep"))
    rewritten(folder, label="MyNet", method="my_package:MyNet")  # a class that is not installed here
    assert "| MyNet | .2505 ± .008 |" in page(entries(folder, labels=["MyNet"], group="deep"))
    rewritten(folder, label="MyNet", method="labelled-codes/MyNet")
    assert "| MyNet (labels) | .2505 ± .008 |" in page(entries(folder, labels=["MyNet"], group="deep"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mean": "0.3"}, "line 2: the mean of its values is 0.250"),
        ({"seeds": "0 1 2 3 3"}, "5 values and the seeds"),
        ({"values": "1.5 1.5 1.5 1.5 1.5", "mean": "1.5"}, "from 0 to 1"),
        ({"values": "a b"}, "could not convert"),
        ({"stand_in": "1"}, "real data"),
        ({"data_hash": ""}, "real data"),
        ({"protocol": "X"}, "known protocol"),
        ({"bits": "12"}, "multiple of 8"),
        ({"label": "a|b"}, "plain text"),
        ({"params": "{"}, "line 2: its field params must be a JSON document"),
        ({"params": "[" * 9999}, "must be a JSON document"),
        ({"method": "magic"}, "must name the group of 'magic'"),
    ],
    ids=str,
)
def test_a_row_that_contradicts_itself_is_refused(folder, changes, words):
    rewritten(folder, **changes)
    with pytest.raises(DataError, match=words):
        page(entries(folder))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"by": None}, "There is no 'by'"),
        ({"extra": 1}, "Got 'extra'"),
        ({"group": "best"}, "must be one of unsupervised"),
        ({"file": "../mine.csv"}, "below the folder"),
        ({"file": "none.csv"}, "could not be read"),
        ({"labels": ["Nobody"]}, "none with the labels"),
    ],
    ids=str,
)
def test_wrong_entries_are_one_sentence(folder, changes, words):
    with pytest.raises(DataError, match=words):
        page(entries(folder, **changes))


def test_a_result_is_in_one_file(folder):
    path = entries(folder)
    path.write_text(json.dumps(json.loads(path.read_text()) * 2))
    with pytest.raises(DataError, match="must be in one file"):
        page(path)


def test_files_of_another_kind_are_one_sentence(folder):
    (folder / "mine.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="columns of bench report"):
        page(entries(folder))
    (folder / "list.json").write_text("{}")
    with pytest.raises(DataError, match="a list of entries"):
        page(folder / "list.json")


def test_runs_of_embeddings_are_checked(folder):
    """Recall between 0 and 1, one value per seed; a point with few seeds is not finished."""
    runs = [
        {
            "key": str(seed), "set": "clip", "label": "RaBitQ", "method": "rabitq", "params": {}, "n_bits": 64,
            "seed": seed, "fit_seconds": 1.0,
            "scores": {"floats": [{"query_view": "image", "item_view": "text", "recall": 0.5 + seed / 100,
                                   "n_queries": 10, "n_items": 20}]},
        }
        for seed in range(5)
    ]  # fmt: skip
    path = entries(folder, file="mine.jsonl", command="make it")

    def write(rows):
        (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    text = page(write(runs))
    assert "**Quantizers of embeddings**" in text
    assert "| RaBitQ | .5200 ± .016 |" in text
    with pytest.raises(DataError, match="must have results"):
        page(write(runs[:4]))
    with pytest.raises(DataError, match="one value for each seed"):
        page(write([*runs, runs[0]]))
    with pytest.raises(DataError, match="must be runs of embeddings"):
        page(write([{**run, "scores": {}} for run in runs]))
