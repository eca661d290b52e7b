"""tools/site/widths.py, which `make docs` runs on the built pages, finds what a phone would show badly."""

from __future__ import annotations

import shutil
import subprocess
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


@pytest.fixture(autouse=True)
def browser(optional):
    optional("playwright")
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        pytest.skip("Chromium is not on this machine")


def look_at(site: Path) -> tuple[int, str]:
    """The exit status and the words of the script, in a process of its own: tests of the page keep a browser open."""
    work = subprocess.run([sys.executable, str(SCRIPT), str(site)], capture_output=True, text=True, check=False)
    assert not work.stderr
    return work.returncode, work.stdout


@pytest.mark.slow
def test_pages_that_a_phone_would_show_badly_are_found(tmp_path):
    for name, body in GOOD.items():
        (tmp_path / name).write_text(PAGE.format(body), encoding="utf-8")
    assert look_at(tmp_path)[0] == 0
    for name, (body, _) in BAD.items():
        (tmp_path / name).write_text(PAGE.format(body), encoding="utf-8")
    status, said = look_at(tmp_path)
    assert status == 1
    for name, (_, words) in BAD.items():
        assert any(line.startswith(name) and words in line for line in said.splitlines())
    assert "box.html" not in said
    assert "plain.html" not in said
