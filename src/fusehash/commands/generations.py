"""Re-training without downtime: `fusehash index reindex --beside`, `fusehash index generations`, `... switch`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.collection import CollectionPath, open_collection, show_report
from fusehash.commands.terminal import print_json, progress, stdout

if TYPE_CHECKING:
    from fusehash.collection import Generation

REINDEX_EXAMPLE = """Example: fusehash index reindex my.collection

Without downtime: fusehash index reindex my.collection --beside --bits 128

then: fusehash index generations my.collection

then: fusehash index switch my.collection"""
SWITCH_EXAMPLE = """Example: fusehash index switch my.collection

Back to the one before: fusehash index switch my.collection --back"""
LIST_EXAMPLE = """Example: fusehash index generations my.collection

Remove one: fusehash index generations my.collection --drop 1"""


def reindex(
    path: CollectionPath,
    beside: Annotated[
        bool, typer.Option("--beside", help="Keep what is in force, and put the new generation beside it.")
    ] = False,
    bits: Annotated[int | None, typer.Option(help="With --beside: another length of the codes.")] = None,
    image_encoder: Annotated[
        str | None, typer.Option(help="With --beside: what shall see the pictures (classical, sift, clip).")
    ] = None,
    text_encoder: Annotated[
        str | None, typer.Option(help="With --beside: what shall read the texts (tfidf, lda, clip).")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="With --beside: another seed of the method.")] = None,
    measure: Annotated[
        bool, typer.Option(help="With --beside: tell the quality on held-out pairs, by learning a second time.")
    ] = True,
    as_json: inputs.Json = False,
) -> None:
    """Learn the codes anew from everything that is in a collection now."""
    given = {"n_bits": bits, "image_encoder": image_encoder, "text_encoder": text_encoder, "random_state": seed}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if chosen and not beside:
        raise typer.BadParameter("other settings need --beside.", param_hint="'--beside'")
    with open_collection(path) as collection, progress("reindex") as report:
        if beside:
            done = collection.build_generation(progress=report, measure=measure, **chosen)
        else:
            done = collection.reindex(progress=report)
    show_report(done, as_json)
    if beside and not as_json:
        stdout().print(
            f"Generation {done.generation} is beside the one in force. Next: fusehash index switch {path}",
            soft_wrap=True, markup=False,
        )  # fmt: skip


def switch(
    path: CollectionPath,
    to: Annotated[int | None, typer.Option(min=1, help="The number of a generation; else the newest.")] = None,
    back: Annotated[bool, typer.Option("--back", help="To the generation that was in force before.")] = False,
    as_json: inputs.Json = False,
) -> None:
    """Put another generation of a collection in force, at once and for everybody who searches it."""
    if back and to is not None:
        raise typer.BadParameter("and --to exclude each other.", param_hint="'--back'")
    with open_collection(path) as collection, progress("switch") as report:
        done = collection.switch(to, back=back, progress=report)
    if as_json:
        print_json(done.to_dict())
        return
    stdout().print(
        f"Generation {done.generation} is in force. Items that had come or changed since: {done.changed:,}.",
        soft_wrap=True,
    )


def generations(
    path: CollectionPath,
    drop: Annotated[int | None, typer.Option(min=1, help="Remove the generation of this number first.")] = None,
    as_json: inputs.Json = False,
) -> None:
    """The generations of a collection: the one in force, and those beside it."""
    with open_collection(path) as collection:
        if drop is not None:
            collection.drop(drop)
        found = collection.generations()
    if as_json:
        print_json([one.to_dict() for one in found])
        return
    from rich.table import Table

    table = Table("number", "", "made", "codes", "bits", "seed", "images", "texts", "pair AUC", "MB")
    for one in found:
        table.add_row(*_row(one))
    stdout().print(table)


def _row(one: Generation) -> list[str]:
    place = "in force" if one.current else "before" if one.previous else ""
    quality = "-" if one.quality is None else f"{one.quality:.4f}"
    return [str(one.number), place, one.made or "-", f"{one.codes:,}", str(one.n_bits), str(one.random_state),
            one.image_encoder or "-", one.text_encoder or "-", quality, f"{one.bytes / 1e6:.1f}"]  # fmt: skip
