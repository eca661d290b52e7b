"""Which number goes into which cell: tasks (directions) x methods x bits, with printed values and leaders."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from fusehash.datasets.loading import benchmark_of
from fusehash.evaluation import METRICS, Score
from fusehash.experiments import significance
from fusehash.experiments.methods import kind_of_method
from fusehash.experiments.metrics import Direction, Results
from fusehash.experiments.significance import Mark
from fusehash.experiments.spec import Series, Spec
from fusehash.experiments.tables.printed import published
from fusehash.hashers.catalogue import OURS
from fusehash.views import Floats

MethodKind: TypeAlias = Literal["ours", "method", "supervised", "control"]
Seconds: TypeAlias = Callable[[Series, int, str], Floats]  # of a series, bits and view; one per seed
Values: TypeAlias = Mapping[int, Iterable[float]]  # bits -> values per seed
Printed: TypeAlias = Mapping[str, Mapping[int, float]]  # method -> bits -> number in the paper
NONE = "–"
# Protocols whose numbers can be held against printed ones.
COMPARABLE = ("U", "H")


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
