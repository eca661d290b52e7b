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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, permutations
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation.map_rules import MAP_RULES
from fusehash.evaluation.metrics import METRICS
from fusehash.evaluation.ranking import Ties, check_k, check_ties
from fusehash.evaluation.result import EvaluationResult, Score, json_ready
from fusehash.parameters import integer
from fusehash.version import __version__
from fusehash.views import Floats, PairedViews

if TYPE_CHECKING:
    from fusehash.datasets import PairedDataset

Rows: TypeAlias = NDArray[np.intp]
StageName: TypeAlias = Literal["train", "half"]
Progress: TypeAlias = Callable[[int, int, str], None]

ROWS_AT_ONCE = 8192  # rows that are encoded per call, so that a database is never copied as a whole


@dataclass(frozen=True)
class SearchProtocol:
    """One protocol.

    Attributes
    ----------
    name, sentence : str
        The key in `PROTOCOLS`, and what is searched.
    new_items : bool
        Whether the searched items are new to the model.
    codes : {"unified", "hashed", "fused"}
        Learned in training, hashed from the searched view, or fused from all views.
    """

    name: str
    new_items: bool
    codes: Literal["unified", "hashed", "fused"]
    sentence: str

    def code_name(self, stage: StageName, view: str) -> str:
        """The name of the searched codes in `StageCodes` and in stored results."""
        name = f"hashed:{view}" if self.codes == "hashed" else self.codes
        return f"new:{name}" if self.new_items and stage == "train" else name

    def database_rule(self, *, by_half: bool) -> str:
        """One sentence that says what was searched, for the protocol card."""
        if not self.new_items:
            return self.sentence + "."
        if by_half:
            return f"{self.sentence}; a seeded half of the training rows was learned from and the other half searched."
        return f"{self.sentence}; the database rows outside the training rows were searched."


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


# -- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One fit: the rows it learns from, and the rows that each protocol then searches."""

    name: StageName
    learn: Rows
    searched: Mapping[str, Rows]


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

    def stages(self, protocols: Iterable[str]) -> tuple[StageName, ...]:
        """The fits that protocols need."""
        needed: set[StageName] = {self.stage(protocol) for protocol in protocols}
        return tuple(stage for stage in ("train", "half") if stage in needed)


def plan(rows: ProtocolRows, protocols: Sequence[str], seed: int) -> list[Stage]:
    """The fits that protocols need for one seed."""
    return [
        Stage(
            stage,
            rows.learned(stage, seed),
            {name: rows.searched(name, seed) for name in protocols if rows.stage(name) == stage},
        )
        for stage in rows.stages(protocols)
    ]


def halves(train: Rows, seed: int) -> tuple[Rows, Rows]:
    """The seeded halves of the training rows: to learn from, and to search (see the top of this file)."""
    if len(train) < 2:
        raise DataError(f"Protocols HN and FN must split the training rows in two. Got {len(train)} training rows.")
    order = np.random.default_rng(seed).permutation(len(train))
    middle = -(-len(train) // 2)
    return np.sort(train[order[:middle]]), np.sort(train[order[middle:]])


def check_split(dataset: PairedDataset) -> ProtocolRows:
    """The rows of a data set; raise if queries are also searched or learned from."""
    n_rows = dataset.views.n_rows
    rows = ProtocolRows(*(_check_rows(getattr(dataset, name), name, n_rows) for name in ("train", "query", "database")))
    for name, others in (("training", rows.train), ("database", rows.database)):
        both = np.intersect1d(rows.query, others)
        if both.size:
            raise DataError(
                f"Query rows must not be {name} rows. Got {both.size} rows that are both, first row {both[0]}."
            )
    return rows


def _check_rows(rows: Any, name: str, n_rows: int) -> Rows:
    index = np.asarray(rows)
    if index.ndim != 1 or index.dtype.kind not in "iu" or index.size == 0:
        raise DataError(
            f"The {name} rows of a data set must be a non-empty 1-d array of row numbers. "
            f"Got {index.dtype} of shape {index.shape} instead."
        )
    if index.min() < 0 or index.max() >= n_rows:
        raise DataError(f"The {name} rows of a data set must be in 0..{n_rows - 1}. Got {index.min()}..{index.max()}.")
    if len(np.unique(index)) != len(index):
        raise DataError(f"The {name} rows of a data set must be different. Got repeated rows.")
    return index.astype(np.intp)


# -- codes -----------------------------------------------------------------------------------------------------------


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
        protocols = [PROTOCOLS[name] for name in PROTOCOLS if self._rows.stage(name) == self._stage]
        if self._stage == "half":
            protocols = [protocol for protocol in protocols if protocol.new_items]
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
            if len(model.codes_) != len(rows):
                raise DataError(
                    f"The model must have a code for each of the {len(rows)} training rows. Got {len(model.codes_)}."
                )
            codes: NDArray[Any] = model.codes_
            return codes
        if name.endswith("fused"):
            return np.concatenate([model.encode_fused(views.rows(part)) for part in _parts(rows)])
        view = name.rpartition(":")[2]
        encode = model.project if self._asymmetric and name.startswith("query:") else model.encode
        return np.concatenate([encode(views[view][part], view=view) for part in _parts(rows)])


def _parts(rows: Rows) -> Iterator[Rows]:
    return (rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE))


