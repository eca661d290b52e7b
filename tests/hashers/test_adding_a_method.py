"""docs/adding-a-method.md, followed literally: its code blocks are run in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from fusehash.hashers import baselines

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
CLASS, ENTRY, USE, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

# Does to a fresh interpreter what steps 1 and 2 do to the source: adds the folder of the class, and the entry.
REGISTER = """
from importlib import import_module
from pathlib import Path
from fusehash.hashers import baselines
catalogue = import_module("fusehash.hashers.catalogue")
baselines.__path__.append(str(Path(__file__).parent))
entry = eval(Path(__file__).with_name("entry.txt").read_text(), vars(catalogue))
catalogue.METHODS[entry[0]] = catalogue.MethodInfo(*entry)
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """A folder in which steps 1 and 2 have been done."""
    (tmp_path / "xcov.py").write_text(CLASS, encoding="utf-8")
    (tmp_path / "entry.txt").write_text(ENTRY, encoding="utf-8")
    (tmp_path / "register.py").write_text(REGISTER, encoding="utf-8")
    monkeypatch.setattr(baselines, "__path__", [*baselines.__path__, str(tmp_path)])
    catalogue = import_module("fusehash.hashers.catalogue")
    entry = eval(ENTRY, vars(catalogue))
    monkeypatch.setitem(catalogue.METHODS, entry[0], catalogue.MethodInfo(*entry))
    yield tmp_path
    sys.modules.pop("fusehash.hashers.baselines.xcov", None)


def test_the_method_fits_encodes_saves_loads_and_is_evaluated(added, monkeypatch):
    monkeypatch.chdir(added)
    exec(USE, {})


def test_its_test_passes(added):
    scope: dict = {}
    exec(TEST, scope)
    tests = [value for name, value in scope.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


@pytest.mark.slow
def test_the_contracts_hold(added):
    """In an interpreter of its own, in which the method is in the catalogue before the tests are collected."""
    command = [sys.executable, "-m", "pytest", "-p", "register", "-p", "no:cacheprovider", "-q", "-k", "xcov"]
    files = ["tests/contracts/test_parameters.py", "tests/contracts/test_hashers.py"]
    environment = {**os.environ, "PYTHONPATH": f"{added}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run([*command, *files], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
