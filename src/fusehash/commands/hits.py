"""`fusehash search` in a collection: its options, and how results are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import collection
from fusehash.commands.terminal import (
    GAP,
    MIN_SIDE,
    can_show,
    complain,
    fitting_side,
    print_json,
    print_table,
    row_of_pictures,
    say,
    stdout,
)

if TYPE_CHECKING:
    from fusehash.collection import Hit, Hits, Item

PICTURES = 6  # drawn by `search --pictures`
CAPTION_WIDTH, MIN_CAPTION_WIDTH = 70, 20
OTHER_WIDTH = 60  # of the columns next to a caption, as long as the terminal is wide enough

QueryImage = Annotated[
    list[Path] | None, typer.Option("--image", help="Collections: search by this picture; repeat for more.")
]
Like = Annotated[list[int] | None, typer.Option(help="Collections: like the item with this id; repeat for more.")]
Unlike = Annotated[
    list[int] | None, typer.Option(help="Collections: less like the item with this id; repeat for more.")
]
Offset = Annotated[int, typer.Option(min=0, help="Collections: skip so many of the best results.")]
MinConfidence = Annotated[
    float, typer.Option(min=0.0, max=1.0, help="Collections: leave out results with a lower confidence.")
]
QueryLabel = Annotated[str | None, typer.Option("--label", help="Collections: only items with this label.")]
Rerank = Annotated[bool, typer.Option(help="Collections: rank candidates by their features, not only by their bits.")]


def search(path: Path, as_json: bool, engine: str | None = None, *, pictures: bool = False, **query: Any) -> None:
    """`search` on a collection."""
    parts = {name: query[name] or None for name in ("text", "image", "like", "unlike")}
    if not any(parts.values()):
        raise typer.BadParameter("give a text, or --image, or --like.", param_hint="'QUERY'")
    with collection.open_collection(path, engine) as opened:
        hits = opened.search(**{**query, **parts})
        drawn = [(hit, opened.thumbnail(hit.id)) for hit in hits] if pictures and not as_json else []
    _show_pictures([(hit, picture) for hit, picture in drawn if picture])
    _show_hits(hits, as_json)


def _show_pictures(drawn: Sequence[tuple[Hit, bytes]]) -> None:
    """Draw the best results that have a picture, as many as fit into a row; nothing where a terminal cannot."""
    console = stdout()
    if not drawn or not can_show(console):
        return
    from rich.text import Text

    shown = drawn[: max(console.width // (MIN_SIDE + GAP), 1)][:PICTURES]
    captions = [Text(f"{hit.id}") for hit, _ in shown]
    console.print(row_of_pictures([picture for _, picture in shown], captions, fitting_side(console.width, len(shown))))


def _show_hits(hits: Hits, as_json: bool) -> None:
    if hits.note:
        complain(hits.note)
    if as_json:
        print_json([_as_json(hit) for hit in hits])
    elif not hits:
        say("Nothing was found.")
    else:
        width = min(CAPTION_WIDTH, max(stdout().width - OTHER_WIDTH, MIN_CAPTION_WIDTH))
        rows = [(hit.id, _score(hit), hit.distance, _place(hit.item), _shortened(hit.item.text, width)) for hit in hits]
        print_table(("id", "score", "distance", "key", "caption"), rows)


def _as_json(hit: Hit) -> dict[str, Any]:
    from fusehash.collection.items import storable_text

    item, confidence = hit.item, hit.confidence
    return {
        "id": hit.id,
        "distance": hit.distance,
        "score": round(hit.score, 6),
        "confidence": None if confidence is None else round(confidence, 2),
        "key": item.key,
        "path": None if item.path is None else storable_text(str(item.path)),
        "text": item.text,
        "labels": item.labels,
        "day": item.day,
        "matched": hit.matched,
        "same_image": hit.same_image,
    }


def _score(hit: Hit) -> str:
    """The confidence in percent; of a search without words, the similarity."""
    return f"{hit.score:.3f}" if hit.confidence is None else f"{hit.confidence:.0%}"


def _place(item: Item) -> Path | str:
    """Where the picture of an item is, as short as it can be typed here; of an item without one, its key."""
    path = item.path
    return path.relative_to(Path.cwd()) if path and path.is_relative_to(Path.cwd()) else path or item.key


def _shortened(text: str | None, width: int) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."
