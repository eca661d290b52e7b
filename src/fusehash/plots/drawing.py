"""How charts are drawn: lines, bars and maps that can be read in black and white, in light and in dark.

Every line has a color (Okabe and Ito), a marker, a dash pattern and its name at its end. Text stays text. Nothing is
fetched: as SVG, a chart takes its font and neutral colors from the page around it, and its other colors from the page's
variables --s0 ... --s6.
"""

from __future__ import annotations

import html
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from fusehash.errors import ParameterError
from fusehash.extras import require
from fusehash.files import write_atomically
from fusehash.views import Floats

Scale: TypeAlias = Literal["linear", "log", "log2", "ordinal"]
BarKind: TypeAlias = Literal["ours", "method", "supervised", "control"]

INK, GRID, QUIET = "#1a1b1c", "#c0c1c2", "#8a8b8c"  # stand for colors of the page
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
MARKERS = ("o", "s", "^", "D", "v", "X", "P", "<", ">", "p", "h", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1, 1, 1, 1, 1)))
BAR_COLORS: dict[BarKind, str] = {"ours": COLORS[0], "method": "#9db7cb", "supervised": COLORS[4], "control": QUIET}
PAGE_COLORS = {
    INK: "currentColor",
    GRID: "var(--grid, #d5d7da)",
    QUIET: "var(--quiet, #8a8b8c)",
    BAR_COLORS["method"]: "var(--bar, #9db7cb)",
    **{color: f"var(--s{i}, {color})" for i, color in enumerate(COLORS[:-1])},
}
WIDTH, HEIGHT, FONT = 400.0, 290.0, 9.5  # points
FILE_FORMATS = (".svg", ".png", ".pdf")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LABEL_STEP = 10.5  # between two names at the ends of lines
MARKERS_PER_LINE = 9  # about
SMALL = (285.0, 215.0)


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
    kind: BarKind = "method"
    mark: str = ""


@contextmanager
def text_as_text() -> Iterator[None]:
    """No mathematics between dollar signs, no outlines, the same file for the same content."""
    settings = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "fusehash", "hatch.linewidth": 0.7}
    with require("matplotlib", "Drawing figures").rc_context(settings):
        yield


def check_drawing(path: str | os.PathLike[str]) -> Path:
    """Raise unless a chart can be drawn here and written to a file of this name."""
    if Path(path).suffix not in FILE_FORMATS:
        raise ParameterError("Plot.save", "path", f"a file that ends in {', '.join(FILE_FORMATS)}", str(path))
    require("matplotlib", "Drawing figures")
    return Path(path)


