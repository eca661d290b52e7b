"""Tables of means and spreads next to the printed values, for the terminal, as CSV and as LaTeX.

A table has the layout of the paper: tasks (directions) x methods x bits. Times are tables of the same kind. The numbers
that the paper prints (Tables 1 to 7) are data in the folder `published`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fusehash.datasets.loading import benchmark_of
from fusehash.errors import ParameterError
from fusehash.evaluation import METRICS, PROTOCOLS, Score
from fusehash.experiments import significance
from fusehash.experiments.methods import kind_of_method
from fusehash.experiments.metrics import Direction, Results
from fusehash.experiments.significance import Mark
from fusehash.experiments.spec import OTHER_TABLES, PAPER_TABLES, Series, Spec
from fusehash.hashers.catalogue import OURS
from fusehash.views import Floats

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MethodKind: TypeAlias = Literal["ours", "method", "supervised", "control"]
Seconds: TypeAlias = Callable[[Series, int, str], Floats]  # of a series, bits and view; one per seed
Values: TypeAlias = Mapping[int, Iterable[float]]  # bits -> values per seed
Printed: TypeAlias = Mapping[str, Mapping[int, float]]  # method -> bits -> number in the paper
PUBLISHED = Path(__file__).parent / "published"
NONE = "–"
# Protocols whose numbers can be held against printed ones.
COMPARABLE = ("U", "H")
CSV_COLUMNS = (
    "dataset", "data_hash", "stand_in", "label", "method", "params", "group", "x", "protocol", "direction", "bits",
    "metric", "ties", "mean", "std", "values", "seeds", "printed", "mark", "fit_seconds", "encode_seconds", "n_query",
    "n_database",
)  # fmt: skip


@dataclass(frozen=True)
class PublishedRow:
    """One method on one data set ("" as direction: training times).

    bold : the bits at which it is printed in bold
    source : "paper", or "2nd" if those who print it have copied it from another paper
    """

    dataset: str
    direction: str
    method: str
    values: dict[int, float]
    bold: tuple[int, ...] = ()
    source: Literal["paper", "2nd"] = "paper"


@dataclass(frozen=True)
class PublishedTable:
    """A printed table. quantity : "MAP", "training seconds" or "testing seconds"."""

    title: str
    quantity: str
    bits: tuple[int, ...]
    rows: tuple[PublishedRow, ...]


@cache
def published(table: int | str) -> PublishedTable:
    """Table 1 to 7 of the paper, or the table of another paper by name."""
    if table not in (*PAPER_TABLES, *OTHER_TABLES):
        raise ParameterError("published", "table", f"a number from 1 to 7, or {', '.join(OTHER_TABLES)}", table)
    file = f"table{table}.json" if table in PAPER_TABLES else f"{table}.json"
    content = json.loads((PUBLISHED / file).read_text(encoding="utf-8"))
    bits, rows = content["bits"], []
    for entry in content["rows"]:
        values = dict(zip(bits, entry.pop("values"), strict=True))
        rows.append(PublishedRow(values=values, bold=tuple(entry.pop("bold")), **entry))
    return PublishedTable(content["title"], content["quantity"], tuple(bits), tuple(rows))


@dataclass(frozen=True)
class Cell:
    """One number: values per seed, the printed one (None: not printed), and whether it leads its column.

    n_seeds : how many values there are if no run is missing
    """

    values: tuple[float, ...] = ()
    n_seeds: int = 0
    printed: float | None = None
    mark: Mark = ""

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def std(self) -> float:
        """Standard deviation over seeds (divisor seeds - 1); NaN for one seed."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def partial(self) -> bool:
        return 0 < len(self.values) < self.n_seeds


@dataclass(frozen=True)
class TableRow:
    """One method in one direction; `series` is None for a method that only the paper has."""

    label: str
    kind: MethodKind
    cells: tuple[Cell, ...]
    series: Series | None = None


@dataclass(frozen=True)
class TableBlock:
    """The rows of one direction ("" where a table has none)."""

    direction: str
    rows: tuple[TableRow, ...]


