"""Pictures of codes, embeddings, rankings and results, each with one call; matplotlib is needed when one is drawn."""

from __future__ import annotations

from fusehash.plots.codes import bit_correlation, code_balance, drift, shared_space
from fusehash.plots.drawing import Plot
from fusehash.plots.embeddings import recall_over_bits, spectra
from fusehash.plots.rankings import precision_recall, ties
from fusehash.plots.results import cost, map_over_bits

__all__ = [
    "Plot", "bit_correlation", "code_balance", "cost", "drift", "map_over_bits", "precision_recall", "recall_over_bits",
    "shared_space", "spectra", "ties",
]  # fmt: skip
