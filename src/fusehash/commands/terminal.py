"""What goes where: results to stdout, progress and logs to stderr, errors as one line and an exit code."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import typer
from rich.console import Console
from typer.core import TyperGroup

PLAIN_WIDTH = 120  # of tables that go to a file or a pipe
SECONDS_BETWEEN_LINES = 5.0  # of progress, where stderr is no terminal


class FusehashGroup(TyperGroup):
    """Commands whose errors become one line: exit 1 where the input was wrong, 130 for Ctrl-C (usage errors are 2)."""

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
                complain(f"The memory of this machine is not enough. {error}".rstrip())
            raise typer.Exit(1)


def complain(sentence: str) -> None:
    """One line on stderr."""
    typer.echo(f"fusehash: {' '.join(sentence.split())}", err=True)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    from fusehash.errors import FusehashWarning

    if issubclass(category, FusehashWarning):
        complain(f"warning: {message}")
    else:
        typer.echo(warnings.formatwarning(message, category, filename, lineno, line), err=True, nl=False)


def stdout() -> Console:
    """Where results go; wide enough for a table when nobody sets a width."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PLAIN_WIDTH
    return console


def print_json(result: Any) -> None:
    """The result as JSON on stdout."""
    typer.echo(json.dumps(result, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A callback(step, total, message) that draws a bar on stderr, or now and then a line where that is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(title)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda step, total, message: bar.update(task, completed=step, total=total, note=message)


def _lines(title: str) -> Callable[[int, int, str], None]:
    last = time.monotonic()

    def report(step: int, total: int, message: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            typer.echo(f"{title}: {step}/{total} {message}", err=True)

    return report
