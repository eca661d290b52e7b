"""Splits: which rows are for training, which are queries, which are the database; seeded and disjoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fusehash.datasets.arrays import ArrayContent
from fusehash.datasets.base import Rows, check_rows
from fusehash.errors import DataError, warn
from fusehash.parameters import integer


class Split(NamedTuple):
    """Three lists of rows and the sentence that describes them."""

    train: Rows
    query: Rows
    database: Rows
    sentence: str


@dataclass(frozen=True)
class SplitRule:
    """How many rows a paper takes if the file has no split; None means all that are left."""

    n_query: int
    n_train: int | None


def make_split(
    content: ArrayContent, rule: SplitRule, *, n_query: int | None, n_train: int | None, seed: int, name: str
) -> Split:
    """The split of the file, or one drawn by the rule; queries do not depend on ``n_train``."""
    integer(0).check("load", "split_seed", seed)
    rng = np.random.default_rng(seed)
    if content.query is None:
        query, database = _drawn(content.n_rows, rule.n_query, n_query, name, rng)
        train = _thinned(database, n_train, rule, rng)
        trained = "all of it" if train.size == database.size else f"{train.size:,} of it"
        drawn = f"{query.size:,} queries drawn at random (seed {seed}), the other {database.size:,} as database"
        return Split(train, query, database, f"{drawn}, {trained} for training")
    parts = (("train", content.train), ("query", content.query), ("database", content.database))
    train, query, database = (check_rows(np.ravel(rows), content.n_rows, f"'{part}' of {name}") for part, rows in parts)
    searched, changes = "its training pairs" if np.array_equal(train, database) else "its own", []
    if n_query is not None and check_count(n_query, "n_query", query.size) < query.size:
        changes.append(f"{n_query:,} of its {query.size:,} queries drawn with seed {seed}")
        query = np.sort(rng.choice(query, n_query, replace=False))
    some = _thinned(train, n_train, rule, rng)
    if some.size < train.size:
        changes.append(f"{some.size:,} of its {train.size:,} training pairs drawn with seed {seed}")
    counts = f"{query.size:,} queries, {some.size:,} training pairs, database of {database.size:,} ({searched})"
    return Split(some, query, database, "; ".join([f"the split of the file: {counts}", *changes]))


def _drawn(n_rows: int, usual: int, n_query: int | None, name: str, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Random queries, by default the usual number of them, and the other rows."""
    if n_rows < 2:
        raise DataError(f"{name} must have at least 2 rows: a query and a database row. Got {n_rows}.")
    if n_query is None and usual > n_rows // 2:
        n_query = max(1, n_rows // 10)
        count = "1 is" if n_query == 1 else f"{n_query} are"
        warn(f"{name} has {n_rows} rows, too few for {usual:,} queries; {count} drawn instead.")
    n_query = check_count(usual if n_query is None else n_query, "n_query", n_rows - 1)
    order = rng.permutation(n_rows)
    return np.sort(order[:n_query]), np.sort(order[n_query:])


def _thinned(rows: Rows, n_train: int | None, rule: SplitRule, rng: np.random.Generator) -> Rows:
    """The training rows: ``n_train`` of the rows, or as many as the rule says."""
    count = min(rule.n_train or rows.size, rows.size) if n_train is None else check_count(n_train, "n_train", rows.size)
    return rows if count == rows.size else np.sort(rng.choice(rows, count, replace=False))


def check_count(value: Any, name: str, high: int) -> int:
    return int(integer(1, high, " for this file").check("load", name, value))
