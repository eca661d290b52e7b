"""From raw results to what people read: a table in the terminal, CSV, LaTeX, and one page that needs nothing else.

Everything comes from the store. Missing runs are shown as missing, with the command that computes them. Sentences about
who leads, by how much and how sure that is, are computed too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import PROTOCOLS
from fusehash.experiments import figures, significance, tables
from fusehash.experiments.examples import Example
from fusehash.experiments.figures import Chart
from fusehash.experiments.metrics import Results, collect
from fusehash.experiments.spec import Spec, shipped
from fusehash.experiments.store import ResultStore, now, slug
from fusehash.experiments.tables import MethodKind, Table, TableRow, kind_of, metric_name
from fusehash.extras import require
from fusehash.files import write_atomically
from fusehash.parameters import Progress

if TYPE_CHECKING:
    from rich.console import Group

FORMATS = ("html", "csv", "latex")
ENDINGS = {"html": "html", "csv": "csv", "latex": "tex"}
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Panel:
    """What one protocol shows."""

    protocol: str
    sentence: str
    table: Table
    finding: Finding | None
    leader: str
    against_paper: str
    overview: list[Chart]
    top_n: list[Chart]
    curves: list[Chart]
    sensitivity: list[Chart]
    ablation: list[Chart]


@dataclass(frozen=True)
class Section:
    """One data set of the report."""

    results: Results
    panels: list[Panel]
    convergence: list[Chart]
    times: list[Chart]
    time_tables: list[Table]
    notes: dict[str, list[str]]
    facts: list[tuple[str, str]]
    n_missing: int
    n_planned: int


def terminal_table(spec: Spec, store: ResultStore, *, results: Sequence[Results] | None = None) -> Group:
    """The tables of a specification for the terminal; `results` spares the work where `collect` was called before."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for one in collect(spec, store) if results is None else results:
        parts += [tables.rich_table(table) for table in _tables(one)]
        sentence = _missing_sentence(one, store)
        if sentence:
            parts.append(Text(sentence))
    if any(section in spec.sections for section in ("map", "ablation")):
        parts.append(Text(significance.SENTENCE, style="dim"))
    return Group(*parts)


