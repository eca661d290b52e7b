"""All numbers as CSV, one tidy row per cell."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from fusehash.experiments.metrics import Direction, Results
from fusehash.experiments.spec import Series
from fusehash.experiments.tables.layout import Cell, Table, map_table

CSV_COLUMNS = (
    "dataset", "data_hash", "stand_in", "label", "method", "params", "group", "x", "protocol", "direction", "bits",
    "metric", "ties", "mean", "std", "values", "seeds", "printed", "mark", "fit_seconds", "encode_seconds", "n_query",
    "n_database",
)  # fmt: skip


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
