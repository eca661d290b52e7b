"""Collections on the command line: build, update, reindex, generations, and the collection side of `index`."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs, wording
from fusehash.commands.terminal import (
    complain,
    print_json,
    print_table,
    progress,
    say,
)
from fusehash.errors import DataError, FusehashError, MissingPackageError
from fusehash.extras import require

if TYPE_CHECKING:
    from fusehash.collection import Collection, Generation, NewItem, Report

BUILD_EXAMPLE = """Example: fusehash index photos

With captions: fusehash index photos --captions captions.csv --out my.collection

Run it again after the folder has changed: only changed items are processed."""
UPDATE_EXAMPLE = "Example: fusehash index update my.collection photos --captions better-captions.csv"
REINDEX_EXAMPLE = """Example: fusehash index reindex my.collection

Without downtime: fusehash index reindex my.collection --keep-current --bits 128

then: fusehash index generations my.collection

then: fusehash index switch my.collection"""
SWITCH_EXAMPLE = """Example: fusehash index switch my.collection

Back to the previous one: fusehash index switch my.collection --back"""
LIST_EXAMPLE = """Example: fusehash index generations my.collection

Remove one: fusehash index generations my.collection --drop 1"""

SHOWN_PROBLEMS = 10

Captions = Annotated[
    Path | None,
    typer.Option(help="A .csv (columns image, caption[, labels]) or .jsonl file; default: .txt files next to images."),
]
Text = Annotated[str | None, typer.Option(help="The text of a single picture.")]
Labels = Annotated[list[str] | None, typer.Option("--label", help="A label for the new items; repeat for more.")]
Bits = Annotated[int | None, typer.Option(help="Length of the codes, a multiple of 8.")]
ImageEncoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:key=value]",
        help="Image encoder: a name that `fusehash encoders` lists, or an ONNX file.",
        show_default="auto",
    ),
]
TextEncoder = Annotated[
    str | None,
    typer.Option(
        metavar="NAME[:key=value]",
        help="Text encoder: a name that `fusehash encoders` lists, or an ONNX file with tokenizer.json next to it.",
        show_default="auto",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the method.")]
CollectionPath = Annotated[Path, typer.Argument(metavar="COLLECTION", help="The folder of a collection.")]


def build(
    photos: Annotated[
        Path, typer.Argument(metavar="PHOTOS", help="A folder of pictures; or a .csv or .jsonl file of texts.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The folder of the collection; created if missing.",
            show_default="PHOTOS.collection in this folder",
        ),
    ] = None,
    captions: Captions = None,
    bits: Bits = None,
    image_encoder: ImageEncoder = None,
    text_encoder: TextEncoder = None,
    seed: Seed = None,
    as_json: inputs.Json = False,
) -> None:
    """Build a searchable collection of pictures and texts, or update one from its folder.

    By default, a new collection has 64 bits, seed 0, and the best encoders that are installed.
    """
    from fusehash import encoders
    from fusehash.collection import Collection, read_folder

    chosen = _chosen(bits, image_encoder, text_encoder, seed)
    is_named, out = out is not None, out or Path(f"{photos.absolute().resolve().stem or 'photos'}.collection")
    items = list(read_folder(photos, captions))
    if not items:
        raise DataError(f"There must be pictures or texts to index. {photos} has none.")
    inputs.check_captions(items, photos, captions)
    if any(map(inputs.has_picture, items)):
        require("PIL.Image", "Indexing pictures")
    is_new = not out.exists() or (out.is_dir() and not any(out.iterdir()))
    had_texts = 0
    if is_new:
        inputs.check_folder(out, "A collection")
        collection = Collection.create(out, **chosen)
        if image_encoder is None and text_encoder is None and encoders.advice():
            complain(encoders.advice())
    else:
        collection = Collection.open(out)
        had_texts = collection.stats()["texts"]
        _check_same(collection, chosen)
        if not is_named:
            _check_source(collection, photos)
    try:
        with collection, progress("index") as report:
            done = collection.build(items, progress=report)
            stats = collection.stats()
            has_words = stats["trained"] and (stats["texts"] > 1 or _takes_words(collection))
    except MissingPackageError:
        if is_new:
            shutil.rmtree(out)
        raise
    show_report(done, as_json)
    lost = had_texts - done.removed - stats["texts"]
    if captions is None and lost > 0:
        complain(f"warning: {lost:,} captions are gone. If they were in a file, name it again with --captions.")
    if stats["trained"] and not as_json:
        query = '"words to look for"' if has_words else f"--like {done.ids[0] if done.ids else 1}"
        say(f"The collection is the folder {out}. Next: fusehash search {shlex.quote(str(out))} {query}")
    if not stats["items"]:
        raise DataError(f"None of the {len(items):,} items could be used; the collection {out} is empty.")


def update(
    path: CollectionPath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder of pictures, a picture, or a table.")],
    captions: Captions = None,
    text: Text = None,
    label: Labels = None,
    as_json: inputs.Json = False,
) -> None:
    """Replace pictures, texts or labels of existing items, all or none.

    What SOURCE does not contain stays: a table of names and captions changes captions, but no picture.
    """
    take_in("update", path, source, captions, text, label, as_json)


def reindex(
    path: CollectionPath,
    keep_current: Annotated[
        bool, typer.Option("--keep-current", help="Keep the current generation, and build a new one to switch to.")
    ] = False,
    bits: Bits = None,
    image_encoder: ImageEncoder = None,
    text_encoder: TextEncoder = None,
    seed: Seed = None,
    measure: Annotated[bool, typer.Option(help="Measure the quality on held-out pairs by a second fit.")] = True,
    as_json: inputs.Json = False,
) -> None:
    """Fit the model of a collection again, on all of its current items.

    With --keep-current, the new generation can have other bits, encoders or seed, and --measure applies.
    """
    chosen = _chosen(bits, image_encoder, text_encoder, seed)
    if chosen and not keep_current:
        named = " / ".join(f"'{wording.option_of(name)}'" for name in chosen)
        raise typer.BadParameter("needs --keep-current, which builds codes with other settings.", param_hint=named)
    with open_collection(path) as collection, progress("reindex") as report:
        if keep_current:
            done = collection.build_generation(progress=report, measure=measure, **chosen)
        else:
            done = collection.reindex(progress=report)
    show_report(done, as_json)
    if keep_current and not as_json:
        say(f"Built generation {done.generation}. Next: fusehash index switch {path}")


def switch(
    path: CollectionPath,
    to: Annotated[int | None, typer.Option(min=1, help="Number of the generation; by default the newest.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Switch to the previous generation.")] = False,
    as_json: inputs.Json = False,
) -> None:
    """Make another generation the current one, at once and for everyone who searches the collection."""
    if back and to is not None:
        raise typer.BadParameter("and --to exclude each other.", param_hint="'--back'")
    with open_collection(path) as collection, progress("switch") as report:
        done = collection.switch(to, back=back, progress=report)
    if as_json:
        print_json(done.to_dict())
        return
    say(f"Generation {done.generation} is current. Items that were added or changed since: {done.changed:,}.")


def generations(
    path: CollectionPath,
    drop: Annotated[int | None, typer.Option(min=1, help="First remove the generation with this number.")] = None,
    as_json: inputs.Json = False,
) -> None:
    """List the generations of a collection."""
    with open_collection(path) as collection:
        if drop is not None:
            collection.drop(drop)
        listed = collection.generations()
    if as_json:
        print_json([generation.to_dict() for generation in listed])
        return
    columns = ("number", "", "created", "codes", "bits", "seed", "images", "texts", "pair AUC", "MB")
    print_table(columns, map(_row, listed))


def _row(generation: Generation) -> list[Any]:
    status = "current" if generation.current else "previous" if generation.previous else ""
    quality = "-" if generation.quality is None else f"{generation.quality:.4f}"
    encoders = [generation.image_encoder or "-", generation.text_encoder or "-"]
    facts = [generation.number, status, generation.made or "-", f"{generation.codes:,}", generation.n_bits]
    return [*facts, generation.random_state, *encoders, quality, f"{generation.bytes / 1e6:.1f}"]


def take_in(
    how: str, path: Path, source: Path, captions: Path | None, text: str | None, labels: list[str] | None, as_json: bool
) -> None:
    """`index add` and `index update` on a collection."""
    from fusehash.collection import read_folder

    if text is not None and (source.is_dir() or captions is not None):
        raise typer.BadParameter("is for a single picture.", param_hint="'--text'")
    items: list[NewItem] = list(read_folder(source, captions))
    if not items:
        raise DataError(f"There must be pictures or texts to {how}. {source} has none.")
    if how == "add":
        inputs.check_captions(items, source, captions)
    else:
        items = inputs.without_missing(items)
    if text is not None:
        items = [dataclasses.replace(item, text=text) for item in items]
    if labels:
        items = [dataclasses.replace(item, labels=(*item.labels, *labels)) for item in items]
    with open_collection(path) as collection, progress(how) as report:
        done = (collection.add if how == "add" else collection.update)(items, progress=report)
    unused = not (done.added or done.changed or done.unchanged)
    if unused and len(items) == 1:
        raise DataError(f"{source} could not be used: {next(iter(done.skipped.values()))}")
    show_report(done, as_json)
    if unused:
        raise DataError(f"None of the {len(items):,} items of {source} could be used; nothing was added.")


def open_collection(path: Path, engine: str | None = None) -> Collection:
    from fusehash.collection import Collection

    return Collection.open(path, engine=engine)


def _takes_words(collection: Collection) -> bool:
    """Whether words find pictures although hardly any text was there to learn from: by a bridge or a shared space."""
    try:
        return bool(collection.query_code(text="a picture"))
    except FusehashError:
        return False


def _check_source(collection: Collection, photos: Path) -> None:
    """Raise if all pictures of a collection are from another folder: building it would remove them from it."""
    paths = [item.path for item in collection.items(limit=100) if item.path is not None]
    if paths and not any(path.resolve().is_relative_to(photos.resolve()) for path in paths):
        problem = f"The collection {collection.path} must have pictures of {photos}. It has those of {paths[0].parent}."
        raise DataError(f"{problem} Name this one or another one with --out.")


def _check_same(collection: Collection, chosen: dict[str, Any]) -> None:
    settings = collection.settings
    current = _chosen(settings.n_bits, settings.image.name, settings.text.name, settings.random_state)
    for name, value in chosen.items():
        if not (name.endswith("_encoder") and settings.has_encoder(name.partition("_")[0], value)) and (
            current[name] != value
        ):
            raise DataError(
                f"The collection {collection.path} has {wording.option_of(name)} {current[name]}, which stays; "
                f"`fusehash index reindex --keep-current` builds codes with another. Got {value}."
            )


def _chosen(bits: int | None, image_encoder: str | None, text_encoder: str | None, seed: int | None) -> dict[str, Any]:
    settings = {"n_bits": bits, "image_encoder": image_encoder, "text_encoder": text_encoder, "random_state": seed}
    return {name: value for name, value in settings.items() if value is not None}


def show_report(report: Report, as_json: bool) -> None:
    """Print what was done to stdout and problems to stderr."""
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
    counts = f"Added {report.added:,}, changed {report.changed:,}, removed {report.removed:,}"
    say(f"{counts}, unchanged {report.unchanged:,} in {report.seconds:.1f} s.{learned}")
