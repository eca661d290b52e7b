"""Tables: means, spreads, printed values and marks, in the terminal, as CSV and as LaTeX."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from fusehash.errors import ParameterError
from fusehash.experiments import significance, tables
from fusehash.experiments.metrics import collect
from fusehash.experiments.spec import PAPER_TABLES
from fusehash.experiments.tables import Cell, map_table, published

PAPER_METHODS = ("CSGH", "BGDH", "FSH", "RFDH", "JIMFH", "AGSFH")
I2T, T2I = "image->text", "text->image"

# (table, method, bits, direction, data set, value)
SPOTS = [
    (1, "CSGH", 16, I2T, "wiki", 0.2065),
    (1, "BGDH", 128, I2T, "wiki", 0.1717),
    (1, "FSH", 128, I2T, "wiki", 0.2710),
    (1, "RFDH", 64, T2I, "wiki", 0.4633),
    (1, "JIMFH", 32, T2I, "wiki", 0.4091),
    (1, "AGSFH", 16, T2I, "wiki", 0.5782),
    (1, "AGSFH", 128, T2I, "wiki", 0.6214),
    (2, "JIMFH", 16, I2T, "mirflickr25k", 0.6563),
    (2, "AGSFH", 128, T2I, "mirflickr25k", 0.7505),
    (2, "CSGH", 64, T2I, "mirflickr25k", 0.5382),
    (3, "FSH", 16, I2T, "nuswide", 0.5021),
    (3, "BGDH", 128, T2I, "nuswide", 0.3850),
    (3, "AGSFH", 64, T2I, "nuswide", 0.6144),
    (4, "CSGH", 16, "", "mirflickr25k", 23.4576),
    (4, "RFDH", 128, "", "nuswide", 22128.4188),
    (4, "AGSFH", 64, "", "mirflickr25k", 136.8426),
    (4, "BGDH", 32, "", "nuswide", 10.0385),
    (5, "CSGH", 16, I2T, "mirflickr25k", 0.1935),
    (5, "AGSFH", 16, I2T, "nuswide", 3.9483),
    (5, "FSH", 128, T2I, "nuswide", 12.422),
    (5, "AGSFH", 128, T2I, "mirflickr25k", 0.9485),
    (6, "DCMH", 16, I2T, "mirflickr25k", 0.7410),
    (6, "DDCMH", 64, I2T, "mirflickr25k", 0.8551),
    (6, "DBRC", 32, T2I, "mirflickr25k", 0.5952),
    (6, "AGSFH", 64, T2I, "mirflickr25k", 0.8261),
    (7, "AGSFH_appro", 32, I2T, "mirflickr25k", 0.6531),
    (7, "AGSFH_reg", 128, I2T, "mirflickr25k", 0.6709),
    (7, "AGSFH", 128, T2I, "mirflickr25k", 0.7163),
]
CHECKSUM = "6ec7ef9577f752ac47b3a7233a0c57237d51d12c63bf5478f46f0dbff2d255d5"


def printed_number(table, method, bits, direction, dataset):
    key = (method, direction, dataset)
    [row] = [row for row in published(table).rows if (row.method, row.direction, row.dataset) == key]
    return row.values[bits]


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
    shown = cell(map_table(results, "U"), "image → text", "REG", 32)
    score = results.score(results.spec.lines[3], 32, "U", ("image", "text"))
    assert shown.values == pytest.approx([row.mean() for row in score.per_query])
    assert shown.mean == pytest.approx(score.mean)
    assert shown.std == pytest.approx(score.std)
    assert math.isnan(Cell((0.5,)).std)
    assert math.isnan(Cell().mean)


def test_printed_values_are_next_to_ours_where_they_can_be_compared(results):
    for protocol in ("U", "H"):
        table = map_table(results, protocol)
        assert cell(table, "image → text", "AGSFH", 16).printed == 0.2548
        assert cell(table, "text → image", "<b>A&B_1$</b>", 32).printed == 0.4359
        assert cell(table, "image → text", "FuseHash", 16).printed is None
        only = [row.label for row in table.blocks[0].rows if row.series is None]
        assert only == ["CSGH", "BGDH", "RFDH", "JIMFH"]  # what no line stands for
        assert cell(table, "text → image", "CSGH", 32).printed == printed_number(1, "CSGH", 32, T2I, "wiki")
    for protocol in ("HN", "FN"):
        assert not map_table(results, protocol).has_printed


def test_marks_are_those_of_the_test_over_each_column(results):
    table = map_table(results, "U")
    lines = results.spec.lines
    for bits in table.bits:
        scores = {series.label: results.score(series, bits, "U", ("image", "text")).per_query for series in lines}
        expected = significance.marks(scores)
        assert {series.label: cell(table, "image → text", series.label, bits).mark for series in lines} == expected
    assert cell(table, "image → text", "FuseHash", 32).mark == "best"  # made much better than the rest


def test_missing_seeds_are_told_and_their_column_has_no_marks(make):
    made = make(skip=lambda entry: (entry.series.label, entry.settings.n_bits, entry.settings.seed) == ("REG", 16, 2))
    table = map_table(collect(made.spec, made.store)[0], "U")
    shown = cell(table, "image → text", "REG", 16)
    assert shown.partial
    assert (len(shown.values), shown.n_seeds) == (2, 3)
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
    for series in results.spec.lines:
        assert series.label in text
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


# -- what the paper prints: spot values, a checksum of all, and the printed bold type --------------------------------


@pytest.mark.parametrize("spot", SPOTS, ids=lambda spot: f"table{spot[0]}-{spot[1]}-{spot[2]}-{spot[4]}")
def test_spot_values(spot):
    table, method, bits, direction, dataset, value = spot
    assert printed_number(table, method, bits, direction, dataset) == value


@pytest.mark.parametrize(
    ("table", "methods", "rows", "bits"),
    [
        *((table, PAPER_METHODS, 12, (16, 32, 64, 128)) for table in (1, 2, 3, 4)),
        (5, PAPER_METHODS, 24, (16, 32, 64, 128)),
        (6, ("DCMH", "DDCMH", "DBRC", "AGSFH"), 8, (16, 32, 64)),
        (7, ("AGSFH_appro", "AGSFH_reg", "AGSFH"), 6, (16, 32, 64, 128)),
    ],
)
def test_shape_of_every_table(table, methods, rows, bits):
    printed = published(table)
    assert (len(printed.rows), printed.bits) == (rows, bits)
    assert tuple(dict.fromkeys(row.method for row in printed.rows)) == methods
    assert all(tuple(row.values) == bits for row in printed.rows)


@pytest.mark.parametrize("table", [1, 2, 3, 6, 7])
def test_what_is_printed_bold_is_the_largest_of_its_column(table):
    printed = published(table)
    for direction in (I2T, T2I):
        rows = [row for row in printed.rows if row.direction == direction]
        for bits in printed.bits:
            best = max(row.values[bits] for row in rows)
            assert [row.method for row in rows if bits in row.bold] == [
                row.method for row in rows if row.values[bits] == best
            ]


def test_no_number_has_changed():
    numbers = [
        f"{table} {row.dataset} {row.direction} {row.method} {bits} {value:.4f}"
        for table in PAPER_TABLES
        for row in published(table).rows
        for bits, value in row.values.items()
    ]
    assert len(numbers) == 4 * (12 * 4 + 24 + 6) + 3 * 8
    assert hashlib.sha256("\n".join(numbers).encode()).hexdigest() == CHECKSUM


@pytest.mark.parametrize("table", [0, 8, "one", "figures"])
def test_there_are_seven_tables(table):
    with pytest.raises(ParameterError, match="a number from 1 to 7"):
        published(table)
