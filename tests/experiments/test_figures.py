"""Charts: valid SVG that follows the page, told apart without color, and nothing fetched."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.experiments import figures
from fusehash.experiments.figures import Bar, Line, bar_chart, line_chart, style, with_own_ids

NASTY = "<script>alert(1)</script> & $x^2$ \"'"


def a_line(label="a", index=0, **changes):
    return Line(label, [1, 2, 3], [0.1, 0.3, 0.2], style(index), **changes)


def chart(*lines, **changes):
    given = {"title": "Title", "x_label": "N", "y_label": "precision", **changes}
    return line_chart(lines or [a_line()], **given)


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
    for color in (figures.INK, figures.GRID):
        assert color not in svg
    assert "currentColor" in svg
    for i in range(6):
        assert f"var(--s{i}, {figures.COLORS[i]})" in svg
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
def test_names_never_overlap_and_stay_near(places):
    places = sorted(places)
    found = figures._spread_out(places, 10.0, -1e9)
    assert all(b - a >= 10.0 - 1e-9 for a, b in pairwise(found))
    if all(b - a >= 10.0 for a, b in pairwise(places)):
        assert found == pytest.approx(places)
    assert sum(found) == pytest.approx(sum(places), abs=1e-6)


def test_names_do_not_sink_below_the_plot():
    assert min(figures._spread_out([0.0, 0.0, 0.0], 10.0, 0.0)) >= 0.0


def test_values_that_are_not_there_are_left_out():
    svg = chart(Line("half", [1, 2, 3], [math.nan, 0.2, 0.3], style(0), spread=[0.0, math.nan, 0.1]))
    assert "nan" not in svg.lower()
    assert "gone" not in texts(chart(a_line(), Line("gone", [1], [math.nan], style(1))))
    ET.fromstring(chart(Line("none", [1.0], [math.nan], style(0))))


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
            place = re.search(r"translate\(([\d.]+)", node.get("transform", "")) or re.match(r"([\d.]+)", node.get("x"))
            assert float(place.group(1)) < width


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
