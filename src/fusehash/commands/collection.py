"""Collections from the command line: `fusehash index PHOTOS`, and what index.py and search hand over for folders."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs, tables
from fusehash.commands.terminal import complain, print_json, progress, stdout
from fusehash.errors import DataError, MissingPackageError

if TYPE_CHECKING:
    from fusehash.collection import Collection, Hit, NewItem, Report

BUILD_EXAMPLE = """Example: fusehash index photos --captions captions.csv --out my.collection

Run it again after the folder has changed: only what changed is worked on."""
UPDATE_EXAMPLE = "Example: fusehash index update my.collection photos --captions better-captions.csv"

SHOWN_PROBLEMS = 10
CAPTION_WIDTH = 70

Captions = Annotated[
    Path | None,
    typer.Option(help="A .csv (columns image, caption[, labels]) or .jsonl file; else .txt files beside the pictures."),
]
Text = Annotated[str | None, typer.Option(help="The text of a single picture.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="A label for what is added; repeat for more.")]
QueryImage = Annotated[Path | None, typer.Option("--image", help="A collection: search by this picture.")]
Like = Annotated[int | None, typer.Option(help="A collection: search by the item of this id.")]
QueryLabel = Annotated[str | None, typer.Option("--label", help="A collection: only items with this label.")]
Rerank = Annotated[bool, typer.Option(help="A collection: order candidates by more than their bits.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="What searches the codes: scan, auto, ..., or the address of a server (postgresql://..., milvus://...), "
        "which is remembered."
    ),
]
CollectionPath = Annotated[Path, typer.Argument(metavar="COLLECTION", help="The folder of a collection.")]


def build(
    photos: Annotated[
        Path,
        typer.Argument(metavar="PHOTOS", help="A folder of pictures; or a .csv or .jsonl file of texts."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the collection, made if it is not there.")],
    captions: Captions = None,
    bits: Annotated[int | None, typer.Option(help="Length of the codes, a multiple of 8.  \\[default: 64]")] = None,
    image_encoder: Annotated[
        str | None,
        typer.Option(
            help="What sees the pictures: classical, sift, clip; from Python also onnx.  \\[default: classical]"
        ),
    ] = None,
    text_encoder: Annotated[
        str | None,
        typer.Option(help="What reads the texts: tfidf, lda, clip; from Python also onnx.  \\[default: tfidf]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the method.  \\[default: 0]")] = None,
    engine: Engine = None,
    as_json: inputs.Json = False,
) -> None:
    """Make a searchable collection of pictures and texts, or bring one up to date with them."""
    from fusehash.collection import Collection, read_folder

    if not photos.exists():
        raise DataError(f"The pictures were looked for at {photos}, where there is nothing.")
    given = {"n_bits": bits, "image_encoder": image_encoder, "text_encoder": text_encoder, "random_state": seed}
    chosen = {name: value for name, value in given.items() if value is not None}
    items = list(read_folder(photos, captions))
    if not items:
        raise DataError(f"There must be pictures or texts to index. {photos} has none.")
    tables.check_captions(items, photos, captions)
    is_new = not (out.exists() and (not out.is_dir() or any(out.iterdir())))
    if not is_new:
        collection = Collection.open(out, engine=engine)
        _check_same(collection, chosen)
    else:
        inputs.check_place(out, "A collection")
        collection = Collection.create(out, engine=engine, **chosen)  # type: ignore[arg-type]
    try:
        with collection, progress("index") as report:
            done = collection.build(items, progress=report)
            stats = collection.stats()
    except MissingPackageError:
        if is_new:
            shutil.rmtree(out, ignore_errors=True)
        raise
    show_report(done, as_json)
    if stats["trained"] and not as_json:
        # A single text, or many equal ones, are nothing that a search by words could be learned from.
        asked = '"words to look for"' if stats["texts"] > 1 else f"--like {done.ids[0] if done.ids else 1}"
        stdout().print(f"Next: fusehash search {out} {asked}", soft_wrap=True, markup=False)
    if not stats["items"]:
        raise DataError(f"None of the {len(items):,} items could be used; the collection {out} is empty.")


def update(
    path: CollectionPath,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A folder of pictures, a picture, or a .csv or .jsonl file.")
    ],
    captions: Captions = None,
    text: Text = None,
    label: Labels = None,
    as_json: inputs.Json = False,
) -> None:
    """Put other pictures, texts or labels in the place of those under the same names, all or none.

    What SOURCE does not give stays as it is: a table of names and captions changes captions, and no picture.
    """
    take_in("update", path, source, captions, text, label, as_json)


def take_in(
    how: str,
    path: Path,
    source: Path,
    captions: Path | None,
    text: str | None,
    labels: list[str] | None,
    as_json: bool,
) -> None:
    """`index add` and `index update` on a collection."""
    import dataclasses

    from fusehash.collection import read_folder

    if text is not None and (source.is_dir() or captions is not None):
        raise typer.BadParameter("is for a single picture.", param_hint="'--text'")
    items: list[NewItem] = list(read_folder(source, captions))
    if not items:
        raise DataError(f"There must be pictures or texts to {how}. {source} has none.")
    if how == "add":
        tables.check_captions(items, source, captions)
    else:
        items = tables.without_missing(items)
    if text is not None:
        items = [dataclasses.replace(item, text=text) for item in items]
    if labels:
        items = [dataclasses.replace(item, labels=(*item.labels, *labels)) for item in items]
    with open_collection(path) as collection, progress(how) as report:
        done = (collection.add if how == "add" else collection.update)(items, progress=report)
    if not (done.added or done.changed or done.unchanged) and len(items) == 1:
        raise DataError(f"{source} could not be used: {next(iter(done.skipped.values()))}")
    show_report(done, as_json)
    if not (done.added or done.changed or done.unchanged):
        raise DataError(f"None of the {len(items):,} items of {source} could be used; nothing was added.")


def remove(path: Path, ids: Iterable[int] | None, as_json: bool) -> None:
    """`index remove` on a collection."""
    with open_collection(path) as collection:
        done = collection.remove(ids or ())
    show_report(done, as_json)


def stats(path: Path, as_json: bool) -> None:
    """`index stats` on a collection."""
    with open_collection(path) as collection:
        show_facts(collection.stats(), as_json)


def search(
    path: Path,
    text: str | None,
    image: Path | None,
    like: int | None,
    label: str | None,
    k: int,
    rerank: bool,
    as_json: bool,
    engine: str | None = None,
) -> None:
    """`search` on a collection."""
    if sum(given is not None for given in (text, image, like)) != 1:
        raise typer.BadParameter("give a text, or --image, or --like.", param_hint="'QUERY'")
    with open_collection(path, engine) as collection:
        hits = collection.search(text, image=image, like=like, k=k, label=label, rerank=rerank)
    _show_hits(hits, as_json)


def refuse(only_for: str = "an index of codes", **options: Any) -> None:
    """Options that mean nothing here are wrong usage, not silently ignored."""
    for name, value in options.items():
        if value not in (None, [], ()):
            raise typer.BadParameter(f"is for {only_for}.", param_hint=f"'--{name}'")


def show_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Names and values."""
    if as_json:
        print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in facts.items():
        plain = isinstance(value, int) and not isinstance(value, bool)
        table.add_row(name.replace("_", " "), f"{value:,}" if plain else str(value))
    stdout().print(table)