@dataclass(frozen=True)
class Table:
    """A table of the report. digits : decimals of its numbers; what : the quantity in it."""

    title: str
    dataset: str
    what: str
    bits: tuple[int, ...]
    blocks: tuple[TableBlock, ...]
    protocol: str = ""
    digits: int = 4
    marked: bool = True

    @property
    def has_printed(self) -> bool:
        return any(cell.printed is not None for cell in self.cells())

    @property
    def partial(self) -> bool:
        return any(cell.partial for cell in self.cells())

    def rows(self) -> Iterable[TableRow]:
        return (row for block in self.blocks for row in block.rows)

    def cells(self) -> Iterable[Cell]:
        return (cell for row in self.rows() for cell in row.cells)

    def text(self, value: float | None) -> str:
        """A number of this table; an en dash where there is none."""
        if value is None or not math.isfinite(value):
            return NONE
        if self.digits >= 4 or value == 0:
            return f"{value:.{self.digits}f}"
        return f"{value:.0f}" if value >= 100 else f"{value:#.3g}" if value >= 0.001 else f"{value:.1e}"


def metric_name(spec: Spec) -> str:
    """MAP@50, or MAP where the whole database counts."""
    return METRICS["map"].title(spec.k)


def arrow(direction: Direction) -> str:
    return " → ".join(filter(None, direction))


def kind_of(series: Series) -> MethodKind:
    """How a method is drawn and named."""
    if series.method in OURS:
        return "ours"
    kind = kind_of_method(series.method)
    return "method" if kind == "unsupervised" or kind == "quantizer" else kind


def map_table(results: Results, protocol: str, lines: Sequence[Series] | None = None) -> Table:
    """MAP under one protocol: every line of the specification, and printed rows that no line stands for.

    lines : other lines, such as the points of a sweep, then without further printed rows
    """
    spec, metric = results.spec, metric_name(results.spec)
    whole, lines = lines is None, spec.lines if lines is None else lines
    bits, listed = _all_bits(spec, lines), {line.printed for line in lines}
    blocks = []
    for direction in results.directions:
        printed = _printed(results, "MAP", direction) if protocol in COMPARABLE else {}
        scores = {b: {line.label: results.score(line, b, protocol, direction) for line in lines} for b in bits}
        marks = {b: _marks(column, len(spec.seeds)) for b, column in scores.items()}
        rows = []
        for line in lines:
            values = {b: () if (score := scores[b][line.label]) is None else score.values for b in bits}
            rows.append(_row(spec, line, values, printed, {b: marks[b].get(line.label, "") for b in bits}))
        for name, numbers in printed.items() if whole and not spec.chosen else ():
            if name not in listed and not numbers.keys().isdisjoint(bits):
                rows.append(TableRow(name, "method", tuple(Cell(printed=numbers.get(b)) for b in bits)))
        blocks.append(TableBlock(arrow(direction), tuple(rows)))
    title = f"{metric} on {results.name}, protocol {protocol}"
    return Table(title, results.name, metric, bits, tuple(blocks), protocol)


def fit_table(results: Results) -> Table:
    """Seconds to fit all training rows."""
    title, seconds = "Training time in seconds", lambda line, b, _: results.fit_seconds(line, b)
    return _time_table(results, title, "training seconds", [("", "")], seconds, digits=3)


def encode_table(results: Results) -> Table:
    """Seconds to hash all queries."""
    title, seconds = "Seconds to hash all queries", results.encode_seconds
    return _time_table(results, title, "testing seconds", results.directions, seconds, digits=4)


def _time_table(
    results: Results, title: str, what: str, directions: Sequence[Direction], seconds: Seconds, digits: int
) -> Table:
    lines, bits = results.spec.lines, _all_bits(results.spec, results.spec.lines)
    blocks = []
    for direction in directions:
        printed = _printed(results, what, direction)
        values = [{b: seconds(line, b, direction[0]) for b in bits} for line in lines]
        rows = [_row(results.spec, line, row, printed) for line, row in zip(lines, values, strict=True)]
        blocks.append(TableBlock(arrow(direction), tuple(rows)))
    title = f"{title} on {results.name}"
    return Table(title, results.name, what, bits, tuple(blocks), digits=digits, marked=False)


