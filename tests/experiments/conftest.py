"""A small specification, a store of made runs whose quality is known, and runs without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash.errors import FusehashError
from fusehash.evaluation.protocols import halves
from fusehash.experiments import runner
from fusehash.experiments.spec import Planned, Spec, parse_spec, planned
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, now, versions
from fusehash.experiments.workers import JobOutcome

N_TRAIN, N_QUERY, N_NEW, N_CLASSES = 80, 40, 60, 4
CONTENT: dict[str, Any] = {
    "title": "A made <experiment> & more",
    "dataset": {"name": "wiki"},
    "methods": [
        {"label": "AGSFH", "method": "agsfh", "printed": "AGSFH"},
        {"label": "FuseHash", "method": "fusehash", "printed": ""},
        {"label": "<b>A&B_1$</b>", "method": "fusehash", "params": {"ridge": 0.5}, "printed": "FSH"},
        "regression",
        "random",
    ],
    "sweep": {"method": "regression", "over": {"ridge": [0.001, 0.1, 10]}, "bits": [16]},
    "bits": [16, 32],
    "seeds": 3,
    "k": 20,
    "sections": ["map", "topn", "pr", "convergence", "sensitivity", "times", "ablation"],
    "paper": 1,
}
# The share of bits of a code that are those of its class.
QUALITY = {"AGSFH": 0.75, "FuseHash": 0.9, "REG": 0.75, "CCA + random rotation": 0.6}


@dataclass(frozen=True)
class Made:
    """A specification, the store that holds its runs, and its data set."""

    spec: Spec
    store: ResultStore
    dataset: DatasetRecord


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Made]:
    """`make(new=..., stand_in=..., skip=..., **changes)`: a filled store; `skip(planned)` leaves a run out."""
    monkeypatch.setattr("os.fsync", lambda _: None)  # these files need not outlive a power cut

    def build(
        *, new: bool = False, stand_in: bool = False, skip: Callable[[Planned], bool] = lambda _: False, **changes: Any
    ) -> Made:
        spec = parse_spec({**CONTENT, **changes}, "made")
        store = ResultStore(tmp_path / "results")
        data = _dataset(new=new, stand_in=stand_in)
        store.put_dataset(data)
        for entry in planned(spec, data):
            if not skip(entry):
                store.put(_run(entry, data))
        return Made(spec, store, data)

    return build


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this process, for tests that are not about processes."""

    def here(jobs: Any, start: Any, arguments: Any, n_workers: int, on_start: Any) -> Iterator[JobOutcome[Any]]:
        do = start(*arguments)
        for job in jobs:
            on_start(job)
            try:
                yield JobOutcome(job, result=do(job))
            except FusehashError as error:
                yield JobOutcome(job, error=str(error))

    monkeypatch.setattr(runner, "work_through", here)


def _dataset(*, new: bool, stand_in: bool) -> DatasetRecord:
    train, query = np.arange(N_TRAIN), np.arange(N_TRAIN, N_TRAIN + N_QUERY)
    rows = N_TRAIN + N_QUERY + (N_NEW if new else 0)
    database = np.concatenate([train, np.arange(N_TRAIN + N_QUERY, rows)])
    labels = np.random.default_rng(0).integers(0, N_CLASSES, rows)
    return DatasetRecord(
        "cd" * 32, "wiki", "made split", labels, train, query, database, {"image": 5, "text": 4}, rows,
        stand_in=stand_in, source="wiki", created=now(),
    )  # fmt: skip


def _run(entry: Planned, data: DatasetRecord) -> RunRecord:
    settings = entry.settings
    rng = np.random.default_rng([settings.n_bits, settings.seed, int(settings.key[:8], 16)])
    words = np.random.default_rng(1).integers(0, 2, (N_CLASSES, settings.n_bits))
    good = QUALITY.get(entry.series.label, 0.7)

    def codes(rows: np.ndarray) -> np.ndarray:
        bits = words[data.labels[rows]]
        flipped = rng.random(bits.shape) > good
        return np.packbits(bits ^ flipped, axis=1, bitorder="little")

    if settings.stage == "half":
        half = halves(data.train, settings.seed)[1]
        parts = {"fused": half, "hashed:image": half, "hashed:text": half}
    else:
        parts = {"unified": data.train, "hashed:image": data.train, "hashed:text": data.train}
        if data.rows.new.size:
            parts |= {"new:fused": data.rows.new, "new:hashed:image": data.rows.new, "new:hashed:text": data.rows.new}
    parts |= {"query:image": data.query, "query:text": data.query}
    return RunRecord(
        settings=settings,
        codes={name: codes(rows) for name, rows in parts.items()},
        objective=None if settings.method == "random" else 100.0 * 0.8 ** np.arange(4 + settings.seed),
        fit_seconds=1.0 + settings.seed,
        encode_seconds={"image": 0.002, "text": 0.001},
        versions=versions(),
        created=now(),
        warnings=["Beware of <this>."] if settings.method == "random" else [],
    )
