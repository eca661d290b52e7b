"""Hostile files of every kind: refused with one sentence or opened, and nothing else is run, read or changed."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from hostile import corpus, shrinking, surface
from hostile.campaign import Campaign, build_samples
from hostile.runner import Arena, request_of
from hostile.scale import ATTACK, cases
from house import modules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits and the watch on files are those of Linux")
KEPT = sorted(shrinking.FOUND.glob("*.json"))
# Modules that open something, and the kinds of hostile files that reach them.
OPENING = {
    "app.cache": "image", "collection.changes": "collection", "collection.dates": "image",
    "collection.encoding": "collection", "collection.items": "photos", "collection.likeness": "image",
    "collection.originals": "collection", "collection.reading": "collection", "collection.store.rows": "collection",
    "collection.store.state": "collection", "commands.collection": "collection", "commands.contents": "retriever",
    "commands.dedupe": "index", "commands.index": "index", "commands.inputs": "codes",
    "commands.locations": "retriever", "commands.retrievers": "retriever", "commands.search": "codes",
    "commands.terminal": "image", "datasets.arrays": "mat5", "datasets.folders": "photos", "encoders.onnx": "onnx",
    "encoders.reading": "image", "experiments.spec.reading": "spec", "experiments.store.formats": "results",
    "files.atomic": "model", "files.tensors": "model", "integrations.datasets": "index", "retriever": "retriever",
    "search.exchange.milvus": "exchange_json", "search.exchange.numpy": "exchange_numpy",
    "search.exchange.pgvector": "exchange_sql", "search.exchange.rows": "exchange_json", "search.file": "index",
    "search.index": "index", "search.vectors.file": "vectors", "sqlite.creation": "index", "sqlite.database": "index",
    "sqlite.writers": "collection",
    "streams.hdf5": "hdf5", "streams.npy": "npy", "streams.parquet": "parquet", "streams.zarr": "zarr",
    "streams.zarr.storage": "zarr", "trust": "npy",
}  # fmt: skip
# Modules that open only what fusehash or its packages brought along, what the user typed, or what they wrote before.
TRUSTED = {
    "app.routes.pages", "app.server", "commands.demo", "commands.serve", "datasets.emoji", "dedupe.removal", "encoders",
    "encoders.downloads", "experiments.tables.printed", "integrations.duckdb",
    "numerics.compiled", "numerics.memory", "search.servers.address", "search.servers.milvus",
    "search.servers.postgres", "streams.writers",
}  # fmt: skip
OPENS = (
    r"(?<!def )\bopen\(|read_bytes\(|read_text\(|np\.load\(|safe_open|loadmat|\.connect\(|from_file\("
    r"|InferenceSession\(|ParquetFile\(|\.File\(|json\.loads?\(|safe_load|np\.memmap\(|fromfile"
)


@pytest.fixture(scope="module")
def arena(tmp_path_factory):
    """A process that runs single cases of the kinds that were kept."""
    root = tmp_path_factory.mktemp("arena")
    build_samples(root / "samples", {"probe", *(json.loads(path.read_text())["kind"] for path in KEPT)}, most=1)
    with Arena(root / "samples", root / "arena") as arena:
        yield arena


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("nothing", "opened"), ("refused", "refused"), ("foreign", "foreign"), ("memory", "memory"), ("crash", "crash"),
        ("executed", "executed"), ("unpickled", "executed"), ("outside", "outside"), ("network", "network"),
        ("modified", "modified"), pytest.param("cpu", "cpu", marks=pytest.mark.slow),
        pytest.param("hang", "hang", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_what_a_file_does_is_noticed(arena, word, expected):
    [result] = arena.run([request_of("probe", {"probe.txt": word.encode()})])
    assert result["verdict"] == expected, result


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_failure_that_was_found_stays_closed(arena, path):
    [result] = arena.run([shrinking.read_case(path)])
    assert result["verdict"] in ("opened", "refused"), result


@pytest.mark.slow
def test_hostile_files_of_every_kind_do_no_harm(tmp_path):
    campaign = Campaign(cases(2000, 200_000), seed=os.environ.get("FUSEHASH_ATTACK_SEED", "0"))
    campaign.run(tmp_path)
    if ATTACK and "FUSEHASH_ATTACK_OUT" in os.environ:
        folder = Path(os.environ["FUSEHASH_ATTACK_OUT"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "files.json").write_text(json.dumps(campaign.as_json(), indent=1) + "\n")
        (folder / "faults.jsonl").write_text("".join(json.dumps(fault) + "\n" for fault in campaign.faults))
        if campaign.faults:
            shrinking.keep(campaign.faults, 1, tmp_path, folder / "found")
    assert campaign.faults == [], campaign.report()
    assert set(campaign.figures) == {kind.name for kind in corpus.KINDS.values() if kind.share}


def test_every_module_that_opens_something_is_attacked():
    opening = {name for name, path in modules().items() if re.search(OPENS, path.read_text(encoding="utf-8"))}
    assert opening - TRUSTED - set(OPENING) == set(), "attack it in surface.py, or say why it is trusted"
    assert set(OPENING.values()) <= set(surface.USES)
    assert set(corpus.KINDS) == set(surface.USES)
