"""The charts of the report: which numbers go into which, and what their captions say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusehash.experiments import figures, significance
from fusehash.experiments.figures import Bar, Line, Style
from fusehash.experiments.metrics import CONVERGENCE_BITS, CURVE_BITS, Direction, Floats, Results, bits_for
from fusehash.experiments.spec import Series
from fusehash.experiments.tables import Table, arrow, metric_name
from fusehash.hashers.catalogue import OURS

OVERVIEW_BITS = 64
SMALL = (285.0, 215.0)
SYMBOLS = {"lambda": "λ", "gamma_1": "γ₁", "gamma_2": "γ₂", "gamma_3": "γ₃"}


@dataclass(frozen=True)
class Chart:
    """A chart and the sentence below it."""

    svg: str
    caption: str


def styles(lines: Sequence[Series]) -> dict[str, Style]:
    """label -> how it is drawn: the same in every chart of a page."""
    return {one.label: figures.style(i, strong=one.method in OURS) for i, one in enumerate(lines)}


def overview(results: Results, table: Table) -> list[Chart]:
    """MAP bars of every method at one code length, best first, one chart per direction."""
    filled = {b: sum(bool(row.cells[i].values) for row in table.rows()) for i, b in enumerate(table.bits)}
    bits = max(table.bits, key=lambda b: (filled[b], b <= OVERVIEW_BITS, -abs(b - OVERVIEW_BITS)))
    column = table.bits.index(bits)
    charts = []
    for block in table.blocks:
        bars = []
        for row in block.rows:
            cell = row.cells[column]
            if cell.values:
                bars.append(Bar(row.label, cell.mean, cell.std, cell.printed, row.kind, cell.mark))
        if bars:
            bars.sort(key=lambda bar: -bar.value)
            svg = figures.bar_chart(
                bars, title=f"{block.direction}, {bits} bits{_stand_in(results)}", x_label=_what(results)
            )
            charts.append(Chart(svg, f"{table.what}, {block.direction}, {bits} bits on {results.name}."))
    return charts


def top_n(results: Results, protocol: str) -> list[Chart]:
    """Precision of the first N, N = 50, 100, ..., 1000."""
    charts = []
    for direction in results.directions:
        ranks, lines = results.ranks(protocol, direction), []
        bits = _chart_bits(results, CURVE_BITS)
        for one, look in _drawn(results, bits):
            values = results.top_n(one, bits, protocol, direction)
            if values is not None:
                n = min(len(ranks), values.shape[1])
                lines.append(Line(one.label, ranks[:n], values.mean(axis=0)[:n], look, spread=_spread(values)[:n]))
        if lines:
            title = f"{arrow(direction)}, {bits} bits{_stand_in(results)}"
            svg = figures.line_chart(lines, title=title, x_label="N", y_label="precision of the first N")
            text = f"Precision of the first N answers, {arrow(direction)}, {bits} bits on {results.name}."
            charts.append(Chart(svg, f"{text} Band: one standard deviation over seeds."))
    return charts


def precision_recall(results: Results, protocol: str) -> list[Chart]:
    """Precision against recall for Hamming radius 0, 1, 2, ..."""
    charts = []
    for direction in results.directions:
        lines, bits = [], _chart_bits(results, CURVE_BITS)
        for one, look in _drawn(results, bits):
            curve = results.curve(one, bits, protocol, direction)
            if curve is not None:
                lines.append(Line(one.label, *curve, look))
        if lines:
            title = f"{arrow(direction)}, {bits} bits{_stand_in(results)}"
            svg = figures.line_chart(lines, title=title, x_label="recall", y_label="precision", names="list")
            text = f"Precision against recall within Hamming radius 0 to {bits}, {arrow(direction)} on {results.name}."
            charts.append(Chart(svg, text))
    return charts


def convergence(results: Results) -> list[Chart]:
    """The objective after every iteration, divided by the number of training pairs and by its largest value."""
    lines, bits = [], _chart_bits(results, CONVERGENCE_BITS)
    for one, look in _drawn(results, bits):
        found = [_normalized(values) for values in results.objectives(one, bits) if len(values) > 1]
        if found:
            mean = _mean_of_unequal(found)
            lines.append(Line(one.label, list(range(1, len(mean) + 1)), mean, look))
    if not lines:
        return []
    title = f"Objective, {bits} bits{_stand_in(results)}"
    svg = figures.line_chart(lines, title=title, x_label="iteration", y_label="objective / its largest value")
    text = (
        f"Objective on {results.name}, {bits} bits, mean over seeds, divided by the number of training pairs and by "
        "its largest value, as in the paper. Objectives of different methods are different functions."
    )
    return [Chart(svg, text)]


def sensitivity(results: Results, protocol: str) -> list[Chart]:
    """MAP against the value of one setting, the others held; one chart per setting, one line per direction and bits."""
    charts = []
    groups = dict.fromkeys(one.group for one in results.spec.runs if one.group)
    for group in groups:
        points = sorted((one for one in results.spec.runs if one.group == group), key=lambda one: one.x or 0.0)
        lengths = sorted({b for one in points for b in results.spec.bits_of(one)})
        lines: list[Line] = []
        for b in lengths:
            for direction in results.directions:
                known = [(one, results.score(one, b, protocol, direction)) for one in points]
                values = [(one.x, score) for one, score in known if one.x is not None and score is not None]
                if values:
                    label = arrow(direction) + (f", {b}" if len(lengths) > 1 else "")
                    y, s = [score.mean for _, score in values], [score.std for _, score in values]
                    lines.append(Line(label, [x for x, _ in values], y, figures.style(len(lines)), spread=s))
        if lines:
            name = SYMBOLS.get(group, group)
            at = " and ".join(f"{b}" for b in lengths)
            title = f"{name}, {at} bits{_stand_in(results)}"
            svg = figures.line_chart(
                lines, title=title, x_label=name, y_label=_what(results), x_scale="ordinal", size=SMALL
            )
            text = f"{_what(results)} on {results.name} for values of {name}, all other settings held."
            charts.append(Chart(svg, f"{text} Band: one standard deviation over seeds."))
    return charts


def times(results: Results) -> list[Chart]:
    """Seconds against bits: to fit, and to hash all queries from all their views."""
    if results.dataset is None:
        return []
    views = results.dataset.views
    charts = []
    for title, label in (("Training", "seconds to fit"), ("Queries", "seconds to hash all queries")):
        lines = []
        for one, look in _drawn(results):
            bits = results.spec.bits_of(one)
            if title == "Training":
                seconds = [results.fit_seconds(one, b) for b in bits]
            else:
                seconds = [sum((results.encode_seconds(one, b, v) for v in views), np.zeros(1)) for b in bits]
            means = [float(values.mean()) if len(values) else math.nan for values in seconds]
            if np.isfinite(means).any():
                lines.append(Line(one.label, list(bits), means, look))
        if lines:
            head = title + _stand_in(results)
            svg = figures.line_chart(lines, title=head, x_label="bits", y_label=label, x_scale="log2", y_scale="log")
            text = f"{label.capitalize()} on {results.name}, one core, mean over seeds"
            charts.append(Chart(svg, text + ("." if title == "Training" else ", all views together.")))
    return charts


def ablation(results: Results, protocol: str) -> list[Chart]:
    """MAP of every variant minus that of the whole method, with two standard errors."""
    lines = results.spec.lines
    whole = next((one for one in lines if "AGSFH" in (one.label, one.printed) and one.method == "agsfh"), None)
    if whole is None or len(lines) < 2:
        return []
    charts = []
    for direction in results.directions:
        drawn = []
        for one, look in _drawn(results):
            points = [] if one is whole else _differences(results, one, whole, protocol, direction)
            if points:
                bits, found = [b for b, _ in points], [comparison for _, comparison in points]
                y, s = [c.difference for c in found], [2.0 * c.error for c in found]
                drawn.append(Line(one.label, bits, y, look, spread=s))
        if drawn:
            title = f"{arrow(direction)}, difference to {whole.label}{_stand_in(results)}"
            svg = figures.line_chart(
                drawn, title=title, x_label="bits", y_label=f"difference in {_what(results)}", x_scale="log2", zero=True
            )
            text = f"{_what(results)} minus that of {whole.label}, {arrow(direction)} on {results.name}."
            charts.append(Chart(svg, f"{text} Band: two standard errors over queries and seeds."))
    return charts


def _differences(
    results: Results, one: Series, whole: Series, protocol: str, direction: Direction
) -> list[tuple[int, significance.Comparison]]:
    out = []
    for b in results.spec.bits_of(one):
        a, w = results.score(one, b, protocol, direction), results.score(whole, b, protocol, direction)
        if a is not None and w is not None and a.seeds == w.seeds:
            out.append((b, significance.compare(a.per_query, w.per_query)))
    return out


def _drawn(results: Results, bits: int | None = None) -> list[tuple[Series, Style]]:
    """The lines and their styles; with `bits`, those that run with so many."""
    looks = styles(results.spec.lines)
    return [(one, looks[one.label]) for one in results.spec.lines if bits is None or bits in results.spec.bits_of(one)]


def _chart_bits(results: Results, preferred: int) -> int:
    """The length that a chart of one length shows: the longest of all up to the preferred one."""
    return max((bits_for(results.spec, one, preferred) for one in results.spec.lines), default=preferred)


def _what(results: Results) -> str:
    return metric_name(results.spec)


def _stand_in(results: Results) -> str:
    return " (stand-in data)" if results.stand_in else ""


def _spread(values: Floats) -> Floats:
    """Standard deviation over seeds; 0 for one seed."""
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def _normalized(objective: Floats) -> Floats:
    """Divided by the number of pairs and then by its largest value, the number of pairs cancels."""
    largest = float(np.abs(objective).max())
    return objective / largest if largest > 0 else objective


def _mean_of_unequal(series: Sequence[Floats]) -> Floats:
    """The mean over runs; a run that has stopped keeps its last value."""
    longest = max(len(values) for values in series)
    return np.mean([np.concatenate([v, np.full(longest - len(v), v[-1])]) for v in series], axis=0)
