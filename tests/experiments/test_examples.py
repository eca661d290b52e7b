"""Retrieval examples are what the stored codes say, of queries that nobody picked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fusehash.evaluation.protocols import halves
from fusehash.experiments.examples import retrieval_examples
from fusehash.experiments.metrics import collect
from fusehash.experiments.spec import DatasetSpec, Series, Spec
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, now, versions

N, N_QUERY = 40, 8
JPEG = b"\xff\xd8\xff"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Spec, ResultStore, DatasetRecord]:
    """A store with one run of random codes on a data set of 40 rows whose pictures are only names."""
    rng = np.random.default_rng(0)
    pictures = [JPEG + bytes([row]) * (row + 1) for row in range(N)]
    rows = np.arange(N, dtype=np.int64)
    dataset = DatasetRecord(
        "f" * 64, "made", "", (rng.random((N, 3)) < 0.4).astype(np.uint8) | np.eye(3, dtype=np.uint8)[rows % 3],
        rows[N_QUERY:], rows[:N_QUERY], rows[N_QUERY:], {"image": 2, "text": 2}, N, source="made", created=now(),
        texts=[f"text {row}" for row in range(N)], thumbnails=np.frombuffer(b"".join(pictures), np.uint8),
        ends=np.cumsum([len(picture) for picture in pictures], dtype=np.int64), label_names=["a", "b", "c"],
    )  # fmt: skip
    spec = Spec(
        "made", "made", "", (DatasetSpec("made", {}),), (Series("REG", "regression", {}),), (16,), (0,), ("HN",), 50,
        "stable", ("map", "examples"), None,
    )  # fmt: skip
    store = ResultStore(tmp_path)
    store.put_dataset(dataset)
    searched = halves(dataset.train.astype(np.intp), 0)[1]
    codes = {f"query:{view}": rng.integers(0, 256, (N_QUERY, 2), np.uint8) for view in dataset.views}
    codes |= {f"hashed:{view}": rng.integers(0, 256, (len(searched), 2), np.uint8) for view in dataset.views}
    codes["fused"] = rng.integers(0, 256, (len(searched), 2), np.uint8)
    settings = RunSettings(dataset.fingerprint, "regression", {}, 16, 0, "half")
    store.put(RunRecord(settings, codes, None, 0.1, {"image": 0.1, "text": 0.1}, versions(), now(), []))
    return spec, store, dataset


def test_answers_are_the_nearest_codes_and_right_where_a_label_is_shared(made) -> None:
    spec, store, dataset = made
    record = next(iter(store))
    rows = halves(dataset.train.astype(np.intp), 0)[1]
    examples = retrieval_examples(collect(spec, store), store)
    assert len(examples) == 6
    for example in examples[3:]:  # text finds image
        query = int(example.query.text.split()[1])
        distances = np.bitwise_count(record.codes["hashed:image"] ^ record.codes["query:text"][query]).sum(axis=1)
        nearest = rows[np.argsort(distances, kind="stable")[:10]]
        assert [answer.item.image for answer in example.results] == [dataset.thumbnail(row) for row in nearest]
        right = (dataset.labels[nearest] & dataset.labels[query]).any(axis=1)
        assert [answer.correct for answer in example.results] == right.tolist()
        assert example.truth.image == dataset.thumbnail(query)
        assert "text finds image" in example.title


def test_the_queries_are_quartiles_of_average_precision(made) -> None:
    spec, store, _ = made
    examples = retrieval_examples(collect(spec, store), store)
    for some in (examples[:3], examples[3:]):
        values = [float(example.title.rsplit(" ", 1)[1]) for example in some]
        assert values == sorted(values, reverse=True)


def test_no_examples_without_pictures_runs_or_the_wish(made, tmp_path: Path) -> None:
    spec, store, dataset = made
    assert retrieval_examples(collect(replace(spec, sections=("map",)), store), store) == []
    assert retrieval_examples(collect(replace(spec, bits=(32,)), store), store) == []
    blind = ResultStore(tmp_path / "blind")
    blind.put_dataset(replace(dataset, ends=np.zeros(0, np.int64)))
    assert retrieval_examples(collect(spec, blind), blind) == []
