"""Pages that are made when the site is built: the front page, the gallery, the notebooks and the API reference."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "src"))
_spec = importlib.util.spec_from_file_location("running", Path(__file__).with_name("running.py"))
assert _spec is not None
assert _spec.loader is not None
running = importlib.util.module_from_spec(_spec)
sys.modules["running"] = running
_spec.loader.exec_module(running)

logger = logging.getLogger("mkdocs.hooks.fusehash")

# `SITE_EXAMPLES=skip make docs` leaves the output of examples out, for a quick look at other pages.
RUN = os.environ.get("SITE_EXAMPLES") != "skip"

# Pages that are files of the repository; the site rewrites their links.
REPOSITORY_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# What the repository has and the site has not; a link to it becomes its text.
NO_PAGES = r"LICENSE|SECURITY\.md|CITATION\.cff|CODE_OF_CONDUCT\.md|(?:benchmarks|paper|tests|src)/[^)]*"
NOTEBOOKS = {"own_photos.ipynb": "get-started/photos.md", "own_embeddings.ipynb": "get-started/embeddings.md"}
# One page of the API reference per subject, with the public objects that it documents.
REFERENCE: dict[str, tuple[str, ...]] = {
    "Learn codes": ("hashers.fusehash.FuseHash", "hashers.agsfh.AGSFH", "hashers.controls.RegressionHasher"),
    "Search": ("search.index.HammingIndex",),
    "Collections": ("collection.collection.Collection",),
    "Evaluate": (
        "evaluation.protocols.evaluate", "evaluation.result.EvaluationResult", "evaluation.result.Score",
        "evaluation.metrics", "evaluation.curves",
    ),
    "Plots": ("plots.drawing.Plot", "plots.codes", "plots.rankings", "plots.results"),
    "Views and data": ("views.PairedViews", "bits", "datasets.loading", "datasets.synthetic"),
    "Methods": ("hashers.catalogue", "testing"),
    "Errors": ("errors",),
}  # fmt: skip


def on_config(config: Any) -> Any:
    """Fill the parts of the navigation that are made."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    gallery = [{running.title_of(path.read_text(encoding="utf-8")): f"gallery/{path.stem}.md"} for path in examples]
    reference = [{name: _reference_path(name)} for name in REFERENCE]
    made = {
        "gallery/": [{"All examples": "gallery/index.md"}, *gallery],
        "reference/": [{"All names": "reference/index.md"}, *reference],
    }
    config["nav"] = [
        {title: made[entry] if isinstance(entry, str) and entry in made else entry for title, entry in section.items()}
        for section in config["nav"]
    ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    pages = {target: _with_links_of_the_site(ROOT / source) for source, target in REPOSITORY_PAGES.items()}
    pages |= _gallery() | _notebooks() | _reference()
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links of pages in docs/ to files of the repository lead to the pages that are made of them, or become text."""
    depth = page.file.src_path.count("/")
    for source, target in REPOSITORY_PAGES.items():
        markdown = markdown.replace(f"](../{source}", f"]({'../' * depth}{target}")
    return re.sub(rf"\[([^\]]*)\]\((?:\.\./)+(?:{NO_PAGES})\)", r"\1", markdown)


def _with_links_of_the_site(path: Path) -> str:
    """A file of the repository's root as a page: docs/x.md is x.md there."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/", "](", text)
    for source, target in REPOSITORY_PAGES.items():
        text = text.replace(f"]({source}", f"]({target}")
    return re.sub(rf"\[([^\]]*)\]\((?:{NO_PAGES})\)", r"\1", text)


def _gallery() -> dict[str, str]:
    pages, cards = {}, []
    for path in sorted((ROOT / "examples").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        logger.info("running examples/%s", path.name)
        pages[f"gallery/{path.stem}.md"] = _run(running.cells_of_example(source), f"examples/{path.name}")
        summary = (running.cells_of_example(source)[0].text.partition("\n")[2]).strip().partition("\n\n")[0]
        summary = re.sub(r"[`*]", "", summary.replace("\n", " "))
        cards.append(f'<a href="{path.stem}.html"><strong>{running.title_of(source)}</strong>{summary}</a>')
    index = f'# Gallery\n\nShort examples, run when this site was built.\n\n<div class="cards">{"".join(cards)}</div>\n'
    return {"gallery/index.md": index, **pages}


def _notebooks() -> dict[str, str]:
    pages = {}
    for name, target in NOTEBOOKS.items():
        logger.info("running notebooks/%s", name)
        pages[target] = _run(running.cells_of_notebook(ROOT / "notebooks" / name), f"notebooks/{name}")
    return pages


def _run(cells: list[Any], origin: str) -> str:
    try:
        return str(running.page(cells, origin, run=RUN))
    except running.ExampleError as error:
        raise PluginError(f"An example does not run: {error}") from error


def _reference() -> dict[str, str]:
    pages, rows = {}, []
    for title, objects in REFERENCE.items():
        body = "\n\n".join(f"::: fusehash.{name}" for name in objects)
        pages[_reference_path(title)] = f"# {title}\n\n{body}\n"
        names = ", ".join(f"`{name.rpartition('.')[2]}`" for name in objects)
        rows.append(f"- [{title}]({_reference_path(title).partition('/')[2]}): {names}")
    lines = "\n".join(rows)
    return {"reference/index.md": f"# API reference\n\nEverything public, from its docstrings.\n\n{lines}\n", **pages}


def _reference_path(title: str) -> str:
    return f"reference/{title.lower().replace(' ', '-')}.md"
