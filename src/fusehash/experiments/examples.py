"""Retrieval examples: a query and its first answers, wrong answers framed in red and crossed, as HTML for the report.

Only raw data (photos and texts) can be shown. The queries are those at the upper quartile, the median and the lower
quartile of average precision, so that you see good and bad answers.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusehash.errors import DataError
from fusehash.evaluation import average_precision
from fusehash.experiments.metrics import Results
from fusehash.experiments.spec import Spec
from fusehash.experiments.store import DatasetRecord, ResultStore, RunSettings, searched
from fusehash.search.engines.scan import Scan
from fusehash.search.rows import CodeRows

SHOWN = 10
LONGEST_TEXT = 160  # characters that are shown
PICTURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
QUARTILES = (0.75, 0.5, 0.25)
MAX_LABELS = 4  # shown per item


@dataclass(frozen=True)
class ExampleItem:
    """A picture or a text of an example.

    image : a small picture as bytes of a JPEG or PNG file, or None
    text : a snippet, or ""
    labels : names of its classes
    """

    image: bytes | None = None
    text: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.image is None and not self.text:
            raise DataError("An item of an example must have an image or a text. Got neither.")
        self.picture  # noqa: B018  (raise now, not when the page is made)

    @property
    def picture(self) -> str | None:
        """The picture as a data URI."""
        if self.image is None:
            return None
        kind = next((name for start, name in PICTURES.items() if self.image.startswith(start)), None)
        if kind is None:
            raise DataError("The image of an example must be the bytes of a JPEG or PNG file. Got other bytes.")
        return f"data:{kind};base64,{base64.b64encode(self.image).decode('ascii')}"

    @property
    def snippet(self) -> str:
        """The text, cut at a word where it is long."""
        words = " ".join(self.text.split())
        return words if len(words) <= LONGEST_TEXT else words[:LONGEST_TEXT].rsplit(" ", 1)[0] + " …"


@dataclass(frozen=True)
class Answer:
    """An item that was found, and whether it is relevant to the query."""

    item: ExampleItem
    correct: bool


@dataclass(frozen=True)
class Example:
    """A query, what belongs to it (the other half of its pair; None if unknown), and its answers, nearest first."""

    query: ExampleItem
    results: tuple[Answer, ...]
    truth: ExampleItem | None = None
    title: str = ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        return self.results[:SHOWN]


def retrieval_examples(results: Sequence[Results], store: ResultStore) -> list[Example]:
    """Examples of every data set with pictures, in both directions, from the first series of its table."""
    examples = []
    for on_dataset in results:
        spec, dataset = on_dataset.spec, on_dataset.dataset
        if "examples" in spec.sections and dataset is not None and len(dataset.ends) and spec.lines:
            for direction in on_dataset.directions:
                examples += _of(spec, dataset, store, *direction)
    return examples


def _of(spec: Spec, dataset: DatasetRecord, store: ResultStore, query_view: str, database_view: str) -> list[Example]:
    series, protocol = spec.lines[0], spec.protocols[0]
    n_bits, seed, stage = max(spec.bits_of(series)), spec.seeds[0], dataset.rows.stage(protocol)
    record = store.get(RunSettings(dataset.fingerprint, series.method, series.params, n_bits, seed, stage))
    if record is None:
        return []
    queries, database, query_labels, labels = searched(record, dataset, protocol, query_view, database_view)
    rows = dataset.rows.searched(protocol, seed)
    scores = average_precision(queries, database, (query_labels, labels), k=spec.k, ties="stable")
    order = np.argsort(scores, kind="stable")
    chosen = [int(order[round(share * (len(order) - 1))]) for share in QUARTILES]
    _, nearest = Scan().search(CodeRows.numbered(database), queries[chosen], min(SHOWN, len(database)), None, None)
    examples = []
    for query, positions in zip(chosen, nearest, strict=True):
        row = int(dataset.query[query])
        answers = [
            Answer(_item(dataset, answer, database_view), _share_a_label(dataset, row, answer))
            for answer in map(int, rows[positions])
        ]
        title = f"{query_view} finds {database_view}: {series.label}, {n_bits} bits, protocol {protocol}, "
        title += f"average precision {scores[query]:.2f}"
        items = [_item(dataset, row, view) for view in (query_view, database_view)]
        examples.append(Example(items[0], tuple(answers), items[1], title))
    return examples


def _item(dataset: DatasetRecord, row: int, view: str) -> ExampleItem:
    labels = dataset.labels[row]
    columns = np.flatnonzero(labels) if labels.ndim else [labels]
    names = tuple(dataset.label_names[int(column)] for column in columns[:MAX_LABELS])
    is_image = view == "image"
    return ExampleItem(dataset.thumbnail(row) if is_image else None, "" if is_image else dataset.texts[row], names)


def _share_a_label(dataset: DatasetRecord, a: int, b: int) -> bool:
    left, right = dataset.labels[a], dataset.labels[b]
    return bool(np.any(left.astype(bool) & right.astype(bool)) if left.ndim else left == right)
