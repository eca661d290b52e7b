"""docs/adding-an-engine.md, followed literally: its code blocks are run in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "adding-an-engine.md").read_text(encoding="utf-8")
CLASS, USE, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What the first two steps define, in an empty folder; they print what the page says."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    exec(CLASS + USE, scope)
    (comment,) = re.findall(r"print\(.*\)  # (.*)", USE)
    assert capsys.readouterr().out.strip() == comment
    return scope


def test_its_test_passes(scope: dict[str, Any]) -> None:
    exec(TEST, scope)
    scope["test_equal_to_numpy"]()


def test_two_methods_are_enough(scope: dict[str, Any]) -> None:
    base = scope["SortingEngine"]

    class Plain:
        def __init__(self) -> None:
            engine = base()
            self.search, self.range_search = engine.search, engine.range_search

    index = scope["fh"].HammingIndex(64, engine=Plain())
    index.add(scope["codes"])
    assert index.search(scope["codes"][:2], 1)[1].tolist() == [[0], [1]]
    assert index.stats()["engine"] == "Plain"