def _row(
    spec: Spec, line: Series, values: Values, printed: Printed, marks: Mapping[int, Mark] | None = None
) -> TableRow:
    """A line of the specification; `values` and `marks` are by bits."""
    cells = []
    for b, per_seed in values.items():
        n_seeds = len(spec.seeds) if b in spec.bits_of(line) else 0
        mark = "" if marks is None else marks.get(b, "")
        cells.append(Cell(tuple(map(float, per_seed)), n_seeds, printed.get(line.printed, {}).get(b), mark))
    return TableRow(line.label, kind_of(line), tuple(cells), line)


def _all_bits(spec: Spec, lines: Sequence[Series]) -> tuple[int, ...]:
    return tuple(sorted({b for line in lines for b in spec.bits_of(line)}))


def _marks(column: dict[str, Score | None], n_seeds: int) -> dict[str, Mark]:
    """Marks of one column, among the rows that have runs; nobody leads while a row lacks some of its seeds."""
    scores = {label: score for label, score in column.items() if score is not None}
    if any(len(score.seeds) < n_seeds for score in scores.values()):
        return {}
    return significance.marks({label: score.per_query for label, score in scores.items()})


def _printed(results: Results, quantity: str, direction: Direction) -> Printed:
    """The numbers of the printed table of the specification, if it has this quantity on this data set."""
    table = None if results.spec.paper is None else published(results.spec.paper)
    if table is None or table.quantity != quantity:
        return {}
    key = (benchmark_of(results.requested.name), "->".join(filter(None, direction)))
    return {row.method: row.values for row in table.rows if (row.dataset, row.direction) == key}


def second_hand(results: Results) -> tuple[str, ...]:
    """Methods whose printed numbers on this data set are copies from other papers."""
    table = None if results.spec.paper is None else published(results.spec.paper)
    dataset = benchmark_of(results.requested.name)
    rows = () if table is None else table.rows
    return tuple(dict.fromkeys(row.method for row in rows if (row.dataset, row.source) == (dataset, "2nd")))


