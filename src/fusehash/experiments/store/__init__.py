"""Raw results on disk, one file per run, found by their settings: codes, times, objective. Metrics come later.

    RESULTS/datasets/<fingerprint>.safetensors                           labels and rows of a data set
    RESULTS/runs/wiki/fusehash-64bits-seed0-<8 hex>.safetensors          the result of one fit

The hex digits start the key: the SHA-256 of everything that decides a run (`RunSettings`), so that equal runs are never
computed twice and a changed setting never finds an old result. Files are written whole or not at all.
"""

from __future__ import annotations

from fusehash.experiments.store.records import DatasetRecord, RunRecord, now, searched, versions
from fusehash.experiments.store.results import ResultStore, slug
from fusehash.experiments.store.settings import RunSettings, canonical_json

__all__ = [
    "DatasetRecord",
    "ResultStore",
    "RunRecord",
    "RunSettings",
    "canonical_json",
    "now",
    "searched",
    "slug",
    "versions",
]
