"""`fusehash index`: collections and indexes of codes from the command line.

Several commands work on both kinds of database. A folder is a collection, and commands/collection.py does the work. A
file or the address of a server is an index of codes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import collection, inputs
from fusehash.commands.locations import Location, kept_by, locate
from fusehash.commands.terminal import FusehashGroup, say, show_facts
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.search import HammingIndex


class IndexGroup(FusehashGroup):
    """`fusehash index PHOTOS` is short for `fusehash index build PHOTOS`."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["build", *args]
        return super().parse_args(ctx, args)


index_app = typer.Typer(
    cls=IndexGroup,
    no_args_is_help=True,
    help="Build, change and inspect a collection of pictures and texts, or an index of codes. `index PHOTOS` is short "
    "for `index build PHOTOS`, with its options: --captions, --out, --bits, --image-encoder, --text-encoder, --seed.",
    epilog="Example: fusehash index photos --captions captions.csv --out my.collection",
)
index_app.command("build", epilog=collection.BUILD_EXAMPLE)(collection.build)
index_app.command("update", epilog=collection.UPDATE_EXAMPLE)(collection.update)
index_app.command("reindex", epilog=collection.REINDEX_EXAMPLE)(collection.reindex)
index_app.command("switch", epilog=collection.SWITCH_EXAMPLE)(collection.switch)
index_app.command("generations", epilog=collection.LIST_EXAMPLE)(collection.generations)

IndexPath = Annotated[
    Location, typer.Argument(metavar="INDEX", help="The index file, or the address of a server.", parser=locate)
]
EitherPath = Annotated[
    Location,
    typer.Argument(
        metavar="INDEX", help="The index file, the address of a server, or the folder of a collection.", parser=locate
    ),
]


def _vector_kind(text: str) -> str:
    from fusehash.search.vectors import KINDS

    if text not in KINDS:
        raise typer.BadParameter(f"must be one of {', '.join(KINDS)}. Got {text!r} instead.")
    return text


VectorKind = Annotated[
    str | None,
    typer.Option(
        help="New index: keep a vector per code, as int8, float16 or float32, to rescore with.",
        metavar="KIND",
        parser=_vector_kind,
    ),
]


@index_app.command(epilog="Example: fusehash index create codes.db --bits 256 --vector-kind int8 --dim 512")
def create(
    path: IndexPath,
    bits: Annotated[int, typer.Option(help="Width of the codes, a multiple of 8.")] = 64,
    vector_kind: VectorKind = None,
    dim: Annotated[int | None, typer.Option(help="Numbers per vector.", min=1)] = None,
    factors: Annotated[bool, typer.Option("--factors", help="Keep two numbers per code, see `add`.")] = False,
    as_json: inputs.Json = False,
) -> None:
    """Create an empty index."""
    from fusehash.search import HammingIndex

    if (vector_kind is None) != (dim is None):
        raise DataError("An index with vectors needs both --vector-kind and --dim, the numbers per vector. Got one.")
    options: dict[str, Any] = {"vectors": vector_kind, "dim": dim, "factors": factors}
    if not path.is_server:
        HammingIndex(bits, **options)  # raises before a file is created
    if path.exists():
        raise DataError(f"There is {'an index' if path.is_server else 'a file'} at {path} already.")
    path.check_creatable()
    with path.open(bits, **options) as index:
        show_facts(index.stats(), as_json)
    more = f"{' --vectors rows.npy' if dim else ''}{' --factors factors.npy' if factors else ''}"
    _say_next(f"fusehash index add {path} codes.npy{more}", as_json)


