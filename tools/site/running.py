"""Run an example or a notebook, cell by cell, and write it as a page with what it printed and drew."""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import json
import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Cell:
    """Text in Markdown, or code."""

    text: str
    is_code: bool


class ExampleError(Exception):
    """An example that does not run; the site is not built."""


def title_of(source: str) -> str:
    """The first line of the docstring of an example."""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0].rstrip(".")


def cells_of_example(source: str) -> list[Cell]:
    """The docstring, then for every `# %%` its comment lines as text and the rest as code."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    title, _, rest = docstring.partition("\n")
    cells = [Cell(f"# {title.rstrip('.')}\n{rest}", is_code=False)]
    for part in CELL.split(source)[1:]:
        lines = part.strip("\n").splitlines()
        n_comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[:n_comments])
        code = "\n".join(lines[n_comments:]).strip("\n")
        cells += [Cell(text, is_code=False)] * bool(text.strip()) + [Cell(code, is_code=True)] * bool(code.strip())
    return cells


def cells_of_notebook(path: Path) -> list[Cell]:
    """The cells of a notebook, without the outputs that it holds."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [Cell("".join(cell["source"]), cell["cell_type"] == "code") for cell in document["cells"]]


def page(cells: list[Cell], origin: str, *, run: bool = True) -> str:
    """Run the code cells in one namespace and an empty folder; the page in Markdown."""
    if not run:
        return "\n\n".join(f"```python\n{cell.text}\n```" if cell.is_code else cell.text for cell in cells)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts = []
    with _empty_folder():
        for number, cell in enumerate(cells, 1):
            if not cell.is_code:
                parts.append(cell.text)
                continue
            try:
                printed, value = _run(cell.text, namespace, f"{origin}, cell {number}")
            except BaseException as error:
                raise ExampleError(f"{origin}, cell {number}:\n{traceback.format_exc()}") from error
            parts.append(f"```python\n{cell.text}\n```")
            if printed.strip():
                parts.append(f'<div class="output" markdown>\n```text\n{printed.rstrip()}\n```\n</div>')
            parts += _shown(value)
    return "\n\n".join(parts) + f"\n\n---\n\nThis page is the output of `{origin}`.\n"


def pictures_of(code: str, name: str) -> list[str]:
    """Run code in a namespace of its own, and show the value of its last line."""
    with _empty_folder():
        return _shown(_run(code, {"__name__": "__main__"}, name)[1])


def _run(code: str, namespace: dict[str, Any], name: str) -> tuple[str, Any]:
    """What a cell printed, and the value of its last line if that is an expression."""
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), namespace)
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace) if last is not None else None
    return printed.getvalue(), value


def _shown(value: Any) -> list[str]:
    if value is None:
        return []
    if hasattr(value, "_repr_svg_"):
        return [value._repr_svg_().replace("\n", " ")]
    if hasattr(value, "_repr_png_"):  # a picture of Pillow
        data = base64.b64encode(value._repr_png_()).decode()
        return [f'<img class="picture" alt="Output of this cell" src="data:image/png;base64,{data}">']
    return [f'<div class="output"><pre>{html.escape(repr(value))}</pre></div>']


@contextlib.contextmanager
def _empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