def rich_table(table: Table) -> RichTable:
    """The table for the terminal: mean ± spread, the printed value in brackets; bold and underlined as on the page."""
    from rich.table import Table as RichTable
    from rich.text import Text

    title = Text(table.title)  # the name of a data set may look like markup
    out = RichTable(title=title, title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    out.add_column("method", no_wrap=True)
    for b in table.bits:
        out.add_column(f"{b} bits", justify="right", no_wrap=True)
    for block in table.blocks:
        if block.direction:
            out.add_row(Text(block.direction, style="bold"))
        for row in block.rows:
            name = Text(row.label, style="dim" if row.kind == "control" or row.series is None else "")
            out.add_row(name, *(_rich_cell(table, cell) for cell in row.cells))
        out.add_section()
    return out


def _rich_cell(table: Table, cell: Cell) -> Any:
    from rich.text import Text

    text = Text(table.text(cell.mean), style={"best": "bold", "shared": "underline", "": ""}[cell.mark])
    if math.isfinite(cell.std) and table.marked:
        text.append(f" ±{_short(f'{cell.std:.3f}')}", style="not bold not underline dim")
    if cell.partial:
        text.append(f" {len(cell.values)}/{cell.n_seeds}", style="not bold not underline yellow")
    if cell.printed is not None:
        text.append(f" ({_short(table.text(cell.printed))})", style="not bold not underline dim")
    return text


def _short(number: str) -> str:
    """Without the zero before the point, so that four columns fit a page."""
    return number[1:] if number.startswith("0.") else number


def csv_text(all_results: Sequence[Results]) -> str:
    """One tidy row per data set, line, protocol, direction and bits; sweeps included."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for results in all_results:
        for protocol in results.spec.protocols:
            for lines in (None, *results.spec.sweeps.values()):
                writer.writerows(_csv_rows(results, map_table(results, protocol, lines)))
    return buffer.getvalue()


def _csv_rows(results: Results, table: Table) -> Iterable[dict[str, Any]]:
    for direction, block in zip(results.directions, table.blocks, strict=True):
        for row in block.rows:
            for b, cell in zip(table.bits, row.cells, strict=True):
                entry = {
                    "dataset": results.name,
                    "data_hash": "" if results.dataset is None else results.dataset.fingerprint,
                    "stand_in": int(results.stand_in),
                    "label": row.label,
                    "protocol": table.protocol,
                    "direction": "->".join(direction),
                    "bits": b,
                    "metric": table.what,
                    "ties": results.spec.ties,
                    "mean": _csv_number(cell.mean),
                    "std": _csv_number(cell.std),
                    "values": " ".join(f"{value:.6f}" for value in cell.values),
                    "printed": "" if cell.printed is None else f"{cell.printed:g}",
                    "mark": cell.mark,
                }
                if row.series is not None:
                    entry |= _csv_run(results, row.series, b, table.protocol, direction)
                yield entry


def _csv_run(results: Results, series: Series, bits: int, protocol: str, direction: Direction) -> dict[str, Any]:
    """The columns that only a row with runs of its own has; the writer leaves the others empty."""
    entry: dict[str, Any] = {
        "method": series.method,
        "params": json.dumps(series.params, sort_keys=True),
        "group": series.group,
        "x": "" if series.x is None else f"{series.x:g}",
        "fit_seconds": _csv_number(Cell(tuple(results.fit_seconds(series, bits))).mean),
        "encode_seconds": _csv_number(Cell(tuple(results.encode_seconds(series, bits, direction[0]))).mean),
    }
    score = results.score(series, bits, protocol, direction)
    if score is not None:
        seeds = " ".join(map(str, score.seeds))
        entry |= {"seeds": seeds, "n_query": len(score.query_rows), "n_database": score.n_database}
    return entry


def _csv_number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


LATEX_HEAD = r"""% Made by fusehash. Needs \usepackage{multirow} and \usepackage{xcolor}.
\providecommand{\printed}[1]{\,{\tiny\color{gray}#1}}
"""


def latex_text(tables: Sequence[Table]) -> str:
    """Every table in the layout of the paper: tasks x methods x bits, horizontal lines, the printed value in gray."""
    return LATEX_HEAD + "\n".join(_latex_table(table) for table in tables)


def latex_escape(text: str) -> str:
    """Plain text as LaTeX prints it."""
    signs = {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "→": r"$\rightarrow$", "–": "--", "±": r"$\pm$",
        "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}",
    }  # fmt: skip
    return "".join(signs.get(sign, sign) for sign in text)


def _latex_table(table: Table) -> str:
    n, tasks = len(table.bits), any(block.direction for block in table.blocks)
    first = r"\multirow{2}{*}{Tasks} & " if tasks else ""
    lead = 2 if tasks else 1
    caption = f"{table.title}." + (f" {PROTOCOLS[table.protocol].sentence}." if table.protocol else "")
    if table.has_printed:
        caption += " In gray: the printed value."
    if table.marked:
        caption += f" {significance.SENTENCE}"
    lines = [
        r"\begin{table}[htb]",
        r"  \centering",
        r"  \footnotesize",
        f"  \\caption{{{latex_escape(caption)}}}",
        f"  \\begin{{tabular}}{{{'l' * lead}{'c' * n}}}",
        r"    \hline",
        f"    {first}\\multirow{{2}}{{*}}{{Methods}} & \\multicolumn{{{n}}}{{c}}{{{latex_escape(table.dataset)}}}"
        f" \\\\ \\cline{{{lead + 1}-{lead + n}}}",
        f"    {'& ' if tasks else ''}& " + " & ".join(f"{b} bits" for b in table.bits) + r" \\",
        r"    \hline",
    ]
    for block in table.blocks:
        for i, row in enumerate(block.rows):
            task = f"\\multirow{{{len(block.rows)}}}{{*}}{{{latex_escape(block.direction)}}}" if i == 0 else ""
            columns = [latex_escape(row.label), *(_latex_cell(table, cell) for cell in row.cells)]
            lines.append(f"    {' & '.join([task, *columns] if tasks else columns)} \\\\")
        lines.append(r"    \hline")
    return "\n".join([*lines, r"  \end{tabular}", r"\end{table}", ""])


def _latex_cell(table: Table, cell: Cell) -> str:
    text = latex_escape(table.text(cell.mean))
    text = {"best": rf"\textbf{{{text}}}", "shared": rf"\underline{{{text}}}", "": text}[cell.mark]
    if cell.partial:
        text += f"$^{{{len(cell.values)}/{cell.n_seeds}}}$"
    return text + (f"\\printed{{{table.text(cell.printed)}}}" if cell.printed is not None else "")
