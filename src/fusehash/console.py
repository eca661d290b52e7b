"""What a terminal shows: text from data that cannot control it, and the progress of long work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

SECONDS_BETWEEN_LINES = 5.0  # of progress, if stderr is not a terminal

# Control characters, which a terminal obeys (but not tab and newline), characters that turn the direction of text, and
# halves of characters, which cannot be printed.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Text from data as a terminal may show it: what would control the terminal is written as an escape."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


class DataConsole(Console):
    """A console that shows data: only its own styles reach the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A callback(step, total, message) that draws a bar on stderr; without a terminal, a line every few seconds."""
    console = DataConsole(stderr=True)
    if not console.is_terminal:
        yield _lines(title, console)
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    texts = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[note]}"))
    columns = (next(texts), BarColumn(), next(texts), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, note="")
        yield lambda step, total, message: bar.update(task, completed=step, total=total, note=message)


def _lines(title: str, console: Console) -> Callable[[int, int, str], None]:
    last = time.monotonic()

    def report(step: int, total: int, message: str) -> None:
        nonlocal last
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            text = f"{title}: {f'{step}/{total} ' if total else ''}{message}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    return report
