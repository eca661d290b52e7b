"""What to run, as a YAML file: data set, methods, bits, seeds, protocols; checked before anything runs.

title: One line
notes: What a reader should know.                     (optional, as everything below that has a default)
dataset: wiki                                         or {name: ..., options: {...}, stand_in: {...}}, or a list
methods: [fsh, {label: mine, method: agsfh, params: {max_iter: 40}, printed: AGSFH, bits: [64]}, my_package:MyHasher]
sweep: {method: agsfh, bits: [32], over: {lambda: [1, 10], n_anchors: [100, 300]}}
bits: [16, 32, 64, 128]
seeds: 5                                              0 to 4, or a list
protocols: [U, H, HN, FN]
k: 50                                                 or all, or a list of both: a table for each
ties: stable                                          default: expected
sections: [map, times]                                parts of the report
paper: 1                                              the printed table to compare with, or its name (ucch)
embeddings: {k: 10, candidates: 100, queries: 2000, learn: 0.5}     for joint embeddings, see embeddings.py
"""

from __future__ import annotations

from fusehash.experiments.spec.plan import DatasetSpec, EmbeddingOptions, Planned, Series, Spec, planned
from fusehash.experiments.spec.reading import (
    OTHER_TABLES,
    PAPER_TABLES,
    SECTIONS,
    SHIPPED,
    SYMBOLS,
    load_spec,
    parse_spec,
    shipped,
)

__all__ = [
    "OTHER_TABLES",
    "PAPER_TABLES",
    "SECTIONS",
    "SHIPPED",
    "SYMBOLS",
    "DatasetSpec",
    "EmbeddingOptions",
    "Planned",
    "Series",
    "Spec",
    "load_spec",
    "parse_spec",
    "planned",
    "shipped",
]
