"""Tables of means and spreads next to the printed values, for the terminal, as CSV and as LaTeX.

A table has the layout of the paper: tasks (directions) x methods x bits. Times are tables of the same kind. The numbers
that the paper prints (Tables 1 to 7) are data in the folder `published`.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from fusehash import hashers
from fusehash.errors import ParameterError
from fusehash.evaluation import METRICS, PROTOCOLS, Score
from fusehash.experiments import significance
from fusehash.experiments.metrics import Direction, Results
from fusehash.experiments.spec import PAPER_TABLES, Series, Spec
from fusehash.hashers.catalogue import OURS
from fusehash.views import Floats

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MethodKind: TypeAlias = Literal["ours", "method", "supervised", "control"]
PUBLISHED = Path(__file__).parent / "published"
NONE = "–"
# Protocols whose numbers can be held against printed ones.
COMPARABLE = ("U", "H")
CSV_COLUMNS = (
    "dataset", "data_hash", "stand_in", "label", "method", "params", "group", "x", "protocol", "direction", "bits",
    "metric", "ties", "mean", "std", "values", "seeds", "printed", "mark", "fit_seconds", "encode_seconds", "n_query",
    "n_database",
)  # fmt: skip


# -- what the paper prints -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PublishedRow:
    """One method on one data set in one direction.

    dataset : as `datasets.load` calls it; direction : "image->text", "text->image", or "" (training times)
    method : as printed
    values : bits -> number as printed; bold : the bits at which it is printed in bold
    """

    dataset: str
    direction: str
    method: str
    values: dict[int, float]
    bold: tuple[int, ...] = ()


@dataclass(frozen=True)
class PublishedTable:
    """A printed table. quantity : "MAP", "training seconds" or "testing seconds"."""

    number: int
    title: str
    quantity: str
    datasets: tuple[str, ...]
    bits: tuple[int, ...]
    rows: tuple[PublishedRow, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in printed order."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    def value(self, method: str, bits: int, direction: str = "", dataset: str | None = None) -> float | None:
        """One printed number; None where the table has none. The data set may be left out if there is only one."""
        name = dataset or self.datasets[0]
        for row in self.rows:
            if (row.method, row.direction, row.dataset) == (method, direction, name):
                return row.values.get(bits)
        return None


@cache
def published(table: int) -> PublishedTable:
    """Table 1 to 7 of the paper."""
    if table not in PAPER_TABLES:
        raise ParameterError("published", "table", "a number from 1 to 7", table)
    content = json.loads((PUBLISHED / f"table{table}.json").read_text(encoding="utf-8"))
    bits = tuple(content["bits"])
    rows = []
    for entry in content["rows"]:
        values = dict(zip(bits, entry["values"], strict=True))
        rows.append(PublishedRow(entry["dataset"], entry["direction"], entry["method"], values, tuple(entry["bold"])))
    return PublishedTable(table, content["title"], content["quantity"], tuple(content["datasets"]), bits, tuple(rows))


# -- tables ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One number: values per seed, the printed one (None: not printed), and whether it leads its column.

    n_seeds : how many values there are if no run is missing
    """

    values: tuple[float, ...] = ()
    n_seeds: int = 0
    printed: float | None = None
    mark: significance.Mark = ""

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


# -- what is in them -------------------------------------------------------------------------------------------------


def metric_name(spec: Spec) -> str:
    """MAP@50, or MAP where the whole database counts."""
    return METRICS["map"].title(spec.k)


def arrow(direction: Direction) -> str:
    return f"{direction[0]} → {direction[1]}"


def kind_of(series: Series) -> MethodKind:
    """How a method is drawn and named."""
    kind = hashers.info(series.method).kind
    if series.method in OURS:
        return "ours"
    return "method" if kind == "unsupervised" else kind


