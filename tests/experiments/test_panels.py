"""Which numbers go into which chart."""

from __future__ import annotations

import numpy as np
import pytest

from fusehash.experiments import figures, significance
from fusehash.experiments.metrics import collect
from fusehash.experiments.tables import map_table

I_T = ("image", "text")


@pytest.fixture
def drawn(monkeypatch):
    """What would be drawn, as (lines or bars, settings)."""
    seen = []

    def keep(content, **settings):
        seen.append((list(content), settings))
        return "<svg></svg>"

    monkeypatch.setattr(figures, "line_chart", keep)
    monkeypatch.setattr(figures, "bar_chart", keep)
    return seen


def results_of(made):
    return collect(made.spec, made.store)[0]


def test_the_overview_has_the_best_bar_on_top(make, drawn):
    results = results_of(make(protocols=["U"]))
    charts = figures.overview(results, map_table(results, "U"))
    assert len(charts) == 2
    bars, settings = drawn[0]
    values = [bar.value for bar in bars]
    assert values == sorted(values, reverse=True)
    assert (bars[0].label, bars[0].kind, bars[0].mark) == ("FuseHash", "ours", "best")
    assert {bar.label: bar.printed for bar in bars}["AGSFH"] == 0.2681
    assert "32 bits" in settings["title"]
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
    [(lines, settings)] = drawn
    assert [line.label for line in lines] == ["image → text", "text → image"]
    assert settings["x_label"] == "ridge"
    points = [one for one in made.spec.runs if one.group == "ridge"]
    assert list(lines[0].x) == [0.001, 0.1, 10.0]
    assert list(lines[0].y) == [results.score(one, 16, "U", I_T).mean for one in points]
    assert list(lines[0].spread) == [results.score(one, 16, "U", I_T).std for one in points]


def test_an_ablation_is_the_difference_to_the_whole_method(make, drawn):
    results = results_of(make(protocols=["U"]))
    figures.ablation(results, "U")
    lines = {line.label: line for line in drawn[0][0]}
    assert "AGSFH" not in lines
    whole, one = (
        results.score(line, 32, "U", I_T).per_query for line in (results.spec.lines[0], results.spec.lines[3])
    )
    expected = significance.compare(one, whole)
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
    for lines, settings in drawn:
        assert [line.label for line in lines] == [one.label for one in results.spec.lines]
        assert len({line.style for line in lines}) == len(lines)
        assert "32 bits" in settings["title"]
    looks = [[line.style for line in lines] for lines, _ in drawn]
    assert all(look == looks[0] for look in looks)


def test_without_runs_there_are_no_charts(make, drawn):
    results = results_of(make(protocols=["U"], skip=lambda _: True))
    assert figures.overview(results, map_table(results, "U")) == []
    for chart in (figures.top_n, figures.precision_recall, figures.sensitivity, figures.ablation):
        assert chart(results, "U") == []
    assert figures.convergence(results) == figures.times(results) == []
    assert drawn == []
