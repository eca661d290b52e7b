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


def _neighbor(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


from fusehash.experiments.figures import with_own_ids  # noqa: E402

running, reference = _neighbor("running"), _neighbor("reference")

logger = logging.getLogger("mkdocs.hooks.fusehash")

# `SITE_EXAMPLES=skip make docs` leaves the output of examples out, for a quick look at other pages.
RUN = os.environ.get("SITE_EXAMPLES") != "skip"

# Pages that are files of the repository; the site rewrites their links.
REPOSITORY_PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
# What the repository has and the site has not; a link to it becomes its text.
NO_PAGES = r"LICENSE|SECURITY\.md|CITATION\.cff|CODE_OF_CONDUCT\.md|(?:benchmarks|paper|tests|src)/[^)]*"
# A block that can run alone and ends with a picture.
PICTURE = re.compile(r"^```python\n(?P<code>import fusehash as fh\n(?:(?!```).*\n)*fh\.plots\..*\n)```$", re.MULTILINE)
NOTEBOOKS = {"own_photos.ipynb": "get-started/photos.md", "own_embeddings.ipynb": "get-started/embeddings.md"}
REFERENCE: dict[str, list[str]] = reference.names_by_page()


def on_config(config: Any) -> Any:
    """Fill the parts of the navigation that are made."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    gallery = [{running.title_of(path.read_text(encoding="utf-8")): f"gallery/{path.stem}.md"} for path in examples]
    api = [{title: reference.path_of(title)} for title in REFERENCE]
    made = {
        "gallery/": [{"All examples": "gallery/index.md"}, *gallery],
        "reference/": [{"All names": "reference/index.md"}, *api],
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
    markdown = re.sub(rf"\[([^\]]*)\]\((?:\.\./)+(?:{NO_PAGES})\)", r"\1", markdown)
    return PICTURE.sub(_with_picture, markdown) if RUN and page.file.src_path.count("/") == 0 else markdown


def _with_picture(block: re.Match[str]) -> str:
    """A block of a page that imports fusehash and ends with a plot, and the plot."""
    return "\n\n".join([block.group(), *running.pictures_of(block["code"], "a block of a page")])


def on_post_build(config: Any) -> None:
    """Every name of the reference has an entry; mkdocstrings leaves out what has no docstring without a word."""
    folder = Path(config["site_dir"])
    for title, names in REFERENCE.items():
        page = (folder / reference.path_of(title)).with_suffix(".html").read_text(encoding="utf-8")
        missing = [name for name in names if f'id="{name}"' not in page]
        if missing:
            raise PluginError(f"The reference page {title!r} must document {', '.join(missing)}. It does not.")


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
        text = _run(running.cells_of_example(source), f"examples/{path.name}")
        pages[f"gallery/{path.stem}.md"] = text
        picture = re.search(r"<svg.*?</svg>|<img [^>]*>", text)
        if RUN and picture is None:
            raise PluginError(f"Every example must draw a picture. examples/{path.name} draws none.")
        summary = (running.cells_of_example(source)[0].text.partition("\n")[2]).strip().partition("\n\n")[0]
        summary = re.sub(r"[`*]", "", summary.replace("\n", " "))
        shown = with_own_ids(picture.group(), path.stem) if picture else ""
        cards.append(f'<a href="{path.stem}.html"><strong>{running.title_of(source)}</strong>{summary}{shown}</a>')
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
    pages = {reference.path_of(title): reference.markdown(title, names) for title, names in REFERENCE.items()}
    return {"reference/index.md": reference.index(REFERENCE), **pages}
