"""docs/your-own-method.md, followed literally; and a class that nobody has allowed is not imported."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import DATA
from fusehash import hashers
from fusehash.errors import DataError, ParameterError
from fusehash.experiments.spec import parse_spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")
CLASS, CHECK, SAVE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SPEC,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [shlex.split(line) for line in re.findall(r"^fusehash bench .*", PAGE, re.MULTILINE)]


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    if command[0] == "fusehash":
        has_wiki = (DATA / "wiki.npz").exists()
        words = [str(DATA) if word == "FOLDER" else word for word in command[1:]]
        words += ["--stand-in"] if words[:2] == ["bench", "run"] and not has_wiki else []
        command = (sys.executable, "-c", "from fusehash.cli import main; main()", *words)
        environment["PYTHONSAFEPATH"] = "1"  # as the installed command: the current folder is not on the path
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_my_method_is_in_table_1(tmp_path, data_file):
    data_file("wiki.npz")
    (tmp_path / "my_method.py").write_text(CLASS, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(SPEC, encoding="utf-8")
    checked = run(tmp_path, sys.executable, "-c", CHECK)
    assert checked.returncode == 0, checked.stderr
    bench_run, report, rows, score = COMMANDS
    for command in (bench_run, report):
        done = run(tmp_path, *command)
        assert done.returncode == 0, done.stderr
    assert "JointPCA" in done.stdout
    assert "In brackets: the value that the paper prints." in done.stdout
    with (tmp_path / "fusehash-report" / "mine.csv").open(encoding="utf-8") as file:
        mine = [row for row in csv.DictReader(file) if row["label"] == "JointPCA"]
    assert len(mine) == 16  # four protocols, two directions, two lengths
    assert all(len(row["values"].split()) == 5 for row in mine)
    assert max(float(row["mean"]) for row in mine) > 0.4  # text finds pictures; chance is 0.18

    assert run(tmp_path, *rows).returncode == 0
    with np.load(tmp_path / "rows.npz") as parts:
        sizes = {name: len(parts[name]) for name in parts.files}
    assert sizes == {"query": 693, "train": 2173, "half_learned": 1087, "half": 1086}
    rng = np.random.default_rng(0)
    names = [name for name in re.findall(r"=(\w+),", SAVE) if name != "0"]
    codes = {name: rng.choice([-1, 1], (sizes[name.split("_")[0]], 16)) for name in names}
    exec(SAVE, {"np": _Saver(tmp_path), **codes})
    done = run(tmp_path, *score)
    assert done.returncode == 0, done.stderr
    assert "HN needs half_query_image" in done.stdout
    done = run(tmp_path, *report, "--add", "MyNet")
    assert "MyNet" in done.stdout


class _Saver:
    """NumPy that writes into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def savez(self, name: str, **arrays: object) -> None:
        np.savez(self._folder / name, **arrays)


TRAP = "import pathlib\npathlib.Path(CANARY).touch()\n" + CLASS


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A module that leaves a file when it is imported."""
    (tmp_path / "trapped.py").write_text(TRAP.replace("CANARY", repr(str(tmp_path / "imported"))), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "imported"
    sys.modules.pop("trapped", None)
    hashers.catalogue.__globals__["_allowed"].clear()


def spec(method: str = "trapped:JointPCA", **options):
    content = {"title": "Mine", "dataset": "small.npz", "methods": [method], "bits": [16]}
    return parse_spec(content, "mine", **options)


@pytest.mark.parametrize("allow", [(), ("trap",), ("trapped_too",), ("trapped:Other",)])
def test_a_specification_alone_imports_nothing(trap, allow):
    with pytest.raises(DataError, match=r"which a file may not choose.*--allow trapped"):
        spec(allow=allow)
    assert not trap.exists()
    with pytest.raises(ParameterError, match="that you allow"):
        hashers.get("trapped:JointPCA")
    assert not trap.exists()


@pytest.mark.parametrize("allow", ["trapped", "trapped:JointPCA"])
def test_what_the_user_allows_is_imported(trap, allow):
    assert [series.label for series in spec(allow=[allow]).lines] == ["JointPCA"]
    assert trap.exists()
    assert hashers.make("trapped:JointPCA", n_bits=8).n_bits == 8
    assert "trapped:JointPCA" in hashers.names("unsupervised")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("trapped:np", "derived from fusehash's CrossModalHasher"),
        ("trapped:Nothing", "cannot be imported: AttributeError"),
        ("nowhere:Nothing", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_no_method_is_one_sentence(trap, method, words):
    with pytest.raises(DataError, match=words):
        spec(method, allow=["trapped", "nowhere"])


@pytest.mark.parametrize("method", ["os.system('x'):y", "../trapped:JointPCA", "trapped:", ":JointPCA", "a b:C"])
def test_what_is_no_address_is_no_method(trap, method):
    with pytest.raises(DataError, match="Methods of mine must be among"):
        spec(method, allow=["trapped"])


def test_a_model_of_an_allowed_class_is_loaded(trap, tmp_path):
    from fusehash.datasets import make_paired

    hashers.allow("trapped:JointPCA")
    views = make_paired(60, random_state=0).views
    model = hashers.make("trapped:JointPCA", n_bits=8, random_state=0).fit(views)
    model.save(tmp_path / "m")
    assert np.array_equal(hashers.load(tmp_path / "m").codes_, model.codes_)
