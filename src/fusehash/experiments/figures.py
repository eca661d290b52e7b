"""Charts of the report as inline SVG: first which numbers go into which chart, then how they are drawn.

Charts are readable in black and white, by color-blind people, in light and in dark: every line has a color (Okabe and
Ito), a marker, a dash pattern and its name at its end. Text stays text. Nothing is fetched: a chart takes its font and
neutral colors from the page around it, and its other colors from the page's variables --s0 ... --s6.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, TypeAlias

import numpy as np

from fusehash.experiments import significance
from fusehash.experiments.metrics import CONVERGENCE_BITS, CURVE_BITS, TOP_N, Direction, Results, bits_for
from fusehash.experiments.spec import Series
from fusehash.experiments.tables import MethodKind, Table, arrow, metric_name
from fusehash.extras import require
from fusehash.hashers.catalogue import OURS
from fusehash.views import Floats

Scale: TypeAlias = Literal["linear", "log", "log2", "ordinal"]

INK, GRID, QUIET = "#1a1b1c", "#c0c1c2", "#8a8b8c"  # stand for colors of the page
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "p", "h", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
BAR_COLORS: dict[MethodKind, str] = {"ours": COLORS[0], "method": "#9db7cb", "supervised": COLORS[4], "control": QUIET}
PAGE_COLORS = {
    INK: "currentColor",
    GRID: "var(--grid, #d5d7da)",
    QUIET: "var(--quiet, #8a8b8c)",
    BAR_COLORS["method"]: "var(--bar, #9db7cb)",
    **{color: f"var(--s{i}, {color})" for i, color in enumerate(COLORS[:-1])},
}
WIDTH, HEIGHT, FONT = 400.0, 290.0, 9.5  # points
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LABEL_STEP = 10.5  # between two names at the ends of lines
MARKERS_PER_LINE = 9  # about
OVERVIEW_BITS = 64
SMALL = (285.0, 215.0)
BAND = " Band: one standard deviation over seeds."
SYMBOLS = {"lambda": "λ", "gamma_1": "γ₁", "gamma_2": "γ₂", "gamma_3": "γ₃"}


@dataclass(frozen=True)
class Style:
    """How a line is drawn everywhere on the page."""

    color: str
    marker: str
    dash: Any
    width: float = 1.4


@dataclass(frozen=True)
class Line:
    """y against x; spread (if any) is drawn as a band y +- spread."""

    label: str
    x: Sequence[float] | Floats
    y: Sequence[float] | Floats
    style: Style
    spread: Sequence[float] | Floats | None = None


@dataclass(frozen=True)
class Bar:
    """One bar; `printed` is the value in the paper, `mark` says whether the bar leads ("best", "shared" or "")."""

    label: str
    value: float
    spread: float = math.nan
    printed: float | None = None
    kind: MethodKind = "method"
    mark: str = ""


# -- which numbers go into which chart -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chart:
    """A chart and the sentence below it."""

    svg: str
    caption: str


def _chart(results: Results, draw: Callable[..., str], content: Sequence[Any], caption: str, **how: Any) -> list[Chart]:
    """The chart of these lines or bars; none if there are none."""
    how["title"] += " (stand-in data)" if results.stand_in else ""
    return [Chart(draw(content, **how), caption)] if content else []


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


# -- how they are drawn ----------------------------------------------------------------------------------------------


def style(index: int, *, strong: bool = False) -> Style:
    """The style of the index-th line: color, marker and dash turn at different speeds, so that 420 differ."""
    color, marker, dash = (values[index % len(values)] for values in (COLORS, MARKERS, DASHES))
    return Style(color, marker, dash, width=2.3 if strong else 1.4)


@contextmanager
def _text_as_text() -> Iterator[None]:
    """No mathematics between dollar signs, no outlines, the same file for the same content."""
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "fusehash", "hatch.linewidth": 0.7}
    with require("matplotlib", "Drawing figures").rc_context(settings):
        yield


@_text_as_text()
def line_chart(
    lines: Sequence[Line],
    *,
    title: str,
    x_label: str,
    y_label: str,
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    zero: bool = False,
    names: Literal["ends", "list"] = "ends",
    size: tuple[float, float] = (WIDTH, HEIGHT),
) -> str:
    """Lines with their names at their ends, or in a list next to the plot if all lines end at one point.

    zero : draw y = 0
    size : in points; smaller charts have larger text on the page
    """
    ticks = sorted({float(x) for line in lines for x in line.x})
    lines = [_finite(line, ticks if x_scale == "ordinal" else None) for line in lines]
    lines = [line for line in lines if len(line.x)]
    longest = max((len(line.label) for line in lines), default=0)
    right = (16 if names == "ends" else 38) + min(0.5 * FONT * longest, 0.4 * size[0])
    figure, axes = _axes(*size, left=44, right=right, bottom=36)
    if zero:
        axes.axhline(0.0, color=INK, linewidth=0.9)
    for line in lines:
        look = line.style
        if line.spread is not None:
            low, high = np.subtract(line.y, line.spread), np.add(line.y, line.spread)
            axes.fill_between(line.x, low, high, color=look.color, alpha=0.15, linewidth=0)
        axes.plot(
            line.x, line.y, color=look.color, linestyle=look.dash, linewidth=look.width, marker=look.marker,
            markersize=4.6, markevery=max(1, round(len(line.x) / MARKERS_PER_LINE)),
        )  # fmt: skip
    _scale_axes(axes, ticks, x_scale, y_scale)
    _label_axes(axes, title, x_label, y_label)
    if names == "ends":
        _name_line_ends(axes, lines)
    elif lines:
        _list_names(axes, lines)
    return _svg(figure, title, f"{y_label} against {x_label}: {', '.join(line.label for line in lines)}.")


@_text_as_text()
def bar_chart(bars: Sequence[Bar], *, title: str, x_label: str) -> str:
    """Horizontal bars in this order, the first on top; a hollow diamond where the paper printed a value."""
    longest = max((len(bar.label) for bar in bars), default=0)
    left = 10 + min(0.52 * FONT * longest, 0.42 * WIDTH)
    figure, axes = _axes(WIDTH, 62 + 15.5 * max(len(bars), 1), left=left, right=44, bottom=34)
    for at, bar in enumerate(bars):
        value, spread = np.nan_to_num([bar.value, bar.spread])
        hollow = bar.kind == "control"
        axes.barh(
            at, value, height=0.68, color="none" if hollow else BAR_COLORS[bar.kind], linewidth=0.8 if hollow else 0,
            edgecolor=BAR_COLORS[bar.kind], hatch="////" if hollow else None,
        )  # fmt: skip
        if spread > 0:
            axes.errorbar(value, at, xerr=spread, color=INK, linewidth=0.9, capsize=2)
        if bar.printed is not None:
            axes.plot(bar.printed, at, marker="D", markersize=5, color=INK, markerfacecolor="none", linestyle="none")
        axes.annotate(
            f"{bar.value:.3f}" if math.isfinite(bar.value) else "–", (max(value + spread, bar.printed or 0.0), at),
            xytext=(5, 0), textcoords="offset points", va="center", color=INK, fontsize=FONT - 1,
            fontweight="bold" if bar.mark == "best" else "normal",
        )  # fmt: skip
    axes.set_yticks(range(len(bars)), [bar.label for bar in bars])
    for tick, bar in zip(axes.get_yticklabels(), bars, strict=True):
        tick.set_fontweight("bold" if bar.kind == "ours" else "normal")
    axes.set_ylim(len(bars) - 0.4, -0.6)
    shown = [bar for bar in bars if math.isfinite(bar.value)]
    longest_bar = max([bar.value for bar in shown] + [bar.printed or 0.0 for bar in bars], default=0.0)
    axes.set_xlim(0, 1.06 * (longest_bar or 1.0))
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    _label_axes(axes, title, x_label)
    return _svg(figure, title, f"{x_label}: {', '.join(f'{bar.label} {bar.value:.3f}' for bar in shown)}.")


def _finite(line: Line, ticks: Sequence[float] | None) -> Line:
    """The line without points that have no value; x becomes the number of a tick where there are ticks."""
    x = np.asarray(line.x, dtype=np.float64) if ticks is None else np.searchsorted(ticks, line.x).astype(np.float64)
    y = np.asarray(line.y, dtype=np.float64)
    finite = np.isfinite(y)
    spread = None if line.spread is None else np.nan_to_num(np.asarray(line.spread, dtype=np.float64)[finite])
    return replace(line, x=x[finite], y=y[finite], spread=spread)


def _axes(width: float, height: float, *, left: float, right: float, bottom: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    axes = figure.add_axes((left / width, bottom / height, 1 - (left + right) / width, 1 - (bottom + 24) / height))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(QUIET)
    axes.set_axisbelow(True)
    axes.grid(visible=True, color=GRID, linewidth=0.6)
    axes.tick_params(colors=INK, labelsize=FONT - 1, length=2.5, color=QUIET)
    return figure, axes


def _label_axes(axes: Any, title: str, x_label: str, y_label: str = "") -> None:
    axes.set_title(title, color=INK, loc="left", fontsize=FONT + 0.5, fontweight="bold", pad=7)
    axes.set_xlabel(x_label, color=INK, fontsize=FONT, labelpad=3)
    axes.set_ylabel(y_label, color=INK, fontsize=FONT, labelpad=3)


def _scale_axes(axes: Any, ticks: Sequence[float], x_scale: Scale, y_scale: Scale) -> None:
    if x_scale in ("log", "log2"):
        axes.set_xscale("log", base=2 if x_scale == "log2" else 10)
    if x_scale in ("ordinal", "log2") and ticks:
        axes.set_xticks(range(len(ticks)) if x_scale == "ordinal" else ticks, [_short(tick) for tick in ticks])
        axes.minorticks_off()
    if y_scale == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(x=0.02)


def _short(value: float) -> str:
    """A number as a tick says it: powers of ten that would be long are written as such."""
    power = round(math.log10(abs(value))) if value else 0
    if value == 10.0**power and not -2 <= power <= 3:
        return "10" + str(power).translate(SUPERSCRIPTS)
    return f"{value:g}"


def _name_line_ends(axes: Any, lines: Sequence[Line]) -> None:
    """Write every name right of the plot, as near to its line's end as the other names allow."""
    axes.get_xlim(), axes.get_ylim()  # settles the limits, which are computed when first read
    scale, box = 72 / axes.figure.dpi, axes.get_window_extent()
    edge, low, high = box.x1 * scale, box.y0 * scale, box.y1 * scale
    ends = []
    for line in lines:
        x_point, y_point = axes.transData.transform((line.x[-1], line.y[-1])) * scale
        ends.append((float(y_point), float(x_point), line))
    ends.sort(key=lambda end: end[0])
    heights = _spread_out([end[0] for end in ends], min(LABEL_STEP, (high - low + 16) / max(len(ends), 1)), low - 4)
    for height, (y_point, x_point, line) in zip(heights, ends, strict=True):
        axes.annotate(
            line.label, xy=(x_point, y_point), xycoords="figure points", xytext=(edge + 13, height),
            textcoords="figure points", va="center", ha="left", color=line.style.color, fontsize=FONT - 1.2,
            fontweight="bold" if line.style.width > 2 else "normal", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": line.style.color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3,
                "relpos": (0.0, 0.5),
            },
        )  # fmt: skip


