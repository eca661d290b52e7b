"""`fusehash inspect`: what two files of embeddings are like, before anything is fitted; or what a folder or file is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusehash.commands import inputs
from fusehash.commands.contents import contents_of
from fusehash.commands.terminal import print_json, print_table, progress, say, show_facts

if TYPE_CHECKING:
    from fusehash.evaluation import EmbeddingInspection

EXAMPLE = """Example: fusehash inspect image.npy text.npy --plot bits.svg

Next: fusehash quantize image.npy text.npy --out codes

What something is: fusehash inspect codes"""


def inspect(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES...",
            help="Two files, FILE or NAME=FILE (.npy, .zarr, .parquet), of one width; or one folder or file.",
        ),
    ],
    bits: Annotated[str, typer.Option("--bits", metavar="BITS", help="Lengths to try.")] = "64,128,256,512,1024",
    plot: Annotated[Path | None, typer.Option(help="Draw recall over bits (.svg, .png, .pdf).")] = None,
    spectrum: Annotated[Path | None, typer.Option(help="Draw the spectra of both views.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the rows that are looked at.")] = 0,
    as_json: inputs.Json = False,
) -> None:
    """Say what a folder or a file is; or look at embeddings of two views: gap, spectrum, hubs, what bits would buy.

    A path may be a collection, a retriever, a folder of quantize, an index, a model, an encoder or a .npy file. Nothing
    is fitted or changed.
    """
    if len(files) == 1 and "=" not in files[0]:
        inputs.refuse("two files of embeddings", plot=plot, spectrum=spectrum)
        contents = contents_of(Path(files[0]))
        show_facts(contents.facts, as_json)
        if not as_json and contents.next:
            say(f"Next: {contents.next}")
        return
    from fusehash.parameters import MAX_BITS

    lengths = [int(text) for text in bits.split(",") if text.strip().isdecimal()]
    if len(lengths) != len(bits.split(",")) or not all(
        0 < length <= MAX_BITS and length % 8 == 0 for length in lengths
    ):
        raise typer.BadParameter(f"{bits!r} is not a list of multiples of 8 such as 64,256.", param_hint="'--bits'")
    named = inputs.view_files(files, None, False)
    if named is None or len(named) != 2:
        raise typer.BadParameter("give two files, such as image.npy text.npy.", param_hint="'FILES...'")
    drawings = [path for path in (plot, spectrum) if path is not None]
    for path in drawings:
        inputs.check_target(path)
    if drawings:
        from fusehash.plots.drawing import check_drawing

        for path in drawings:
            check_drawing(path)
    from fusehash.evaluation import inspect_embeddings

    with progress("inspect") as report:
        report(0, 0, "reading")
        views = inputs.open_views(named)
        report(0, 0, "comparing")
        found = inspect_embeddings(views, lengths=sorted(set(lengths)), random_state=seed)
    if drawings:
        from fusehash import plots

        if plot is not None:
            plots.recall_over_bits(found).save(plot)
        if spectrum is not None:
            plots.spectra(found).save(spectrum)
    if as_json:
        print_json(found.row())
        return
    print_table(*_table(found))
    say(found.summary, *(f"Wrote {path}." for path in drawings))
    say(f"Next: fusehash quantize {' '.join(files)} --out codes")


def _table(found: EmbeddingInspection) -> tuple[list[str], list[list[str]]]:
    """Kinds of codes and lengths down, directions across."""
    cells: dict[tuple[int, str], dict[str, str]] = {}
    for entry in found.recalls:
        direction = f"{entry.query_view} -> {entry.item_view}"
        cells.setdefault((entry.n_bits, entry.codes), {})[direction] = f"{entry.recall:.3f} {entry.rescored_recall:.3f}"
    rows = [[codes, f"{n_bits:,}", *row.values()] for (n_bits, codes), row in cells.items()]
    first, *_ = cells.values()
    heads = [f"{direction}, recall@{found.k}, {found.candidates} rescored" for direction in first]
    return ["codes", "bits", *heads], rows
