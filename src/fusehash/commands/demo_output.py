"""What `fusehash demo` prints for human eyes: scores, queries with what they found, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusehash.commands import pictures
from fusehash.commands.evaluate import footnotes, score_table

if TYPE_CHECKING:
    from rich.console import Console

    from fusehash.datasets import PairedDataset
    from fusehash.datasets.emoji import EmojiItem


def tell_scores(
    console: Console, items: Sequence[EmojiItem], data: PairedDataset, results: dict[str, Any], chance: float, bits: int
) -> None:
    """What was learned from, MAP of every method, and what one must know of both."""
    from fusehash.datasets.emoji import ATTRIBUTION

    groups = len(data.label_names or ())
    console.print(
        f"{len(items):,} emoji in {groups} groups, each seen twice: as a picture and as a name with keywords.\n"
        f"Learned without labels: codes of {bits} bits in which pictures and words of the same things lie close.\n"
    )
    console.print(score_table(results, title="MAP@50: how much of what is found is of the query's group"))
    console.print(f"Chance: {chance:.3f}.")
    for line in (*footnotes(next(iter(results.values())), data), ATTRIBUTION):
        console.print(line, soft_wrap=True, markup=False)


def show(console: Console, answer: dict[str, Any], known: dict[str, EmojiItem]) -> None:
    """One query and what it found: as pictures where the terminal can show them, red where the group is another."""
    from rich.text import Text

    asked = f"the words '{answer['text']}'" if answer["by"] == "text" else f"the picture of '{answer['name']}'"
    unseen = "" if answer["key"] is None else f" ({answer['group']}, never seen in training)"
    console.print(f"\nSearching {answer['searched']:,} emoji by {asked}{unseen}:", soft_wrap=True, markup=False)
    found = answer["found"]
    if not pictures.can_show(console):
        console.print(_table(found))
        return
    side = pictures.fitting_side(console.width, len(found))
    if answer["by"] == "image":
        console.print(*pictures.half_blocks(known[answer["key"]].image, side), sep="\n")
    captions = [
        Text(f"{hit['name']}\n{hit['distance']} bits away", style="red" if hit["relevant"] is False else "")
        for hit in found
    ]
    console.print(pictures.row_of_pictures([known[hit["key"]].image for hit in found], captions, side))


def _table(found: Sequence[dict[str, Any]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "found", "group", "same group")
    table.add_column("bits away", justify="right")
    for place, hit in enumerate(found, start=1):
        same = {None: "", True: "yes", False: "no"}[hit["relevant"]]
        table.add_row(str(place), escape(hit["name"]), escape(hit["group"]), same, str(hit["distance"]))
    return table


def tell_end(console: Console, out: Path | None, stats: dict[str, Any], seconds: dict[str, float]) -> None:
    """How long it took, and what to do next."""
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in seconds.items() if name != "total")
    console.print(f"\nThis took {seconds['total']:.1f} s ({parts}).", soft_wrap=True, markup=False)
    kept = (
        f'Kept in {out}. Next: fusehash search {out} "words to look for", or fusehash serve {out}'
        if out
        else "Keep the collection: fusehash demo --out emoji.collection. Your own pictures: fusehash index --help"
    )
    held = f"The collection holds {stats['items']:,} items in {stats['bytes'] / 1e6:.1f} MB."
    console.print(f"{held} {kept}", soft_wrap=True, markup=False)