def fit_rows(model: Any, views: PairedViews, labels: Any, rows: Rows) -> float:
    """Fit a model to some rows, with their labels if it learns from labels; return the seconds."""
    pairs, learned_labels = views.rows(rows), (labels[rows],) if getattr(model, "supervised", False) else ()
    started = time.perf_counter()
    model.fit(pairs, *learned_labels)
    return time.perf_counter() - started


# -- evaluate --------------------------------------------------------------------------------------------------------


def evaluate(
    model: Any,
    dataset: PairedDataset,
    *,
    k: int | None = 50,
    ties: Ties = "expected",
    protocols: Sequence[str] = ("U", "H", "HN", "FN"),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    refit: bool = True,
    asymmetric: bool = False,
    progress: Progress | None = None,
) -> EvaluationResult:
    """MAP@k (rule E1) of a model on a data set, for every ordered pair of views.

    Parameters
    ----------
    model : estimator
        Any object with `fit`, `codes_`, `encode`, `encode_fused` and `get_params`; with `project` if asymmetric.
    dataset : PairedDataset
        Or any object with its views, labels, row numbers, split and fingerprint.
    k : int or None, default=50
        The cut; None is the whole database.
    ties : {"expected", "stable", "best", "worst"}, default="expected"
        As for `mean_average_precision`.
    protocols : sequence of {"U", "H", "HN", "FN"}, default=("U", "H", "HN", "FN")
        What is searched; see `PROTOCOLS`.
    seeds : sequence of int, default=(0, 1, 2, 3, 4)
        For each, a clone of the model is fitted with random_state=seed.
    refit : bool, default=True
        False evaluates the fitted model as it is, runs the protocols that are valid for it, and ignores the seeds.
    asymmetric : bool, default=False
        Rank by the real-valued projection of the query instead of its code.
    progress : callable or None, default=None
        Called with (step, total, message) before every step.

    Returns
    -------
    EvaluationResult
        Scores by protocol and direction, and the protocol card.

    Raises
    ------
    ParameterError
        If a parameter is not one of the values above, or no protocol is possible.
    DataError
        If the data set has no labels or fewer than two views, or its query rows are also searched.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> result = fh.evaluation.evaluate(fh.hashers.make("random", n_bits=16), data, protocols=["H"], seeds=[0])
    >>> result["H", "image->text"]
    Score(H image->text: 0.2383, 1 seeds)
    """
    check_ties(ties, "evaluate")
    check_k(k, "evaluate", dataset.views.n_rows)
    names = _check_protocols(protocols)
    if asymmetric and not hasattr(model, "project"):
        raise ParameterError("evaluate", "asymmetric", "False for a model without a method 'project'", asymmetric)
    rows = check_split(dataset)
    labels = _check_labels(dataset)
    directions = list(permutations(dataset.views.names, 2))
    if not directions:
        raise DataError("Evaluation searches one view by another and must have at least two views. Got one.")
    skipped = _cannot_run(model, rows, names, refit=refit)
    names = tuple(name for name in names if name not in skipped)
    if not names:
        raise ParameterError("evaluate", "protocols", "possible here (" + " ".join(skipped.values()) + ")", protocols)
    runs = _check_seeds(seeds) if refit else (_seed_of(model),)

    stages = [(seed, stage) for seed in runs for stage in plan(rows, names, seed or 0)]
    total = sum((1 if refit else 0) + len(stage.searched) * len(directions) for _, stage in stages)
    steps = count()

    def report(message: str) -> None:
        if progress is not None:
            progress(next(steps), total, message)

    fit_seconds: dict[str, list[float]] = {}
    searches: dict[tuple[str, str, str], list[tuple[Floats, Rows, int]]] = {}
    for seed, stage in stages:
        fitted = model
        if refit:
            report(f"seed {seed}: fit on {len(stage.learn)} pairs")
            fitted = _with_seed(model, seed)
            fit_seconds.setdefault(stage.name, []).append(fit_rows(fitted, dataset.views, labels, stage.learn))
        codes = StageCodes(fitted, dataset.views, rows, stage.name, seed or 0, asymmetric)
        for name in stage.searched:
            for asked, searched in directions:
                report(f"seed {seed}: {name} {asked}->{searched}")
                query, database = f"query:{asked}", PROTOCOLS[name].code_name(stage.name, searched)
                query_rows, database_rows = codes.rows(query), codes.rows(database)
                relevant = labels[query_rows], labels[database_rows]
                values = METRICS["map"].compute(codes[query], codes[database], relevant, k=k, ties=ties)
                searches.setdefault((name, asked, searched), []).append((values, query_rows, len(database_rows)))

    scores = tuple(
        Score(*key, runs, np.stack([values for values, _, _ in searches[key]]), *searches[key][0][1:])
        for key in ((name, *direction) for name in names for direction in directions)
    )
    card = _card(model, dataset, rows, names, k=k, ties=ties, seeds=runs, refit=refit, asymmetric=asymmetric)
    report("done")
    return EvaluationResult(scores=scores, card=card, fit_seconds=fit_seconds, skipped=skipped)