@index_app.command(
    epilog="""Example: fusehash index add codes.db model-codes.npy --ids item-ids.npy

With vectors: fusehash index add codes.db codes/image.npy --vectors image.npy --factors codes/factors/image.npy

A collection: fusehash index add my.collection new-photos --captions new.csv

One picture: fusehash index add my.collection cat.jpg --text "a cat on a wall" """
)
def add(
    path: EitherPath,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Index: a .npy file with a uint8 matrix, one packed code per row. Collection: a folder of pictures, "
            "a picture, or a .csv or .jsonl file.",
        ),
    ],
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids, one per code; default: ids continue.")] = None,
    vectors: Annotated[Path | None, typer.Option(help="Index: a .npy file with one vector per code, to keep.")] = None,
    vector_kind: VectorKind = None,
    factors: Annotated[Path | None, typer.Option(help="Index: a .npy file of two numbers per code, to keep.")] = None,
    captions: collection.Captions = None,
    text: collection.Text = None,
    label: collection.Labels = None,
    as_json: inputs.Json = False,
) -> None:
    """Add codes to an index, or items to a collection, all or none. A missing index is created."""
    if path.is_collection:
        inputs.refuse(ids=ids, vectors=vectors, vector_kind=vector_kind, factors=factors)
        collection.take_in("add", path.path, source, captions, text, label, as_json)
        return
    from fusehash.bits import check_codes
    from fusehash.datasets.folders import IMAGE_SUFFIXES, TABLE_SUFFIXES
    from fusehash.search import HammingIndex

    if source.is_dir() or source.suffix.lower() in IMAGE_SUFFIXES | TABLE_SUFFIXES:
        hint = "that is a file" if path.exists() else f"fusehash index {source} --out {path} creates one"
        raise DataError(f"There is no collection at {path}; {hint}.")
    inputs.refuse("a collection", captions=captions, text=text, label=label)
    new = check_codes(inputs.load_npy(source), what=f"Codes in {source}")
    new_ids = None if ids is None else inputs.load_npy(ids)
    kept, numbers = (None if file is None else inputs.load_npy(file) for file in (vectors, factors))
    n_bits, options = None, _new_index_options(path, kept, vector_kind, numbers)
    if not path.exists():
        n_bits = new.shape[1] * 8
        path.check_creatable()
        if not path.is_server:
            HammingIndex(n_bits, **options).add(new, new_ids, kept, numbers)  # raises before a file is created
    with path.open(n_bits, **options) as index:
        added = index.add(new, new_ids, kept, numbers)
        low, high = (int(added.min()), int(added.max())) if len(added) else (None, None)
        show_facts({"added": len(added), "lowest_id": low, "highest_id": high, "count": len(index)}, as_json)
    queries = "query-codes.npy" if kept is None else "projections.npy --rescore vectors.npy"
    _say_next(f"fusehash search {path} {queries}", as_json)


def _new_index_options(path: Location, vectors: Any, vector_kind: str | None, factors: Any) -> dict[str, Any]:
    """How an index is created for codes with vectors and factors; nothing for one that exists."""
    if path.exists():
        if vector_kind is not None:
            raise DataError(f"--vector-kind is for a new index. There is one at {path} already.")
        return {}
    if vectors is None:
        if vector_kind is not None:
            raise DataError("--vector-kind needs --vectors, a .npy file with one vector per code. Got none.")
        return {"factors": factors is not None}
    width = vectors.shape[1] if vectors.ndim == 2 else 1
    return {"vectors": vector_kind or "int8", "dim": width, "factors": factors is not None}


@index_app.command(
    epilog="Example: fusehash index remove codes.db 17 42; or fusehash index remove codes.db --ids x.npy"
)
def remove(
    path: EitherPath,
    numbers: Annotated[list[int] | None, typer.Argument(metavar="ID...", help="Ids to remove.")] = None,
    ids: Annotated[Path | None, typer.Option(help="A .npy file of ids to remove.")] = None,
    as_json: inputs.Json = False,
) -> None:
    """Remove codes, or items of a collection, by id, all or none."""
    if bool(numbers) == (ids is not None):
        raise typer.BadParameter("give ids, or --ids with a file of them")
    import numpy as np

    unwanted = np.array(numbers) if ids is None else inputs.load_npy(ids)
    if path.is_collection:
        with collection.open_collection(path.path) as opened:
            collection.show_report(opened.remove(unwanted.ravel().tolist()), as_json)
        return
    with _existing(path) as index:
        removed = index.remove(unwanted)
        show_facts({"removed": removed, "count": len(index)}, as_json)


FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="numpy, faiss, usearch, pgvector, milvus, qdrant, elasticsearch, parquet or arrow; "
        "default: by the ending of the file.",
    ),
]


@index_app.command(
    epilog="""Example: fusehash index export codes.db codes.parquet

Others: codes.npz, codes.faiss, codes.usearch, codes.sql, codes.milvus.json, codes.qdrant.jsonl, codes.ndjson"""
)
def export(
    path: IndexPath,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    format: FormatName = None,
    bit_order: Annotated[
        str, typer.Option(help="Which bit of a byte comes first: big (as NumPy and most others) or little.")
    ] = "big",
    as_json: inputs.Json = False,
) -> None:
    """Write the codes and ids of an index, and its vectors and factors, for another library or database."""
    from fusehash.search.exchange import export_codes, format_of, holds_vectors

    name = format_of(target, format)
    inputs.check_target(target)
    with _existing(path) as index:
        count = export_codes(index, target, name, bit_order=bit_order)
        kept = kept_by(index) if holds_vectors(target, name) else {}
    facts = {"exported": count, "format": name, "bit_order": bit_order, "file": str(target)}
    show_facts(facts | kept, as_json)


@index_app.command("import", epilog="Example: fusehash index import codes.db codes.faiss")
def import_(
    path: IndexPath,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The file of another library or database.")],
    format: FormatName = None,
    bit_order: Annotated[str | None, typer.Option(help="big or little; default: what the file says, else big.")] = None,
    vector_kind: VectorKind = None,
    as_json: inputs.Json = False,
) -> None:
    """Add the rows of another library or database to an index, all or none. A missing index is created.

    It then keeps the vectors and factors that the file has.
    """
    from fusehash.search import HammingIndex
    from fusehash.search.exchange import import_codes

    imported = import_codes(source, format, bit_order=bit_order)
    n_bits, options = None, {}
    if vector_kind is not None and path.exists():
        raise DataError(f"--vector-kind is for a new index. There is one at {path} already.")
    if vector_kind is not None and imported.vectors is None:
        raise DataError(f"--vector-kind is for files with vectors. {source} has none.")
    if not path.exists():
        n_bits = imported.n_bits
        path.check_creatable()
        if not path.is_server:
            options = imported.index_options | ({} if vector_kind is None else {"vectors": vector_kind})
            imported.add_to(HammingIndex(n_bits, **options))  # raises before a file is created
    with path.open(n_bits, **options) as index:
        added = imported.add_to(index)
        facts = {"added": len(added), "count": len(index), "n_bits": index.n_bits}
        show_facts(facts | kept_by(index), as_json)
    _say_next(f"fusehash search {path} query-codes.npy", as_json)


def _say_next(command: str, as_json: bool) -> None:
    if not as_json:
        say(f"Next: {command}")


def _existing(path: Location) -> HammingIndex:
    if not path.exists():
        raise DataError(f"There is no index at {path}.")
    return path.open()


@index_app.command(epilog="Example: fusehash index compact codes.db")
def compact(path: IndexPath, as_json: inputs.Json = False) -> None:
    """Merge small blocks and free the disk space of removed codes."""
    with _existing(path) as index:
        index.compact()
        show_facts(index.stats(), as_json)


@index_app.command(epilog="Example: fusehash index stats codes.db --json")
def stats(path: EitherPath, as_json: inputs.Json = False) -> None:
    """Show what an index or a collection holds, and its size. All codes are read and checked."""
    with collection.open_collection(path.path) if path.is_collection else _existing(path) as database:
        show_facts(database.stats(), as_json)
