"""docs/adding-a-dataset.md, followed literally: its code runs in order and gives what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from fusehash.datasets import loading

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-dataset.md"


def test_the_page_can_be_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(loading, "BENCHMARKS", dict(loading.BENCHMARKS))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert "mine: 300 pairs" in capsys.readouterr().out
    assert names["data"].query.size == 50
    assert names["fixed"].train.tolist() == list(range(250))
    assert names["in_memory"].database.size == 250
    assert names["codes"].shape == (50, 2)
    assert (names["named"].name, names["named"].query.size) == ("mine", 100)
