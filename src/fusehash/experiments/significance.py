"""Which method leads a column of a table, and whether that is more than luck.

A score is an average over queries and over seeds, and both are samples. With d[s, q] the difference in average
precision of two methods for seed s and query q, the mean difference D is judged by the two-way model

    d[s, q] = delta + seed[s] + query[q] + noise[s, q]
    Var(D) = (MS_seed + MS_query - MS_noise) / (S Q)        (mean squares of the two-way table without replication)
    t = D / sqrt(Var(D)),   degrees of freedom by Satterthwaite's formula

so that a lead must hold both for other queries and for other seeds. With one seed (or where no seed changes anything)
it is the paired t-test over queries. The variance is never taken below either of its two main parts. Five seeds keep
the level; two say so little about seeds that up to one call in eight can be wrong where seeds matter most.

A column has one best method and m competitors: their m p-values (two-sided) are corrected by Holm's rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fusehash.errors import DataError
from fusehash.views import Floats

Mark: TypeAlias = Literal["best", "shared", ""]

ALPHA = 0.05
# Shown with every table that has marks.
SENTENCE = (
    "Bold: ahead of every other row of its column by a paired test over queries and seeds "
    "(two-sided, Holm-corrected, level 0.05). Underlined: the highest mean and all that this test cannot tell from it."
)


@dataclass(frozen=True)
class Comparison:
    """D = mean of first minus second, its standard error, and the two-sided p-value of D = 0."""

    difference: float
    error: float
    p: float


def compare(first: Any, second: Any) -> Comparison:
    """Compare two (seeds, queries) tables of average precision, paired by seed and by query."""
    A, B = _stack([first, second])
    return Comparison(*(float(values[0]) for values in _paired_test((A - B)[None])))


def holm(p_values: Any) -> Floats:
    """Holm's correction: sorted p-values times m, m - 1, ..., 1, made to rise, at most 1."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    out = np.empty_like(p)
    out[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    return out


def marks(columns: Mapping[str, Any], alpha: float = ALPHA) -> dict[str, Mark]:
    """The mark of every method of one column.

    columns : method -> (seeds, queries) average precisions, all of one shape. "best" for a method that is separable
    from all others; otherwise "shared" for the one with the highest mean and for all that are not separable from it.
    """
    names = list(columns)
    out: dict[str, Mark] = dict.fromkeys(names, "")
    if len(names) < 2:
        return out
    scores = _stack([columns[name] for name in names])
    best = int(np.argmax(scores.mean(axis=(1, 2))))
    others = [i for i in range(len(names)) if i != best]
    adjusted = holm(_paired_test(scores[best] - scores[others])[2])
    level = [names[i] for i, p in zip(others, adjusted, strict=True) if not p < alpha]
    out[names[best]] = "shared" if level else "best"
    return out | dict.fromkeys(level, "shared")


def _stack(tables: Sequence[Any]) -> Floats:
    arrays = [np.asarray(table, dtype=np.float64) for table in tables]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or len(next(iter(shapes))) != 2 or arrays[0].size == 0:
        raise DataError(f"All scores must be tables (seeds, queries) of one shape. Got the shapes {sorted(shapes)}.")
    return np.stack(arrays)


def _paired_test(d: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, standard error and two-sided p-value of every table of differences in d (tables, seeds, queries)."""
    from scipy.stats import t as student

    S, Q = d.shape[1:]
    mean = d.mean(axis=(1, 2))
    by_seed, by_query = d.mean(axis=2) - mean[:, None], d.mean(axis=1) - mean[:, None]
    noise = d - mean[:, None, None] - by_seed[:, :, None] - by_query[:, None, :]
    # Each part is a mean square over S Q; `freedom` holds its degrees of freedom.
    parts = np.stack(
        [
            (by_seed**2).sum(axis=1) / (S * max(S - 1, 1)),
            (by_query**2).sum(axis=1) / (Q * max(Q - 1, 1)),
            (noise**2).sum(axis=(1, 2)) / (S * Q * max((S - 1) * (Q - 1), 1)),
        ]
    )
    freedom = np.array([max(S - 1, 1), max(Q - 1, 1), max((S - 1) * (Q - 1), 1)], dtype=np.float64)
    variance = np.maximum(parts[0] + parts[1] - parts[2], np.maximum(parts[0], parts[1]))
    error = np.sqrt(variance)
    weight = (parts**2 / freedom[:, None]).sum(axis=0)
    df = np.divide(variance**2, weight, out=np.ones_like(weight), where=weight > 0)
    # Without any spread the test has nothing to go by: a difference is then certain, none is none.
    spread = error > 1e-12 * np.maximum(np.abs(mean), 1e-300)
    ratio = np.divide(np.abs(mean), error, out=np.where(mean != 0, np.inf, 0.0), where=spread)
    return mean, error, 2.0 * student.sf(ratio, np.maximum(df, 1.0))
