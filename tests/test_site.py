"""tools/site/widths.py, which `make docs` runs on the built pages, finds what a phone would show badly."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "site" / "widths.py"
PAGE = '<!doctype html><meta name="viewport" content="width=device-width"><div class="md-content">{}</div>'
WIDE = '<div style="width: 900px">wide</div>'
BAD = {
    "wide.html": (WIDE, "pixels wide"),
    "picture.html": ('<img src="nothing.png">', "nothing.png is missing"),
    "error.html": ("<script>throw new Error('broken')</script>", "broken"),
}
GOOD = {"box.html": f'<div style="overflow-x: auto">{WIDE}</div>', "plain.html": "<p>text</p>"}


@pytest.fixture
def widths(optional):
    optional("playwright")
    spec = importlib.util.spec_from_file_location("site_widths", SCRIPT)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not any(map(shutil.which, module.BROWSERS)):
        pytest.skip("Chromium is not on this machine")
    return module


@pytest.mark.slow
def test_pages_that_a_phone_would_show_badly_are_found(widths, tmp_path, capsys):
    for name, body in GOOD.items():
        (tmp_path / name).write_text(PAGE.format(body), encoding="utf-8")
    assert widths.main(tmp_path) == 0
    for name, (body, _) in BAD.items():
        (tmp_path / name).write_text(PAGE.format(body), encoding="utf-8")
    assert widths.main(tmp_path) == 1
    said = capsys.readouterr().out
    for name, (_, words) in BAD.items():
        assert any(line.startswith(name) and words in line for line in said.splitlines())
    assert "box.html" not in said
    assert "plain.html" not in said
