"""Output of the commands: results on stdout, progress and errors on stderr, and pictures in a terminal."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console
from typer.core import TyperGroup

from fusehash.commands import wording
from fusehash.console import UNPRINTABLE, DataConsole, printable
from fusehash.console import progress as progress
from fusehash.extras import require

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 120  # of tables in a file or a pipe

# Pictures: two pixels per character, the upper one as its color and the lower one as its background.
UPPER, LOWER = "▀", "▄"
COLORS = ("truecolor", "256")
GAP = 2
MIN_SIDE, MAX_SIDE = 8, 24
OPAQUE = 128  # of 255; pixels below show the background of the terminal


class FusehashGroup(TyperGroup):
    """Commands whose errors are one line: exit code 1 for wrong input, 130 for Ctrl-C (2 for wrong usage)."""

    def invoke(self, ctx: Any) -> Any:
        from fusehash.errors import FusehashError, ParameterError

        if sys.stderr.isatty():
            tell_of_compiling()
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                complain("interrupted; no file is left half-written.")
                raise typer.Exit(130) from None
            except typer.BadParameter as error:
                error.message = wording.of_value(error)
                raise
            except ParameterError as error:
                command = self.commands.get(ctx.invoked_subcommand or "")
                complain(wording.of_parameter(error, wording.options_of(command)))
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


def tell_of_compiling() -> None:
    """Say so on stderr, once, if something is compiled: the first search of a machine waits for that."""
    logger = logging.getLogger("fusehash.numerics.compiled")
    if not logger.handlers:
        logger.addHandler(_Compiling())
        logger.setLevel(logging.INFO)


class _Compiling(logging.Handler):
    has_spoken = False

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.INFO:
            complain(f"warning: {record.getMessage()}.")
        elif not self.has_spoken:
            self.has_spoken = True
            complain("compiling for this processor; this takes some seconds, the first time only.")


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

    table = Table(show_header=bool(columns))
    for column in columns:
        table.add_column(column, overflow="fold")  # a name that is cut off could not be typed
    for row in rows:
        table.add_row(*(Text(printable(str(cell))) for cell in row))
    (console or stdout()).print(table)


def show_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print names and values, without those that are empty."""
    if as_json:
        print_json(facts)
        return
    print_table((), ((name.replace("_", " "), _in_words(value)) for name, value in facts.items() if value != ""))


def _in_words(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else value


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
