"""`fusehash demo`: learn codes of emoji pictures and words, measure them, and search with them."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs, terminal
from fusehash.commands.evaluate import CONTROLS, footnotes, run_all, score_table
from fusehash.commands.serve import PACKAGES
from fusehash.commands.terminal import print_json, progress, say, stdout
from fusehash.errors import DataError
from fusehash.extras import is_installed, require

if TYPE_CHECKING:
    from rich.console import Console

    from fusehash.collection import Collection, Hit
    from fusehash.datasets import PairedDataset
    from fusehash.datasets.emoji import EmojiItem
    from fusehash.datasets.splits import Split

EXAMPLE = """Example: fusehash demo

Keep what it builds: fusehash demo --out emoji.collection --serve"""

SEEDS = (0, 1)
TOP = 5
IMAGE_PARAMS = {"side": 72}  # the size of the pictures
# Queries: the words of the first held-out item of one group, the picture of that of another, and free words.
TEXT_GROUP, IMAGE_GROUP, FREE_WORDS = "Animals & Nature", "Food & Drink", "driving a fast car"


def demo(
    bits: inputs.Bits = 64,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep the collection in this new folder.", show_default=False)
    ] = None,
    serve: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Serve the search page at the end.", show_default="ask, in a terminal"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 8000,
    as_json: inputs.Json = False,
) -> None:
    """Learn from the emoji set, compare MAP on unseen concepts with controls, and answer three queries."""
    if as_json and serve:
        raise typer.BadParameter("cannot be combined with --json.", param_hint="'--serve'")
    for package in PACKAGES if serve else ():
        require(package, "fusehash demo --serve")
    methods = ("fusehash", *CONTROLS)
    models = {name: inputs.make_hasher(name, bits=bits, seed=None, params={}) for name in methods}
    console, began = stdout(), time.perf_counter()
    seconds: dict[str, float] = {}
    with _folder(out) as folder:
        with timed(seconds, "features"):
            items, split, data = learn_features()
        with timed(seconds, "evaluation"):
            results = run_all(models, data, k=50, ties="expected", seeds=SEEDS)
        chance = chance_map(data)
        if not as_json:
            show_scores(console, items, data, results, chance, bits)
        with build(folder, items, split, bits, seconds) as collection:
            with timed(seconds, "queries"):
                answers = ask_all(collection, items, split)
            with timed(seconds, "adding"):
                add_queries(collection, items, split)
            stats = collection.stats()
        seconds["total"] = round(time.perf_counter() - began, 2)
        if as_json:
            from fusehash.datasets.emoji import ATTRIBUTION

            about = {"split": data.split, "attribution": ATTRIBUTION, "groups": list(data.label_names or ())}
            counts = {"items": len(items), "concepts": len({item.concept for item in items})}
            scores = {name: result.to_dict() for name, result in results.items()}
            saved = {**stats, "path": str(out) if out else None}
            report = {"data": counts | about, "results": scores, "chance": chance, "queries": answers}
            print_json({**report, "collection": saved, "seconds": seconds})
            return
        for answer in answers:
            show_answer(console, answer, {item.key: item for item in items})
        show_end(out, stats, seconds)
        if _wants_page(serve):
            from fusehash.commands import serve as serving

            serving.serve(folder, port=port)


def learn_features() -> tuple[list[EmojiItem], Split, PairedDataset]:
    """The emoji, a split by concepts, and features from encoders that were fitted on training concepts only."""
    from fusehash import encoders
    from fusehash.datasets.emoji import load_emoji, paired, split_concepts

    with progress("emoji") as report:
        report(0, 1, "reading")
        items = load_emoji()
        split = split_concepts(items)
        contents: dict[str, list[Any]] = {name: [getattr(item, name) for item in items] for name in ("image", "text")}
        makers = {"image": encoders.make("classical", modality="image", **IMAGE_PARAMS), "text": encoders.make("tfidf")}
        views = {}
        for view, encoder in makers.items():
            encoder.fit([contents[view][row] for row in split.train], progress=report)
            views[view] = encoder.transform(contents[view], progress=report)
    return items, split, paired(items, views, split)


def chance_map(data: PairedDataset) -> float:
    """MAP@50 of equal codes: what an arbitrary order reaches."""
    import numpy as np

    from fusehash.evaluation import mean_average_precision

    query, database = (np.zeros((rows.size, 1), dtype=np.uint8) for rows in (data.query, data.database))
    labels = data.labels[data.query], data.labels[data.database]
    return float(mean_average_precision(query, database, labels, k=50, ties="expected"))


@contextmanager
def build(
    folder: Path, items: Sequence[EmojiItem], split: Split, bits: int, seconds: dict[str, float]
) -> Iterator[Collection]:
    """A collection of all items except the queries. If something fails, it is deleted."""
    from fusehash.collection import Collection

    collection = Collection.create(
        folder, n_bits=bits, image_params=IMAGE_PARAMS, image_encoder="classical", text_encoder="tfidf"
    )
    try:
        with collection:
            with progress("collection") as report, timed(seconds, "collection"):
                collection.build(_new(items, split.database), progress=report)
            yield collection
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def add_queries(collection: Collection, items: Sequence[EmojiItem], split: Split) -> None:
    """Add the queries after the search, so that the page finds them too."""
    with progress("adding") as report:
        collection.add(_new(items, split.query), progress=report)


def _new(items: Sequence[EmojiItem], rows: Any) -> list[Any]:
    from fusehash.collection import NewItem

    chosen = [items[row] for row in rows]
    return [NewItem(item.key, item.image, item.text, item.labels) for item in chosen]


def ask_all(collection: Collection, items: Sequence[EmojiItem], split: Split) -> list[dict[str, Any]]:
    """Search by the words of a held-out item, by the picture of another, and by free words."""
    held_out = [items[row] for row in split.query]
    groups = (TEXT_GROUP, IMAGE_GROUP)
    by_text, by_image = (next((i for i in held_out if i.labels[0] == group), held_out[0]) for group in groups)
    items_by_key = {item.key: item for item in items}
    return [
        _ask(collection, items_by_key, by_text, text=by_text.text),
        _ask(collection, items_by_key, by_image, image=by_image.image),
        _ask(collection, items_by_key, None, text=FREE_WORDS),
    ]


def _ask(
    collection: Collection, items_by_key: dict[str, EmojiItem], held_out: EmojiItem | None, **query: Any
) -> dict[str, Any]:
    """One query and its results as JSON values; only results of held-out items are known to be relevant or not."""
    hits = collection.search(**query, k=TOP)
    group = held_out.labels[0] if held_out is not None else None

    def result(hit: Hit) -> dict[str, Any]:
        item = items_by_key[hit.item.key]
        relevant = None if group is None else item.labels[0] == group
        return {"id": hit.id, "key": item.key, "name": item.name, "group": item.labels[0], "distance": hit.distance,
                "score": round(hit.score, 6), "relevant": relevant, "code": hit.code.hex()}  # fmt: skip

    key, name = (held_out.key, held_out.name) if held_out is not None else (None, None)
    return {
        "by": "image" if "image" in query else "text", "text": query.get("text"), "key": key, "name": name,
        "group": group, "code": collection.query_code(**query).hex(), "searched": len(collection),
        "found": [result(hit) for hit in hits],
    }  # fmt: skip


def show_scores(
    console: Console, items: Sequence[EmojiItem], data: PairedDataset, results: dict[str, Any], chance: float, bits: int
) -> None:
    """Print the data, MAP of every method, and how it was measured."""
    from fusehash.datasets.emoji import ATTRIBUTION

    groups = len(data.label_names or ())
    console.print(
        f"{len(items):,} emoji in {groups} groups, each with two views: a picture, and a name with keywords.\n"
        f"Learned without labels: codes of {bits} bits that are close for pictures and words of the same thing.\n"
    )
    console.print(score_table(results, title="MAP@50: how well results of the query's group are ranked"))
    console.print(f"Chance: {chance:.3f}.")
    say(*footnotes(next(iter(results.values())), data), ATTRIBUTION)


def show_answer(console: Console, answer: dict[str, Any], items_by_key: dict[str, EmojiItem]) -> None:
    """Print one query and its results, as pictures if the terminal can show them; other groups in red."""
    from rich.text import Text

    query = f"the words '{answer['text']}'" if answer["by"] == "text" else f"the picture of '{answer['name']}'"
    unseen = "" if answer["key"] is None else f" ({answer['group']}, never seen in training)"
    console.print(f"\nSearching {answer['searched']:,} emoji by {query}{unseen}:", soft_wrap=True, markup=False)
    results = answer["found"]
    if not terminal.can_show(console):
        same = {None: "", True: "yes", False: "no"}
        rows = [(hit["name"], hit["group"], same[hit["relevant"]], hit["distance"]) for hit in results]
        numbered = [(rank, *row) for rank, row in enumerate(rows, start=1)]
        terminal.print_table(("", "result", "group", "same group", "bits away"), numbered, console)
        return
    side = terminal.fitting_side(console.width, len(results))
    if answer["by"] == "image":
        console.print(*terminal.half_blocks(items_by_key[answer["key"]].image, side), sep="\n")
    styles = ["red" if hit["relevant"] is False else "" for hit in results]
    captions = [
        Text(f"{h['name']}\n{h['distance']} bits away", style) for h, style in zip(results, styles, strict=True)
    ]
    console.print(terminal.row_of_pictures([items_by_key[hit["key"]].image for hit in results], captions, side))


def show_end(out: Path | None, stats: dict[str, Any], seconds: dict[str, float]) -> None:
    """Print how long it took, and what to do next."""
    parts = ", ".join(f"{name} {spent:.1f}" for name, spent in seconds.items() if name != "total")
    kept = (
        f'Saved in {out}. Next: fusehash search {out} "words to look for", or fusehash serve {out}'
        if out
        else "Keep the collection: fusehash demo --out emoji.collection. Your own pictures: fusehash index --help"
    )
    size = f"The collection holds {stats['items']:,} items in {stats['bytes'] / 1e6:.1f} MB."
    say(f"\nThis took {seconds['total']:.1f} s ({parts}).", f"{size} {kept}")


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    """The folder to build in: `out`, or a temporary one."""
    if out is None:
        with TemporaryDirectory(prefix="fusehash-demo-") as folder:
            yield Path(folder) / "emoji.collection"
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"The demo needs a new folder. There is something at {out} already.")
    inputs.check_folder(out, "A collection")
    yield out


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - began, 2)


def _can_serve() -> bool:
    return all(is_installed(package.partition(".")[0]) for package in PACKAGES)


def _wants_page(serve: bool | None) -> bool:
    if serve is not None:
        return serve
    if not (sys.stdin.isatty() and sys.stdout.isatty() and _can_serve()):
        return False
    try:
        return typer.confirm("Search it on a page in your browser?", default=True)
    except typer.Abort:
        return False
