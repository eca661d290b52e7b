"""Tables for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fusehash.experiments.tables.layout import Cell, Table

if TYPE_CHECKING:
    from rich.table import Table as RichTable


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
