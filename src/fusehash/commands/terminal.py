"""Output of the commands: results on stdout, progress and errors on stderr, and pictures in a terminal."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from typer.core import TyperGroup

from fusehash.console import UNPRINTABLE, DataConsole, printable
from fusehash.console import progress as progress
from fusehash.extras import require

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 120  # of tables in a file or a pipe
<<<<<<< HEAD
SECONDS_BETWEEN_LINES = 5.0  # of progress, if stderr is not a terminal
MANY_STEPS = 20  # a task of fewer has no rate
=======
>>>>>>> main

# Pictures: two pixels per character, the upper one as its color and the lower one as its background.
UPPER, LOWER = "▀", "▄"
COLORS = ("truecolor", "256")
GAP = 2
MIN_SIDE, MAX_SIDE = 8, 24
OPAQUE = 128  # of 255; pixels below show the background of the terminal


class FusehashGroup(TyperGroup):
    """Commands whose errors are one line: exit code 1 for wrong input, 130 for Ctrl-C (2 for wrong usage)."""

    def invoke(self, ctx: Any) -> Any:
        from fusehash.errors import FusehashError

        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                complain("interrupted; no file is left half-written.")
                raise typer.Exit(130) from None
            except FusehashError as error:
                complain(str(error))
            except BrokenPipeError:
                raise
            except OSError as error:
                where = f": {error.filename}" if error.filename else ""
                complain(f"{error.strerror or error}{where}.")
            except MemoryError as error:
                complain(f"There is not enough memory. {error}".rstrip())
            raise typer.Exit(1)


def complain(sentence: str) -> None:
    """Print one line to stderr."""
    typer.echo(f"fusehash: {printable(' '.join(sentence.split()))}", err=True)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    from fusehash.errors import FusehashWarning

    if issubclass(category, FusehashWarning):
        complain(f"warning: {message}")
    else:
        typer.echo(printable(warnings.formatwarning(message, category, filename, lineno, line)), err=True, nl=False)


def stdout() -> Console:
    """The console for results; wide enough for tables if nobody sets a width."""
    console = DataConsole(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    return console


def say(*lines: str) -> None:
    """Print plain lines to stdout, without markup and without wrapping."""
    console = stdout()
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def print_json(result: Any) -> None:
    """Print a result as JSON to stdout."""
    text = json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False)
    typer.echo(UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def print_table(columns: Sequence[str], rows: Iterable[Iterable[Any]], console: Console | None = None) -> None:
    """Print a table, by default to stdout; without columns it has no head."""
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, show_header=bool(columns))
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    (console or stdout()).print(table)


<<<<<<< HEAD
@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A callback(step, total, message) that draws a bar on stderr; without a terminal, a line every few seconds."""
    console = DataConsole(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    names = ("{task.description}", "{task.fields[note]}", "{task.fields[pace]}")
    texts = (TextColumn(text, markup=False) for text in names)
    columns = (next(texts), BarColumn(), next(texts), next(texts), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task, pace = bar.add_task(title, total=None, note="", pace=""), Pace()
        yield lambda step, total, message: bar.update(
            task, completed=step, total=total, note=message, pace=pace(step, total, message)
        )


class Pace:
    """How fast a task goes and how long it will take, once both can be said: "41 per second, 52 s left"."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._task, self._first, self._start = clock, ("", 0), 0, 0.0

    def __call__(self, step: int, total: int, message: str) -> str:
        if (message, total) != self._task or step < self._first:  # another task
            self._task, self._first, self._start = (message, total), step, self._clock()
        passed, done = self._clock() - self._start, step - self._first
        if total < MANY_STEPS or passed < 1.0 or done <= 0:
            return ""
        seconds = round((total - step) * passed / done)
        left = f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"
        rate = done / passed
        return f"{rate:,.0f} per second, {left} left" if rate >= 10 else f"{rate:.1f} per second, {left} left"


def _lines(title: str) -> Callable[[int, int, str], None]:
    last, pace = time.monotonic(), Pace()

    def report(step: int, total: int, message: str) -> None:
        nonlocal last
        rate = pace(step, total, message)
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            line = f"{title}: {f'{step}/{total} ' if total else ''}{message}{f', {rate}' if rate else ''}"
            typer.echo(printable(line), err=True)

    return report


=======
>>>>>>> main
def can_show(console: Console) -> bool:
    """Whether a console is a terminal with enough colors and a character set with half blocks."""
    colors = not console.no_color and console.color_system in COLORS
    return console.is_terminal and colors and console.encoding.lower().startswith("utf")


def fitting_side(width: int, count: int) -> int:
    """The side, in characters, of ``count`` square pictures in one row."""
    return max(MIN_SIDE, min(MAX_SIDE, (width + GAP) // count - GAP)) // 2 * 2


def half_blocks(image: bytes, side: int) -> list[Text]:
    """A PNG, JPEG or WEBP file as ``side / 2`` lines of ``side`` characters; other shapes are centered."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    pixels = _pixels(image, side)
    lines = []
    for top in range(0, side, 2):
        line = Text(no_wrap=True)
        for upper, lower in zip(pixels[top], pixels[top + 1], strict=True):
            colors = [Color.from_rgb(*pixel[:3]) if pixel[3] >= OPAQUE else None for pixel in (upper, lower)]
            if colors[0] is not None:
                line.append(UPPER, Style(color=colors[0], bgcolor=colors[1]))
            elif colors[1] is not None:
                line.append(LOWER, Style(color=colors[1]))
            else:
                line.append(" ")
        lines.append(line)
    return lines


def row_of_pictures(pictures: Sequence[bytes], captions: Sequence[Text], side: int) -> Table:
    """Pictures in one row, each above its caption."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, GAP, 0, 0))
    for _ in pictures:
        table.add_column(width=side, overflow="fold")
    table.add_row(*(Text("\n").join(half_blocks(picture, side)) for picture in pictures))
    table.add_row(*captions)
    return table


def _pixels(image: bytes, side: int) -> Any:
    """Rows of RGBA pixels, ``side`` x ``side``."""
    import numpy as np

    Image, ImageOps = (require(f"PIL.{name}", "Showing pictures") for name in ("Image", "ImageOps"))
    with Image.open(BytesIO(image), formats=("PNG", "JPEG", "WEBP")) as file:
        return np.asarray(ImageOps.pad(file.convert("RGBA"), (side, side), color=(0, 0, 0, 0))).tolist()
