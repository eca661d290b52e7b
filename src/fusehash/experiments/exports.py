"""Tables written out: for the terminal, as CSV, as LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash.evaluation import PROTOCOLS
from fusehash.experiments import significance
from fusehash.experiments.metrics import Results
from fusehash.experiments.tables import Cell, Table, map_table

if TYPE_CHECKING:
    from rich.table import Table as RichTable

CSV_COLUMNS = (
    "dataset", "data_hash", "stand_in", "label", "method", "params", "group", "x", "protocol", "direction", "bits",
    "metric", "ties", "mean", "std", "values", "seeds", "printed", "mark", "fit_seconds", "encode_seconds", "n_query",
    "n_database",
)  # fmt: skip

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
        text.append(f" {len(cell.values)}/{cell.wanted}", style="not bold not underline yellow")
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
        text += f"$^{{{len(cell.values)}/{cell.wanted}}}$"
    return text + (f"\\printed{{{table.text(cell.printed)}}}" if cell.printed is not None else "")
