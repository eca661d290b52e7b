"""Which rows train, which ask, which are searched: seeded, disjoint, and told in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fusehash.datasets.base import Rows, check_rows
from fusehash.datasets.layouts import Content
from fusehash.errors import DataError, ParameterError, warn


@dataclass(frozen=True)
class Split:
    """Three lists of rows and the sentence that describes them."""

    train: Rows
    query: Rows
    database: Rows
    sentence: str


@dataclass(frozen=True)
class SplitRule:
    """How many rows a paper takes where the file itself has no split; None means all that are left."""

    n_query: int
    n_train: int | None


def check_count(value: Any, name: str, available: int, *, below: bool = False) -> int:
    """A parameter that counts rows."""
    most = available - 1 if below else available
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise ParameterError("load", name, f"a whole number from 1 to {most} for this file", value)
    return int(value)


def make_split(
    content: Content, rule: SplitRule, *, n_query: int | None, n_train: int | None, seed: int, name: str
) -> Split:
    """The split of the file, or else the rule's; ``n_query`` and ``n_train`` draw fewer rows from it.

    Queries are drawn first, training rows after them, so that the queries do not depend on ``n_train``.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ParameterError("load", "split_seed", "a whole number of at least 0", seed)
    rng = np.random.default_rng(seed)
    if content.query is None:
        return _drawn(content.n_rows, rule, n_query, n_train, rng, seed, name)
    return _from_file(content, rule, n_query, n_train, rng, seed, name)


def _drawn(
    n_rows: int, rule: SplitRule, n_query: int | None, n_train: int | None, rng: Any, seed: int, name: str
) -> Split:
    """A random split: queries, the rest as database, and training rows out of the database."""
    if n_rows < 2:
        raise DataError(f"{name} must have at least 2 rows: one to ask with, and one to be found. Got {n_rows}.")
    if n_query is None:
        n_query = rule.n_query
        if n_query > n_rows // 2:
            n_query = max(1, n_rows // 10)
            drawn = "1 is" if n_query == 1 else f"{n_query} are"
            warn(f"{name} has {n_rows} rows, too few for {rule.n_query:,} queries; {drawn} drawn instead.")
    n_query = check_count(n_query, "n_query", n_rows, below=True)
    order = rng.permutation(n_rows)
    query, database = np.sort(order[:n_query]), np.sort(order[n_query:])
    if n_train is None:
        n_train = min(rule.n_train or database.size, database.size)
    n_train = check_count(n_train, "n_train", database.size)
    train = database if n_train == database.size else np.sort(rng.choice(database, n_train, replace=False))
    trained = "all of it for training" if train.size == database.size else f"{train.size:,} of it for training"
    return Split(
        train,
        query,
        database,
        f"{query.size:,} queries drawn at random (seed {seed}), the other {database.size:,} as database, {trained}",
    )


def _from_file(
    content: Content, rule: SplitRule, n_query: int | None, n_train: int | None, rng: Any, seed: int, name: str
) -> Split:
    """The file's own split, thinned where asked for (or where the paper trains on fewer rows)."""
    n_rows = content.n_rows
    parts = (("train", content.train), ("query", content.query), ("database", content.database))
    train, query, database = (check_rows(np.ravel(rows), n_rows, f"'{part}' of {name}") for part, rows in parts)
    same = train.size == database.size and bool((train == database).all())
    changes = []
    if n_query is not None:
        n_query = check_count(n_query, "n_query", query.size)
        if n_query < query.size:
            changes.append(f"{n_query:,} of its {query.size:,} queries drawn with seed {seed}")
            query = np.sort(rng.choice(query, n_query, replace=False))
    if n_train is None:
        n_train = min(rule.n_train or train.size, train.size)
    n_train = check_count(n_train, "n_train", train.size)
    if n_train < train.size:
        changes.append(f"{n_train:,} of its {train.size:,} training pairs drawn with seed {seed}")
        train = np.sort(rng.choice(train, n_train, replace=False))
    searched = "its training pairs" if same else "its own"
    sentence = (
        f"the split of the file: {query.size:,} queries, {train.size:,} training pairs, "
        f"database of {database.size:,} ({searched})"
    )
    return Split(train, query, database, "; ".join([sentence, *changes]))
