"""Tables of means and spreads next to the printed values, for the terminal, as CSV and as LaTeX.

A table has the layout of the paper: tasks (directions) x methods x bits. Times are tables of the same kind.
"""

from __future__ import annotations

from fusehash.experiments.tables.csv import CSV_COLUMNS, csv_text
from fusehash.experiments.tables.latex import latex_escape, latex_text
from fusehash.experiments.tables.layout import (
    NONE,
    Cell,
    MethodKind,
    Table,
    TableBlock,
    TableRow,
    arrow,
    encode_table,
    fit_table,
    kind_of,
    map_table,
    metric_name,
    second_hand,
)
from fusehash.experiments.tables.printed import published
from fusehash.experiments.tables.terminal import rich_table

__all__ = [
    "CSV_COLUMNS",
    "NONE",
    "Cell",
    "MethodKind",
    "Table",
    "TableBlock",
    "TableRow",
    "arrow",
    "csv_text",
    "encode_table",
    "fit_table",
    "kind_of",
    "latex_escape",
    "latex_text",
    "map_table",
    "metric_name",
    "published",
    "rich_table",
    "second_hand",
]
