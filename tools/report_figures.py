"""Draw the figures of paper/report.md from stored runs: `python tools/report_figures.py`."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from pathlib import Path

from fusehash.plots import cost
from fusehash.plots.drawing import COLORS, Bar, Line, Plot, Style, bar_chart, line_chart

ROOT = Path(__file__).parents[1]
RESULTS, FIGURES = ROOT / "benchmarks" / "results", ROOT / "paper" / "figures"
TABLE_1 = RESULTS / "paper-table1-2026-11-19.csv"
DIRECTION = "text->image"
# Series of `mixed_protocols` share the color of their method: circles are U, squares H, crosses what is printed.
# All of one commit, which the label of the first one names.
ABLATION = ("default at 5af1444", "no graph", "raw graph only", "linear map", "random rotation", "untuned")


def table_rows() -> list[dict[str, str]]:
    """The rows of Table 1 as measured here, one direction."""
    with TABLE_1.open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["direction"] == DIRECTION]


def mixed_protocols() -> Plot:
    """What is printed for four methods, next to what two protocols give here."""
    lines = []
    for color, label in zip(COLORS, ("AGSFH", "RFDH", "FSH", "JIMFH"), strict=False):
        rows = [row for row in table_rows() if row["label"] == label]
        for protocol in ("U", "H"):
            own = sorted((int(row["bits"]), float(row["mean"])) for row in rows if row["protocol"] == protocol)
            lines.append(
                Line(
                    f"{label}, {protocol}", *zip(*own, strict=True), Style(color, "o" if protocol == "U" else "s", "-")
                )
            )
        printed = sorted({(int(row["bits"]), float(row["printed"])) for row in rows if row["printed"]})
        lines.append(Line(f"{label}, printed", *zip(*printed, strict=True), Style(color, "X", (0, (1.2, 1.4)), 2.3)))
    title = "Wiki, text to image: measured under U and H, and printed"
    return line_chart(lines, title=title, x_label="bits", y_label="MAP@50", x_scale="log2", names="list")


def four_protocols() -> Plot:
    """FuseHash and the control, under all protocols, by the stored study."""
    lines, runs = [], defaultdict(dict)
    for run in study():
        for score in run["scores"]:
            if score["direction"] == DIRECTION:
                runs[run["variant"], score["protocol"]][run["bits"]] = score["mean"], score["std"]
    for color, protocol in zip(COLORS, ("U", "H", "HN", "FN"), strict=False):
        for variant, name in (("default", "FuseHash"), ("regression", "control")):
            points = sorted(runs[variant, protocol].items())
            x = [bits for bits, _ in points]
            y, spread = zip(*(score for _, score in points), strict=True)
            look = Style(color, "o", "-", 2.3) if variant == "default" else Style(color, "s", (0, (5, 1.6)))
            lines.append(Line(f"{name}, {protocol}", x, y, look, spread))
    title = "Wiki, text to image: FuseHash and regression"
    return line_chart(lines, title=title, x_label="bits", y_label="MAP@50", x_scale="log2", names="list")


def ablation() -> Plot:
    """FuseHash without one of its parts: the mean of HN and FN, both directions."""
    bars = []
    for run in study():
        scores = [score["mean"] for score in run["scores"] if score["protocol"] in ("HN", "FN")]
        if run["bits"] == 64 and run["variant"] in ABLATION and not run["asymmetric"]:
            kind = "ours" if run["variant"] == ABLATION[0] else "method"
            bars.append(Bar(run["variant"], sum(scores) / len(scores), kind=kind))
    bars.sort(key=lambda bar: ABLATION.index(bar.label))
    return bar_chart(
        bars, title="Wiki, 64 bits: one part left out", x_label="MAP@50, mean of HN and FN, both directions"
    )


def study() -> list[dict]:
    """Stored runs of the study on Wiki with symmetric search."""
    with (RESULTS / "study.jsonl").open(encoding="utf-8") as file:
        runs = [json.loads(line) for line in file]
    return [run for run in runs if run["data"] == "wiki" and not run["asymmetric"]]


def growth() -> Plot:
    """Seconds of a whole fit from files, over the number of pairs."""
    rows = json.loads((RESULTS / "scaling-2026-11-15.json").read_text(encoding="utf-8"))["rows"]
    seconds: dict[str, dict[float, float]] = defaultdict(dict)
    names = {"default": "self-tuned", "fixed": "fixed settings"}
    for row in rows:
        if row["method"] in names and row["threads"] == 2:
            seconds[names[row["method"]]][row["n"]] = row["fit_s"]
    return cost(seconds, what="seconds to fit on two cores", over="pairs")


if __name__ == "__main__":
    FIGURES.mkdir(parents=True, exist_ok=True)
    for draw in (mixed_protocols, four_protocols, ablation, growth):
        print(draw().save(FIGURES / f"{draw.__name__}.svg").relative_to(ROOT))
