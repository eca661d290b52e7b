"""Sentences that are computed: who leads, by how much, how sure that is, and how far our numbers are from print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusehash.experiments.metrics import Results
from fusehash.experiments.tables import Cell, MethodKind, Table, kind_of, metric_name


@dataclass(frozen=True)
class Panel:
    """One protocol of the report on one data set."""

    protocol: str
    table: Table
    finding: Finding | None


@dataclass(frozen=True)
class Section:
    """One data set of the report."""

    results: Results
    panels: list[Panel]


@dataclass(frozen=True)
class Finding:
    """Who leads under one protocol: the line with the highest mean over all columns that every line has.

    means : of all lines, the highest first
    next, control : the best of the other lines, and of the other lines that are controls; None if there is none
    n_best, n_columns : in how many columns the leader is separable from every other line
    """

    means: dict[str, float]
    leader: str
    kind: MethodKind
    next: str | None
    control: str | None
    n_best: int
    n_columns: int

    def above(self, other: str) -> float:
        """By how much the leader is above another line."""
        return self.means[self.leader] - self.means[other]


def find_leader(table: Table) -> Finding | None:
    """Who has the highest mean over the columns that every line with results has."""
    cells: dict[str, list[Cell]] = {}
    for row in table.rows():
        if row.series is not None:
            cells.setdefault(row.label, []).extend(row.cells)
    cells = {label: line for label, line in cells.items() if any(cell.values for cell in line)}
    columns = [column for column in zip(*cells.values(), strict=True) if all(cell.values for cell in column)]
    if not columns:
        return None
    means = dict(zip(cells, np.mean([[cell.mean for cell in column] for column in columns], axis=0), strict=True))
    order = sorted(means, key=lambda label: -means[label])
    kinds = {row.label: row.kind for row in table.rows()}
    position = list(cells).index(order[0])
    return Finding(
        means={label: float(means[label]) for label in order},
        leader=order[0],
        kind=kinds[order[0]],
        next=next(iter(order[1:]), None),
        control=next((label for label in order[1:] if kinds[label] == "control"), None),
        n_best=sum(column[position].mark == "best" for column in columns),
        n_columns=len(columns),
    )


def against_paper(table: Table) -> str:
    """How far our means are from the printed ones."""
    pairs = [
        (cell.mean - cell.printed, f"{row.label}, {block.direction}, {bits} bits")
        for block in table.blocks
        for row in block.rows
        for bits, cell in zip(table.bits, row.cells, strict=True)
        if cell.printed is not None and cell.values
    ]
    if not pairs:
        return ""
    apart = float(np.mean([abs(difference) for difference, _ in pairs]))
    most, where = max(pairs, key=lambda pair: abs(pair[0]))
    return (
        f"{len(pairs)} of these numbers are also printed in the paper; ours differ from them by {apart:.3f} on "
        f"average, most for {where} ({most:+.3f})."
    )


def summary(section: Section) -> list[str]:
    """Sentences for the top of the page."""
    results, spec = section.results, section.results.spec
    if results.dataset is None:
        return []
    lines = [series for series in spec.lines if any(results.of(series, b) for b in spec.bits_of(series))]
    controls = sum(kind_of(series) == "control" for series in lines)
    counts = [counted(len(lines) - controls, "method")] + ([counted(controls, "control")] if controls else [])
    first = (
        f"{listed(counts)} on {results.name}: {counted(results.dataset.query.size, 'query', 'queries')}, "
        f"{counted(len(spec.seeds), 'seed')}, {listed([str(b) for b in spec.bits])} bits."
    )
    by_leader: dict[str, list[tuple[str, Finding]]] = {}
    for panel in section.panels:
        if panel.finding is not None:
            by_leader.setdefault(panel.finding.leader, []).append((panel.protocol, panel.finding))
    return [first, *(leader_sentence(pairs, metric_name(spec)) for pairs in by_leader.values())]


def leader_sentence(findings: Sequence[tuple[str, Finding]], metric: str) -> str:
    """Where one line leads, by how much over the controls, and how often the test agrees."""
    first = findings[0][1]
    kind = {"control": ", a control,", "supervised": ", which learns from labels,"}.get(first.kind, "")
    text = f"{first.leader}{kind} has the highest mean {metric} under {listed([protocol for protocol, _ in findings])}"
    margins = [f"{finding.above(finding.control):.3f}" for _, finding in findings if finding.control is not None]
    if first.kind == "control":
        text += ", where no method beats it"
    elif margins:
        low, high = min(margins, key=float), max(margins, key=float)
        text += f", {low if low == high else f'{low} to {high}'} above the best control"
    if first.next is None:
        return text + "."
    n_best, n_columns = (sum(getattr(finding, name) for _, finding in findings) for name in ("n_best", "n_columns"))
    return f"{text}; the test confirms that it leads in {n_best} of {counted(n_columns, 'column')}."


def panel_sentence(finding: Finding | None, metric: str) -> str:
    """Who leads under one protocol, and by how much."""
    if finding is None or finding.next is None:
        return ""
    mean = f"{finding.leader} {finding.means[finding.leader]:.3f}"
    text = f"Mean {metric} over {counted(finding.n_columns, 'column')}: {mean}, "
    text += f"{finding.above(finding.next):.3f} above the next, {finding.next}"
    if finding.control is not None and finding.control != finding.next:
        text += f", and {finding.above(finding.control):.3f} above the best control, {finding.control}"
    return text + "."


def listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
