"""`fusehash encode`: codes of items seen in one view, or fused from several."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, progress, stdout
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

EXAMPLE = """Example: fusehash encode wiki.safetensors wiki.npz --view text --rows query

A plain matrix: fusehash encode wiki.safetensors pictures.npy --view image

Several: fusehash encode wiki.safetensors image=pictures.zarr text=words.parquet --fused --out codes.zarr"""


class RowSet(str, Enum):
    """Which rows of a dataset."""

    train = "train"
    query = "query"
    database = "database"
    all = "all"


def encode(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fusehash fit wrote.")],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="A dataset (file, or name with --data); or files of views, NAME=FILE (.npy, .zarr, .parquet).",
        ),
    ],
    view: Annotated[str | None, typer.Option(help="Encode from this view alone.")] = None,
    fused: Annotated[bool, typer.Option("--fused", help="Encode from all views together.")] = False,
    rows: Annotated[RowSet, typer.Option(help="Which rows of a dataset.")] = RowSet.all,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npy file to write.")] = Path("codes.npy"),
    folder: inputs.Folder = None,
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
    as_json: inputs.Json = False,
) -> None:
    """Write the packed codes (rows, bits / 8) of DATA, block by block."""
    if fused == (view is not None):
        raise typer.BadParameter("give either --view NAME or --fused.", param_hint="'--view' / '--fused'")
    files = inputs.view_files(data)
    unnamed = files is not None and list(files.values()) == data and len(data) == 1  # the name is in --view
    if unnamed and fused:
        raise typer.BadParameter("one matrix is one view; name it with --view.", param_hint="'--fused'")
    if files is not None and rows is not RowSet.all:
        raise typer.BadParameter("files of views have no split; only 'all' works.", param_hint="'--rows'")
    from fusehash import hashers, streams
    from fusehash.streams.writers import check_npy_path, encode_rows

    inputs.check_target(out)
    check_npy_path(out)
    hasher = hashers.load(model)
    if files is None:
        dataset = inputs.load_data(data, folder, split_seed, n_train, stack_images)
        chosen = dataset.views if rows is RowSet.all else dataset.views.rows(getattr(dataset, rows.value))
        views = choose(dict(chosen.items()), view, data[0])
    elif unnamed:
        views = {view: streams.open_view(data[0])}
    else:
        inputs.refuse_dataset_options(folder, stack_images)
        views = {name: streams.open_view(path) for name, path in choose(files, view, "the files").items()}
    for name, matrix in views.items():
        check_width(hasher, matrix, name)
    n_rows = next(iter(views.values())).shape[0]
    with progress("encode") as report:
        encode_rows(hasher, views, fused=fused, out=out, report=report)
    result = {
        "codes": str(out), "n": int(n_rows), "n_bits": int(hasher.n_bits), "view": view,
        "fused": fused, "rows": rows.value, "model": str(model), "data": data[0] if len(data) == 1 else data,
    }  # fmt: skip
    if as_json:
        print_json(result)
    else:
        seen = "all views together" if view is None else f"view '{view}'"
        stdout().print(
            f"Wrote {n_rows:,} codes of {hasher.n_bits} bits, from {seen}, to {out}.",
            soft_wrap=True,
            markup=False,
        )


def choose(known: dict[str, Any], view: str | None, where: str) -> dict[Any, Any]:
    """The view that was asked for, or all of them."""
    if view is not None and view not in known:
        raise DataError(f"The view must be one of {', '.join(map(repr, known))} in {where}. Got {view!r} instead.")
    return known if view is None else {view: known[view]}


def check_width(hasher: CrossModalHasher, matrix: Any, name: str) -> None:
    """Say at once, not after the first block, that a matrix is not of the view."""
    expected = hasher.n_features_.get(name)
    if expected is not None and matrix.shape[1] != expected:
        raise DataError(f"View '{name}' must have {expected} features, as in fit. Got {matrix.shape[1]} instead.")
