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
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, permutations, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation.map_rules import MAP_RULES
from fusehash.evaluation.metrics import average_precision
from fusehash.evaluation.ranking import TIES, Ties, check_k
from fusehash.evaluation.result import EvaluationResult, Score, json_ready
from fusehash.parameters import Progress, check_label_array, choice, integer
from fusehash.version import __version__
from fusehash.views import Floats, PairedViews

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
    verbose: bool = False,
) -> EvaluationResult:
    """MAP@k (rule E1) of a model on a data set, for every ordered pair of views.

    Parameters
    ----------
    model : estimator
        Any object with `fit`, `codes_`, `encode`, `encode_fused` and `get_params`; with `project` if asymmetric.
    dataset : PairedDataset
        Or any object with its views, labels, row numbers, split and fingerprint.
    k, ties
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
    verbose : bool, default=False
        Show the progress on stderr, unless `progress` is given.

    Returns
    -------
    EvaluationResult
        Scores by protocol and direction, and the protocol card.

    Raises
    ------
    ParameterError, DataError
        If a parameter is not one of the values above, no protocol is possible, the data set has no labels or fewer than
        two views, or its query rows are also searched.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> result = fh.evaluation.evaluate(fh.hashers.make("random", n_bits=16), data, protocols=["H"], seeds=[0])
    >>> result["H", "image->text"]
    Score(H image->text: 0.2383, 1 seeds)
    """
    if verbose and progress is None:
        from fusehash import console

        how: dict[str, Any] = {"protocols": protocols, "seeds": seeds, "refit": refit, "asymmetric": asymmetric}
        with console.progress("evaluate") as bar:
            return evaluate(model, dataset, k=k, ties=ties, progress=bar, **how)
    choice(*TIES).check("evaluate", "ties", ties)
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
    names = [name for name in names if name not in skipped]
    if not names:
        raise ParameterError("evaluate", "protocols", "possible here (" + " ".join(skipped.values()) + ")", protocols)
    runs = _check_seeds(seeds, model, refit=refit)
    fits = [(seed, stage, rows.learned(stage, seed or 0)) for seed in runs for stage in rows.stages(names)]
    total, steps = len(runs) * len(names) * len(directions) + len(fits) * refit, count()

    def report(message: str) -> None:
        if progress is not None:
            progress(next(steps), total, message)

    fit_seconds: dict[str, list[float]] = defaultdict(list)
    values: dict[tuple[str, str, str], list[Floats]] = defaultdict(list)
    searches: dict[tuple[str, str, str], tuple[Rows, int]] = {}
    for seed, stage, learned in fits:
        fitted = model
        if refit:
            report(f"seed {seed}: fit on {len(learned)} pairs")
            fitted = clone(model)
            if "random_state" in fitted.get_params(deep=False):
                fitted.set_params(random_state=seed)
            fit_seconds[stage].append(fit_rows(fitted, dataset.views, labels, learned))
        codes = StageCodes(fitted, dataset.views, rows, stage, seed or 0, asymmetric)
        for name, (asked, searched) in product(names, directions):
            if rows.stage(name) != stage:
                continue
            report(f"seed {seed}: {name} {asked}->{searched}")
            query, database = f"query:{asked}", PROTOCOLS[name].code_name(stage, searched)
            query_rows, database_rows = codes.rows(query), codes.rows(database)
            relevant = labels[query_rows], labels[database_rows]
            values[name, asked, searched].append(average_precision(codes[query], codes[database], relevant, k, ties))
            searches.setdefault((name, asked, searched), (query_rows, len(database_rows)))

    keys = [(name, *direction) for name, direction in product(names, directions)]
    scores = tuple(Score(*key, runs, np.stack(values[key]), *searches[key]) for key in keys)
    settings = {"k": k if k is None else int(k), "ties": ties, "asymmetric": asymmetric, "refit": refit}
    card = _card(model, dataset, rows, names, settings | {"seeds": list(runs)})
    report("done")
    return EvaluationResult(scores, card, dict(fit_seconds), skipped)


def _check_protocols(protocols: Any) -> list[str]:
    names = list(protocols) if isinstance(protocols, Iterable) and not isinstance(protocols, str) else [protocols]
    if not names or not all(map(choice(*PROTOCOLS).accepts, names)) or len(set(names)) != len(names):
        expected = "different names out of " + ", ".join(map(repr, PROTOCOLS))
        raise ParameterError("evaluate", "protocols", expected, protocols)
    return names


def _check_labels(dataset: PairedDataset) -> Any:
    if dataset.labels is None:
        raise DataError(
            f"Evaluation needs labels to know what is relevant. Data set '{dataset.name}' has none; "
            "add class numbers or a 0/1 matrix to its file as the array labels, "
            "or pass files of views: image=a.npy text=b.npy --labels c.npy."
        )
    labels = check_label_array(dataset.labels)
    if labels.shape[0] != dataset.views.n_rows:
        raise DataError(
            f"Data set '{dataset.name}' must have a label row for each of its {dataset.views.n_rows} rows. "
            f"Got labels of shape {labels.shape}."
        )
    return labels


def _check_seeds(seeds: Any, model: Any, *, refit: bool) -> tuple[int | None, ...]:
    """The seeds of all fits; without a refit, the one that the model was fitted with."""
    if not refit:
        seed = model.get_params(deep=False).get("random_state")
        return (int(seed) if isinstance(seed, int | np.integer) else None,)
    listed = list(seeds) if isinstance(seeds, Sequence | range | np.ndarray) else [seeds]
    if not listed or not all(map(integer(0).accepts, listed)):
        raise ParameterError("evaluate", "seeds", "one or more integers of at least 0", seeds)
    return tuple(int(seed) for seed in listed)


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
    model: Any, dataset: PairedDataset, rows: ProtocolRows, names: Sequence[str], settings: Mapping[str, Any]
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
        **settings,
        "model": type(model).__name__,
        "model_params": {name: json_ready(value) for name, value in model.get_params(deep=False).items()},
        "fusehash_version": __version__,
    }
