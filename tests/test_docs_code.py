"""The code in the documentation runs, and its commands exist with these options.

Blocks of a page run in order, in one namespace and an empty folder. A block that needs what a test machine may lack
says so to its readers: ```python title="needs a GPU".
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

import fusehash as fh
from fusehash import cli

ROOT = Path(__file__).parents[1]
FOLLOWED = {"adding-a-dataset.md", "adding-a-method.md", "adding-an-engine.md", "your-own-method.md"}  # by tests
PAGES = {path.name: path for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_CODE = [name for name, path in PAGES.items() if name not in FOLLOWED and BLOCK.search(path.read_text("utf-8"))]
NEEDS = {"deep.md": "torch"}
SLOW = {"README.md", "evaluation.md"}


def paired(n: int = 120) -> fh.PairedViews:
    return fh.datasets.make_paired(n_samples=n, random_state=0).views


def codes(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 8), dtype=np.uint8)


def photos() -> None:
    """A folder of pictures with captions, as a user has it."""
    from PIL import Image

    Path("photos").mkdir()
    lines = ["image,caption"]
    for i, color in enumerate(("red", "green", "blue", "white", "black", "gray") * 6):
        Image.new("RGB", (48, 48), color).save(f"photos/{i}.png")
        lines.append(f"{i}.png,kids playing with a {color} ball number {i}")
    Path("captions.csv").write_text("\n".join(lines), encoding="utf-8")
    Path("query.png").write_bytes(Path("photos/0.png").read_bytes())


def stored_views() -> None:
    for name, X in paired().items():
        np.save(f"{name}.npy", np.asarray(X))


def wiki() -> None:
    """A small file of the form of the Wiki set."""
    data = fh.datasets.make_paired(n_samples=160, random_state=0)
    Path("data").mkdir()
    split = {"train_idx": data.train, "test_idx": data.query}
    np.savez("data/wiki.npz", **{n: np.asarray(X) for n, X in data.views.items()}, labels=data.labels, **split)


DAYS = ("today", "tomorrow", "rows_a", "rows_b")


def searching() -> dict[str, object]:
    rng, views = np.random.default_rng(3), fh.datasets.make_paired(n_samples=200, views={"image": 12, "text": 12}).views
    return {
        "codes": codes(50, 0), "more": codes(2, 1), "queries": codes(3, 2), "projections": rng.standard_normal((3, 64)),
        "embeddings": rng.standard_normal((50, 512)), "images": views["image"][:5], "texts": views["text"],
        "model": fh.hashers.make("cvh", n_bits=16).fit(views),
    }  # fmt: skip


# What the readers of a page have already.
HAVE = {
    "collections.md": lambda: photos() or {"Path": Path},
    "dedupe.md": lambda: photos() or {},
    "evaluation.md": lambda: wiki() or {},
    "learning-on.md": lambda: {"fh": fh, **dict(zip(DAYS, map(paired, (120, 60, 50, 70)), strict=True))},
    "scaling-out.md": lambda: stored_views() or {"fh": fh, "images": paired()["image"], "texts": paired()["text"]},
    "searching.md": searching,
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in WITH_CODE])
def test_the_code_of_a_page_runs(name, tmp_path, monkeypatch, capsys, optional):
    if name in NEEDS:
        optional(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__", **HAVE.get(name, dict)()}
    for number, block in enumerate(BLOCK.findall(PAGES[name].read_text(encoding="utf-8")), 1):
        exec(compile(block, f"{name}, block {number}", "exec"), namespace)


def commands_of(text: str) -> list[str]:
    """Lines of code blocks that call fusehash."""
    lines, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif (inside or line.startswith("    ")) and re.match(r"\s*(\.venv/bin/)?fusehash ", line):
            lines.append(line.strip().removeprefix(".venv/bin/"))
    return lines


COMMANDS = [
    pytest.param(line, id=f"{name}: {line}")
    for name, path in PAGES.items()
    if name != "CHANGELOG.md"
    for line in commands_of(path.read_text(encoding="utf-8"))
]


def test_the_documentation_has_commands():
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_exists_with_these_options(line):
    words = shlex.split(line.replace(" | ", " "), comments=True)[1:]
    command = typer.main.get_command(cli.app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words[0] if words[0] in command.commands else "build" if command.name == "index" else None
        assert name, f"{words[0]} is not a command of {command.name}"
        words = words[1:] if words[0] == name else words
        command = command.commands[name]
    known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    used = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    assert used - known - {"--help"} == set()
