"""What the numbers say, in sentences that are computed: who leads, by how much over the controls, how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusehash.experiments.figures import Kind
from fusehash.experiments.metrics import Results
from fusehash.experiments.tables import Row, Table, kind_of, metric_name


@dataclass(frozen=True)
class Finding:
    """Who leads under one protocol: the line with the highest mean over all columns that every line has.

    above : by how much over the next line (None: there is none); control, above_control : the best control, likewise
    n_best, n_columns : in how many columns the leader is separable from every other line
    """

    leader: str
    kind: Kind
    value: float
    next: str | None
    above: float | None
    control: str | None
    above_control: float | None
    n_best: int
    n_columns: int


def find_leader(table: Table) -> Finding | None:
    """Who has the highest mean over the columns that every line with results has."""
    lines: dict[str, list[Row]] = {}
    for row in table.rows():
        if row.series is not None:
            lines.setdefault(row.label, []).append(row)
    lines = {label: rows for label, rows in lines.items() if any(cell.values for row in rows for cell in row.cells)}
    columns = [
        (b, i)
        for b in range(len(table.blocks))
        for i in range(len(table.bits))
        if all(rows[b].cells[i].values for rows in lines.values())
    ]
    if not lines or not columns:
        return None
    means = {label: float(np.mean([rows[b].cells[i].mean for b, i in columns])) for label, rows in lines.items()}
    order = sorted(means, key=lambda label: -means[label])
    leader = order[0]
    controls = [label for label in order if lines[label][0].kind == "control" and label != leader]
    best = sum(lines[leader][b].cells[i].mark == "best" for b, i in columns)
    return Finding(
        leader=leader,
        kind=lines[leader][0].kind,
        value=means[leader],
        next=order[1] if len(order) > 1 else None,
        above=means[leader] - means[order[1]] if len(order) > 1 else None,
        control=controls[0] if controls else None,
        above_control=means[leader] - means[controls[0]] if controls else None,
        n_best=best,
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


def summary(results: Results, findings: Mapping[str, Finding]) -> list[str]:
    """Sentences for the top of the page; findings : protocol -> who leads under it."""
    data, spec = results.dataset, results.spec
    if data is None:
        return []
    lines = [one for one in spec.lines if any(results.of(one, b) for b in spec.bits_of(one))]
    controls = sum(kind_of(one) == "control" for one in lines)
    counts = [_counted(len(lines) - controls, "method")] + ([_counted(controls, "control")] if controls else [])
    first = (
        f"{_listed(counts)} on {results.name}: {_counted(data.query.size, 'query', 'queries')}, "
        f"{_counted(len(spec.seeds), 'seed')}, {_listed([str(b) for b in spec.bits])} bits."
    )
    by_leader: dict[str, list[tuple[str, Finding]]] = {}
    for protocol, found in findings.items():
        by_leader.setdefault(found.leader, []).append((protocol, found))
    return [first, *(leader_sentence(found, metric_name(spec)) for found in by_leader.values())]


def leader_sentence(found: Sequence[tuple[str, Finding]], metric: str) -> str:
    """Where one line leads, by how much over the controls, and how often the test agrees."""
    first = found[0][1]
    kind = {"control": ", a control,", "supervised": ", which learns from labels,"}.get(first.kind, "")
    text = f"{first.leader}{kind} has the highest mean {metric} under {_listed([protocol for protocol, _ in found])}"
    margins = [one.above_control for _, one in found if one.above_control is not None]
    if first.kind == "control":
        text += ", where no method beats it"
    elif margins:
        low, high = f"{min(margins):.3f}", f"{max(margins):.3f}"
        text += f", {low if low == high else f'{low} to {high}'} above the best control"
    if first.next is None:
        return text + "."
    n_best, n_columns = (sum(getattr(one, name) for _, one in found) for name in ("n_best", "n_columns"))
    return f"{text}; the test confirms that it leads in {n_best} of {_counted(n_columns, 'column')}."


def panel_sentence(found: Finding | None, metric: str) -> str:
    """Who leads one protocol, and whom it leaves behind."""
    if found is None or found.next is None or found.above is None:
        return ""
    text = f"Mean {metric} over {_counted(found.n_columns, 'column')}: {found.leader} {found.value:.3f}, "
    text += f"{found.above:.3f} above the next, {found.next}"
    if found.control is not None and found.above_control is not None and found.control != found.next:
        text += f", and {found.above_control:.3f} above the best control, {found.control}"
    return text + "."


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _counted(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
