"""Retrieval examples: a query and its first answers side by side, wrong answers framed in red and crossed.

For raw data (photos and texts) only; features cannot be shown. The result is a piece of HTML for the report, with the
pictures inside it.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from fusehash.errors import DataError

SHOWN = 10
LONGEST_TEXT = 160  # signs of a text that are shown
PICTURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}


@dataclass(frozen=True)
class Item:
    """Something that can be looked at.

    image : a small picture as bytes of a JPEG or PNG file, or None
    text : a snippet, or ""
    labels : names of its classes
    """

    image: bytes | None = None
    text: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.image is None and not self.text:
            raise DataError("An item of an example must have an image or a text. Got neither.")
        if self.image is not None:
            self.picture  # noqa: B018  (says what is wrong now, not when the page is made)

    @property
    def picture(self) -> str | None:
        """The picture as a data URI."""
        if self.image is None:
            return None
        kind = next((name for start, name in PICTURES.items() if self.image.startswith(start)), None)
        if kind is None:
            raise DataError("The image of an example must be the bytes of a JPEG or PNG file. Got other bytes.")
        return f"data:{kind};base64,{base64.b64encode(self.image).decode('ascii')}"

    @property
    def snippet(self) -> str:
        """The text, cut at a word where it is long."""
        words = " ".join(self.text.split())
        return words if len(words) <= LONGEST_TEXT else words[:LONGEST_TEXT].rsplit(" ", 1)[0] + " …"


@dataclass(frozen=True)
class Answer:
    """An item that was found, and whether it is relevant to the query."""

    item: Item
    correct: bool


@dataclass(frozen=True)
class Example:
    """A query, what belongs to it (the other half of its pair; None if unknown), and its answers, nearest first."""

    query: Item
    results: tuple[Answer, ...]
    truth: Item | None = None
    title: str = ""
    shown: int = field(default=SHOWN)

    @property
    def answers(self) -> tuple[Answer, ...]:
        return self.results[: self.shown]

    @property
    def n_correct(self) -> int:
        return sum(answer.correct for answer in self.answers)


def render_examples(examples: Sequence[Example]) -> str:
    """The examples as HTML; everything in them is escaped."""
    from fusehash.experiments.report import environment

    return environment().get_template("examples.html").render(examples=examples)
