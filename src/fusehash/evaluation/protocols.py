"""The four protocols: which rows a model learns from, which rows are searched, and how these get their codes.

U   the training pairs, by the codes that training gave them (from both views)
H   the training items, each hashed from the searched view alone
HN  items that training did not see, hashed from the searched view alone
FN  items that training did not see, fused from all their views

U and H compare with printed tables; HN and FN are what a user sees. If the data set has database rows outside its
training rows, HN and FN search those with the same fitted model. Otherwise they need a second fit: with
order = numpy.random.default_rng(seed).permutation(len(train)), it learns from train[order[: ceil(n / 2)]] and
searches train[order[ceil(n / 2) :]], both in ascending row order.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.views import PairedViews

if TYPE_CHECKING:
    from fusehash.datasets import PairedDataset


Rows: TypeAlias = NDArray[np.intp]
StageName: TypeAlias = Literal["train", "half"]
ROWS_AT_ONCE = 8192  # rows per call of `encode`, so that a database is never copied as a whole


@dataclass(frozen=True)
class SearchProtocol:
    """One protocol: what is searched."""

    name: str
    new_items: bool  # whether the searched items are new to the model
    codes: Literal["unified", "hashed", "fused"]  # from training, from the searched view, or from all views
    sentence: str

    def code_name(self, stage: StageName, view: str) -> str:
        """The name of the searched codes in `StageCodes` and in stored results."""
        name = f"hashed:{view}" if self.codes == "hashed" else self.codes
        return f"new:{name}" if self.new_items and stage == "train" else name

    def database_rule(self, *, by_half: bool) -> str:
        """One sentence that says what was searched, for the protocol card."""
        half = "; a seeded half of the training rows was learned from and the other half searched."
        new = "; the database rows outside the training rows were searched."
        return self.sentence + ("." if not self.new_items else half if by_half else new)


_PROTOCOLS = (
    SearchProtocol("U", False, "unified", "The training pairs, by the unified codes that training gave them"),
    SearchProtocol("H", False, "hashed", "The training items, each hashed from the searched view alone"),
    SearchProtocol("HN", True, "hashed", "Items not seen in training, each hashed from the searched view alone"),
    SearchProtocol("FN", True, "fused", "Items not seen in training, each fused from all its views"),
)
PROTOCOLS: Mapping[str, SearchProtocol] = MappingProxyType({protocol.name: protocol for protocol in _PROTOCOLS})


@dataclass(frozen=True)
class ProtocolRows:
    """The rows of a data set, and what the protocols make of them."""

    train: Rows
    query: Rows
    database: Rows

    @cached_property
    def new(self) -> Rows:
        """Database rows that training does not see."""
        return self.database[~np.isin(self.database, self.train)]

    def stage(self, protocol: str) -> StageName:
        """The fit whose codes a protocol searches: new items need a second fit if there are no other rows."""
        return "half" if PROTOCOLS[protocol].new_items and not self.new.size else "train"

    def learned(self, stage: StageName, seed: int) -> Rows:
        """The rows that a fit learns from."""
        return self.train if stage == "train" else halves(self.train, seed)[0]

    def coded(self, name: str, stage: StageName, seed: int) -> Rows:
        """The rows behind codes of this name (see `StageCodes`)."""
        if name.startswith("query:"):
            return self.query
        if name.startswith("new:"):
            return self.new
        return self.train if stage == "train" else halves(self.train, seed)[1]

    def searched(self, protocol: str, seed: int) -> Rows:
        """The rows that a protocol searches."""
        stage = self.stage(protocol)
        return self.coded(PROTOCOLS[protocol].code_name(stage, ""), stage, seed)

    def stages(self, protocols: Collection[str]) -> tuple[StageName, ...]:
        """The fits that protocols need, in order."""
        return tuple(dict.fromkeys(self.stage(protocol) for protocol in PROTOCOLS if protocol in protocols))


def halves(train: Rows, seed: int) -> tuple[Rows, Rows]:
    """The seeded halves of the training rows: to learn from, and to search (see the top of this file)."""
    if len(train) < 2:
        raise DataError(f"Protocols HN and FN must split the training rows in two. Got {len(train)} training rows.")
    order = np.random.default_rng(seed).permutation(len(train))
    middle = -(-len(train) // 2)
    return np.sort(train[order[:middle]]), np.sort(train[order[middle:]])


def check_split(dataset: PairedDataset) -> ProtocolRows:
    """The rows of a data set; raise if queries are also searched or learned from."""
    from fusehash.datasets.base import PARTS, check_rows

    n_rows, owner = dataset.views.n_rows, dataset.name
    rows = ProtocolRows(*(check_rows(getattr(dataset, part), n_rows, f"'{part}' of {owner}") for part in PARTS))
    for name, others in (("training", rows.train), ("database", rows.database)):
        both = np.intersect1d(rows.query, others)
        if both.size:
            raise DataError(f"Query rows must not be {name} rows. Got {both.size} shared rows, first row {both[0]}.")
    return rows


class StageCodes:
    """The codes of one fitted model by name, each computed when it is first needed.

    "query:<view>" are the queries. In stage "train", "unified" and "hashed:<view>" are the training rows, and
    "new:fused" and "new:hashed:<view>" the database rows outside training. In stage "half", "fused" and
    "hashed:<view>" are the searched half.
    """

    def __init__(
        self, model: Any, views: PairedViews, rows: ProtocolRows, stage: StageName, seed: int, asymmetric: bool = False
    ) -> None:
        self._model, self._views, self._rows, self._stage, self._seed = model, views, rows, stage, seed
        self._asymmetric = asymmetric
        self._codes: dict[str, NDArray[Any]] = {}

    def names(self) -> tuple[str, ...]:
        """All names that any protocol searches in this stage."""
        protocols = [protocol for name, protocol in PROTOCOLS.items() if self._rows.stage(name) == self._stage]
        views = self._views.names
        searched = [protocol.code_name(self._stage, view) for protocol in protocols for view in views]
        return tuple(dict.fromkeys([*(f"query:{view}" for view in views), *searched]))

    def rows(self, name: str) -> Rows:
        """The rows behind a name: those that are present in its view."""
        rows, view = self._rows.coded(name, self._stage, self._seed), name.rpartition(":")[2]
        if view not in self._views.names:
            return rows
        rows = rows[self._views.is_present(view)[rows]]
        if not rows.size:
            kind = "query" if name.startswith("query:") else "database"
            raise DataError(f"At least one {kind} row must be present in view '{view}'. All are missing.")
        return rows

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._codes:
            self._codes[name] = self._compute(name)
        return self._codes[name]

    def _compute(self, name: str) -> NDArray[Any]:
        rows, model, views = self.rows(name), self._model, self._views
        if name == "unified":
            codes: NDArray[Any] = model.codes_
            if len(codes) != len(rows):
                raise DataError(f"The model must have a code for each of {len(rows)} training rows. Got {len(codes)}.")
            return codes
        parts = (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))
        if name.endswith("fused"):
            return np.concatenate([model.encode_fused(views.rows(part)) for part in parts])
        view = name.rpartition(":")[2]
        encode = model.project if self._asymmetric and name.startswith("query:") else model.encode
        return np.concatenate([encode(views[view][part], view=view) for part in parts])


def fit_rows(model: Any, views: PairedViews, labels: Any, rows: Rows) -> float:
    """Fit a model to some rows, with their labels if it learns from labels; return the seconds."""
    pairs, learned_labels = views.rows(rows), (labels[rows],) if getattr(model, "supervised", False) else ()
    started = time.perf_counter()
    model.fit(pairs, *learned_labels)
    return time.perf_counter() - started
