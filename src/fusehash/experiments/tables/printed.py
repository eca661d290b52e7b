"""The numbers that papers print, as data in the folder `published`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fusehash.errors import ParameterError
from fusehash.experiments.spec import OTHER_TABLES, PAPER_TABLES

PUBLISHED = Path(__file__).parents[1] / "published"


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
