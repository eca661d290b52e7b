"""What a release says about itself agrees: versions, Python, CITATION, workflows, figures, counts, install lines."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path, PureWindowsPath
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import fusehash as fh
from fusehash.cli import app
from fusehash.experiments.spec import load_spec
from fusehash.hashers.catalogue import METHODS, OURS
from fusehash.search.exchange import FORMATS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "paper").glob("*.md")]
SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = dict(enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]))
NUMBERS |= {15: "fifteen", 16: "sixteen", 17: "seventeen", 18: "eighteen", 19: "nineteen", 20: "twenty"}


def tool(name):
    """A script of tools/, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workflow():
    return yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))


def test_supported_versions_of_python_agree():
    supported = tool("release_check").SUPPORTED
    listed = re.findall(r"Programming Language :: Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert tuple(listed) == supported
    assert PROJECT["requires-python"] == f">={supported[0]}"
    assert tuple(workflow()["jobs"]["quick"]["strategy"]["matrix"]["python"]) == supported
    assert f"python3 ({supported[0]} or newer)" in README
    assert f"Python {supported[0]}" in (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")


def test_the_citation_is_of_this_version():
    content = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert content["version"] == fh.__version__
    assert content["license"] == PROJECT["license"]
    assert [author["name"] for author in content["authors"]] == [author["name"] for author in PROJECT["authors"]]
    assert {"cff-version", "message", "title", "abstract", "keywords"} <= content.keys()
    assert all({"type", "title", "authors"} <= reference.keys() for reference in content["references"])


def test_the_workflow_mirrors_the_submission_check():
    """One job runs .ci/run itself; the others run on all systems what it runs on one."""
    jobs = workflow()["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert commands["whole"] == ["bash .ci/run"]
    systems = {"ubuntu-latest", "macos-latest", "windows-latest"}
    for name in ("quick", "wheel"):
        assert set(jobs[name]["strategy"]["matrix"]["os"]) == systems
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = '--dist loadscope -m "not slow"'
    assert options in commands["quick"][-1]
    assert '-m "not slow" $(PYTEST_ARGS)' in makefile
    assert "python tools/release_check.py" in commands["wheel"]
    targets = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    assert targets == ["test", "lint", "types", "test-all", "docs", "release-check"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_paths_in_a_wheel_have_slashes_on_every_system():
    source = (ROOT / "tools" / "release_check.py").read_text(encoding="utf-8")
    assert "relative_to" not in re.sub(r"relative_to\([^\n]*\)\.as_posix\(\)", "", source)
    assert PureWindowsPath("fusehash\\app\\server.py").as_posix() == "fusehash/app/server.py"


@pytest.mark.parametrize("name", ["mixed_protocols", "four_protocols", "ablation", "growth"])
def test_the_figures_of_the_report_are_up_to_date(name, optional, tmp_path):
    """They show the stored runs. Another matplotlib may move a number in the last digit, and the legend by more."""
    optional("matplotlib")

    def content(svg):
        root = ElementTree.fromstring(svg)
        legends = [node for node in root.iter(f"{SVG}g") if node.get("id", "").startswith("legend")]
        in_legend = {node for legend in legends for node in legend.iter()}
        texts = ["".join(node.itertext()) for node in root.iter(f"{SVG}text")]
        paths = [node.get("d", "") for node in root.iter(f"{SVG}path") if node not in in_legend]
        return texts, np.array([float(x) for path in paths for x in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", path)])

    drawn = getattr(tool("report_figures"), name)().save(tmp_path / "figure.svg")
    texts, numbers = content(drawn.read_text(encoding="utf-8"))
    stored_texts, stored = content((ROOT / "paper" / "figures" / f"{name}.svg").read_text(encoding="utf-8"))
    assert texts == stored_texts, "run python tools/report_figures.py"
    assert numbers.shape == stored.shape
    np.testing.assert_allclose(numbers, stored, atol=0.5)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_installs_can_be_installed_from_a_clone(page):
    """fusehash is on no package index yet, so pip is given this folder."""
    extras = PROJECT["optional-dependencies"].keys()
    text = page.read_text(encoding="utf-8")
    tree = text.partition("src/fusehash/")[0] if page.name == "architecture.md" else text  # docstrings follow
    assert not re.findall(r'pip install "?fusehash', tree)
    for names in re.findall(r'pip install (?:-e |--editable )?"?\.\[([\w,-]+)\]', text):
        assert set(names.split(",")) <= extras, names


def test_counts_in_the_readme_are_right():
    shallow = [i for i in METHODS.values() if i.kind in ("unsupervised", "supervised") and not i.is_deep]
    literature = [info for info in shallow if info.name not in OURS]
    deep = [info for info in METHODS.values() if info.is_deep]
    assert f"[{NUMBERS[len(literature)].capitalize()} other methods of the literature]" in README
    listed = re.search(r"\*\*\[Deep methods\].*?: (.*?),\s+measured", README, re.DOTALL).group(1)
    assert set(re.split(r",\s+|\s+and\s+", listed)) == {info.title for info in deep}
    assert f"export to {NUMBERS[len(FORMATS)]} other formats" in README
    spec = load_spec("paper/table1")
    controls = [line for line in spec.lines if METHODS[line.method].kind == "control"]
    n_methods = len(spec.lines) - len(controls)
    sentence = f"{n_methods} methods, {NUMBERS[len(controls)]} controls, {NUMBERS[len(spec.protocols)]} protocols, "
    sentence += f"{NUMBERS[len(spec.seeds)]} seeds"
    assert sentence in " ".join(README.split())
    runs = (n_methods + len(controls)) * len(spec.bits) * len(spec.seeds) * 2
    assert f"{runs:,} fits" in (ROOT / "docs" / "reproducing.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "expected"),
    [("fusehash in", ["index", "inspect"]), ("fusehash bench r", ["report", "rows", "run"])],
)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell, words, expected):
    environment = {"_FUSEHASH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": words, "COMP_WORDS": words}
    environment |= {"COMP_CWORD": str(len(words.split()) - 1), "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = CliRunner().invoke(app, [], prog_name="fusehash", env=environment)
    assert [word for word in expected if word not in done.output] == []
    assert "serve" not in done.output


def test_completion_can_be_installed():
    done = CliRunner().invoke(app, ["--help"], prog_name="fusehash", env={"COLUMNS": "120"})
    assert "--install-completion" in done.output


@pytest.mark.parametrize(
    ("line", "variant"),
    [("**FuseHash()**", "default"), ("AGSFH(), the", "paper"), ("control: regression", "regression"),
     ("control: CCA", "random")],
)  # fmt: skip
def test_the_table_of_the_readme_is_what_is_stored(line, variant):
    (shown,) = re.findall(rf"^\| {re.escape(line)}[^|]*\|(.*)\|$", README, re.MULTILINE)
    lines = (ROOT / "benchmarks" / "results" / "study.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = {"data": "wiki", "variant": variant, "bits": 64, "asymmetric": False}
    (row,) = [row for row in map(json.loads, lines) if wanted.items() <= row.items()]
    assert [f"{score['mean']:.3f}"[1:] for score in row["scores"]] == [cell.strip(" *") for cell in shown.split("|")]
