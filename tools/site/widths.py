"""Open every page of the built site in Chromium: none may scroll sideways on a phone, miss a picture or raise an error.

    python tools/site/widths.py build/site

Without Chromium or playwright it says so and passes, unless FUSEHASH_REQUIRE=all asks for every check.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

WIDTHS = (390, 1280)
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# Elements that stick out of the page and are in no box that scrolls by itself.
OUTSIDE = """width => [...document.querySelectorAll('.md-content *')].filter(e => {
  const box = e.getBoundingClientRect();
  if (!box.width || box.right <= width + 1) return false;
  for (let p = e; p; p = p.parentElement) if (getComputedStyle(p).overflowX !== 'visible') return false;
  return true;
}).slice(0, 3).map(e => `<${e.tagName.toLowerCase()}> ${(e.textContent || '').trim().slice(0, 40)}`)"""
MISSING = "() => [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src.slice(-60))"


def problems_of(page: Any, file: Path, width: int) -> list[str]:
    """What is wrong with one page at one width."""
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(file.as_uri())
    total = page.evaluate("document.documentElement.scrollWidth")
    problems = [f"it is {total} pixels wide"] if total > width else []
    problems += [f"{what} sticks out" for what in page.evaluate(OUTSIDE, width)]
    return problems + [f"{picture} is missing" for picture in page.evaluate(MISSING)] + errors


def check(site: Path, browser: Any) -> list[str]:
    """All problems of a site, one sentence each."""
    found = []
    for width in WIDTHS:
        context = browser.new_context(viewport={"width": width, "height": 900})
        for file in sorted(site.rglob("*.html")):
            page = context.new_page()
            name = file.relative_to(site).as_posix()
            found += [f"{name} at {width} pixels: {problem}." for problem in problems_of(page, file, width)]
            page.close()
        context.close()
    return found


def main(site: Path) -> int:
    """Print the problems; the exit status says whether there are any."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        executable = None
    if executable is None:
        print("Pages were not looked at in a browser: Chromium or playwright is not on this machine.")
        return int(os.environ.get("FUSEHASH_REQUIRE") == "all")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        found = check(site.resolve(), browser)
        browser.close()
    print("\n".join(found) or f"No page scrolls sideways at {WIDTHS[0]} pixels.")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
