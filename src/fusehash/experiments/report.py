"""From raw results to what people read: a table in the terminal, CSV, LaTeX, and one page that needs nothing else.

Everything comes from the store. Missing runs are shown as missing, with the command that computes them. Sentences about
who leads, by how much and how sure that is, are computed too.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import PROTOCOLS
from fusehash.experiments import figures, significance, tables
from fusehash.experiments.examples import Example
from fusehash.experiments.figures import Chart
from fusehash.experiments.findings import Panel, Section, against_paper, find_leader, panel_sentence, summary
from fusehash.experiments.metrics import Results, collect, unique
from fusehash.experiments.spec import Spec, shipped
from fusehash.experiments.store import ResultStore, now, slug
from fusehash.experiments.tables import Table, metric_name
from fusehash.extras import require
from fusehash.files import write_atomically
from fusehash.parameters import Progress

if TYPE_CHECKING:
    from rich.console import Group


FORMATS = ("html", "csv", "latex")
ENDINGS = {"html": "html", "csv": "csv", "latex": "tex"}
TEMPLATES = Path(__file__).parent / "templates"


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
