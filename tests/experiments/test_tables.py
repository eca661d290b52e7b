"""Tables: means, spreads, printed values and marks, in the terminal, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fusehash.experiments import significance, tables
from fusehash.experiments.metrics import collect
from fusehash.experiments.tables import Cell, map_table, published


@pytest.fixture
def made(make):
    return make(sections=["map", "times"])


@pytest.fixture
def results(made):
    return collect(made.spec, made.store)[0]


def cell(table, direction, label, bits):
    block = next(block for block in table.blocks if block.direction == direction)
    row = next(row for row in block.rows if row.label == label)
    return row.cells[table.bits.index(bits)]


# -- what is in them -------------------------------------------------------------------------------------------------


def test_a_cell_is_mean_and_spread_over_seeds(results):
    found = cell(map_table(results, "U"), "image → text", "REG", 32)
    score = results.score(results.spec.lines[3], 32, "U", ("image", "text"))
    assert found.values == pytest.approx([row.mean() for row in score.per_query])
    assert found.mean == pytest.approx(score.mean)
    assert found.std == pytest.approx(score.std)
    assert math.isnan(Cell((0.5,)).std)
    assert math.isnan(Cell().mean)


def test_printed_values_stand_beside_ours_where_they_can_be_compared(results):
    for protocol in ("U", "H"):
        table = map_table(results, protocol)
        assert cell(table, "image → text", "AGSFH", 16).printed == 0.2548
        assert cell(table, "text → image", "<b>A&B_1$</b>", 32).printed == 0.4359
        assert cell(table, "image → text", "FuseHash", 16).printed is None
        only = [row.label for row in table.blocks[0].rows if row.series is None]
        assert only == ["CSGH", "BGDH", "RFDH", "JIMFH"]  # what no line stands for
        assert cell(table, "text → image", "CSGH", 32).printed == published(1).value("CSGH", 32, "text->image")
    for protocol in ("HN", "FN"):
        assert not map_table(results, protocol).has_printed


def test_marks_are_those_of_the_test_over_each_column(results):
    table = map_table(results, "U")
    lines = results.spec.lines
    for bits in table.bits:
        scores = {one.label: results.score(one, bits, "U", ("image", "text")).per_query for one in lines}
        expected = significance.marks(scores)
        assert {one.label: cell(table, "image → text", one.label, bits).mark for one in lines} == expected
    assert cell(table, "image → text", "FuseHash", 32).mark == "best"  # made much better than the rest


def test_missing_seeds_are_told_and_their_column_has_no_marks(make):
    made = make(skip=lambda entry: (entry.series.label, entry.settings.n_bits, entry.settings.seed) == ("REG", 16, 2))
    table = map_table(collect(made.spec, made.store)[0], "U")
    found = cell(table, "image → text", "REG", 16)
    assert found.partial
    assert (len(found.values), found.n_seeds) == (2, 3)
    assert {row.cells[0].mark for row in table.rows()} == {""}
    assert "best" in {row.cells[1].mark for row in table.rows()}
    assert table.partial


def test_times_are_tables_too(make):
    made = make(sections=["times"], paper=None)
    [results] = collect(made.spec, made.store)
    fit, encode = tables.fit_table(results), tables.encode_table(results)
    assert fit.blocks[0].rows[0].cells[0].mean == 2.0
    assert [block.direction for block in encode.blocks] == ["image → text", "text → image"]
    assert cell(encode, "image → text", "REG", 16).mean == pytest.approx(0.002)
    assert cell(encode, "text → image", "REG", 16).mean == pytest.approx(0.001)
    assert not fit.has_printed


def test_printed_times_are_found_for_their_data_set(make):
    made = make(sections=["times"])
    [results] = collect(made.spec, made.store)
    requested = replace(results.requested, name="mirflickr25k")
    four = replace(results, spec=replace(results.spec, paper=4), requested=requested)
    five = replace(results, spec=replace(results.spec, paper=5), requested=requested)
    assert cell(tables.fit_table(four), "", "AGSFH", 16).printed == 79.2261
    assert cell(tables.encode_table(five), "text → image", "AGSFH", 32).printed == 0.2224
    assert not tables.encode_table(four).has_printed
    assert not tables.map_table(four, "U").has_printed


@pytest.mark.parametrize(
    ("value", "expected"), [(1234.5, "1234"), (12.345, "12.3"), (0.5, "0.500"), (0.00012, "1.2e-04"), (None, "–")]
)
def test_seconds_have_three_digits(results, value, expected):
    table = replace(map_table(results, "U"), digits=3)
    assert table.text(value) == expected
    assert map_table(results, "U").text(math.nan) == "–"


# -- for the terminal ------------------------------------------------------------------------------------------------


def test_the_terminal_shows_every_line(results):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(tables.rich_table(map_table(results, "U")))
    text = console.export_text()
    for one in results.spec.lines:
        assert one.label in text
    assert "(.2548)" in text
    assert "±" in text
    assert "– (.2065)" in text  # printed only


# -- CSV -------------------------------------------------------------------------------------------------------------


def test_csv_is_tidy_and_complete(results):
    rows = list(csv.DictReader(io.StringIO(tables.csv_text([results]))))
    keys = [tuple(row[name] for name in ("dataset", "label", "protocol", "direction", "bits")) for row in rows]
    assert len(set(keys)) == len(keys)
    lines = [row for row in rows if row["method"] and not row["group"]]
    assert len(lines) == 5 * 4 * 2 * 2
    assert len([row for row in rows if row["group"] == "ridge"]) == 3 * 4 * 2
    assert len([row for row in rows if not row["method"]]) == 4 * 2 * 2 * 2  # printed only, U and H
    row = next(row for row in lines if row["label"] == "AGSFH" and row["protocol"] == "U")
    values = [float(value) for value in row["values"].split()]
    assert len(values) == 3
    assert float(row["mean"]) == pytest.approx(np.mean(values), abs=1e-5)
    assert float(row["std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-5)
    assert (row["printed"], row["seeds"], row["metric"], row["n_query"]) == ("0.2548", "0 1 2", "MAP@20", "40")
    assert (float(row["fit_seconds"]), float(row["encode_seconds"])) == (2.0, 0.002)
    assert {row["mark"] for row in rows} == {"", "best", "shared"} or {row["mark"] for row in rows} == {"", "best"}


def test_csv_leaves_missing_numbers_empty(make):
    made = make(skip=lambda entry: entry.series.label == "REG")
    rows = list(csv.DictReader(io.StringIO(tables.csv_text(collect(made.spec, made.store)))))
    lost = [row for row in rows if row["label"] == "REG"]
    assert lost
    assert {row[name] for row in lost for name in ("mean", "std", "values", "fit_seconds", "mark")} == {""}


# -- LaTeX -----------------------------------------------------------------------------------------------------------


def test_latex_has_the_layout_of_the_paper(results):
    text = tables.latex_text([map_table(results, "U")])
    assert r"\multirow{9}{*}{image $\rightarrow$ text} & AGSFH" in text
    assert r"\cline{3-4}" in text
    assert "16 bits & 32 bits" in text
    assert r"\printed{0.2548}" in text
    assert r"\textless{}b\textgreater{}A\&B\_1\$\textless{}/b\textgreater{}" in text
    assert re.search(r"FuseHash & .*\\textbf\{0\.\d{4}\}", text)
    body = text[text.index(r"\begin{tabular}") : text.index(r"\end{tabular}")]
    for line in body.splitlines():
        if line.endswith(r" \\") and "multicolumn" not in line:
            assert len(re.findall(r"(?<!\\)&", line)) == 3
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert not re.search(r"[^\x00-\x7f]", text)


def test_latex_without_tasks_has_one_column_less(results):
    text = tables.latex_text([tables.fit_table(results)])
    assert r"\begin{tabular}{lcc}" in text
    assert "Tasks" not in text
    assert "Bold" not in text
