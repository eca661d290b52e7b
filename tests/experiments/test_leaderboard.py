"""docs/leaderboard.md is what the stored files make, and a row that contradicts itself is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from fusehash.errors import DataError
from fusehash.experiments.leaderboard import page, read_entries, read_results

ROOT = Path(__file__).parents[2]
ENTRIES = ROOT / "benchmarks" / "leaderboard.json"
TABLE = ROOT / "benchmarks" / "results" / "paper-table1-2026-11-15.csv"


def test_the_page_is_what_the_files_make():
    command = "run fusehash bench leaderboard benchmarks/leaderboard.json --out docs/leaderboard.md"
    assert (ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8") == page(ENTRIES), command


def test_every_contributed_number_is_supported():
    """At least five seeds, one hash for each data set, and methods in their groups."""
    results = [r for i, e in enumerate(read_entries(ENTRIES)) for r in read_results(ENTRIES.parent / e["file"], e, i)]
    assert min(len(result.values) for result in results) >= 5
    assert len({(result.dataset, result.data_hash) for result in results}) == len({r.dataset for r in results})
    groups = {result.label: result.group for result in results}
    assert (groups["FuseHash"], groups["SCM-seq"], groups["REG"]) == ("unsupervised", "supervised", "control")


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
    assert "| **Deep** |" in page(entries(folder, labels=["MyNet"], group="deep"))


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