def _check_protocols(protocols: Any) -> tuple[str, ...]:
    names = tuple(protocols) if isinstance(protocols, Iterable) and not isinstance(protocols, str) else (protocols,)
    all_exist = all(isinstance(name, str) and name in PROTOCOLS for name in names)
    if not names or not all_exist or len(set(names)) != len(names):
        raise ParameterError(
            "evaluate", "protocols", "different names out of " + ", ".join(map(repr, PROTOCOLS)), protocols
        )
    return names


def _check_labels(dataset: PairedDataset) -> Any:
    labels = dataset.labels
    if labels is None:
        raise DataError(
            f"Evaluation needs labels to know what is relevant. Data set '{dataset.name}' has none; "
            "add class numbers or a 0/1 matrix to its file as the array labels, "
            "or pass files of views: image=a.npy text=b.npy --labels c.npy."
        )
    labels = labels.tocsr() if sp.issparse(labels) else np.asarray(labels)
    if labels.ndim not in (1, 2) or labels.shape[0] != dataset.views.n_rows:
        raise DataError(
            f"Data set '{dataset.name}' must have a label row for each of its {dataset.views.n_rows} rows. "
            f"Got labels of shape {labels.shape}."
        )
    return labels


def _check_seeds(seeds: Any) -> tuple[int | None, ...]:
    listed = list(seeds) if isinstance(seeds, Sequence | range | np.ndarray) else [seeds]
    if not listed or not all(map(integer(0).accepts, listed)):
        raise ParameterError("evaluate", "seeds", "one or more integers of at least 0", seeds)
    return tuple(int(seed) for seed in listed)


def _seed_of(model: Any) -> int | None:
    seed = model.get_params(deep=False).get("random_state")
    return int(seed) if isinstance(seed, int | np.integer) else None


def _with_seed(model: Any, seed: int | None) -> Any:
    template = clone(model)
    return template.set_params(random_state=seed) if "random_state" in template.get_params(deep=False) else template


def _cannot_run(model: Any, rows: ProtocolRows, names: Sequence[str], *, refit: bool) -> dict[str, str]:
    """Protocols that are impossible here, with the reason."""
    reasons: dict[str, str] = {}
    for name in names:
        protocol = PROTOCOLS[name]
        if protocol.codes == "fused" and not hasattr(model, "encode_fused"):
            reasons[name] = "The model has no method 'encode_fused'."
        elif not refit and protocol.new_items and not rows.new.size:
            reasons[name] = "All database rows are training rows, so that new items need a refit on half of them."
        elif not refit and protocol.codes == "unified" and len(getattr(model, "codes_", ())) != len(rows.train):
            reasons[name] = "The model holds no codes of these training rows."
    return reasons


def _card(
    model: Any,
    dataset: PairedDataset,
    rows: ProtocolRows,
    names: Sequence[str],
    *,
    k: int | None,
    ties: str,
    seeds: tuple[int | None, ...],
    refit: bool,
    asymmetric: bool,
) -> dict[str, Any]:
    """The protocol card: what you need to know before you compare the numbers with others. JSON-ready."""
    return {
        "dataset": dataset.name,
        "data_hash": dataset.fingerprint,
        "split": dataset.split,
        "n_train": len(rows.train),
        "n_database": len(rows.database),
        "n_query": len(rows.query),
        "protocols": {
            name: {
                "database_rule": PROTOCOLS[name].database_rule(by_half=not rows.new.size),
                "n_train": len(rows.learned(rows.stage(name), 0)),
                "n_database": len(rows.searched(name, 0)),
            }
            for name in names
        },
        "map_rule": "E1",
        "map_definition": MAP_RULES["E1"].definition,
        "k": None if k is None else int(k),
        "ties": ties,
        "asymmetric": asymmetric,
        "refit": refit,
        "seeds": list(seeds),
        "model": type(model).__name__,
        "model_params": {name: json_ready(value) for name, value in model.get_params(deep=False).items()},
        "fusehash_version": __version__,
    }
