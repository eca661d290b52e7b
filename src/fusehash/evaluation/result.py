"""The result of an evaluation, with everything you need to compare it with other numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.views import Floats


@dataclass(frozen=True, repr=False)
class Score:
    """MAP@k of one protocol and direction.

    Attributes
    ----------
    protocol, query_view, database_view : str
        What was searched, and how.
    seeds : tuple of int
        One fit per seed.
    per_query : array of float (n_seeds, n_queries)
        Average precisions; paired tests start from these.
    query_rows : array of int (n_queries,)
        The rows of the queries in the data set.
    n_database : int
        Number of items searched.
    """

    protocol: str
    query_view: str
    database_view: str
    seeds: tuple[int | None, ...]
    per_query: Floats
    query_rows: NDArray[np.intp]
    n_database: int

    def __repr__(self) -> str:
        return f"Score({self.protocol} {self.direction}: {self.mean:.4f}, {len(self.seeds)} seeds)"

    @property
    def direction(self) -> str:
        """As in "image->text"."""
        return f"{self.query_view}->{self.database_view}"

    @property
    def values(self) -> Floats:
        """MAP of every seed."""
        return self.per_query.mean(axis=1)

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return float(self.values.mean())

    @property
    def std(self) -> float:
        """Standard deviation over seeds (divisor seeds - 1); NaN for one seed."""
        return float(self.values.std(ddof=1)) if len(self.seeds) > 1 else float("nan")

    def row(self) -> dict[str, Any]:
        """The score as a flat, JSON-ready row."""
        return {
            "protocol": self.protocol,
            "direction": self.direction,
            "query_view": self.query_view,
            "database_view": self.database_view,
            "mean": self.mean,
            "std": None if np.isnan(self.std) else self.std,
            "values": self.values.tolist(),
            "n_query": len(self.query_rows),
            "n_database": self.n_database,
        }


@dataclass(frozen=True, repr=False)
class EvaluationResult:
    """Scores by protocol and direction; `print` shows them as a table.

    Attributes
    ----------
    scores : tuple of Score
        One per protocol and direction, also as ``result["U", "image->text"]``.
    card : mapping
        The protocol card: data, split, rules, seeds, model, versions.
    fit_seconds : mapping of str to list of float
        Seconds of every fit: "train" on all training rows, "half" on the half for HN and FN.
    skipped : mapping of str to str
        Protocols that could not be run, with the reason.
    """

    scores: tuple[Score, ...]
    card: Mapping[str, Any]
    fit_seconds: Mapping[str, list[float]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"EvaluationResult({self.card['model']} on {self.card['dataset']}, {len(self.scores)} scores)"

    def __getitem__(self, key: tuple[str, str]) -> Score:
        for score in self.scores:
            if (score.protocol, score.direction) == key:
                return score
        keys = ", ".join(f"{score.protocol} {score.direction}" for score in self.scores)
        raise DataError(f"The result must hold the protocol and direction {key!r}. It holds: {keys}.")

    def table(self) -> list[dict[str, Any]]:
        """One plain row per protocol and direction."""
        return [score.row() for score in self.scores]

    def to_dict(self, *, per_query: bool = False) -> dict[str, Any]:
        """Everything, JSON-ready; with per_query also the average precision of every query and seed."""
        scores = self.table()
        if per_query:
            for row, score in zip(scores, self.scores, strict=True):
                row["per_query"] = score.per_query.tolist()
                row["query_rows"] = score.query_rows.tolist()
        return {
            "card": dict(self.card),
            "scores": scores,
            "fit_seconds": {name: list(seconds) for name, seconds in self.fit_seconds.items()},
            "skipped": dict(self.skipped),
        }

    def __str__(self) -> str:
        card = self.card
        cut = "all" if card["k"] is None else card["k"]
        seeds = ", ".join(str(seed) for seed in card["seeds"])
        lines = [
            f"{card['model']} on {card['dataset']} ({card['split']}): "
            f"MAP@{cut}, rule {card['map_rule']}, ties {card['ties']}, "
            f"{'asymmetric, ' if card['asymmetric'] else ''}seeds {seeds}"
        ]
        width = max(len("direction"), *(len(score.direction) for score in self.scores))
        lines.append(f"{'protocol':<10}{'direction':<{width + 2}}{'mean':>7}{'std':>8}{'queries':>9}{'database':>10}")
        for score in self.scores:
            std = "-" if np.isnan(score.std) else f"{score.std:.4f}"
            lines.append(
                f"{score.protocol:<10}{score.direction:<{width + 2}}{score.mean:>7.4f}{std:>8}"
                f"{len(score.query_rows):>9}{score.n_database:>10}"
            )
        lines += [f"{name}: {rule['database_rule']}" for name, rule in card["protocols"].items()]
        lines += [f"{name} was not run: {reason}" for name, reason in self.skipped.items()]
        return "\n".join(lines)


def json_ready(value: Any) -> Any:
    """A parameter as JSON can hold it; what JSON cannot hold becomes its repr."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    is_plain = value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    return value if is_plain else repr(value)
