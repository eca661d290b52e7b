"""`fusehash index` and `fusehash search`: collections, indexes and code files from the command line.

A path that is a folder is a collection, and collection.py does the work; a file is an index of codes, and so is what
lies at the address of a server.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import collection, generations, inputs
from fusehash.commands.terminal import FusehashGroup, print_json, stdout
from fusehash.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusehash.search import HammingIndex

ENGINES = "scan, numpy, multi-index, auto, torch, faiss-ivf, faiss-hnsw"


class IndexGroup(FusehashGroup):
    """`fusehash index PHOTOS` is short for `fusehash index build PHOTOS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["build", *args]
        return super().parse_args(ctx, args)


index_app = typer.Typer(
    cls=IndexGroup,
    no_args_is_help=True,
    help="Make a searchable collection of a folder of pictures and texts, or an index of codes in a file; change it, "
    "look at it.",
    epilog="Example: fusehash index photos --captions captions.csv --out my.collection",
)
index_app.command("build", epilog=collection.BUILD_EXAMPLE)(collection.build)
index_app.command("update", epilog=collection.UPDATE_EXAMPLE)(collection.update)
index_app.command("reindex", epilog=generations.REINDEX_EXAMPLE)(generations.reindex)
index_app.command("switch", epilog=generations.SWITCH_EXAMPLE)(generations.switch)
index_app.command("generations", epilog=generations.LIST_EXAMPLE)(generations.generations)

SEARCH_EXAMPLE = """Example: fusehash search my.collection "kids playing football" -k 5

By image: fusehash search my.collection --image query.jpg --json

Codes: fusehash search codes.db query-codes.npy -k 5 --json"""


class ServerAddress(str):
    """The address of an index on a server, in the place of a path; shown without its password."""

    suffix = ""

    def __str__(self) -> str:
        from fusehash.search.servers.address import without_secrets

        return without_secrets(self)

    def __format__(self, how: str) -> str:
        return format(str(self), how)

    def is_dir(self) -> bool:
        return False

    def exists(self) -> bool:
        from fusehash.search.servers.address import exists

        return exists(self)


def place(text: str) -> Any:
    """A path, or the address of a server."""
    from fusehash.search.servers.address import SCHEMES, is_address, is_other_address, scheme_of

    if is_other_address(text):  # what follows may hold a password
        raise typer.BadParameter(f"an address must begin with one of {', '.join(SCHEMES)}, not with {scheme_of(text)}")
    return ServerAddress(text) if is_address(text) else Path(text)


IndexPath = Annotated[
    Path, typer.Argument(metavar="INDEX", help="The index file, or the address of a server.", parser=place)
]
EitherPath = Annotated[
    Path,
    typer.Argument(
        metavar="INDEX", help="The index file, the address of a server, or the folder of a collection.", parser=place
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@index_app.command(epilog="Example: fusehash index create codes.db --bits 64")
def create(
    path: IndexPath,
    bits: Annotated[int, typer.Option(help="Width of the codes, a multiple of 8.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Make an empty index."""
    if path.exists():
        raise DataError(f"There is {'an index' if isinstance(path, ServerAddress) else 'a file'} at {path} already.")
    _check_place(path)
    with _open(path, bits) as index:
        collection.show_facts(index.stats(), as_json)


@index_app.command(
    epilog="""Example: fusehash index add codes.db model-codes.npy --ids item-ids.npy

A collection: fusehash index add my.collection new-photos --captions new.csv

One picture: fusehash index add my.collection cat.jpg --text "a cat on a wall" """
)
def add(
    path: EitherPath,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="For an index: a .npy file, a uint8 matrix, one packed code a row. For a collection: a folder of "
            "pictures, a picture, or a .csv or .jsonl file.",
        ),
    ],
    ids: Annotated[Path | None, typer.Option(help="A .npy file of integers, one a code; else ids count on.")] = None,
    captions: collection.Captions = None,
    text: collection.Text = None,
    label: collection.Labels = None,
    as_json: AsJson = False,
) -> None:
    """Add codes to an index, or items to a collection, all or none. An index that is not there yet is made."""
    if path.is_dir():
        collection.refuse(ids=ids)
        collection.take_in("add", path, source, captions, text, label, as_json)
        return
    if _is_for_collections(source):
        way = "that is a file" if path.exists() else f"fusehash index {source} --out {path} makes one"
        raise DataError(f"There is no collection at {path}; {way}.")
    collection.refuse("a collection", captions=captions, text=text, label=label)
    from fusehash.bits import check_codes
    from fusehash.search import HammingIndex

    new, new_ids = check_codes(_load(source), what=f"Codes in {source}"), None if ids is None else _load(ids)
    n_bits = None
    if not path.exists():
        n_bits = new.shape[1] * 8
        _check_place(path)
        HammingIndex(n_bits).add(new, new_ids)  # says what is wrong before a file is made
    with _open(path, n_bits) as index:
        given = index.add(new, new_ids)
        first, last = (int(given.min()), int(given.max())) if len(given) else (None, None)
        collection.show_facts(
            {"added": len(given), "lowest_id": first, "highest_id": last, "count": len(index)}, as_json
        )


@index_app.command(
    epilog="Example: fusehash index remove codes.db 17 42     or: fusehash index remove codes.db --ids gone.npy"
)
def remove(
    path: EitherPath,
    numbers: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Ids to remove.")] = None,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids to remove.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove codes, or items of a collection, by id, all or none."""
    if bool(numbers) == (ids is not None):
        raise typer.BadParameter("give ids, or --ids with a file of them")
    import numpy as np

    if path.is_dir():
        collection.remove(path, numbers if ids is None else _load(ids).ravel().tolist(), as_json)
        return
    with _open(path) as index:
        removed = index.remove(np.array(numbers) if ids is None else _load(ids))
        collection.show_facts({"removed": removed, "count": len(index)}, as_json)


@index_app.command(epilog="Example: fusehash index compact codes.db")
def compact(path: IndexPath, as_json: AsJson = False) -> None:
    """Merge small blocks and give space that removals have left back to the disk."""
    with _open(path) as index:
        index.compact()
        collection.show_facts(index.stats(), as_json)


@index_app.command(epilog="Example: fusehash index stats codes.db --json")
def stats(path: EitherPath, as_json: AsJson = False) -> None:
    """What an index or a collection holds, and its size. Reads and checks all codes."""
    if path.is_dir():
        collection.stats(path, as_json)
        return
    with _open(path) as index:
        collection.show_facts(index.stats(), as_json)


def search(
    database: Annotated[
        Path,
        typer.Argument(
            metavar="DATABASE",
            help="A collection, an index (a file or the address of a server), or a .npy file of codes (ids are rows).",
            parser=place,
        ),
    ],
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="For a collection: a text. Else: a .npy file of query codes."),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Results a query.", min=1)] = 10,
    image: collection.QueryImage = None,
    like: collection.Like = None,
    label: collection.QueryLabel = None,
    rerank: collection.Rerank = True,
    radius: Annotated[
        int | None, typer.Option(help="Codes: all that are at most so far away, instead of -k.", min=0)
    ] = None,
    allowed: Annotated[Path | None, typer.Option(help="Codes: a .npy file of the ids that may be found.")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help=f"One of {ENGINES}; for a collection also the address of a server.  \\[default: scan]"),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Codes: threads; all cores by default.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Find the items of a collection that fit a text, an image or another item; or the nearest codes of codes."""
    if database.is_dir():
        collection.refuse(radius=radius, allowed=allowed, threads=threads)
        collection.search(database, query, image, like, label, k, rerank, as_json, engine)
        return
    if not database.exists():
        raise DataError(f"There is no collection, index or file of codes at {database}.")
    collection.refuse("a collection", image=image, like=like, label=label)
    if query is None:
        raise typer.BadParameter("a .npy file of query codes is needed.", param_hint="'QUERY'")
    import numpy as np

    with _database(database, engine or "scan", threads) as index:
        if not Path(query).exists():
            raise DataError(f"Codes are searched by a .npy file of query codes. There is no file {query!r}.")
        asked, chosen = _load(Path(query)), None if allowed is None else _load(allowed)
        if radius is None:
            distances, ids = index.search(asked, k, allowed=chosen)
            offsets = np.arange(len(asked) + 1) * ids.shape[1]
        else:
            offsets, distances, ids = index.range_search(asked, radius, allowed=chosen)
    _show_results(offsets, distances.ravel(), ids.ravel(), as_json)


def _is_for_collections(source: Path) -> bool:
    from fusehash.datasets.folders import IMAGE_SUFFIXES, TABLE_SUFFIXES

    return source.is_dir() or source.suffix.lower() in IMAGE_SUFFIXES | TABLE_SUFFIXES


def _check_place(path: Path) -> None:
    if not isinstance(path, ServerAddress):
        inputs.check_place(path, "An index")


def _open(path: Path, n_bits: int | None = None, **options: Any) -> HammingIndex:
    from fusehash.search import HammingIndex

    return HammingIndex.open(path, n_bits, warm=False, **options)


def _database(path: Path, engine: str, threads: int | None) -> HammingIndex:
    from fusehash.bits import check_codes
    from fusehash.search import HammingIndex

    if path.suffix != ".npy":
        return _open(path, engine=engine, threads=threads)
    codes = check_codes(_load(path), what=f"Codes in {path}")
    index = HammingIndex(codes.shape[1] * 8, engine=engine, threads=threads)
    index.add(codes)
    return index


def _load(path: Path) -> NDArray[Any]:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a .npy file of numbers"
        raise DataError(f"{path} cannot be read: {reason}.") from error
    if not isinstance(loaded, np.ndarray):
        raise DataError(f"{path} cannot be read: it is not a .npy file of numbers.")
    return loaded


def _show_results(offsets: Any, distances: Any, ids: Any, as_json: bool) -> None:
    if as_json:
        parts = [slice(offsets[q], offsets[q + 1]) for q in range(len(offsets) - 1)]
        results = ({"ids": ids[own].tolist(), "distances": distances[own].tolist()} for own in parts)
        print_json([{"query": q, **result} for q, result in enumerate(results)])
        return
    from rich.table import Table

    table = Table("query", "rank", "id", "distance")
    for q in range(len(offsets) - 1):
        for rank, i in enumerate(range(offsets[q], offsets[q + 1]), start=1):
            table.add_row(str(q), str(rank), str(ids[i]), str(distances[i]))
    stdout().print(table)
