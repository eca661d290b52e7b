"""What goes into a collection and what comes out: plain records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Item:
    """An item of a collection. ``id`` is never given to another item, even after this one is removed."""

    id: int
    key: str
    text: str | None
    labels: tuple[str, ...]
    has_image: bool
    width: int
    height: int


@dataclass(frozen=True)
class Hit:
    """An item that a search has found.

    distance : bits in which its code differs from the query's.
    score : from -1 to 1; the share of the query's weight on bits that agree, less that on bits that do not; for a text,
        blended with how much of its words the item's text has (searching.py).
    code : its packed code.
    """

    id: int
    distance: int
    score: float
    item: Item
    code: bytes


class Hits(list[Hit]):
    """What a search has found, best first, the query's packed code, and the generation that all codes are of."""

    code: bytes = b""
    generation: int = 0


@dataclass
class Report:
    """What a call that writes has done.

    skipped : key -> one sentence, for what could not be used; an item whose image is broken is kept if it has a text.
    notes : sentences about the whole.
    ids : the ids of the items that were added or changed.
    generation : the generation that was built or switched to, where one was.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    trained: bool = False
    seconds: float = 0.0
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    generation: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold."""
        return asdict(self)
