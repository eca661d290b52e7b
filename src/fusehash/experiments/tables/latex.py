"""Tables as LaTeX, in the layout of the paper."""

from __future__ import annotations

from collections.abc import Sequence

from fusehash.evaluation import PROTOCOLS
from fusehash.experiments import significance
from fusehash.experiments.tables.layout import Cell, Table

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
