"""Codes made elsewhere get exactly the numbers that the same codes get here."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from fusehash import bits
from fusehash.cli import app
from fusehash.datasets import make_paired
from fusehash.errors import DataError
from fusehash.experiments import runner
from fusehash.experiments.metrics import collect
from fusehash.experiments.scoring import array_names, packed, rows_of, store_codes
from fusehash.experiments.spec import DatasetSpec, parse_spec, planned
from fusehash.experiments.store import ResultStore


@pytest.fixture(params=["all rows are training rows", "some rows are new"])
def made(request, tmp_path):
    """A data set, its record, and a store with two seeds of a method on it."""
    data = make_paired(150, n_classes=4, n_query=20, views={"image": 16, "text": 12}, random_state=0)
    train = data.train if request.param.startswith("all") else data.train[:70]
    file = tmp_path / "small.npz"
    np.savez(file, **data.views, labels=data.labels, train_idx=train, test_idx=data.query)
    content = {"title": "T", "dataset": "small.npz", "methods": ["random"], "bits": [16], "seeds": 2}
    spec, store = parse_spec(content, "tiny"), ResultStore(tmp_path / "results")
    source = runner.find_source(spec.datasets[0], tmp_path, stand_in=False)
    record, dataset = runner.describe(source), source.load()
    store.put_dataset(record)
    for entry in planned(spec, record):
        store.put(runner.compute(entry.settings, dataset))
    return spec, store, record, tmp_path


def save(made, seed, kind):
    """The codes of the stored runs as another framework would save them."""
    spec, store, record, folder = made
    arrays = {"seed": seed}
    for entry in planned(spec, record):
        if entry.settings.seed == seed:
            codes = store.get(entry.settings).codes
            for name, (stage, key) in array_names(record).items():
                if stage == entry.settings.stage and key in codes:
                    signs = bits.unpack(codes[key], 16)
                    arrays[name] = {"packed": codes[key], "signs": signs, "bool": signs > 0}[kind]
    path = folder / f"codes-{seed}.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("kind", ["packed", "signs", "bool"])
def test_the_same_codes_have_the_same_scores(made, kind):
    spec, store, record, _ = made
    files = [save(made, seed, kind) for seed in spec.seeds]
    scored = store_codes(files, record, store, "Mine", requested=spec.datasets[0])
    assert not scored.skipped
    assert scored.spec.protocols == ("U", "H", "HN", "FN")
    both = collect(spec.with_codes(["Mine"], store), store)[0]
    ours, theirs = both.spec.lines
    for protocol in spec.protocols:
        for direction in both.directions:
            a, b = (both.score(line, 16, protocol, direction) for line in (ours, theirs))
            assert np.array_equal(a.per_query, b.per_query)
            assert a.seeds == b.seeds == (0, 1)
            assert a.n_database == b.n_database


def test_rows_are_those_that_the_codes_are_of(made):
    spec, store, record, _ = made
    run = store.get(next(planned(spec, record).__iter__()).settings)
    rows = rows_of(record, 0)
    assert len(run.codes["unified"]) == len(rows["train"])
    assert len(run.codes["query:image"]) == len(rows["query"])
    assert not set(rows["query"]) & set(rows["train"])


def test_missing_codes_leave_their_protocols_out(made, tmp_path):
    _, store, record, _ = made
    rng, n = np.random.default_rng(0), {name: len(rows) for name, rows in rows_of(record, 0).items()}
    codes = {"query_image": n["query"], "query_text": n["query"], "train_text": n["train"], "train_image": n["train"]}
    np.savez(tmp_path / "h.npz", **{name: rng.random((rows, 24)) < 0.5 for name, rows in codes.items()})
    scored = store_codes([tmp_path / "h.npz"], record, store, "H only", requested=DatasetSpec("small.npz", {}))
    assert scored.spec.protocols == ("H",)
    assert scored.spec.bits == (24,)
    assert scored.skipped["U"] == "U needs train."


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, "must be among train"),
        ({"nonsense": np.ones((20, 2), np.uint8)}, "Got 'nonsense' of these"),
        ({"query_image": np.ones((19, 8), bool)}, "must have 20 rows. Got 19"),
        ({"query_image": np.ones((20, 12))}, "8 or 16"),
        ({"query_image": np.full((20, 8), 0.5)}, "must hold packed bits"),
        ({"query_image": np.full((20, 8), np.nan)}, "must hold packed bits"),
        ({"query_image": np.ones((20, 8), bool), "query_text": np.ones((20, 16), bool)}, "one length. Got 8, 16 bits"),
        ({"query_image": np.ones((20, 8), bool), "seed": [1, 2]}, "one integer"),
        ({"query_image": np.ones((20, 8), bool), "seed": -1}, "one integer"),
        ({"query_image": np.array(["a"] * 20)}, "matrix with a code per row"),
        ({"query_image": np.ones((20, 8), bool)}, "No protocol can be scored"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_files_are_one_sentence(made, arrays, words, tmp_path):
    _, store, record, _ = made
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(DataError, match=words):
        store_codes([tmp_path / "wrong.npz"], record, store, "X", requested=DatasetSpec("small.npz", {}))


def test_unpacked_bits_are_not_taken_for_packed_ones():
    with pytest.raises(DataError, match="save these as bool"):
        packed(np.random.default_rng(0).integers(0, 2, (40, 16), dtype=np.uint8), "Codes")


@pytest.mark.parametrize("label", ["", " ", "a\nb", "x" * 61])
def test_labels_are_short_lines(made, label):
    _, store, record, _ = made
    with pytest.raises(DataError, match="A label must be a line"):
        store_codes([], record, store, label, requested=DatasetSpec("small.npz", {}))


def test_the_commands(made, monkeypatch):
    spec, store, _, folder = made
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(folder)

    def bench(*words):
        return CliRunner().invoke(app, ["bench", *map(str, words)])

    options = ("--dataset", "small.npz", "--data", folder)
    done = bench("rows", *options, "--out", "rows.npz")
    assert done.exit_code == 0, done.output
    assert "query (20)" in done.stdout
    files = [save(made, seed, "signs") for seed in spec.seeds]
    done = bench("score", *files, "--label", "My Net", "--supervised", *options, "--out", store.folder)
    assert done.exit_code == 0, done.output
    assert "My Net" in done.stdout
    assert "--add 'My Net'" in done.stdout
    (folder / "tiny.yaml").write_text("title: T\ndataset: small.npz\nmethods: [random]\nbits: [16]\nseeds: 2\n")
    done = bench("report", "tiny.yaml", "--results", store.folder, "--add", "My Net", "--format", "csv")
    assert done.exit_code == 0, done.output
    assert "runs are missing" not in done.stdout
    with (folder / "fusehash-report" / "tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    ours, theirs = (
        [row["values"] for row in rows if row["method"] == method] for method in ("random", "labelled-codes/My Net")
    )
    assert len(ours) == 8
    assert ours == theirs
    done = bench("report", "tiny.yaml", "--results", store.folder, "--add", "Nobody")
    assert done.exit_code == 1
    assert "No codes of tiny are stored under the label 'Nobody'" in done.output
