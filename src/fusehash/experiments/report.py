"""From raw results to what people read: a table in the terminal, CSV, LaTeX, and one page that needs nothing else.

Everything comes from the store. Missing runs are shown as missing, with the command that computes them. Sentences about
who leads, by how much and how sure that is, are computed too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
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
from fusehash.experiments.metrics import Results, collect, unique
from fusehash.experiments.spec import Spec, shipped
from fusehash.experiments.store import ResultStore, now, slug
from fusehash.experiments.tables import Cell, MethodKind, Table, kind_of, metric_name
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
    """One protocol of the report on one data set."""

    protocol: str
    table: Table
    finding: Finding | None


@dataclass(frozen=True)
class Section:
    """One data set of the report."""

    results: Results
    panels: list[Panel]


def terminal_table(spec: Spec, store: ResultStore, *, results: Sequence[Results] | None = None) -> Group:
    """The tables of a specification for the terminal; `results` spares the work where `collect` was called before."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    for on_dataset in collect(spec, store) if results is None else results:
        shown = _tables(on_dataset)
        parts += [tables.rich_table(table) for table in shown]
        parts += [Text(sentence) for sentence in _missing(on_dataset, store)]
        parts += [Text(sentence, style="dim") for sentence in _legend(shown, on_dataset)]
    if {"map", "ablation"} & set(spec.sections):
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
    if not formats or not set(formats) <= set(FORMATS):
        raise ParameterError("write_report", "formats", f"some of {', '.join(FORMATS)}", list(formats))
    if out.exists() and not out.is_dir():
        raise DataError(f"The folder of a report must be a folder. '{out}' is a file.")
    results = list(collect(spec, store, progress) if results is None else results)
    if not any(on_dataset.runs for on_dataset in results):
        problem = f"A report needs stored runs. None of {spec.name} is in '{store.folder}'"
        raise DataError(f"{problem}; to compute them: {_run_command(spec, store, stand_in=False)}")
    out.mkdir(parents=True, exist_ok=True)
    make: dict[str, Callable[[], str]] = {
        "html": lambda: html_page(spec, store, results, examples),
        "csv": lambda: tables.csv_text(results),
        "latex": lambda: tables.latex_text([table for on_dataset in results for table in _tables(on_dataset)]),
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

    sections = [_section(on_dataset) for on_dataset in results]
    template = environment().get_template("report.html")
    page = template.render(
        spec=spec,
        notes=_notes(spec),
        sections=[section for section in sections if section.results.dataset is not None],
        absent=[section for section in sections if section.results.dataset is None],
        summary=[sentence for section in sections for sentence in summary(section)],
        examples=Markup(render_examples(examples)) if examples else "",
        marks=significance.SENTENCE,
        run_command=_run_command(spec, store, stand_in=any(on_dataset.stand_in for on_dataset in results)),
        report_command=report_command(spec, store.folder.name),
        made=now()[:16].replace("T", " "),
        svg=svg,
        figures=figures,
        protocols=PROTOCOLS,
        against_paper=against_paper,
        facts=_facts,
        panel_sentence=panel_sentence,
        time_tables=_time_tables,
        dash=tables.NONE,
    )
    return str(page)


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


def _tables(results: Results) -> list[Table]:
    """The tables that the specification's sections ask for."""
    has_map = results.dataset is not None and {"map", "ablation"} & set(results.spec.sections)
    out = [tables.map_table(results, protocol) for protocol in results.spec.protocols] if has_map else []
    return out + _time_tables(results)


def _time_tables(results: Results) -> list[Table]:
    if "times" not in results.spec.sections or results.dataset is None:
        return []
    return [tables.fit_table(results), tables.encode_table(results)]


def _section(results: Results) -> Section:
    protocols = () if results.dataset is None else results.spec.protocols
    by_protocol = [(protocol, tables.map_table(results, protocol)) for protocol in protocols]
    return Section(results, [Panel(protocol, table, find_leader(table)) for protocol, table in by_protocol])


def _facts(results: Results) -> list[tuple[str, str]]:
    """What a reader needs to check or repeat the numbers."""
    data, spec = results.dataset, results.spec
    assert data is not None
    runs = [run.record for run in results.runs.values()]
    versions = unique((name, value) for run in runs for name, value in run.versions.items())
    made = sorted({run.created[:10] for run in runs if run.created}) or [tables.NONE]
    features = ", ".join(f"{view} {n:,}" for view, n in data.n_features.items())
    return [
        ("data set", f"{results.name}: {data.n_rows:,} pairs; features: {features}"),
        ("data hash", data.fingerprint),
        ("split", f"{data.split}; {data.train.size:,} training pairs, {data.query.size:,} queries"),
        ("measure", f"{metric_name(spec)}, ties: {spec.ties}"),
        ("seeds", ", ".join(map(str, spec.seeds))),
        ("runs", f"{len(results.runs):,} of {len(results.runs) + len(results.missing):,}"),
        ("computed", " to ".join(dict.fromkeys((made[0], made[-1])))),
        ("versions", "; ".join(f"{name} {', '.join(values)}" for name, values in versions.items())),
    ]


def _missing(results: Results, store: ResultStore) -> list[str]:
    """A sentence about missing runs, if there are any."""
    command = _run_command(results.spec, store, stand_in=results.stand_in)
    if results.dataset is None:
        return [f"No runs on {results.requested.name} are in {store.folder}. To compute them: {command}"]
    counts = f"{len(results.missing):,} of {len(results.runs) + len(results.missing):,} runs are missing"
    return [f"{counts}. To complete them: {command}"] if results.missing else []


def _name(spec: Spec) -> str:
    return spec.name if spec.name in shipped() else f"{spec.name}.yaml"


def _run_command(spec: Spec, store: ResultStore, *, stand_in: bool) -> str:
    option = " --stand-in" if stand_in else ""
    return f"fusehash bench run {_name(spec)} --data DATA --out {store.folder.name}{option}{_options(spec, '--add')}"


def report_command(spec: Spec, results: str, name: str = "") -> str:
    """The command that makes this report; `name` is the specification as the user has named it."""
    return f"fusehash bench report {shlex.quote(name or _name(spec))} --results {shlex.quote(results)}{_options(spec)}"


def _options(spec: Spec, without: str = "") -> str:
    """The options that changed a specification, as they follow a command."""
    words = spec.options
    pairs = [pair for pair in zip(words[::2], words[1::2], strict=True) if pair[0] != without]
    return "".join(f" {shlex.join(pair)}" for pair in pairs)


def _notes(spec: Spec) -> str:
    """What a reader should know; the notes of the file are about all of it."""
    parts = [pair for pair in zip(spec.options[::2], spec.options[1::2], strict=True) if pair[0] != "--allow"]
    if not parts:
        return spec.notes
    added, narrowed = (any((flag == "--add") == is_add for flag, _ in parts) for is_add in (True, False))
    what = f"A part of {spec.name}" if narrowed else spec.name
    return f"{what}{', with rows added' if added else ''}: {' '.join(map(' '.join, parts))}."


def _legend(shown: Sequence[Table], results: Results) -> list[str]:
    """What the signs in tables mean, as far as they occur."""
    second_hand = tables.second_hand(results)
    means = {
        "±: standard deviation over seeds.": any(
            table.marked and len(cell.values) > 1 for table in shown for cell in table.cells()
        ),
        "In brackets: the value that the paper prints.": any(table.has_printed for table in shown),
        f"Copied there from other papers: {', '.join(second_hand)}.": bool(second_hand)
        and any(table.has_printed for table in shown),
        "3/5: some seeds are missing, and their column has no marks.": any(table.partial for table in shown),
    }
    sentences = [sentence for sentence, occurs in means.items() if occurs]
    return [" ".join(sentences)] if sentences else []


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
    counts = [_counted(len(lines) - controls, "method")] + ([_counted(controls, "control")] if controls else [])
    first = (
        f"{_listed(counts)} on {results.name}: {_counted(results.dataset.query.size, 'query', 'queries')}, "
        f"{_counted(len(spec.seeds), 'seed')}, {_listed([str(b) for b in spec.bits])} bits."
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
    text = f"{first.leader}{kind} has the highest mean {metric} under {_listed([protocol for protocol, _ in findings])}"
    margins = [f"{finding.above(finding.control):.3f}" for _, finding in findings if finding.control is not None]
    if first.kind == "control":
        text += ", where no method beats it"
    elif margins:
        low, high = min(margins, key=float), max(margins, key=float)
        text += f", {low if low == high else f'{low} to {high}'} above the best control"
    if first.next is None:
        return text + "."
    n_best, n_columns = (sum(getattr(finding, name) for _, finding in findings) for name in ("n_best", "n_columns"))
    return f"{text}; the test confirms that it leads in {n_best} of {_counted(n_columns, 'column')}."


def panel_sentence(finding: Finding | None, metric: str) -> str:
    """Who leads under one protocol, and by how much."""
    if finding is None or finding.next is None:
        return ""
    mean = f"{finding.leader} {finding.means[finding.leader]:.3f}"
    text = f"Mean {metric} over {_counted(finding.n_columns, 'column')}: {mean}, "
    text += f"{finding.above(finding.next):.3f} above the next, {finding.next}"
    if finding.control is not None and finding.control != finding.next:
        text += f", and {finding.above(finding.control):.3f} above the best control, {finding.control}"
    return text + "."


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _counted(n: int, word: str, words: str = "") -> str:
    return f"{n:,} {word if n == 1 else words or word + 's'}"
