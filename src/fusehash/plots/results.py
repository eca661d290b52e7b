"""Pictures of results: MAP over code lengths with its spread, and what a method costs as data grows."""

from __future__ import annotations

from collections.abc import Mapping

from fusehash.errors import DataError
from fusehash.evaluation import EvaluationResult
from fusehash.plots.drawing import Line, Plot, line_chart, style


def map_over_bits(
    results: Mapping[str, Mapping[int, EvaluationResult]], protocol: str = "HN", direction: str | None = None
) -> Plot:
    """MAP over code length, one line per method; the band is one standard deviation over seeds.

    Parameters
    ----------
    results : mapping of str to mapping of int to EvaluationResult
        Method -> bits -> what `fusehash.evaluation.evaluate` returned.
    protocol : str, default="HN"
        "U", "H", "HN" or "FN".
    direction : str, optional
        As in "text->image"; the first one of the results by default.

    Returns
    -------
    Plot

    Raises
    ------
    DataError
        If there are no results, or they do not hold the protocol and direction.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, random_state=0)
    >>> runs = {b: fh.evaluation.evaluate(fh.RegressionHasher(n_bits=b), data, seeds=[0]) for b in (8, 16)}
    >>> fh.plots.map_over_bits({"regression": runs}).title
    'HN, image->text'
    """
    present = [result for runs in results.values() for result in runs.values()]
    if not present:
        raise DataError("A picture of results needs at least one result. Got none.")
    direction = present[0].scores[0].direction if direction is None else direction
    lines = []
    for i, (name, runs) in enumerate(results.items()):
        scores = {bits: runs[bits][protocol, direction] for bits in sorted(runs)}
        means, spreads = ([getattr(score, part) for score in scores.values()] for part in ("mean", "std"))
        lines.append(Line(name, list(scores), means, style(i, strong=i == 0), spreads))
    cut = present[0].card["k"]
    metric = "MAP" if cut is None else f"MAP@{cut}"
    return line_chart(lines, title=f"{protocol}, {direction}", x_label="bits", y_label=metric, x_scale="log2")


def cost(seconds: Mapping[str, Mapping[float, float]], what: str = "seconds", over: str = "N") -> Plot:
    """What methods cost as data grows, on logarithmic axes: a line of slope 1 is a cost that grows as the data does.

    Parameters
    ----------
    seconds : mapping of str to mapping of float to float
        Name -> N -> seconds, bytes or whatever `what` says.
    what : str, default="seconds"
        Label of the vertical axis.
    over : str, default="N"
        Label of the horizontal axis.

    Returns
    -------
    Plot

    Raises
    ------
    DataError
        If there is nothing to draw, or a number is not positive.

    Examples
    --------
    >>> import fusehash as fh
    >>> fh.plots.cost({"fit": {1000: 0.5, 10000: 2.0}}, what="seconds to fit").title
    'seconds to fit over N'
    """
    numbers = [number for line in seconds.values() for point in line.items() for number in point]
    if not numbers:
        raise DataError("A picture of costs needs at least one measurement. Got none.")
    if not min(numbers) > 0:
        raise DataError(f"Logarithmic axes need positive numbers. Got {min(numbers):g}.")
    lines = [
        Line(name, sorted(points), [points[n] for n in sorted(points)], style(i, strong=i == 0))
        for i, (name, points) in enumerate(seconds.items())
    ]
    return line_chart(lines, title=f"{what} over {over}", x_label=over, y_label=what, x_scale="log", y_scale="log")