def _list_names(axes: Any, lines: Sequence[Line]) -> None:
    """A legend right of the plot."""
    legend = axes.legend(
        axes.get_lines()[-len(lines) :], [line.label for line in lines], loc="upper left", bbox_to_anchor=(1.0, 1.03),
        labelcolor=[line.style.color for line in lines], frameon=False, fontsize=FONT - 1.2, handlelength=2.6,
        labelspacing=0.35, borderaxespad=0.4,
    )  # fmt: skip
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set_fontweight("bold" if line.style.width > 2 else "normal")


def _spread_out(positions: Sequence[float], step: float, low: float) -> list[float]:
    """The least squares positions in the same order that are at least `step` apart and not below `low`.

    With z_i = position_i - i step this is isotonic regression: neighbors that collide are pooled at their mean.
    """
    groups: list[tuple[float, int]] = []
    for i, position in enumerate(positions):
        groups.append((position - i * step, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, n), (b, m) = groups[-2:]
            groups[-2:] = [((a * n + b * m) / (n + m), n + m)]
    values = [value for value, count in groups for _ in range(count)]
    return [max(value, low) + i * step for i, value in enumerate(values)]


def _svg(figure: Any, title: str, description: str) -> str:
    """The figure as an <svg> element without prologue, metadata, fixed size or colors that fight the page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # Older versions of matplotlib write one "font:", newer ones its parts.
    text = re.sub(r'font: ([^;"]*?)([\d.]+)px [^;"]+', _page_font, text)
    text = re.sub(r'font-family: [^;"]+', "font-family: inherit", text)
    for color, name in PAGE_COLORS.items():
        text = text.replace(color, name)
    width, height = (round(float(size) * 72, 1) for size in figure.get_size_inches())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{html.escape(title)}">'
        f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
    )
    return head + text[text.index(">") + 1 :].strip()


def _page_font(match: re.Match[str]) -> str:
    weight = "; font-weight: bold" if "bold" in match.group(1) or "700" in match.group(1) else ""
    return f"font-size: {match.group(2)}px; font-family: inherit{weight}"


def with_own_ids(svg: str, prefix: str) -> str:
    """The same chart with names of its own, so that several fit on one page."""
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\1{prefix}-", svg)
