"""Fit, hash, search, score: `evaluate` runs a model through the protocols, in every direction, for every seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import clone

import fusehash
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import coding
from fusehash.evaluation.ap import average_precision
from fusehash.evaluation.checks import Ties, check_k, check_ties
from fusehash.evaluation.map_rules import MAP_RULES
from fusehash.evaluation.protocols import (
    PROTOCOLS,
    Dataset,
    Rows,
    Split,
    Stage,
    check_protocols,
    check_split,
    database_rule,
    plan,
)
from fusehash.evaluation.result import EvaluationResult, Score, json_ready

Progress: TypeAlias = Callable[[int, int, str], None]


def evaluate(
    model: Any,
    dataset: Dataset,
    *,
    k: int | None = 50,
    ties: Ties = "expected",
    protocols: Sequence[str] = ("U", "H", "HN", "FN"),
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    refit: bool = True,
    asymmetric: bool = False,
    progress: Progress | None = None,
) -> EvaluationResult:
    """MAP@k (rule E1) of a model on a data set, every ordered pair of views, protocols U, H, HN, FN.

    Parameters
    ----------
    model : a hasher: fit, codes_, encode, encode_fused (and project if asymmetric)
    dataset : name, views, labels, train, query, database (row numbers), split, fingerprint
    k, ties : as for `mean_average_precision`
    protocols : which of U, H, HN, FN (see `protocols` for the exact rows)
    seeds : for each, a clone of the model is fitted with random_state=seed
    refit : False takes the fitted model as it is, runs the protocols that are valid for it, and ignores the seeds
    asymmetric : rank by the query's real-valued projection instead of its code
    progress : called with (step, total, message) before every step
    """
    check_ties(ties, "evaluate")
    check_k(k, "evaluate", dataset.views.n_rows)
    names = check_protocols(protocols)
    if asymmetric and not hasattr(model, "project"):
        raise ParameterError("evaluate", "asymmetric", "False for a model without a method 'project'", asymmetric)
    split = check_split(dataset)
    labels = _check_labels(dataset)
    directions = list(permutations(dataset.views.names, 2))
    if not directions:
        raise DataError("Evaluation searches one view by another and must have at least two views. Got one.")
    skipped = _cannot_run(model, split, names, refit=refit)
    names = tuple(name for name in names if name not in skipped)
    if not names:
        raise ParameterError("evaluate", "protocols", "possible here (" + " ".join(skipped.values()) + ")", protocols)
    runs = _check_seeds(seeds) if refit else (_own_seed(model),)

    stages = [(seed, stage) for seed in runs for stage in plan(split, names, 0 if seed is None else seed)]
    total = sum((1 if refit else 0) + len(stage.searched) * len(directions) for _, stage in stages)
    report = _Reporter(progress, total)
    fit_seconds: dict[str, list[float]] = {}
    found: dict[tuple[str, str, str], list[_Searched]] = {}
    for seed, stage in stages:
        fitted = model
        if refit:
            report(f"seed {seed}: fit on {len(stage.learn)} pairs")
            fitted = _with_seed(model, seed)
            started = time.perf_counter()
            learned_labels = (labels[stage.learn],) if getattr(fitted, "supervised", False) else ()
            fitted.fit(dataset.views.rows(stage.learn), *learned_labels)
            fit_seconds.setdefault(stage.name, []).append(time.perf_counter() - started)
        coded = _Coded(fitted, dataset, split, stage, asymmetric=asymmetric)
        for name in stage.searched:
            for query_view, searched_view in directions:
                report(f"seed {seed}: {name} {query_view}->{searched_view}")
                searched = coded.search(name, query_view, searched_view, labels, k, ties)
                found.setdefault((name, query_view, searched_view), []).append(searched)

    scores = tuple(
        Score(
            protocol=name,
            query_view=query_view,
            database_view=searched_view,
            seeds=runs,
            per_query=np.stack([values for values, _, _ in found[name, query_view, searched_view]]),
            query_rows=found[name, query_view, searched_view][0][1],
            n_database=found[name, query_view, searched_view][0][2],
        )
        for name in names
        for query_view, searched_view in directions
    )
    card = _card(model, dataset, split, names, k=k, ties=ties, seeds=runs, refit=refit, asymmetric=asymmetric)
    report("done")
    return EvaluationResult(scores=scores, card=card, fit_seconds=fit_seconds, skipped=skipped)


# AP of every query, the rows of the queries, items searched
_Searched: TypeAlias = tuple[NDArray[np.float64], Rows, int]


class _Coded:
    """The codes that one fitted model gives, each computed once."""

    def __init__(self, model: Any, dataset: Dataset, split: Split, stage: Stage, *, asymmetric: bool) -> None:
        self._model, self._views, self._split, self._stage = model, dataset.views, split, stage
        self._asymmetric = asymmetric
        self._queries: dict[str, tuple[Rows, Any]] = {}
        self._databases: dict[tuple[str, str], tuple[Rows, Any]] = {}

    def search(
        self, name: str, query_view: str, searched_view: str, labels: Any, k: int | None, ties: Ties
    ) -> _Searched:
        query_rows, queries = self.queries(query_view)
        rows, database = self.database(name, searched_view)
        values = average_precision(queries, database, (labels[query_rows], labels[rows]), k=k, ties=ties)
        return values, query_rows, len(rows)

    def queries(self, view: str) -> tuple[Rows, Any]:
        """Query rows that are seen in the view, and their codes (projections if asymmetric)."""
        if view not in self._queries:
            encode = self._model.project if self._asymmetric else self._model.encode
            self._queries[view] = self._hash(self._split.query, view, encode, "query")
        return self._queries[view]

    def database(self, name: str, view: str) -> tuple[Rows, Any]:
        """Rows that the protocol searches, and their codes."""
        how, rows = PROTOCOLS[name].codes, self._stage.searched[name]
        key = (name, view if how == "hashed" else "")
        if key not in self._databases:
            if how == "hashed":
                self._databases[key] = self._hash(rows, view, self._model.encode, "database")
            elif how == "fused":
                self._databases[key] = rows, coding.fused(self._model, self._views, rows)
            else:
                self._databases[key] = rows, self._unified(len(rows))
        return self._databases[key]

    def _hash(self, rows: Rows, view: str, encode: Callable[..., Any], which: str) -> tuple[Rows, Any]:
        rows = rows[self._views.is_present(view)[rows]]
        if not rows.size:
            raise DataError(f"At least one {which} row must be present in view '{view}'. All are missing.")
        return rows, coding.hashed(encode, self._views, rows, view)

    def _unified(self, n_rows: int) -> Any:
        codes = self._model.codes_
        if len(codes) != n_rows:
            raise DataError(
                f"The model must have learned a code for each of the {n_rows} training rows. Got {len(codes)}."
            )
        return codes


class _Reporter:
    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._step = progress, total, 0

    def __call__(self, message: str) -> None:
        if self._progress is not None:
            self._progress(self._step, self._total, message)
        self._step += 1


def _check_labels(dataset: Dataset) -> Any:
    labels = dataset.labels
    if labels is None:
        raise DataError(
            f"Evaluation needs labels to know what is relevant. Data set '{dataset.name}' has none; "
            "put class numbers or a 0/1 matrix beside its views as the array labels, "
            "or give files of views: image=a.npy text=b.npy --labels c.npy."
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
    if not listed or any(
        isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0 for seed in listed
    ):
        raise ParameterError("evaluate", "seeds", "one or more whole numbers >= 0", seeds)
    return tuple(int(seed) for seed in listed)


def _own_seed(model: Any) -> int | None:
    seed = model.get_params(deep=False).get("random_state")
    return int(seed) if isinstance(seed, int | np.integer) else None


def _with_seed(model: Any, seed: int | None) -> Any:
    template = clone(model)
    return template.set_params(random_state=seed) if "random_state" in template.get_params(deep=False) else template


def _cannot_run(model: Any, split: Split, names: Sequence[str], *, refit: bool) -> dict[str, str]:
    """Protocols that are impossible here, with the reason."""
    reasons: dict[str, str] = {}
    for name in names:
        protocol = PROTOCOLS[name]
        if protocol.codes == "fused" and not hasattr(model, "encode_fused"):
            reasons[name] = "The model has no method 'encode_fused'."
        elif not refit and protocol.new_items and not split.new.size:
            reasons[name] = "All database rows are training rows, so that new items need a refit on half of them."
        elif not refit and protocol.codes == "unified" and len(getattr(model, "codes_", ())) != len(split.train):
            reasons[name] = "The model holds no codes of these training rows."
    return reasons


def _card(
    model: Any,
    dataset: Dataset,
    split: Split,
    names: Sequence[str],
    *,
    k: int | None,
    ties: str,
    seeds: tuple[int | None, ...],
    refit: bool,
    asymmetric: bool,
) -> dict[str, Any]:
    """The protocol card: what a reader must know before comparing the numbers with others. JSON-ready."""
    by_half = not split.new.size
    used = {stage_name: stage for stage in plan(split, names, 0) for stage_name in stage.searched}
    return {
        "dataset": dataset.name,
        "data_hash": dataset.fingerprint,
        "split": dataset.split,
        "n_train": len(split.train),
        "n_database": len(split.database),
        "n_query": len(split.query),
        "protocols": {
            name: {
                "database_rule": database_rule(name, by_half=by_half),
                "n_train": len(used[name].learn),
                "n_database": len(used[name].searched[name]),
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
        "fusehash_version": fusehash.__version__,
    }
