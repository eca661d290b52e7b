"""`fusehash search`: in a collection, a retriever, a folder of codes, an index, or a file of codes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import hits, inputs
from fusehash.commands.locations import FolderKind, Location, kind_of, locate
from fusehash.commands.retrievers import VectorQuery, search_codes, search_retriever
from fusehash.commands.terminal import print_json, print_table, say
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.search import HammingIndex

ENGINES = "scan, numpy, multi-index, auto, torch, faiss-ivf, faiss-hnsw"

EXAMPLE = """Example: fusehash search my.collection "kids playing football" -k 5

By image: fusehash search my.collection --image query.jpg --json

Together: fusehash search my.collection "at night -people" --image query.jpg --unlike 17

What quantize wrote, or a retriever: fusehash search codes queries.npy --view text

Codes: fusehash search codes.db query-codes.npy -k 5 --json

Two stages: fusehash search codes.db projections.npy --rescore vectors.npy --candidates 200"""


def search(
    database: Annotated[
        Location,
        typer.Argument(
            metavar="DATABASE",
            help="The folder of a collection, of a retriever or of quantize, an index (a file or the address of a "
            "server), or a .npy file of codes (ids are rows).",
            parser=locate,
        ),
    ],
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="A text; or a .npy file: vectors for a retriever or a folder of quantize, and query codes, or floats, "
            "one per bit, for an index or codes.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="Results per query.", min=1)] = 10,
    image: hits.QueryImage = None,
    like: hits.Like = None,
    unlike: hits.Unlike = None,
    label: hits.QueryLabel = None,
    offset: hits.Offset = 0,
    min_confidence: hits.MinConfidence = 0.0,
    rerank: hits.Rerank = True,
    view: Annotated[
        str | None, typer.Option(help="Retrievers, folders of quantize: the view of the query, if it is not clear.")
    ] = None,
    items: Annotated[
        str | None, typer.Option(help="Folders of quantize: the view to search; default: the other one.")
    ] = None,
    radius: Annotated[float | None, typer.Option(help="Codes: all within this distance, instead of -k.")] = None,
    allowed: Annotated[
        Path | None, typer.Option(help="Codes, retrievers: a .npy file of the ids that may be found.")
    ] = None,
    rescore: Annotated[
        Path | None, typer.Option(help="Codes: a .npy file of the vectors of the queries, to order candidates by.")
    ] = None,
    candidates: Annotated[
        int | None,
        typer.Option(
            help="With --rescore, or for a retriever with vectors: order so many by their vectors. "
            "Default with --rescore: 10 k, at least 100.",
            min=1,
        ),
    ] = None,
    engine: Annotated[str | None, typer.Option(help=f"One of {ENGINES}.", show_default="scan")] = None,
    threads: Annotated[int | None, typer.Option(help="Codes: threads; all cores by default.", min=1)] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Collections: draw the results, too.")] = False,
    as_json: inputs.Json = False,
) -> None:
    """Find items by a text, images, vectors, other items or all of them; or the nearest codes of codes.

    A text for a collection may have "phrases", -exclusions, label:NAME, before:2020, after:2019-06 and OR.
    """
    kind = kind_of(database.path) if database.is_folder else None
    if kind is FolderKind.collection:
        inputs.refuse(radius=radius, allowed=allowed, threads=threads, rescore=rescore, candidates=candidates)
        inputs.refuse("a retriever or codes", view=view, items=items)
        asked = {"text": query, "image": image, "like": like, "unlike": unlike, "label": label}
        bounds = {"k": k, "offset": offset, "min_confidence": min_confidence, "rerank": rerank}
        hits.search(database.path, as_json, engine, pictures=pictures, **asked, **bounds)
        return
    refused = {"like": like, "unlike": unlike, "label": label}
    inputs.refuse("a collection", **refused, offset=offset or None, pictures=pictures or None)
    chosen = None if allowed is None else inputs.load_npy(allowed)
    options: dict[str, Any] = {"engine": engine or "scan", "threads": threads}
    if kind is not None:
        inputs.refuse(radius=radius, rescore=rescore)
        question = VectorQuery(query, list(image or ()), view)
        if kind is FolderKind.retriever:
            inputs.refuse("a folder of quantize", items=items)
            ids, scores = search_retriever(database.path, question, k, candidates, chosen, **options)
        else:
            inputs.refuse("a retriever or an index with vectors", candidates=candidates)
            ids, scores = search_codes(database.path, question, k, items, chosen, **options)
        _show_results(_offsets(ids), scores, ids, as_json, "score")
        return
    inputs.refuse("a collection or a retriever", image=image)
    inputs.refuse("a retriever or a folder of quantize", view=view, items=items)
    _search_index(database, query, k, chosen, radius, rescore, candidates, as_json, **options)


def _search_index(
    database: Location, query: str | None, k: int, allowed: Any, radius: float | None, rescore: Path | None,
    candidates: int | None, as_json: bool, **options: Any,
) -> None:  # fmt: skip
    """`search` in an index or in a file of codes."""
    if not database.exists():
        raise DataError(f"There is no collection, index or file of codes at {database}.")
    if query is None:
        raise typer.BadParameter("give a .npy file of query codes.", param_hint="'QUERY'")
    with _database(database, **options) as index:
        if not Path(query).exists():
            raise DataError(f"Codes are searched by a .npy file of query codes. There is no file {query!r}.")
        codes = inputs.load_npy(Path(query))
        if radius is not None and (rescore or candidates):
            raise DataError("--rescore and --candidates order the results of -k. Got --radius, too.")
        if candidates and not rescore:
            raise DataError("--candidates are ordered by vectors: --rescore FILE names those of the queries. Got none.")
        if radius is None:
            vectors = None if rescore is None else inputs.load_npy(rescore)
            distances, ids = index.search(codes, k, allowed=allowed, rescore=vectors, candidates=candidates)
            offsets = _offsets(ids)
        else:
            offsets, distances, ids = index.range_search(
                codes, int(radius) if radius.is_integer() else radius, allowed=allowed
            )
    _show_results(offsets, distances, ids, as_json, "distance")


def _database(database: Location, engine: str, threads: int | None) -> HammingIndex:
    from fusehash.bits import check_codes
    from fusehash.search import HammingIndex

    if database.is_server or database.path.suffix != ".npy":
        return database.open(engine=engine, threads=threads)
    codes = check_codes(inputs.load_npy(database.path), what=f"Codes in {database}")
    index = HammingIndex(codes.shape[1] * 8, engine=engine, threads=threads)
    index.add(codes)
    return index


def _offsets(ids: Any) -> Any:
    """Where the results of each query begin, if all queries have equally many."""
    import numpy as np

    return np.arange(len(ids) + 1) * ids.shape[1]


def _show_results(offsets: Any, values: Any, ids: Any, as_json: bool, what: str) -> None:
    """Print ids and what they are ordered by: a distance or a score."""
    ids, values = ids.ravel(), values.ravel()
    parts = [slice(start, stop) for start, stop in pairwise(offsets)]
    results = [(ids[part].tolist(), values[part].tolist()) for part in parts]
    if as_json:
        print_json([{"query": q, "ids": near, f"{what}s": row} for q, (near, row) in enumerate(results)])
        return
    rows = [
        (q, rank, id, round(value, 4))
        for q, result in enumerate(results)
        for rank, (id, value) in enumerate(zip(*result, strict=True), start=1)
    ]
    if not rows:
        say("Nothing was found.")
        return
    print_table(("query", "rank", "id", what), rows)
