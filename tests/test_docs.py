"""What the documentation lists is what there is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import fusehash
from fusehash.search import engines

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("paper/*.md")])


def rows_of(page: str) -> list[list[str]]:
    """The cells of all tables of a page."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_points_to_is_there(page):
    text = page.read_text(encoding="utf-8")
    links = [link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)]
    for file, _, part in links:
        target = page.parent / file if file else page
        assert target.exists(), file
        if part:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert part in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    for file in re.findall(r"benchmarks/[\w./-]+\.(?:py|csv|jsonl?|png)", text):
        assert (ROOT / file).exists(), file


def test_the_table_of_methods_is_the_catalogue():
    listed = {row[0].strip("`"): row for row in rows_of("methods.md") if row[0].startswith("`") and len(row) == 6}
    assert list(listed) == fusehash.hashers.names()
    for name, (_, _, year, kind, views, _) in listed.items():
        info, method = fusehash.hashers.info(name), fusehash.hashers.get(name)
        assert kind == info.kind
        assert year == ("" if kind == "control" else str(info.year))
        low, high = method.min_views, method.max_views
        assert views == (f"{high}" if low == high else "any" if low == 1 else f"{low} or more")


def test_the_table_of_engines_names_all_of_them():
    text = " ".join(row[0] for row in rows_of("searching.md"))
    assert {name for name in engines.NAMES if f'`"{name}"`' not in text} == set()


def test_every_dependency_has_its_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    documented = {
        word for row in rows_of("dependencies.md") for cell in row[:-1] for word in re.findall(r"[\w.-]+", cell)
    }
    extras = project["optional-dependencies"]
    required = [*project["dependencies"], *(name for names in extras.values() for name in names)]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in required}  # type: ignore[index]
    assert names - {"fusehash"} - documented == set()
    assert set(extras) - documented == set()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_check_is_what_ci_checks_and_the_test_command_comes_first():
    # The variables of an outer make are not for the one in here.
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "PYTEST_ARGS")}

    def commands(*words: str) -> set[str]:
        dry_run = subprocess.run(["make", "-n", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        return {" ".join(line.split()) for line in dry_run.stdout.splitlines() if not line.startswith("make")}

    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    targets = [shlex.split(line, comments=True)[1:] for line in script if line.startswith("make ")]
    assert targets[0] == ["test"]
    assert "    make test " in (ROOT / "README.md").read_text(encoding="utf-8")
    assert set.union(*(commands(*words) for words in targets)) == commands("check")
