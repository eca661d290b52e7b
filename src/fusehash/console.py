"""What a terminal shows: text from data that cannot control it, and the progress of long work."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

SECONDS_BETWEEN_LINES = 5.0  # of progress, if stderr is not a terminal
MANY_STEPS = 20  # a task of fewer has no rate

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


def _lines(title: str, console: Console) -> Callable[[int, int, str], None]:
    last, pace = time.monotonic(), Pace()

    def report(step: int, total: int, message: str) -> None:
        nonlocal last
        rate = pace(step, total, message)
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            text = f"{title}: {f'{step}/{total} ' if total else ''}{message}{f', {rate}' if rate else ''}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    return report
