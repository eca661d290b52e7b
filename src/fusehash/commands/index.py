"""`fusehash index` and `fusehash search`: indexes and code files from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands.terminal import FusehashGroup, print_json, stdout
from fusehash.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fusehash.search import HammingIndex

ENGINES = "scan, numpy, multi-index, auto, faiss-ivf, faiss-hnsw"

index_app = typer.Typer(
    cls=FusehashGroup,
    no_args_is_help=True,
    help="Make an index of codes in a file, add to it, remove from it, look at it.",
)

SEARCH_EXAMPLE = "Example: fusehash search codes.db query-codes.npy -k 5 --json"

IndexPath = Annotated[Path, typer.Argument(metavar="INDEX", help="The index file.")]
CodesPath = Annotated[Path, typer.Argument(metavar="CODES", help="A .npy file: a uint8 matrix, one packed code a row.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]


@index_app.command(epilog="Example: fusehash index create codes.db --bits 64")
def create(
    path: IndexPath,
    bits: Annotated[int, typer.Option(help="Width of the codes, a multiple of 8.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Make an empty index."""
    if path.exists():
        raise DataError(f"There is a file at {path} already.")
    with _open(path, bits) as index:
        _show(index.stats(), as_json)


@index_app.command(epilog="Example: fusehash index add codes.db model-codes.npy --ids item-ids.npy")
def add(
    path: IndexPath,
    codes: CodesPath,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of integers, one a code; else ids count on.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add codes to an index, all or none. An index that is not there yet is made."""
    from fusehash.bits import check_codes
    from fusehash.search import HammingIndex

    new, new_ids = check_codes(_load(codes), what=f"Codes in {codes}"), None if ids is None else _load(ids)
    n_bits = None
    if not path.exists():
        n_bits = new.shape[1] * 8
        HammingIndex(n_bits).add(new, new_ids)  # says what is wrong before a file is made
    with _open(path, n_bits) as index:
        given = index.add(new, new_ids)
        first, last = (int(given.min()), int(given.max())) if len(given) else (None, None)
        _show({"added": len(given), "lowest_id": first, "highest_id": last, "count": len(index)}, as_json)


@index_app.command(
    epilog="Example: fusehash index remove codes.db 17 42     or: fusehash index remove codes.db --ids gone.npy"
)
def remove(
    path: IndexPath,
    numbers: Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="Ids to remove.")] = None,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids to remove.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove codes by id, all or none."""
    if bool(numbers) == (ids is not None):
        raise typer.BadParameter("give ids, or --ids with a file of them")
    import numpy as np

    with _open(path) as index:
        removed = index.remove(np.array(numbers) if ids is None else _load(ids))
        _show({"removed": removed, "count": len(index)}, as_json)


@index_app.command(epilog="Example: fusehash index compact codes.db")
def compact(path: IndexPath, as_json: AsJson = False) -> None:
    """Merge small blocks and give space that removals have left back to the disk."""
    with _open(path) as index:
        index.compact()
        _show(index.stats(), as_json)


@index_app.command(epilog="Example: fusehash index stats codes.db --json")
def stats(path: IndexPath, as_json: AsJson = False) -> None:
    """Number of codes, width, size in memory and on disk. Reads and checks the whole file."""
    with _open(path) as index:
        _show(index.stats(), as_json)


def search(
    database: Annotated[
        Path, typer.Argument(metavar="DATABASE", help="An index, or a .npy file of codes (ids are rows).")
    ],
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help="A .npy file of query codes.")],
    k: Annotated[int, typer.Option("-k", "--k", help="Results a query.", min=1)] = 10,
    radius: Annotated[int | None, typer.Option(help="All codes at most so far away, instead of -k.", min=0)] = None,
    allowed: Annotated[Path | None, typer.Option(help="A .npy file of the ids that may be found.")] = None,
    engine: Annotated[str, typer.Option(help=f"One of {ENGINES}.")] = "scan",
    threads: Annotated[int | None, typer.Option(help="Threads; all cores by default.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Find the nearest codes of every query, in order of (distance, id)."""
    import numpy as np

    asked, chosen = _load(queries), None if allowed is None else _load(allowed)
    with _database(database, engine, threads) as index:
        if radius is None:
            distances, ids = index.search(asked, k, allowed=chosen)
            offsets = np.arange(len(asked) + 1) * ids.shape[1]
        else:
            offsets, distances, ids = index.range_search(asked, radius, allowed=chosen)
    _show_results(offsets, distances.ravel(), ids.ravel(), as_json)


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


def _show(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    from rich.table import Table

    table = Table(show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    stdout().print(table)


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
