"""Charts of the report: which numbers go into which chart. `fusehash.plots.drawing` says how they are drawn."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from fusehash.experiments import significance
from fusehash.experiments.metrics import CONVERGENCE_BITS, CURVE_BITS, TOP_N, Direction, Results, bits_for
from fusehash.experiments.spec import Series
from fusehash.experiments.tables import Table, arrow, metric_name
from fusehash.hashers.catalogue import OURS
from fusehash.plots.drawing import SMALL, Bar, Line, Plot, Style, bar_chart, line_chart, style
from fusehash.views import Floats

OVERVIEW_BITS = 64
BAND = " Band: one standard deviation over seeds."
SYMBOLS = {"lambda": "λ", "gamma_1": "γ₁", "gamma_2": "γ₂", "gamma_3": "γ₃"}


@dataclass(frozen=True)
class Chart:
    """A chart and the sentence below it."""

    svg: str
    caption: str


def _chart(
    results: Results, draw: Callable[..., Plot], content: Sequence[Any], caption: str, **how: Any
) -> list[Chart]:
    """The chart of these lines or bars; none if there are none."""
    how["title"] += " (stand-in data)" if results.stand_in else ""
    return [Chart(draw(content, **how).svg(), caption)] if content else []


def overview(results: Results, table: Table) -> list[Chart]:
    """MAP bars of every method at one code length, best first, one chart per direction."""
    filled = {b: sum(bool(row.cells[i].values) for row in table.rows()) for i, b in enumerate(table.bits)}
    bits = max(table.bits, key=lambda b: (filled[b], b <= OVERVIEW_BITS, -abs(b - OVERVIEW_BITS)))
    charts = []
    for block in table.blocks:
        cells = [(row, row.cells[table.bits.index(bits)]) for row in block.rows]
        bars = [Bar(row.label, c.mean, c.std, c.printed, row.kind, c.mark) for row, c in cells if c.values]
        bars.sort(key=lambda bar: -bar.value)
        title = f"{block.direction}, {bits} bits"
        caption = f"{table.what}, {title} on {results.name}."
        charts += _chart(results, bar_chart, bars, caption, title=title, x_label=table.what)
    return charts


def map_over_bits(results: Results, table: Table) -> list[Chart]:
    """MAP over the code length, one chart per direction, if there are at least two lengths."""
    charts, looks = [], {series.label: look for series, look in _drawn(results)}
    for block in table.blocks if len(table.bits) > 1 else ():
        lines = []
        for row in block.rows:
            points = [(b, c.mean, c.std) for b, c in zip(table.bits, row.cells, strict=True) if c.values]
            if points and row.series is not None:
                bits, means, spreads = zip(*points, strict=True)
                spread = spreads if np.isfinite(spreads).all() else None
                lines.append(Line(row.label, bits, means, looks[row.label], spread))
        caption = f"{table.what} over the code length, {block.direction} on {results.name}.{BAND}"
        how = {"title": f"{block.direction}, by bits", "x_label": "bits", "y_label": table.what, "x_scale": "log2"}
        charts += _chart(results, line_chart, lines, caption, **how)
    return charts


def top_n(results: Results, protocol: str) -> list[Chart]:
    """Precision of the first N, N = 50, 100, ..., 1000."""

    def line(series: Series, look: Style, bits: int, direction: Direction) -> Line | None:
        values = results.top_n(series, bits, protocol, direction)
        if values is None:
            return None
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else None
        return Line(series.label, TOP_N[: values.shape[1]], values.mean(axis=0), look, spread)

    text = "Precision of the first N answers, {direction}, {bits} bits on {name}." + BAND
    return _curve_charts(results, line, text, x_label="N", y_label="precision of the first N")


def precision_recall(results: Results, protocol: str) -> list[Chart]:
    """Precision against recall for Hamming radius 0, 1, 2, ..."""

    def line(series: Series, look: Style, bits: int, direction: Direction) -> Line | None:
        curve = results.curve(series, bits, protocol, direction)
        return None if curve is None else Line(series.label, *curve, look)

    text = "Precision against recall within Hamming radius 0 to {bits}, {direction} on {name}."
    return _curve_charts(results, line, text, x_label="recall", y_label="precision", names="list")


def _curve_charts(
    results: Results, line: Callable[[Series, Style, int, Direction], Line | None], text: str, **how: Any
) -> list[Chart]:
    """One chart per direction, with a line per series that has one."""
    charts, bits = [], _chart_bits(results, CURVE_BITS)
    for direction in results.directions:
        lines = [line(series, look, bits, direction) for series, look in _drawn(results, bits)]
        drawn = [entry for entry in lines if entry is not None]
        caption = text.format(direction=arrow(direction), bits=bits, name=results.name)
        charts += _chart(results, line_chart, drawn, caption, title=f"{arrow(direction)}, {bits} bits", **how)
    return charts


def convergence(results: Results) -> list[Chart]:
    """The objective after every iteration, divided by the number of training pairs and by its largest value."""
    lines, bits = [], _chart_bits(results, CONVERGENCE_BITS)
    for series, look in _drawn(results, bits):
        objectives = [values for values in results.objectives(series, bits) if len(values) > 1]
        if objectives:
            mean = _mean_objective(objectives)
            lines.append(Line(series.label, range(1, len(mean) + 1), mean, look))
    caption = (
        f"Objective on {results.name}, {bits} bits, mean over seeds, divided by the number of training pairs and by "
        "its largest value, as in the paper. Objectives of different methods are different functions."
    )
    labels = {"x_label": "iteration", "y_label": "objective / its largest value"}
    return _chart(results, line_chart, lines, caption, title=f"Objective, {bits} bits", **labels)


def sensitivity(results: Results, protocol: str) -> list[Chart]:
    """MAP against the value of one setting, the others held; one chart per setting, one line per direction and bits."""
    charts, metric = [], metric_name(results.spec)
    for group, points in results.spec.sweeps.items():
        points = sorted(points, key=lambda series: series.x or 0.0)
        lengths = sorted({b for series in points for b in results.spec.bits_of(series)})
        lines: list[Line] = []
        for b, direction in product(lengths, results.directions):
            scores = [(series.x or 0.0, results.score(series, b, protocol, direction)) for series in points]
            values = [(x, score.mean, score.std) for x, score in scores if score is not None]
            if values:
                label = arrow(direction) + (f", {b}" if len(lengths) > 1 else "")
                x, y, spread = zip(*values, strict=True)
                lines.append(Line(label, x, y, style(len(lines)), spread))
        name = SYMBOLS.get(group, group)
        title = f"{name}, {' and '.join(map(str, lengths))} bits"
        caption = f"{metric} on {results.name} for values of {name}, all other settings held.{BAND}"
        how = {"x_label": name, "y_label": metric, "x_scale": "ordinal", "size": SMALL}
        charts += _chart(results, line_chart, lines, caption, title=title, **how)
    return charts


def times(results: Results) -> list[Chart]:
    """Seconds against bits: to fit, and to hash all queries from all their views."""
    if results.dataset is None:
        return []
    views, charts = results.dataset.views, []

    def all_views(series: Series, bits: int) -> Floats:
        return sum((results.encode_seconds(series, bits, view) for view in views), np.zeros(1))

    for title, label, seconds, rest in (
        ("Training", "seconds to fit", results.fit_seconds, "."),
        ("Queries", "seconds to hash all queries", all_views, ", all views together."),
    ):
        lines = []
        for series, look in _drawn(results):
            bits = results.spec.bits_of(series)
            means = [float(values.mean()) if len(values) else math.nan for values in (seconds(series, b) for b in bits)]
            if np.isfinite(means).any():
                lines.append(Line(series.label, bits, means, look))
        caption = f"{label.capitalize()} on {results.name}, one core, mean over seeds{rest}"
        how = {"x_label": "bits", "y_label": label, "x_scale": "log2", "y_scale": "log"}
        charts += _chart(results, line_chart, lines, caption, title=title, **how)
    return charts


def ablation(results: Results, protocol: str) -> list[Chart]:
    """MAP of every variant minus that of the whole method, with two standard errors."""
    lines, metric = results.spec.lines, metric_name(results.spec)
    whole = next((s for s in lines if "AGSFH" in (s.label, s.printed) and s.method == "agsfh"), None)
    if whole is None:
        return []
    charts = []
    for direction in results.directions:
        drawn = []
        for series, look in _drawn(results):
            points = []
            for b in results.spec.bits_of(series) if series is not whole else ():
                a, w = (results.score(line, b, protocol, direction) for line in (series, whole))
                if a is not None and w is not None and a.seeds == w.seeds:
                    comparison = significance.compare(a.per_query, w.per_query)
                    points.append((b, comparison.difference, 2.0 * comparison.error))
            if points:
                x, y, spread = zip(*points, strict=True)
                drawn.append(Line(series.label, x, y, look, spread))
        title = f"{arrow(direction)}, difference to {whole.label}"
        caption = f"{metric} minus that of {whole.label}, {arrow(direction)} on {results.name}."
        caption += " Band: two standard errors over queries and seeds."
        how = {"x_label": "bits", "y_label": f"difference in {metric}", "x_scale": "log2", "zero": True}
        charts += _chart(results, line_chart, drawn, caption, title=title, **how)
    return charts


def _drawn(results: Results, bits: int | None = None) -> list[tuple[Series, Style]]:
    """The lines and their styles, the same in every chart; with `bits`, those that run with so many."""
    looks = [(series, style(i, strong=series.method in OURS)) for i, series in enumerate(results.spec.lines)]
    return [(series, look) for series, look in looks if bits is None or bits in results.spec.bits_of(series)]


def _chart_bits(results: Results, preferred: int) -> int:
    """The length that a chart of one length shows: the longest of all up to the preferred one."""
    return max((bits_for(results.spec, series, preferred) for series in results.spec.lines), default=preferred)


def _mean_objective(objectives: Sequence[Floats]) -> Floats:
    """The mean over runs of the objective divided by its largest value; a run that has stopped keeps its last value."""
    longest = max(len(values) for values in objectives)
    padded = np.stack([np.pad(values, (0, longest - len(values)), mode="edge") for values in objectives])
    largest = np.abs(padded).max(axis=1, keepdims=True)
    return np.mean(padded / np.where(largest > 0, largest, 1.0), axis=0)


def with_own_ids(svg: str, prefix: str) -> str:
    """The same chart with names of its own, so that several fit on one page."""
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", svg)
