"""From raw results to what people read: a table in the terminal, CSV, LaTeX, and one page that needs nothing else.

Everything comes from the store. What is missing is shown as missing, with the command that completes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.protocols import database_rule
from fusehash.experiments import exports, figures, findings, panels, significance, tables
from fusehash.experiments.examples import Example, render_examples
from fusehash.experiments.findings import Finding
from fusehash.experiments.metrics import Progress, Results, collect
from fusehash.experiments.panels import Chart
from fusehash.experiments.spec import Spec, shipped
from fusehash.experiments.store import ResultStore, now
from fusehash.experiments.tables import Table
from fusehash.files import write_atomically

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
        parts += [exports.rich_table(table) for table in _tables(one)]
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
    found = list(collect(spec, store, progress) if results is None else results)
    if not any(one.runs for one in found):
        command = _run_command(spec, store, stand_in=False)
        raise DataError(
            f"A report needs stored runs. None of {spec.name} is in '{store.folder}'; to compute them: {command}"
        )
    out.mkdir(parents=True, exist_ok=True)
    make: dict[str, Callable[[], str]] = {
        "html": lambda: html_page(spec, store, found, examples),
        "csv": lambda: exports.csv_text(found),
        "latex": lambda: exports.latex_text([table for one in found for table in _tables(one)]),
    }
    written = []
    for i, name in enumerate(dict.fromkeys(formats)):
        if progress is not None:
            progress(i, len(formats), f"writing {name}")
        path = out / f"{_slug(spec.name)}.{ENDINGS[name]}"
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
            metric=tables.metric_name(spec),
            sections=[section for section in sections if section.results.dataset is not None],
            absent=absent,
            summary=[
                sentence
                for one in sections
                for sentence in findings.summary(one.results, {p.protocol: p.finding for p in one.panels if p.finding})
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
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError:
        raise DataError("The page needs Jinja2. Install it with: pip install 'fusehash[bench]'.") from None
    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip


# -- parts -----------------------------------------------------------------------------------------------------------


def _tables(results: Results) -> list[Table]:
    """The tables that the specification's sections ask for."""
    if results.dataset is None:
        return []
    out = []
    if {"map", "ablation"} & set(results.spec.sections):
        out += [tables.map_table(results, protocol) for protocol in results.spec.protocols]
    if "times" in results.spec.sections:
        out += [tables.fit_table(results), tables.encode_table(results)]
    return out


def _section(results: Results) -> Section:
    wanted = results.spec.sections
    has_data = results.dataset is not None
    return Section(
        results=results,
        panels=[_panel(results, protocol) for protocol in results.spec.protocols] if has_data else [],
        convergence=panels.convergence(results) if "convergence" in wanted else [],
        times=panels.times(results) if "times" in wanted else [],
        time_tables=[tables.fit_table(results), tables.encode_table(results)] if "times" in wanted and has_data else [],
        notes=results.notes(),
        facts=_facts(results),
        n_missing=len(results.missing),
        n_planned=results.n_planned,
    )


def _panel(results: Results, protocol: str) -> Panel:
    wanted = results.spec.sections
    table = tables.map_table(results, protocol)
    finding = findings.find_leader(table)
    by_half = results.dataset is not None and not results.dataset.new.size
    return Panel(
        protocol=protocol,
        sentence=database_rule(protocol, by_half=by_half),
        table=table,
        finding=finding,
        leader=findings.panel_sentence(finding, tables.metric_name(results.spec)),
        against_paper=findings.against_paper(table),
        overview=panels.overview(results, table),
        top_n=panels.top_n(results, protocol) if "topn" in wanted else [],
        curves=panels.precision_recall(results, protocol) if "pr" in wanted else [],
        sensitivity=panels.sensitivity(results, protocol) if "sensitivity" in wanted else [],
        ablation=panels.ablation(results, protocol) if "ablation" in wanted else [],
    )


def _facts(results: Results) -> list[tuple[str, str]]:
    """What a reader needs to check or repeat the numbers."""
    data, spec = results.dataset, results.spec
    if data is None:
        return []
    runs = list(results.runs.values())
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
        ("measure", f"{tables.metric_name(spec)}, ties: {spec.ties}"),
        ("seeds", ", ".join(map(str, spec.seeds))),
        ("runs", f"{results.n_planned - len(results.missing):,} of {results.n_planned:,}"),
        ("computed", f"{made[0]} to {made[-1]}" if made and made[0] != made[-1] else made[0] if made else tables.NONE),
        ("versions", "; ".join(f"{name} {', '.join(values)}" for name, values in versions.items())),
    ]


def _missing_sentence(results: Results, store: ResultStore) -> str:
    command = _run_command(results.spec, store, stand_in=results.stand_in)
    if results.dataset is None:
        return f"No runs on {results.wanted.name} are in {store.folder}. To compute them: {command}"
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


def _slug(text: str) -> str:
    """A word for the name of a file."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