def open_collection(path: Path, engine: str | None = None) -> Collection:
    """The collection in a folder."""
    from fusehash.collection import Collection

    return Collection.open(path, engine=engine)


def _check_same(collection: Collection, chosen: dict[str, Any]) -> None:
    """A build changes items, not what codes are made with."""
    settings = collection.settings
    has = {
        "n_bits": settings.n_bits,
        "random_state": settings.random_state,
        "image_encoder": settings.image.name,
        "text_encoder": settings.text.name,
    }
    for name, value in chosen.items():
        if has[name] != value:
            raise DataError(
                f"The collection {collection.path} has {name} {has[name]!r}, which stays (index reindex --beside makes "
                f"codes with another). Got {value!r}."
            )


def show_report(report: Report, as_json: bool) -> None:
    """What was done on stdout, what was wrong on stderr."""
    if as_json:
        print_json(report.to_dict())
        return
    for key, sentence in list(report.skipped.items())[:SHOWN_PROBLEMS]:
        complain(f"{key}: {sentence}")
    if len(report.skipped) > SHOWN_PROBLEMS:
        complain(f"and {len(report.skipped) - SHOWN_PROBLEMS:,} more like these; --json lists them all.")
    for note in report.notes:
        complain(note)
    learned = " Codes were learned from all items." if report.trained else ""
    stdout().print(
        f"Added {report.added:,}, changed {report.changed:,}, removed {report.removed:,}, "
        f"unchanged {report.unchanged:,} in {report.seconds:.1f} s.{learned}",
        soft_wrap=True,
        markup=False,
    )


def _show_hits(hits: list[Hit], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "id": hit.id,
                    "distance": hit.distance,
                    "score": round(hit.score, 6),
                    "key": hit.item.key,
                    "text": hit.item.text,
                    "labels": list(hit.item.labels),
                }
                for hit in hits
            ]
        )
        return
    from rich.markup import escape
    from rich.table import Table

    if not hits:
        stdout().print("Nothing was found.")
        return
    table = Table("id", "score", "distance", "key", "caption")
    for hit in hits:
        told = escape(hit.item.key), escape(_shortened(hit.item.text or ""))
        table.add_row(str(hit.id), f"{hit.score:.3f}", str(hit.distance), *told)
    stdout().print(table)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= CAPTION_WIDTH else f"{line[: CAPTION_WIDTH - 3].rstrip()}..."
