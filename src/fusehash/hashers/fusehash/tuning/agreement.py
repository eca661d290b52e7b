"""How far the views agree on neighborhoods, and the weight of the graph that follows from it.

Where views agree, the pairs align them without the help of a graph; where they do not, the graph of both is what holds
classes together. So the walk starts from a weight that falls with the agreement: its criterion sees partners better
than classes, and it finds the better map next to a light graph.

What it has chosen then gets more of the graph: graphs that agree well join rows that belong together in all views, so
that up to a weight that rises with the agreement, partners are found about as well as before and classes better. With
many rows the views alone tell that, and the weight falls again. docs/study.md has the measurements behind the numbers.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from fusehash.views import Floats

USUAL_AGREEMENT = 0.12  # graphs that correlate more need less weight, by the fourth power of the excess
MIN_GRAPH_WEIGHT = 0.01  # a graph of less weight changes hardly a bit, and is most of the work
# The weight of graphs that agree: (agreement / FULL_AGREEMENT)^2, at most MAX_RAISED, less beyond RAISED_ROWS rows.
# With fewer than MIN_RAISED_ROWS it stays light: graphs of few rows join what queries must tell apart.
FULL_AGREEMENT, MAX_RAISED, MIN_RAISED_ROWS, RAISED_ROWS = 0.4, 0.5, 1000, 1200
# Where the score falls by more than another weight would have to gain, the graph is harmful and stays light.
MAX_FALL = 0.15


def graph_agreement(graphs: list[Floats]) -> float:
    """Mean correlation of the anchor graphs of two views, over pairs of views; 0 with one view."""
    centered = [graph - graph.mean(axis=0) for graph in graphs]
    lengths = [max(float(np.sqrt(np.sum(graph**2))), 1e-12) for graph in centered]
    pairs = list(combinations(range(len(graphs)), 2))
    products = [float(np.sum(centered[i] * centered[j])) / (lengths[i] * lengths[j]) for i, j in pairs]
    return float(np.mean(products)) if products else 0.0


def agreeing_weight(agreement: float) -> float:
    """The relative weight that falls with the agreement of the views; 1 for those that hardly agree."""
    return min(1.0, (USUAL_AGREEMENT / max(agreement, 1e-9)) ** 4)


def starting_weight(agreement: float) -> float:
    """The weight of the graph that the walk starts from; 0 leaves the graph out."""
    weight = agreeing_weight(agreement)
    return weight if weight >= MIN_GRAPH_WEIGHT else 0.0


def raised_weight(agreement: float, n_rows: int) -> float:
    """The weight of the graph that chosen settings get if they had less; 0 with few rows."""
    if n_rows < MIN_RAISED_ROWS:
        return 0.0
    share = min(max(agreement, 0.0) / FULL_AGREEMENT, 1.0) ** 2
    return min(share, MAX_RAISED) * min(1.0, RAISED_ROWS / n_rows) ** 2
