"""The numbers that the paper prints (Tables 1 to 7), as data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fusehash.errors import ParameterError

FOLDER = Path(__file__).parent / "published"
TABLES = (1, 2, 3, 4, 5, 6, 7)


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
        wanted = dataset or self.datasets[0]
        for row in self.rows:
            if (row.method, row.direction, row.dataset) == (method, direction, wanted):
                return row.values.get(bits)
        return None


@cache
def published(table: int) -> PublishedTable:
    """Table 1 to 7 of the paper."""
    if table not in TABLES:
        raise ParameterError("published", "table", "a number from 1 to 7", table)
    content = json.loads((FOLDER / f"table{table}.json").read_text(encoding="utf-8"))
    bits = tuple(content["bits"])
    rows = []
    for entry in content["rows"]:
        values = dict(zip(bits, entry["values"], strict=True))
        rows.append(PublishedRow(entry["dataset"], entry["direction"], entry["method"], values, tuple(entry["bold"])))
    return PublishedTable(table, content["title"], content["quantity"], tuple(content["datasets"]), bits, tuple(rows))