def map_table(results: Results, protocol: str, lines: Sequence[Series] | None = None) -> Table:
    """MAP under one protocol: every line of the specification, and printed rows that no line stands for.

    lines : other lines, such as the points of a sweep, then without further printed rows
    """
    spec = results.spec
    whole, lines = lines is None, spec.lines if lines is None else lines
    bits = _all_bits(spec, lines)
    paper = _paper(spec, "MAP", results) if protocol in COMPARABLE else None
    blocks = []
    for direction in results.directions:
        columns = [{one.label: results.score(one, b, protocol, direction) for one in lines} for b in bits]
        marks = [_marks(column, len(spec.seeds)) for column in columns]
        rows = []
        for one in lines:
            cells = []
            for b, column, mark in zip(bits, columns, marks, strict=True):
                score = column[one.label]
                n_seeds = len(spec.seeds) if b in spec.bits_of(one) else 0
                printed = None if paper is None else _printed(paper, one.printed, b, direction, results)
                values = () if score is None else tuple(float(value) for value in score.values)
                cells.append(Cell(values, n_seeds, printed, mark.get(one.label, "")))
            rows.append(TableRow(one.label, kind_of(one), tuple(cells), one))
        rows += _printed_only(paper, lines, bits, direction, results) if whole else []
        blocks.append(TableBlock(arrow(direction), tuple(rows)))
    title = f"{metric_name(spec)} on {results.name}, protocol {protocol}"
    return Table(title, results.name, metric_name(spec), bits, tuple(blocks), protocol)


def fit_table(results: Results) -> Table:
    """Seconds to fit all training rows."""
    spec, bits = results.spec, _all_bits(results.spec, results.spec.lines)
    paper = _paper(spec, "training seconds", results)
    rows = []
    for one in spec.lines:
        cells = tuple(_time_cell(results.fit_seconds(one, b), paper, one, b, ("", ""), results) for b in bits)
        rows.append(TableRow(one.label, kind_of(one), cells, one))
    title = f"Training time in seconds on {results.name}"
    return Table(title, results.name, "training seconds", bits, (TableBlock("", tuple(rows)),), digits=3, marked=False)


def encode_table(results: Results) -> Table:
    """Seconds to hash all queries."""
    spec, bits = results.spec, _all_bits(results.spec, results.spec.lines)
    paper = _paper(spec, "testing seconds", results)
    blocks = []
    for direction in results.directions:
        rows = []
        for one in spec.lines:
            cells = tuple(
                _time_cell(results.encode_seconds(one, b, direction[0]), paper, one, b, direction, results)
                for b in bits
            )
            rows.append(TableRow(one.label, kind_of(one), cells, one))
        blocks.append(TableBlock(arrow(direction), tuple(rows)))
    title = f"Seconds to hash all queries on {results.name}"
    return Table(title, results.name, "testing seconds", bits, tuple(blocks), marked=False)


def _all_bits(spec: Spec, lines: Sequence[Series]) -> tuple[int, ...]:
    return tuple(sorted({b for one in lines for b in spec.bits_of(one)}))


def _marks(column: dict[str, Score | None], n_seeds: int) -> dict[str, significance.Mark]:
    """Marks of one column, among the rows that have runs; nobody leads while a row lacks some of its seeds."""
    scores = {label: score for label, score in column.items() if score is not None}
    if any(len(score.seeds) < n_seeds for score in scores.values()):
        return {}
    return significance.marks({label: score.per_query for label, score in scores.items()})


def _paper(spec: Spec, quantity: str, results: Results) -> PublishedTable | None:
    table = None if spec.paper is None else published(spec.paper)
    fits = table is not None and table.quantity == quantity and results.requested.name in table.datasets
    return table if fits else None


def _printed(paper: PublishedTable, name: str, bits: int, direction: Direction, results: Results) -> float | None:
    return paper.value(name, bits, "->".join(direction).strip("->"), results.requested.name) if name else None


def _printed_only(
    paper: PublishedTable | None, lines: Sequence[Series], bits: Sequence[int], direction: Direction, results: Results
) -> list[TableRow]:
    names = [] if paper is None else [name for name in paper.methods if name not in {one.printed for one in lines}]
    rows = []
    for name in names:
        values = [_printed(paper, name, b, direction, results) for b in bits]  # type: ignore[arg-type]
        if any(value is not None for value in values):
            rows.append(TableRow(name, "method", tuple(Cell(printed=value) for value in values)))
    return rows


def _time_cell(
    seconds: Floats, paper: PublishedTable | None, one: Series, bits: int, direction: Direction, results: Results
) -> Cell:
    printed = None if paper is None else _printed(paper, one.printed, bits, direction, results)
    n_seeds = len(results.spec.seeds) if bits in results.spec.bits_of(one) else 0
    return Cell(tuple(float(value) for value in seconds), n_seeds, printed)


