"""Retrieval examples from stored codes: some queries of a data set that can be looked at, and what they found.

Which queries are shown is decided by their average precision, not by us: the ones at the upper quartile, the median and
the lower quartile, so that good and bad answers both are seen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusehash.evaluation import average_precision
from fusehash.experiments.examples import SHOWN, Answer, Example, Item
from fusehash.experiments.metrics import Results
from fusehash.experiments.spec import Series
from fusehash.experiments.store import DatasetRecord, ResultStore, RunSettings, searched
from fusehash.search.engines.scan import Scan
from fusehash.search.rows import CodeRows

QUARTILES = (0.75, 0.5, 0.25)
MOST_LABELS = 4  # that are written under an item


def retrieval_examples(results: Sequence[Results], store: ResultStore) -> list[Example]:
    """Examples of every data set that can be looked at, in both directions, by the first series of its table."""
    examples = []
    for one in results:
        if "examples" in one.spec.sections and one.dataset is not None and len(one.dataset.ends) and one.spec.lines:
            series = one.spec.lines[0]
            for query_view, database_view in one.directions:
                examples += _of(one, one.dataset, series, store, query_view, database_view)
    return examples


def _of(
    results: Results, dataset: DatasetRecord, series: Series, store: ResultStore, query_view: str, database_view: str
) -> list[Example]:
    spec, protocol = results.spec, results.spec.protocols[0]
    n_bits, seed, stage = max(spec.bits_of(series)), spec.seeds[0], dataset.stage(protocol)
    record = store.get(RunSettings(dataset.fingerprint, series.method, series.params, n_bits, seed, stage).key)
    if record is None:
        return []
    queries, database, query_labels, labels = searched(record, dataset, protocol, query_view, database_view)
    rows = dataset.searched(protocol, seed)
    scores = average_precision(queries, database, (query_labels, labels), k=spec.k, ties="stable")
    order = np.argsort(scores, kind="stable")
    chosen = [int(order[round(share * (len(order) - 1))]) for share in QUARTILES]
    _, found = Scan().search(CodeRows.numbered(database), queries[chosen], min(SHOWN, len(database)))
    examples = []
    for query, places in zip(chosen, found, strict=True):
        row = int(dataset.query[query])
        answers = tuple(
            Answer(_item(dataset, int(rows[place]), database_view), _share_a_label(dataset, row, int(rows[place])))
            for place in places
        )
        title = (
            f"{query_view} finds {database_view}: {series.label}, {n_bits} bits, protocol {protocol}, "
            f"average precision {scores[query]:.2f}"
        )
        truth = _item(dataset, row, database_view)
        examples.append(Example(_item(dataset, row, query_view), answers, truth, title=title))
    return examples


def _item(dataset: DatasetRecord, row: int, view: str) -> Item:
    labels = dataset.labels[row]
    columns = np.flatnonzero(labels) if labels.ndim else [labels]
    shown = tuple(dataset.label_names[int(column)] for column in columns[:MOST_LABELS])
    if view == "image":
        return Item(image=dataset.thumbnail(row), labels=shown)
    return Item(text=dataset.texts[row], labels=shown)


def _share_a_label(dataset: DatasetRecord, a: int, b: int) -> bool:
    left, right = dataset.labels[a], dataset.labels[b]
    return bool(np.any(left.astype(bool) & right.astype(bool)) if left.ndim else left == right)