class Plot:
    """A drawn chart: a notebook shows it, `save` writes it, `figure` is matplotlib's, to change what you like.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        The drawing.
    title : str
        What the chart shows, in a few words; the name of the picture for screen readers.
    description : str
        What a reader who cannot see it should know.
    """

    def __init__(self, figure: Any, title: str, description: str) -> None:
        self.figure, self.title, self.description = figure, title, description

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"

    @text_as_text()
    def svg(self) -> str:
        """The chart as an `<svg>` element that takes its font and neutral colors from the page around it."""
        return _svg(self.figure, self.title, self.description)

    def _repr_svg_(self) -> str:
        return self.svg()

    @text_as_text()
    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the chart to a file whose ending says how: .svg, .png or .pdf.

        Raises
        ------
        ParameterError
            If the ending is another one.
        """
        path = check_drawing(path)
        if path.suffix == ".svg":
            content = f'<?xml version="1.0" encoding="UTF-8"?>\n{self.svg()}\n'.encode()
        else:
            buffer = io.BytesIO()
            self.figure.savefig(buffer, format=path.suffix[1:], dpi=144, facecolor="white")
            content = buffer.getvalue()
        write_atomically(path, lambda file: file.write(content))
        return path


def style(index: int, *, strong: bool = False) -> Style:
    """The style of the index-th line: color, marker and dash turn at different speeds, so that 420 differ."""
    color, marker, dash = (values[index % len(values)] for values in (COLORS, MARKERS, DASHES))
    return Style(color, marker, dash, width=2.3 if strong else 1.4)


@text_as_text()
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
) -> Plot:
    """Lines with their names at their ends, or in a list next to the plot if all lines end at one point.

    zero : draw y = 0
    size : in points; smaller charts have larger text on the page
    """
    ticks = sorted({float(x) for line in lines for x in line.x})
    lines = [_finite(line, ticks if x_scale == "ordinal" else None) for line in lines]
    lines = [line for line in lines if len(line.x)]
    longest = max((len(line.label) for line in lines), default=0)
    right = (16 if names == "ends" else 38) + min(0.5 * FONT * longest, 0.4 * size[0])
    figure, axes = make_axes(*size, left=44, right=right, bottom=36)
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
    label_axes(axes, title, x_label, y_label)
    if names == "ends":
        _name_line_ends(axes, lines)
    elif lines:
        _list_names(axes, lines)
    return Plot(figure, title, f"{y_label} against {x_label}: {', '.join(line.label for line in lines)}.")


@text_as_text()
def bar_chart(bars: Sequence[Bar], *, title: str, x_label: str) -> Plot:
    """Horizontal bars in this order, the first on top; a hollow diamond where the paper printed a value."""
    longest = max((len(bar.label) for bar in bars), default=0)
    left = 10 + min(0.52 * FONT * longest, 0.42 * WIDTH)
    figure, axes = make_axes(WIDTH, 62 + 15.5 * max(len(bars), 1), left=left, right=44, bottom=34)
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
    label_axes(axes, title, x_label)
    return Plot(figure, title, f"{x_label}: {', '.join(f'{bar.label} {bar.value:.3f}' for bar in shown)}.")


def _finite(line: Line, ticks: Sequence[float] | None) -> Line:
    """The line without points that have no value; x becomes the number of a tick where there are ticks."""
    x = np.asarray(line.x, dtype=np.float64) if ticks is None else np.searchsorted(ticks, line.x).astype(np.float64)
    y = np.asarray(line.y, dtype=np.float64)
    finite = np.isfinite(y)
    spread = None if line.spread is None else np.nan_to_num(np.asarray(line.spread, dtype=np.float64)[finite])
    return replace(line, x=x[finite], y=y[finite], spread=spread)


def make_axes(width: float, height: float, *, left: float, right: float, bottom: float) -> tuple[Any, Any]:
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


def label_axes(axes: Any, title: str, x_label: str, y_label: str = "") -> None:
    axes.set_title(title, color=INK, loc="left", fontsize=FONT + 0.5, fontweight="bold", pad=7)
    axes.set_xlabel(x_label, color=INK, fontsize=FONT, labelpad=3)
    axes.set_ylabel(y_label, color=INK, fontsize=FONT, labelpad=3)


def _scale_axes(axes: Any, ticks: Sequence[float], x_scale: Scale, y_scale: Scale) -> None:
    if x_scale in ("log", "log2"):
        axes.set_xscale("log", base=2 if x_scale == "log2" else 10)
        _label_logs(axes.xaxis)
    if x_scale in ("ordinal", "log2") and ticks:
        axes.set_xticks(range(len(ticks)) if x_scale == "ordinal" else ticks, [_short(tick) for tick in ticks])
        axes.minorticks_off()
    if y_scale == "log":
        axes.set_yscale("log")
        _label_logs(axes.yaxis)
    axes.margins(x=0.02)


def _label_logs(axis: Any) -> None:
    """Plain numbers at the powers of ten, and between them only where there are few powers."""
    axis.set_major_formatter(lambda value, _: _short(value))
    low, high = axis.get_view_interval()
    few = low > 0 and math.log10(high / low) < 2.0
    axis.set_minor_formatter(lambda value, _: f"{value:g}" if few and f"{value:e}"[0] in "25" else "")


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
