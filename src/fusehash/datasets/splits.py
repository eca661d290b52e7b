"""Splits: which rows are for training, which are queries, which are the database; seeded and disjoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusehash.datasets.arrays import ArrayContent
from fusehash.datasets.base import Rows, check_rows
from fusehash.errors import DataError, warn
from fusehash.parameters import integer


@dataclass(frozen=True)
class Split:
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
    """The split of the file, or one drawn by the rule; ``n_query`` and ``n_train`` draw fewer rows from it.

    Queries are drawn before training rows, so that they do not depend on ``n_train``.
    """
    integer(0).check("load", "split_seed", seed)
    split = _drawn if content.query is None else _from_file
    return split(content, rule, n_query, n_train, seed, name)


def _drawn(
    content: ArrayContent, rule: SplitRule, n_query: int | None, n_train: int | None, seed: int, name: str
) -> Split:
    """A random split: queries, the rest as database, and training rows from the database."""
    n_rows, rng = content.n_rows, np.random.default_rng(seed)
    if n_rows < 2:
        raise DataError(f"{name} must have at least 2 rows: a query and a database row. Got {n_rows}.")
    if n_query is None:
        n_query = rule.n_query
        if n_query > n_rows // 2:
            n_query = max(1, n_rows // 10)
            count = "1 is" if n_query == 1 else f"{n_query} are"
            warn(f"{name} has {n_rows} rows, too few for {rule.n_query:,} queries; {count} drawn instead.")
    n_query = check_count(n_query, "n_query", n_rows - 1)
    order = rng.permutation(n_rows)
    query, database = np.sort(order[:n_query]), np.sort(order[n_query:])
    train = _thinned(database, n_train, rule, rng)
    trained = "all of it for training" if train.size == database.size else f"{train.size:,} of it for training"
    drawn = f"{query.size:,} queries drawn at random (seed {seed})"
    return Split(train, query, database, f"{drawn}, the other {database.size:,} as database, {trained}")


def _from_file(
    content: ArrayContent, rule: SplitRule, n_query: int | None, n_train: int | None, seed: int, name: str
) -> Split:
    """The split of the file; fewer rows if you ask for them or if the paper trains on fewer."""
    rng = np.random.default_rng(seed)
    parts = (("train", content.train), ("query", content.query), ("database", content.database))
    train, all_queries, database = (
        check_rows(np.ravel(rows), content.n_rows, f"'{part}' of {name}") for part, rows in parts
    )
    searched = "its training pairs" if np.array_equal(train, database) else "its own"
    query, changes = all_queries, []
    if n_query is not None and check_count(n_query, "n_query", query.size) < query.size:
        changes.append(f"{n_query:,} of its {query.size:,} queries drawn with seed {seed}")
        query = np.sort(rng.choice(query, n_query, replace=False))
    some = _thinned(train, n_train, rule, rng)
    if some.size < train.size:
        changes.append(f"{some.size:,} of its {train.size:,} training pairs drawn with seed {seed}")
    counts = f"{query.size:,} queries, {some.size:,} training pairs, database of {database.size:,} ({searched})"
    return Split(some, query, database, "; ".join([f"the split of the file: {counts}", *changes]))


def _thinned(rows: Rows, n_train: int | None, rule: SplitRule, rng: np.random.Generator) -> Rows:
    """The training rows: ``n_train`` of the rows, or as many as the rule says."""
    count = min(rule.n_train or rows.size, rows.size) if n_train is None else check_count(n_train, "n_train", rows.size)
    return rows if count == rows.size else np.sort(rng.choice(rows, count, replace=False))


def check_count(value: Any, name: str, high: int) -> int:
    """Check a parameter that counts rows."""
    return int(integer(1, high, " for this file").check("load", name, value))
