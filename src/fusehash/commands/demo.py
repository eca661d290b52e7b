"""`fusehash demo`: learn codes of pictures and words from real data, see how good they are, and search with them."""

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

from fusehash.commands import demo_output, inputs
from fusehash.commands.evaluate import CONTROLS, run_all
from fusehash.commands.terminal import print_json, progress, stdout
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.collection import Collection, Hit
    from fusehash.datasets import PairedDataset
    from fusehash.datasets.emoji import EmojiItem
    from fusehash.datasets.splits import Split

EXAMPLE = """Example: fusehash demo

Keep what it builds: fusehash demo --out emoji.collection --serve"""

SEEDS = (0, 1)
TOP = 5
# The pictures have 72 x 72 pixels: a larger working size takes longer and shows nothing more.
IMAGE_PARAMS = {"side": 72}
# The first held-out item of one group asks by its words, that of another by its picture; then words of nobody's.
ASKED_BY_TEXT, ASKED_BY_IMAGE, FREE_WORDS = "Animals & Nature", "Food & Drink", "driving a fast car"


def demo(
    bits: inputs.Bits = 64,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep the collection in this new folder.", show_default=False)
    ] = None,
    serve: Annotated[
        bool | None,
        typer.Option("--serve/--no-serve", help="Show the page at the end.  \\[default: ask, on a terminal]"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 8000,
    as_json: inputs.Json = False,
) -> None:
    """Learn from the emoji set, print MAP on unseen concepts beside controls, and answer three queries."""
    if as_json and serve:
        raise typer.BadParameter("cannot go with --json.", param_hint="'--serve'")
    if serve and not _can_serve():
        raise DataError("Serving needs FastAPI and uvicorn; pip install 'fusehash[serve]' brings them.")
    methods = ("fusehash", *CONTROLS)
    models = {name: inputs.make_hasher(name, bits=bits, seed=None, params={}) for name in methods}
    console, clock = stdout(), _Clock()
    with _place(out) as place:
        items, split, data = clock.of("features", learn_features)
        results = clock.of("evaluation", lambda: run_all(models, data, k=50, ties="expected", seeds=SEEDS))
        chance = chance_map(data)
        if not as_json:
            demo_output.tell_scores(console, items, data, results, chance, bits)
        with build(place, items, split, bits, clock) as collection:
            answers = clock.of("queries", lambda: ask_all(collection, items, split))
            clock.of("adding", lambda: add_queries(collection, items, split))
            stats = collection.stats()
        clock.stop()
        if as_json:
            from fusehash.datasets.emoji import ATTRIBUTION

            print_json(
                {
                    "data": {
                        "items": len(items),
                        "concepts": len({item.concept for item in items}),
                        "groups": list(data.label_names or ()),
                        "split": data.split,
                        "attribution": ATTRIBUTION,
                    },
                    "results": {name: result.to_dict() for name, result in results.items()},
                    "chance": chance,
                    "queries": answers,
                    "collection": {**stats, "path": str(out) if out else None},
                    "seconds": clock.seconds,
                }
            )
            return
        for answer in answers:
            demo_output.show(console, answer, {item.key: item for item in items})
        demo_output.tell_end(console, out, stats, clock.seconds)
        if _wants_page(serve):
            from fusehash.commands import serve as serving

            serving.serve(place, port=port)


def learn_features() -> tuple[list[EmojiItem], Split, PairedDataset]:
    """The emoji, a split by concepts, and features by encoders that have seen training concepts only."""
    from fusehash import encoders
    from fusehash.datasets.emoji import load_emoji, paired, split_concepts

    with progress("emoji") as report:
        report(0, 1, "reading")
        items = load_emoji()
        split = split_concepts(items)
        contents: dict[str, list[Any]] = {
            "image": [item.image for item in items],
            "text": [item.text for item in items],
        }
        makers = {"image": encoders.make("classical", modality="image", **IMAGE_PARAMS), "text": encoders.make("tfidf")}
        views = {}
        for view, encoder in makers.items():
            encoder.fit([contents[view][row] for row in split.train], progress=report)
            views[view] = encoder.transform(contents[view], progress=report)
    return items, split, paired(items, views, split)


def chance_map(data: PairedDataset) -> float:
    """MAP@50 of codes that are all the same: what an arbitrary order reaches."""
    import numpy as np

    from fusehash.evaluation import mean_average_precision

    query, database = (np.zeros((rows.size, 1), dtype=np.uint8) for rows in (data.query, data.database))
    labels = data.labels[data.query], data.labels[data.database]
    return float(mean_average_precision(query, database, labels, k=50, ties="expected"))


@contextmanager
def build(
    place: Path, items: Sequence[EmojiItem], split: Split, bits: int, clock: _Clock
) -> Iterator[Collection]:
    """A collection of all items but the queries, which it has never seen. It goes again where something goes wrong."""
    from fusehash.collection import Collection

    collection = Collection.create(place, n_bits=bits, image_params=IMAGE_PARAMS)
    try:
        with collection:
            with progress("collection") as report:
                clock.of("collection", lambda: collection.build(_new(items, split.database), progress=report))
            yield collection
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise


def add_queries(collection: Collection, items: Sequence[EmojiItem], split: Split) -> None:
    """The queries too, once they have been asked: whoever looks for one on the page should find it."""
    with progress("adding") as report:
        collection.add(_new(items, split.query), progress=report)


def _new(items: Sequence[EmojiItem], rows: Any) -> list[Any]:
    from fusehash.collection import NewItem

    chosen = [items[row] for row in rows]
    return [NewItem(item.key, item.image, item.text, item.labels) for item in chosen]


def ask_all(collection: Collection, items: Sequence[EmojiItem], split: Split) -> list[dict[str, Any]]:
    """One query by the words and one by the picture of held-out items, and one by other words."""
    held_out = [items[row] for row in split.query]
    by_text, by_image = (
        next((item for item in held_out if item.labels[0] == group), held_out[0])
        for group in (ASKED_BY_TEXT, ASKED_BY_IMAGE)
    )
    known = {item.key: item for item in items}
    return [
        _ask(collection, known, by_text, text=by_text.text),
        _ask(collection, known, by_image, image=by_image.image),
        _ask(collection, known, None, text=FREE_WORDS),
    ]


def _ask(collection: Collection, known: dict[str, EmojiItem], asking: EmojiItem | None, **query: Any) -> dict[str, Any]:
    """One query and what it found, as JSON can hold it; without an asking item nobody knows what is relevant."""
    hits = collection.search(**query, k=TOP)
    group = asking.labels[0] if asking is not None else None

    def told(hit: Hit) -> dict[str, Any]:
        item = known[hit.item.key]
        return {
            "id": hit.id,
            "key": item.key,
            "name": item.name,
            "group": item.labels[0],
            "distance": hit.distance,
            "score": round(hit.score, 6),
            "relevant": None if group is None else item.labels[0] == group,
            "code": hit.code.hex(),
        }

    return {
        "by": "image" if "image" in query else "text",
        "text": query.get("text"),
        "key": asking.key if asking is not None else None,
        "name": asking.name if asking is not None else None,
        "group": group,
        "code": collection.query_code(**query).hex(),
        "searched": len(collection),
        "found": [told(hit) for hit in hits],
    }


# -- where, how long, and the page -------------------------------------------------------------------------------


@contextmanager
def _place(out: Path | None) -> Iterator[Path]:
    """The folder to build in: a new one, or a temporary one."""
    if out is None:
        with TemporaryDirectory(prefix="fusehash-demo-") as folder:
            yield Path(folder) / "emoji.collection"
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(f"The demo needs a new folder. There is something at {out} already.")
    inputs.check_place(out, "A collection")
    yield out


class _Clock:
    """Seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.perf_counter()

    def of(self, name: str, work: Any) -> Any:
        began = time.perf_counter()
        result = work()
        self.seconds[name] = round(time.perf_counter() - began, 2)
        return result

    def stop(self) -> None:
        self.seconds["total"] = round(time.perf_counter() - self._began, 2)


def _can_serve() -> bool:
    import importlib.util

    return all(importlib.util.find_spec(name) is not None for name in ("fastapi", "uvicorn"))


def _wants_page(serve: bool | None) -> bool:
    if serve is not None:
        return serve
    if not (sys.stdin.isatty() and sys.stdout.isatty() and _can_serve()):
        return False
    try:
        return typer.confirm("Search it on a page in your browser?", default=True)
    except typer.Abort:
        return False