def write_report(
    spec: Spec,
    store: ResultStore,
    out: Path,
    *,
    formats: Sequence[str] = FORMATS,
    progress: Progress | None = None,
    results: Sequence[Results] | None = None,
    examples: Sequence[Example] = (),
) -> list[Path]:
    """Write the report of a specification into a folder, one file per format, and return the files.

    Parameters
    ----------
    spec, store : what was asked for, and the raw results
    out : a folder; made if it is not there
    formats : some of "html", "csv", "latex"
    progress : called with (step, total, message)
    results : what `collect` returned, where it was called before
    examples : retrieval examples for the page
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown or not formats:
        raise ParameterError("write_report", "formats", f"some of {', '.join(FORMATS)}", list(formats))
    if out.exists() and not out.is_dir():
        raise DataError(f"The folder of a report must be a folder. '{out}' is a file.")
    results = list(collect(spec, store, progress) if results is None else results)
    if not any(one.runs for one in results):
        command = _run_command(spec, store, stand_in=False)
        raise DataError(
            f"A report needs stored runs. None of {spec.name} is in '{store.folder}'; to compute them: {command}"
        )
    out.mkdir(parents=True, exist_ok=True)
    make: dict[str, Callable[[], str]] = {
        "html": lambda: html_page(spec, store, results, examples),
        "csv": lambda: tables.csv_text(results),
        "latex": lambda: tables.latex_text([table for one in results for table in _tables(one)]),
    }
    written = []
    for i, name in enumerate(dict.fromkeys(formats)):
        if progress is not None:
            progress(i, len(formats), f"writing {name}")
        path = out / f"{slug(spec.name)}.{ENDINGS[name]}"
        content = make[name]().encode()
        write_atomically(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
        written.append(path)
    return written


def html_page(spec: Spec, store: ResultStore, results: Sequence[Results], examples: Sequence[Example] = ()) -> str:
    """The whole page; it asks for nothing from outside."""
    from markupsafe import Markup

    numbers = count()

    def svg(chart: Chart) -> Markup:
        return Markup(figures.with_own_ids(chart.svg, f"c{next(numbers)}"))

    sections = [_section(one) for one in results]
    absent = [section for section in sections if section.results.dataset is None]
    return (
        environment()
        .get_template("report.html")
        .render(
            spec=spec,
            metric=metric_name(spec),
            sections=[section for section in sections if section.results.dataset is not None],
            absent=absent,
            summary=[
                sentence
                for one in sections
                for sentence in summary(one.results, {p.protocol: p.finding for p in one.panels if p.finding})
            ],
            examples=Markup(render_examples(examples)) if examples else "",
            marks=significance.SENTENCE,
            run_command=_run_command(spec, store, stand_in=any(one.stand_in for one in results)),
            report_command=f"fusehash bench report {_name(spec)} --results {store.folder.name}",
            made=now()[:16].replace("T", " "),
            svg=svg,
            protocols=PROTOCOLS,
            dash=tables.NONE,
        )
    )


@cache
def environment() -> Any:
    """Templates with everything escaped and no name left undefined."""
    jinja2 = require("jinja2", "Writing the page")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


def render_examples(examples: Sequence[Example]) -> str:
    """The examples as HTML; everything in them is escaped."""
    return str(environment().get_template("examples.html").render(examples=examples))


# -- parts -----------------------------------------------------------------------------------------------------------


def _tables(results: Results) -> list[Table]:
    """The tables that the specification's sections ask for."""
    if results.dataset is None:
        return []
    out = []
    if {"map", "ablation"} & set(results.spec.sections):
        out += [tables.map_table(results, protocol) for protocol in results.spec.protocols]
    return out + _time_tables(results)


def _time_tables(results: Results) -> list[Table]:
    if "times" not in results.spec.sections or results.dataset is None:
        return []
    return [tables.fit_table(results), tables.encode_table(results)]


def _section(results: Results) -> Section:
    sections = results.spec.sections
    has_data = results.dataset is not None
    return Section(
        results=results,
        panels=[_panel(results, protocol) for protocol in results.spec.protocols] if has_data else [],
        convergence=figures.convergence(results) if "convergence" in sections else [],
        times=figures.times(results) if "times" in sections else [],
        time_tables=[tables.fit_table(results), tables.encode_table(results)]
        if "times" in sections and has_data
        else [],
        notes=results.notes(),
        facts=_facts(results),
        n_missing=len(results.missing),
        n_planned=results.n_planned,
    )


