"""`evaluate`: fit a method with several seeds, encode, and score it under the protocols; everything is on a card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, permutations, product
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from fusehash.errors import DataError, ParameterError
from fusehash.evaluation.map_rules import MAP_RULES
from fusehash.evaluation.metrics import average_precision
from fusehash.evaluation.protocols import PROTOCOLS, ProtocolRows, Rows, StageCodes, check_split, fit_rows
from fusehash.evaluation.ranking import TIES, Ties, check_k
from fusehash.evaluation.result import EvaluationResult, Score, json_ready
from fusehash.parameters import Progress, check_label_array, choice, integer
from fusehash.version import __version__
from fusehash.views import Floats

if TYPE_CHECKING:
    from fusehash.datasets import PairedDataset


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
