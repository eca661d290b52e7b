"""Tables of means and spreads with the printed values beside them.

A table has the layout of the paper: tasks (directions) x methods x bits. Times are tables of the same kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fusehash import hashers
from fusehash.evaluation import Score
from fusehash.experiments import significance
from fusehash.experiments.figures import Kind
from fusehash.experiments.metrics import Direction, Floats, Results
from fusehash.experiments.published import PublishedTable, published
from fusehash.experiments.spec import Series, Spec
from fusehash.hashers.catalogue import OURS

NONE = "–"
# Protocols whose numbers can be held against printed ones.
COMPARABLE = ("U", "H")


@dataclass(frozen=True)
class Cell:
    """One number: values per seed, the printed one (None: not printed), and whether it leads its column.

    wanted : how many seeds there should be; fewer are there where runs are missing
    """

    values: tuple[float, ...] = ()
    wanted: int = 0
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
        return 0 < len(self.values) < self.wanted


@dataclass(frozen=True)
class Row:
    """One method in one direction; `series` is None for a method that only the paper has."""

    label: str
    kind: Kind
    cells: tuple[Cell, ...]
    series: Series | None = None


@dataclass(frozen=True)
class Block:
    """The rows of one direction ("" where a table has none)."""

    direction: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Table:
    """A table of the report. digits : decimals of its numbers; what : the quantity in it."""

    title: str
    dataset: str
    what: str
    bits: tuple[int, ...]
    blocks: tuple[Block, ...]
    protocol: str = ""
    digits: int = 4
    marked: bool = True

    @property
    def has_printed(self) -> bool:
        return any(cell.printed is not None for cell in self.cells())

    @property
    def partial(self) -> bool:
        return any(cell.partial for cell in self.cells())

    def rows(self) -> Iterable[Row]:
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
    return "MAP" if spec.k is None else f"MAP@{spec.k}"


def arrow(direction: Direction) -> str:
    return f"{direction[0]} → {direction[1]}"


def kind_of(series: Series) -> Kind:
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
                wanted = len(spec.seeds) if b in spec.bits_of(one) else 0
                printed = None if paper is None else _printed(paper, one.printed, b, direction, results)
                values = () if score is None else tuple(float(value) for value in score.values)
                cells.append(Cell(values, wanted, printed, mark.get(one.label, "")))
            rows.append(Row(one.label, kind_of(one), tuple(cells), one))
        rows += _printed_only(paper, lines, bits, direction, results) if whole else []
        blocks.append(Block(arrow(direction), tuple(rows)))
    title = f"{metric_name(spec)} on {results.name}, protocol {protocol}"
    return Table(title, results.name, metric_name(spec), bits, tuple(blocks), protocol)


def fit_table(results: Results) -> Table:
    """Seconds to fit all training rows."""
    spec, bits = results.spec, _all_bits(results.spec, results.spec.lines)
    paper = _paper(spec, "training seconds", results)
    rows = []
    for one in spec.lines:
        cells = tuple(_time_cell(results.fit_seconds(one, b), paper, one, b, ("", ""), results) for b in bits)
        rows.append(Row(one.label, kind_of(one), cells, one))
    title = f"Training time in seconds on {results.name}"
    return Table(title, results.name, "training seconds", bits, (Block("", tuple(rows)),), digits=3, marked=False)


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
            rows.append(Row(one.label, kind_of(one), cells, one))
        blocks.append(Block(arrow(direction), tuple(rows)))
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
    fits = table is not None and table.quantity == quantity and results.wanted.name in table.datasets
    return table if fits else None


def _printed(paper: PublishedTable, name: str, bits: int, direction: Direction, results: Results) -> float | None:
    return paper.value(name, bits, "->".join(direction).strip("->"), results.wanted.name) if name else None


def _printed_only(
    paper: PublishedTable | None, lines: Sequence[Series], bits: Sequence[int], direction: Direction, results: Results
) -> list[Row]:
    names = [] if paper is None else [name for name in paper.methods if name not in {one.printed for one in lines}]
    rows = []
    for name in names:
        values = [_printed(paper, name, b, direction, results) for b in bits]  # type: ignore[arg-type]
        if any(value is not None for value in values):
            rows.append(Row(name, "method", tuple(Cell(printed=value) for value in values)))
    return rows


def _time_cell(
    seconds: Floats, paper: PublishedTable | None, one: Series, bits: int, direction: Direction, results: Results
) -> Cell:
    printed = None if paper is None else _printed(paper, one.printed, bits, direction, results)
    wanted = len(results.spec.seeds) if bits in results.spec.bits_of(one) else 0
    return Cell(tuple(float(value) for value in seconds), wanted, printed)