def _panel(results: Results, protocol: str) -> Panel:
    sections = results.spec.sections
    table = tables.map_table(results, protocol)
    finding = find_leader(table)
    by_half = results.dataset is not None and not results.dataset.rows.new.size
    return Panel(
        protocol=protocol,
        sentence=PROTOCOLS[protocol].database_rule(by_half=by_half),
        table=table,
        finding=finding,
        leader=panel_sentence(finding, metric_name(results.spec)),
        against_paper=against_paper(table),
        overview=figures.overview(results, table),
        top_n=figures.top_n(results, protocol) if "topn" in sections else [],
        curves=figures.precision_recall(results, protocol) if "pr" in sections else [],
        sensitivity=figures.sensitivity(results, protocol) if "sensitivity" in sections else [],
        ablation=figures.ablation(results, protocol) if "ablation" in sections else [],
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    """What a reader needs to check or repeat the numbers."""
    data, spec = results.dataset, results.spec
    if data is None:
        return []
    runs = [run.record for run in results.runs.values()]
    versions: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, value in run.versions.items():
            versions.setdefault(name, {})[value] = None
    made = sorted(run.created[:10] for run in runs if run.created)
    features = ", ".join(f"{view} {n:,}" for view, n in data.n_features.items())
    return [
        ("data set", f"{results.name}: {data.n_rows:,} pairs; features: {features}"),
        ("data hash", data.fingerprint),
        ("split", f"{data.split}; {data.train.size:,} training pairs, {data.query.size:,} queries"),
        ("measure", f"{metric_name(spec)}, ties: {spec.ties}"),
        ("seeds", ", ".join(map(str, spec.seeds))),
        ("runs", f"{results.n_planned - len(results.missing):,} of {results.n_planned:,}"),
        ("computed", f"{made[0]} to {made[-1]}" if made and made[0] != made[-1] else made[0] if made else tables.NONE),
        ("versions", "; ".join(f"{name} {', '.join(values)}" for name, values in versions.items())),
    ]


def _missing_sentence(results: Results, store: ResultStore) -> str:
    command = _run_command(results.spec, store, stand_in=results.stand_in)
    if results.dataset is None:
        return f"No runs on {results.requested.name} are in {store.folder}. To compute them: {command}"
    missing = len(results.missing)
    if not missing:
        return ""
    return f"{missing:,} of {results.n_planned:,} runs are missing. To complete them: {command}"


def _name(spec: Spec) -> str:
    return spec.name if spec.name in shipped() else f"{spec.name}.yaml"


def _run_command(spec: Spec, store: ResultStore, *, stand_in: bool) -> str:
    return f"fusehash bench run {_name(spec)} --data DATA --out {store.folder.name}" + (
        " --stand-in" if stand_in else ""
    )


# -- findings --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """Who leads under one protocol: the line with the highest mean over all columns that every line has.

    above : by how much over the next line (None: there is none); control, above_control : the best control, likewise
    n_best, n_columns : in how many columns the leader is separable from every other line
    """

    leader: str
    kind: MethodKind
    value: float
    next: str | None
    above: float | None
    control: str | None
    above_control: float | None
    n_best: int
    n_columns: int


def find_leader(table: Table) -> Finding | None:
    """Who has the highest mean over the columns that every line with results has."""
    lines: dict[str, list[TableRow]] = {}
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
    """Sentences for the top of the page; findings : protocol -> the leader under it."""
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
    for protocol, finding in findings.items():
        by_leader.setdefault(finding.leader, []).append((protocol, finding))
    return [first, *(leader_sentence(pairs, metric_name(spec)) for pairs in by_leader.values())]


def leader_sentence(findings: Sequence[tuple[str, Finding]], metric: str) -> str:
    """Where one line leads, by how much over the controls, and how often the test agrees."""
    first = findings[0][1]
    kind = {"control": ", a control,", "supervised": ", which learns from labels,"}.get(first.kind, "")
    text = f"{first.leader}{kind} has the highest mean {metric} under {_listed([protocol for protocol, _ in findings])}"
    margins = [one.above_control for _, one in findings if one.above_control is not None]
    if first.kind == "control":
        text += ", where no method beats it"
    elif margins:
        low, high = f"{min(margins):.3f}", f"{max(margins):.3f}"
        text += f", {low if low == high else f'{low} to {high}'} above the best control"
    if first.next is None:
        return text + "."
    n_best, n_columns = (sum(getattr(one, name) for _, one in findings) for name in ("n_best", "n_columns"))
    return f"{text}; the test confirms that it leads in {n_best} of {_counted(n_columns, 'column')}."


def panel_sentence(finding: Finding | None, metric: str) -> str:
    """Who leads under one protocol, and by how much."""
    if finding is None or finding.next is None or finding.above is None:
        return ""
    text = f"Mean {metric} over {_counted(finding.n_columns, 'column')}: {finding.leader} {finding.value:.3f}, "
    text += f"{finding.above:.3f} above the next, {finding.next}"
    if finding.control is not None and finding.above_control is not None and finding.control != finding.next:
        text += f", and {finding.above_control:.3f} above the best control, {finding.control}"
    return text + "."


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def _counted(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
