"""The four protocols: which rows are learned from, which are searched, and how the searched items get their codes.

U   the training pairs, by the codes that training gave them (both modalities are in them)
H   the training items, each hashed from the searched view alone
HN  items that training did not see, hashed from the searched view alone
FN  items that training did not see, fused from all their views

U and H compare with printed tables; HN and FN tell what a user will see. Where the data set has database rows outside
its training rows, HN and FN search those with the same fitted model. Where it has none, they need a model of their own:
with order = numpy.random.default_rng(seed).permutation(len(train)), it learns from train[order[: ceil(n / 2)]] and
searches train[order[ceil(n / 2) :]], both in ascending row order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError, ParameterError
from fusehash.views import PairedViews

Rows: TypeAlias = NDArray[np.intp]


class Dataset(Protocol):
    """What evaluation needs to know of a data set (fusehash.datasets.PairedDataset has it all)."""

    @property
    def name(self) -> str: ...
    @property
    def views(self) -> PairedViews: ...
    @property
    def labels(self) -> Any: ...
    @property
    def train(self) -> Any: ...
    @property
    def query(self) -> Any: ...
    @property
    def database(self) -> Any: ...
    @property
    def split(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


@dataclass(frozen=True)
class SearchProtocol:
    """codes: "unified" (learned in training), "hashed" (from the searched view) or "fused" (from all views)."""

    name: str
    new_items: bool
    codes: Literal["unified", "hashed", "fused"]
    sentence: str


PROTOCOLS: Mapping[str, SearchProtocol] = MappingProxyType(
    {
        "U": SearchProtocol("U", False, "unified", "The training pairs, by the unified codes that training gave them"),
        "H": SearchProtocol("H", False, "hashed", "The training items, each hashed from the searched view alone"),
        "HN": SearchProtocol(
            "HN", True, "hashed", "Items not seen in training, each hashed from the searched view alone"
        ),
        "FN": SearchProtocol("FN", True, "fused", "Items not seen in training, each fused from all its views"),
    }
)


@dataclass(frozen=True)
class Stage:
    """One fit: the rows it learns from, and the rows that each protocol then searches."""

    name: Literal["train", "half"]
    learn: Rows
    searched: Mapping[str, Rows]


@dataclass(frozen=True)
class Split:
    """The checked rows of a data set."""

    train: Rows
    query: Rows
    database: Rows

    @property
    def new(self) -> Rows:
        """Database rows that training does not see."""
        return self.database[~np.isin(self.database, self.train)]


def check_protocols(protocols: Any) -> tuple[str, ...]:
    names = tuple(protocols) if isinstance(protocols, Iterable) and not isinstance(protocols, str) else (protocols,)
    is_known = all(isinstance(name, str) and name in PROTOCOLS for name in names)
    if not names or not is_known or len(set(names)) != len(names):
        raise ParameterError(
            "evaluate", "protocols", "different names out of " + ", ".join(map(repr, PROTOCOLS)), protocols
        )
    return names


def check_split(dataset: Dataset) -> Split:
    n_rows = dataset.views.n_rows
    split = Split(*(_check_rows(getattr(dataset, name), name, n_rows) for name in ("train", "query", "database")))
    for name, rows in (("training", split.train), ("database", split.database)):
        both = np.intersect1d(split.query, rows)
        if both.size:
            raise DataError(
                f"Query rows must not be {name} rows. Got {both.size} rows that are both, first row {both[0]}."
            )
    return split


def plan(split: Split, protocols: Sequence[str], seed: int) -> list[Stage]:
    """The fits that the protocols need for one seed."""
    new = split.new
    searched: dict[str, Rows] = {name: split.train for name in protocols if not PROTOCOLS[name].new_items}
    wants_new = [name for name in protocols if PROTOCOLS[name].new_items]
    if new.size:
        searched.update(dict.fromkeys(wants_new, new))
        wants_new = []
    stages = [Stage("train", split.train, searched)] if searched else []
    if wants_new:
        learn, rest = halves(split.train, seed)
        stages.append(Stage("half", learn, dict.fromkeys(wants_new, rest)))
    return stages


def halves(train: Rows, seed: int) -> tuple[Rows, Rows]:
    """The seeded halves of the training rows: to learn from, and to search (see the top of this file)."""
    if len(train) < 2:
        raise DataError(f"Protocols HN and FN must split the training rows in two. Got {len(train)} training rows.")
    order = np.random.default_rng(seed).permutation(len(train))
    middle = -(-len(train) // 2)
    return np.sort(train[order[:middle]]), np.sort(train[order[middle:]])


def database_rule(name: str, *, by_half: bool) -> str:
    """One sentence that says what was searched, for the protocol card."""
    protocol = PROTOCOLS[name]
    if not protocol.new_items:
        return protocol.sentence + "."
    where = (
        "a seeded half of the training rows was learned from and the other half searched"
        if by_half
        else "the database rows outside the training rows were searched"
    )
    return f"{protocol.sentence}; {where}."


def _check_rows(rows: Any, name: str, n_rows: int) -> Rows:
    index = np.asarray(rows)
    if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
        raise DataError(
            f"The {name} rows of a data set must be a non-empty 1-d array of row numbers. "
            f"Got {index.dtype} of shape {index.shape} instead."
        )
    if index.min() < 0 or index.max() >= n_rows:
        raise DataError(f"The {name} rows of a data set must lie in 0..{n_rows - 1}. Got {index.min()}..{index.max()}.")
    if len(np.unique(index)) != len(index):
        raise DataError(f"The {name} rows of a data set must be different. Got repeated rows.")
    return index.astype(np.intp)