# -- for the terminal ------------------------------------------------------------------------------------------------


def rich_table(table: Table) -> RichTable:
    """The table for the terminal: mean ± spread, the printed value in brackets; bold and underlined as on the page."""
    from rich.table import Table as RichTable
    from rich.text import Text

    out = RichTable(title=table.title, title_justify="left", title_style="bold", header_style="bold", pad_edge=False)
    out.add_column("method", no_wrap=True)
    for b in table.bits:
        out.add_column(f"{b} bits", justify="right", no_wrap=True)
    for block in table.blocks:
        if block.direction:
            out.add_row(Text(block.direction, style="bold"))
        for i, row in enumerate(block.rows):
            name = Text(row.label, style="dim" if row.kind == "control" or row.series is None else "")
            texts = [_rich_cell(table, cell) for cell in row.cells]
            out.add_row(name, *texts, end_section=i == len(block.rows) - 1)
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


# -- CSV -------------------------------------------------------------------------------------------------------------


def csv_text(all_results: Sequence[Results]) -> str:
    """One tidy row per data set, line, protocol, direction and bits; sweeps included."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, CSV_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for results in all_results:
        for protocol in results.spec.protocols:
            tables = [map_table(results, protocol)]
            groups = dict.fromkeys(one.group for one in results.spec.runs if one.group)
            tables += [
                map_table(results, protocol, [one for one in results.spec.runs if one.group == group])
                for group in groups
            ]
            for table in tables:
                writer.writerows(_csv_rows(results, table))
    return buffer.getvalue()


def _csv_rows(results: Results, table: Table) -> Iterable[dict[str, Any]]:
    spec, dataset = results.spec, results.dataset
    for direction, block in zip(results.directions, table.blocks, strict=True):
        for row in block.rows:
            for b, cell in zip(table.bits, row.cells, strict=True):
                one = row.series
                score = None if one is None else results.score(one, b, table.protocol, direction)
                encode = () if one is None else results.encode_seconds(one, b, direction[0])
                fit = () if one is None else results.fit_seconds(one, b)
                yield {
                    "dataset": results.name,
                    "data_hash": "" if dataset is None else dataset.fingerprint,
                    "stand_in": int(results.stand_in),
                    "label": row.label,
                    "method": "" if one is None else one.method,
                    "params": "" if one is None else json.dumps(one.params, sort_keys=True),
                    "group": "" if one is None else one.group,
                    "x": "" if one is None or one.x is None else f"{one.x:g}",
                    "protocol": table.protocol,
                    "direction": "->".join(direction),
                    "bits": b,
                    "metric": table.what,
                    "ties": spec.ties,
                    "mean": _csv_number(cell.mean),
                    "std": _csv_number(cell.std),
                    "values": " ".join(f"{value:.6f}" for value in cell.values),
                    "seeds": "" if score is None else " ".join(map(str, score.seeds)),
                    "printed": "" if cell.printed is None else f"{cell.printed:g}",
                    "mark": cell.mark,
                    "fit_seconds": _csv_number(float(np.mean(fit)) if len(fit) else math.nan),
                    "encode_seconds": _csv_number(float(np.mean(encode)) if len(encode) else math.nan),
                    "n_query": "" if score is None else len(score.query_rows),
                    "n_database": "" if score is None else score.n_database,
                }


def _csv_number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


# -- LaTeX -----------------------------------------------------------------------------------------------------------

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
            start = f"{task} & " if tasks else ""
            lines.append(
                f"    {start}{latex_escape(row.label)} & "
                + " & ".join(_latex_cell(table, cell) for cell in row.cells)
                + r" \\"
            )
        lines.append(r"    \hline")
    return "\n".join([*lines, r"  \end{tabular}", r"\end{table}", ""])


def _latex_cell(table: Table, cell: Cell) -> str:
    text = latex_escape(table.text(cell.mean))
    text = {"best": rf"\textbf{{{text}}}", "shared": rf"\underline{{{text}}}", "": text}[cell.mark]
    if cell.partial:
        text += f"$^{{{len(cell.values)}/{cell.n_seeds}}}$"
    return text + (f"\\printed{{{table.text(cell.printed)}}}" if cell.printed is not None else "")
