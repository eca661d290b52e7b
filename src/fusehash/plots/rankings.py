"""Pictures of rankings: what ties can do to MAP, and precision against recall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fusehash.errors import DataError
from fusehash.evaluation import mean_average_precision, precision_recall_by_radius
from fusehash.evaluation.relevance import Relevant
from fusehash.plots.drawing import Line, Plot, line_chart, style


def ties(codes: Mapping[int, tuple[Any, Any]], relevant: Relevant, k: int | None = 50) -> Plot:
    """MAP@k over code length: its expectation over tie orders, with the best and the worst order as a band.

    Parameters
    ----------
    codes : mapping of int to a pair of arrays of uint8
        Number of bits -> (query codes, database codes).
    relevant : tuple, matrix or callable
        As for `fusehash.evaluation.mean_average_precision`.
    k : int or None, default=50
        The cut; None is the whole database.

    Returns
    -------
    Plot

    Raises
    ------
    ParameterError, DataError
        As for `mean_average_precision`; also if there are no codes.

    Examples
    --------
    >>> import numpy as np
    >>> import fusehash as fh
    >>> query, database = np.array([[0]], np.uint8), np.array([[0], [1], [2], [3]], np.uint8)
    >>> fh.plots.ties({8: (query, database)}, ([1], [2, 1, 2, 1])).description
    '8 bits: 0.46, from 0.42 to 0.50.'
    """
    _check_any(codes)
    orders = ("expected", "worst", "best")
    scores = {
        n_bits: [mean_average_precision(*codes[n_bits], relevant, k, ties=order) for order in orders]  # type: ignore[arg-type]
        for n_bits in sorted(codes)
    }
    lengths, cut = list(scores), "" if k is None else f"@{k}"
    expected, worst, best = zip(*scores.values(), strict=True)
    lines = [
        Line("best order", lengths, best, style(2)),
        Line("expected", lengths, expected, style(0, strong=True)),
        Line("worst order", lengths, worst, style(1)),
    ]
    metric = f"MAP{cut}"
    plot = line_chart(lines, title=f"What ties can do to {metric}", x_label="bits", y_label=metric, x_scale="log2")
    words = [f"{n} bits: {mean:.2f}, from {low:.2f} to {high:.2f}" for n, (mean, low, high) in scores.items()]
    return Plot(plot.figure, plot.title, f"{'; '.join(words)}.")


def precision_recall(codes: Mapping[str, tuple[Any, Any]], relevant: Relevant) -> Plot:
    """Precision against recall within Hamming radius 0, 1, 2, ..., one line per method.

    Parameters
    ----------
    codes : mapping of str to a pair of arrays of uint8
        Name -> (query codes, database codes).
    relevant : tuple, matrix or callable
        As for `fusehash.evaluation.precision_recall_by_radius`.

    Returns
    -------
    Plot

    Raises
    ------
    ParameterError, DataError
        As for `precision_recall_by_radius`; also if there are no codes.

    Examples
    --------
    >>> import numpy as np
    >>> import fusehash as fh
    >>> query, database = np.array([[0]], np.uint8), np.array([[0], [1], [3]], np.uint8)
    >>> fh.plots.precision_recall({"mine": (query, database)}, ([1], [1, 2, 1])).title
    'Precision and recall by Hamming radius'
    """
    _check_any(codes)
    lines = []
    for i, (name, (query, database)) in enumerate(codes.items()):
        curve = precision_recall_by_radius(query, database, relevant)
        lines.append(Line(name, curve.recall, curve.precision, style(i, strong=i == 0)))
    title = "Precision and recall by Hamming radius"
    return line_chart(lines, title=title, x_label="recall", y_label="precision", names="list")


def _check_any(codes: Mapping[Any, Any]) -> None:
    if not codes:
        raise DataError("A picture of rankings needs at least one pair of query and database codes. Got none.")
