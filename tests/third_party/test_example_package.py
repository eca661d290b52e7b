"""A package of somebody else brings a method: pip installs it, and it appears in a table, by name alone."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fusehash.datasets import make_paired
from third_party.wheels import install

SOURCE = Path(__file__).parents[2] / "src"
SPEC = "title: Tiny\ndataset: small.npz\nmethods: [sign_of_means, random]\nbits: [16]\nseeds: 2\nprotocols: [U, HN]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the installed package in `site`, a data set and a specification."""
    path = tmp_path_factory.mktemp("stranger")
    install(path / "site")
    made = make_paired(120, n_classes=4, n_query=20, views={"image": 16, "text": 12}, random_state=0)
    np.savez(path / "small.npz", **made.views, labels=made.labels, train_idx=made.train, test_idx=made.query)
    (path / "tiny.yaml").write_text(SPEC, encoding="utf-8")
    return path


def run(folder, *command, site=True):
    paths = [str(folder / "site"), str(SOURCE)] if site else [str(SOURCE)]
    path = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    environment = {**os.environ, **path, "COLUMNS": "300"}  # no title of a table is broken
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_installed_method_is_listed(folder):
    listed = json.loads(run(folder, "-m", "fusehash.cli", "bench", "methods", "--json").stdout)
    (entry,) = [entry for entry in listed if entry["name"] == "sign_of_means"]
    assert (entry["title"], entry["kind"], entry["basis"]) == ("SignOfMeans", "unsupervised", "fusehash-example")
    without = json.loads(run(folder, "-m", "fusehash.cli", "bench", "methods", "--json", site=False).stdout)
    assert [entry["name"] for entry in listed if entry["name"] != "sign_of_means"] == [e["name"] for e in without]


@pytest.mark.slow
def test_it_appears_in_a_bench_table(folder):
    done = run(folder, "-m", "fusehash.cli", "bench", "run", "tiny.yaml", "--data", folder, "--workers", 1)
    assert done.returncode == 0, done.stderr
    done = run(folder, "-m", "fusehash.cli", "bench", "report", "tiny.yaml", "--format", "csv", "--out", "report")
    assert done.returncode == 0, done.stderr
    assert "SignOfMeans" in done.stdout
    with (folder / "report" / "tiny.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "sign_of_means"]
    assert len(rows) == 4  # two protocols, two directions
    assert all(len(row["values"].split()) == 2 and 0 < float(row["mean"]) <= 1 for row in rows)


@pytest.mark.slow
def test_its_models_are_saved_and_loaded(folder):
    fit = run(folder, "-m", "fusehash.cli", "fit", "small.npz", "--method", "sign_of_means", "--bits", 16, "-o", "m")
    assert fit.returncode == 0, fit.stderr
    encode = ("-m", "fusehash.cli", "encode", "m", "small.npz", "--view", "text", "-o", "codes.npy")
    assert run(folder, *encode).returncode == 0
    assert np.load(folder / "codes.npy").shape == (120, 2)
    refused = run(folder, *encode, site=False)
    assert refused.returncode == 1
    assert "'sign_of_means', which neither this fusehash nor an installed package knows." in refused.stderr


@pytest.mark.slow
def test_it_passes_the_public_checks(folder):
    code = "from fusehash import hashers, testing; testing.check_hasher(hashers.get('sign_of_means'))"
    done = run(folder, "-c", code)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
def test_a_package_that_cannot_be_imported_harms_only_itself(folder, tmp_path):
    info = tmp_path / "site" / "broken-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[fusehash.hashers]\nbroken = broken_module:Nothing\nrandom = x:Y\n")
    done = run(tmp_path, "-m", "fusehash.cli", "bench", "methods")
    assert done.returncode == 0
    assert "The method 'broken' of broken cannot be imported: ModuleNotFoundError" in done.stderr
    assert "CCA + random rotation" in done.stdout
    done = run(tmp_path, "-c", "import fusehash as fh; fh.hashers.make('broken')")
    assert "DataError: The method 'broken' of broken cannot be imported" in done.stderr
