"""Charts: valid SVG that follows the page, distinct without color, and nothing fetched."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.experiments import figures, significance
from fusehash.experiments.figures import with_own_ids
from fusehash.experiments.metrics import collect
from fusehash.experiments.tables import map_table
from fusehash.plots import drawing
from fusehash.plots.drawing import Bar, Line, style

I_T = ("image", "text")
NASTY = "<script>alert(1)</script> & $x^2$ \"'"


def a_line(label="a", index=0, **changes):
    return Line(label, [1, 2, 3], [0.1, 0.3, 0.2], style(index), **changes)


def chart(*lines, **changes):
    arguments = {"title": "Title", "x_label": "N", "y_label": "precision", **changes}
    return drawing.line_chart(lines or [a_line()], **arguments).svg()


def bar_chart(bars, **how):
    return drawing.bar_chart(bars, **how).svg()


def texts(svg):
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("make", [chart, lambda: bar_chart([Bar("a", 0.5, 0.1, 0.4)], title="Title", x_label="MAP")])
def test_a_chart_is_one_valid_element_with_a_name(make):
    svg = make()
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert root.get("role") == "img"
    assert root.get("aria-label") == "Title"
    assert "width" not in root.attrib
    assert svg.count("<svg") == 1


def test_text_stays_text_and_is_escaped():
    svg = chart(a_line(NASTY), title=NASTY)
    assert "<script" not in svg
    assert NASTY in texts(svg)  # no mathematics, no outlines
    bars = bar_chart([Bar(NASTY, 0.5)], title=NASTY, x_label="MAP")
    assert "<script" not in bars
    assert NASTY in texts(bars)


def test_nothing_is_fetched():
    svg = chart() + bar_chart([Bar("a", 0.5, kind="control")], title="T", x_label="MAP")
    assert set(re.findall(r"https?://[^\"' <]+", svg)) == {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in svg
    assert not re.search(r"url\((?!#)", svg)
    assert "DejaVu" not in svg


def test_neutral_colors_are_those_of_the_page():
    svg = chart(*[a_line(str(i), i) for i in range(8)], zero=True)
    for color in (drawing.INK, drawing.GRID):
        assert color not in svg
    assert "currentColor" in svg
    for i in range(6):
        assert f"var(--s{i}, {drawing.COLORS[i]})" in svg
    assert "#000000" not in re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)


def test_the_same_content_gives_the_same_file():
    assert chart() == chart()


def test_lines_differ_in_more_than_color():
    looks = [style(i) for i in range(25)]
    assert len({(look.marker, str(look.dash)) for look in looks}) == 25
    for first, second in pairwise(looks):
        assert first.color != second.color
        assert first.marker != second.marker
        assert first.dash != second.dash


def test_every_line_has_its_name_on_the_chart():
    names = [f"method {i}" for i in range(17)]
    svg = chart(*[a_line(name, i) for i, name in enumerate(names)])
    assert set(names) <= set(texts(svg))
    assert set(names) <= set(texts(chart(*[a_line(name, i) for i, name in enumerate(names)], names="list")))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 200), min_size=1, max_size=20))
def test_names_never_overlap_and_stay_near(positions):
    positions = sorted(positions)
    spread = drawing._spread_out(positions, 10.0, -1e9)
    assert all(b - a >= 10.0 - 1e-9 for a, b in pairwise(spread))
    if all(b - a >= 10.0 for a, b in pairwise(positions)):
        assert spread == pytest.approx(positions)
    assert sum(spread) == pytest.approx(sum(positions), abs=1e-6)


def test_names_do_not_sink_below_the_plot():
    assert min(drawing._spread_out([0.0, 0.0, 0.0], 10.0, 0.0)) >= 0.0


def test_values_that_are_not_there_are_left_out():
    svg = chart(Line("half", [1, 2, 3], [math.nan, 0.2, 0.3], style(0), spread=[0.0, math.nan, 0.1]))
    assert "nan" not in svg.lower()
    assert "gone" not in texts(chart(a_line(), Line("gone", [1], [math.nan], style(1))))
    ET.fromstring(chart(Line("none", [1.0], [math.nan], style(0))))


def test_a_missing_value_does_not_move_the_others_on_an_ordinal_axis():
    line = drawing._finite(Line("a", [1, 10, 100], [math.nan, 0.2, 0.3], style(0)), [1, 10, 100])
    assert list(line.x) == [1, 2]
    assert list(line.y) == [0.2, 0.3]


@pytest.mark.parametrize("x_scale", ["linear", "log", "log2", "ordinal"])
@pytest.mark.parametrize("y_scale", ["linear", "log"])
def test_every_scale_can_be_drawn(x_scale, y_scale):
    svg = chart(Line("a", [16, 32, 64], [0.001, 1.0, 100.0], style(0)), x_scale=x_scale, y_scale=y_scale)
    if x_scale in ("log2", "ordinal"):
        assert {"16", "32", "64"} <= set(texts(svg))


def test_names_stand_inside_the_chart():
    x = np.arange(1, 101)
    svg = chart(*[Line(f"m{i}", x[: 20 * i + 20], 1.0 / x[: 20 * i + 20], style(i)) for i in range(5)])
    width = float(ET.fromstring(svg).get("viewBox").split()[2])
    for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        if "".join(node.itertext()).startswith("m"):
            position = re.search(r"translate\(([\d.]+)", node.get("transform", "")) or re.match(
                r"([\d.]+)", node.get("x")
            )
            assert float(position.group(1)) < width


def test_bars_show_value_and_printed_value():
    svg = bar_chart(
        [Bar("ours", 0.61, 0.01, 0.58, "ours", "best"), Bar("control", 0.5, kind="control"), Bar("lost", math.nan)],
        title="T", x_label="MAP",
    )  # fmt: skip
    assert {"ours", "control", "0.610", "0.500", "–"} <= set(texts(svg))
    assert "<pattern" in svg  # hatched


def test_several_charts_fit_on_one_page():
    svg = bar_chart([Bar("a", 0.5, kind="control")], title="T", x_label="MAP")
    page = with_own_ids(svg, "c0") + with_own_ids(svg, "c1")
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page):
        assert "".join(name) in ids


# -- which numbers go into which chart -------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch):
    """What would be drawn, as (lines or bars, arguments)."""
    seen = []

    def keep(content, **arguments):
        seen.append((list(content), arguments))
        return SimpleNamespace(svg=lambda: "<svg></svg>")

    monkeypatch.setattr(figures, "line_chart", keep)
    monkeypatch.setattr(figures, "bar_chart", keep)
    return seen


def results_of(made):
    return collect(made.spec, made.store)[0]


def test_map_over_bits_has_the_means_of_the_table(make, drawn):
    results = results_of(make(protocols=["U"]))
    table = map_table(results, "U")
    figures.map_over_bits(results, table)
    assert len(table.bits) > 1
    assert len(drawn) == len(table.blocks)
    for (lines, arguments), block in zip(drawn, table.blocks, strict=True):
        assert block.direction in arguments["title"]
        shown = {line.label: (list(line.x), list(line.y)) for line in lines}
        for row in block.rows:
            expected = [(b, cell.mean) for b, cell in zip(table.bits, row.cells, strict=True) if cell.values]
            if row.series is None:
                assert row.label not in shown
            else:
                assert list(zip(*shown[row.label], strict=True)) == expected


def test_one_code_length_is_no_line(make, drawn):
    results = results_of(make(protocols=["U"], bits=[32]))
    assert figures.map_over_bits(results, map_table(results, "U")) == []


def test_the_overview_has_the_best_bar_on_top(make, drawn):
    results = results_of(make(protocols=["U"]))
    charts = figures.overview(results, map_table(results, "U"))
    assert len(charts) == 2
    bars, arguments = drawn[0]
    values = [bar.value for bar in bars]
    assert values == sorted(values, reverse=True)
    assert (bars[0].label, bars[0].kind, bars[0].mark) == ("FuseHash", "ours", "best")
    assert {bar.label: bar.printed for bar in bars}["AGSFH"] == 0.2681
    assert "32 bits" in arguments["title"]
    assert "CSGH" not in {bar.label for bar in bars}  # only printed


def test_the_overview_takes_the_length_that_most_lines_have(make, drawn):
    made = make(protocols=["U"], methods=["regression", {"method": "random", "bits": [64]}, {"method": "agsfh"}])
    results = results_of(made)
    figures.overview(results, map_table(results, "U"))
    assert "32 bits" in drawn[0][1]["title"]


def test_objectives_are_divided_by_their_largest_value(make, drawn):
    results = results_of(make(protocols=["U"]))
    [chart] = figures.convergence(results)
    lines = {line.label: line for line in drawn[0][0]}
    assert "CCA + random rotation" not in lines  # has no objective
    # Three seeds with 4, 5 and 6 iterations of the same course: a run that has stopped keeps its last value.
    courses = [0.8 ** np.minimum(np.arange(6), n - 1) for n in (4, 5, 6)]
    assert np.allclose(lines["REG"].y, np.mean(courses, axis=0))
    assert "as in the paper" in chart.caption


def test_convergence_shows_the_lines_that_have_its_length(make, drawn):
    made = make(protocols=["U"], methods=[{"method": "regression", "bits": [32, 64]}, {"method": "agsfh"}])
    figures.convergence(results_of(made))
    assert [line.label for line in drawn[0][0]] == ["REG"]
    assert "64 bits" in drawn[0][1]["title"]


def test_sensitivity_has_a_line_per_direction_and_a_point_per_value(make, drawn):
    made = make(protocols=["U"])
    results = results_of(made)
    figures.sensitivity(results, "U")
    [(lines, arguments)] = drawn
    assert [line.label for line in lines] == ["image → text", "text → image"]
    assert arguments["x_label"] == "ridge"
    points = [series for series in made.spec.runs if series.group == "ridge"]
    assert list(lines[0].x) == [0.001, 0.1, 10.0]
    assert list(lines[0].y) == [results.score(series, 16, "U", I_T).mean for series in points]
    assert list(lines[0].spread) == [results.score(series, 16, "U", I_T).std for series in points]


def test_an_ablation_is_the_difference_to_the_whole_method(make, drawn):
    results = results_of(make(protocols=["U"]))
    figures.ablation(results, "U")
    lines = {line.label: line for line in drawn[0][0]}
    assert "AGSFH" not in lines
    whole, variant = (
        results.score(line, 32, "U", I_T).per_query for line in (results.spec.lines[0], results.spec.lines[3])
    )
    expected = significance.compare(variant, whole)
    assert lines["REG"].y[1] == pytest.approx(expected.difference)
    assert lines["REG"].spread[1] == pytest.approx(2 * expected.error)
    assert drawn[0][1]["zero"]


def test_times_add_the_views_of_a_query(make, drawn):
    results = results_of(make(protocols=["U"]))
    figures.times(results)
    (fit, _), (queries, _) = drawn
    assert list(fit[0].y) == [2.0, 2.0]
    assert list(queries[0].y) == pytest.approx([0.003, 0.003])


def test_curves_have_every_line_and_its_own_style(make, drawn):
    results = results_of(make(protocols=["U"]))
    figures.top_n(results, "U")
    figures.precision_recall(results, "U")
    assert len(drawn) == 4
    for lines, arguments in drawn:
        assert [line.label for line in lines] == [series.label for series in results.spec.lines]
        assert len({line.style for line in lines}) == len(lines)
        assert "32 bits" in arguments["title"]
    looks = [[line.style for line in lines] for lines, _ in drawn]
    assert all(look == looks[0] for look in looks)


def test_without_runs_there_are_no_charts(make, drawn):
    results = results_of(make(protocols=["U"], skip=lambda _: True))
    assert figures.overview(results, map_table(results, "U")) == []
    for chart in (figures.top_n, figures.precision_recall, figures.sensitivity, figures.ablation):
        assert chart(results, "U") == []
    assert figures.convergence(results) == figures.times(results) == []
    assert drawn == []
