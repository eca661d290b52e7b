"""`fusehash fit` and `fusehash encode`: train a model, and compute codes with it."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, progress, say
from fusehash.errors import DataError

FIT_EXAMPLE = """Example: fusehash fit wiki.npz --bits 64 --out wiki.safetensors

By name: fusehash fit wiki --data ~/data --method agsfh --param max_iter=20

Larger than memory: fusehash fit image=image.npy text=text.parquet --bits 64"""


def fit(
    data: inputs.Data,
    folder: inputs.Folder = None,
    method: inputs.Method = "fusehash",
    bits: inputs.Bits = 64,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the method.")] = 0,
    param: inputs.Params = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The model file to write.")] = Path("model.safetensors"),
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
    labels: inputs.Labels = None,
    as_json: inputs.Json = False,
) -> None:
    """Learn codes and hash functions from the training pairs of DATA and save the model."""
    model = inputs.make_hasher(method, bits=bits, seed=seed, params=inputs.parse_params(param))
    inputs.check_target(out)
    rows = inputs.load_training(data, folder, split_seed, n_train, stack_images, labels)
    started = time.perf_counter()
    with progress(f"{method} {bits} bits") as report:
        if "callback" in model.get_params():
            model.set_params(callback=report)
        model.fit(rows.views, rows.labels)
    seconds = time.perf_counter() - started
    if "callback" in model.get_params():
        model.set_params(callback=None)
    model.save(out)
    if as_json:
        print_json({
            "model": str(out), "method": method, "n_bits": bits, "seed": seed, "dataset": rows.name,
            "data_hash": None if rows.dataset is None else rows.dataset.fingerprint, "split": rows.split,
            "n_train": rows.views.n_rows, "views": rows.views.n_features, "seconds": round(seconds, 3),
        })  # fmt: skip
        return
    views = " + ".join(f"{name} ({width:,})" for name, width in rows.views.n_features.items())
    items = "pairs" if len(rows.views.names) > 1 else "items"
    options = (f" --data {folder}" if folder is not None else "") + (" --stack-images" if stack_images else "")
    say(
        f"Learned {bits}-bit codes with {method} from {rows.views.n_rows:,} {items} of {rows.name}: {views}.",
        f"Took {seconds:.1f} s. Saved to {out}.",
        f"Next: fusehash encode {out} {data[-1]}{options} --view {rows.views.names[-1]} --out codes.npy",
    )


ENCODE_EXAMPLE = """Example: fusehash encode wiki.safetensors wiki.npz --view text --rows query

A plain matrix: fusehash encode wiki.safetensors pictures.npy --view image

Queries: fusehash encode codes/model.safetensors queries.npy --view text --projections --out projections.npy

Several: fusehash encode wiki.safetensors image=pictures.zarr text=words.parquet --fused"""


class RowSet(StrEnum):
    """Which rows of a dataset."""

    train = "train"
    query = "query"
    database = "database"
    all = "all"


def encode(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fusehash fit wrote.")],
    data: inputs.Data,
    view: Annotated[str | None, typer.Option(help="Encode from this view only.")] = None,
    fused: Annotated[bool, typer.Option("--fused", help="Encode from all views together.")] = False,
    rows: Annotated[RowSet, typer.Option(help="Which rows of a dataset.")] = RowSet.all,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npy file to write.")] = Path("codes.npy"),
    factors: Annotated[Path | None, typer.Option(help="Also write two numbers per code to this .npy file.")] = None,
    projections: Annotated[
        bool, typer.Option("--projections", help="Write one real number per bit instead of codes, for queries.")
    ] = False,
    folder: inputs.Folder = None,
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
    as_json: inputs.Json = False,
) -> None:
    """Write the packed codes (rows, bits / 8) of DATA, block by block."""
    if fused == (view is not None):
        raise typer.BadParameter("give either --view NAME or --fused.", param_hint="'--view' / '--fused'")
    files = inputs.view_files(data, folder, stack_images)
    unnamed = files is not None and list(files.values()) == data and len(data) == 1  # --view names it
    if unnamed and fused:
        raise typer.BadParameter("one matrix is one view; name it with --view.", param_hint="'--fused'")
    if files is not None and rows is not RowSet.all:
        raise typer.BadParameter("files of views have no split; only 'all' works.", param_hint="'--rows'")
    if factors is not None and (fused or projections):
        raise typer.BadParameter("belongs to the codes of one view; give --view.", param_hint="'--factors'")
    if projections and fused:
        raise typer.BadParameter("are of one view; give --view.", param_hint="'--projections'")
    from fusehash import hashers, streams
    from fusehash.streams import writers

    for path in (out, *((factors,) if factors else ())):
        inputs.check_target(path)
        writers.check_npy_path(path)
    hasher = hashers.load(model)
    if files is None:
        dataset = inputs.load_data(data, folder, split_seed, n_train, stack_images)
        chosen = dataset.views if rows is RowSet.all else dataset.views.rows(getattr(dataset, rows.value))
        views = choose(dict(chosen.items()), view, data[0])
    elif unnamed:
        views = {view: streams.open_view(data[0])}
    else:
        views = {name: streams.open_view(path) for name, path in choose(files, view, "the files").items()}
    n_rows = next(iter(views.values())).shape[0]
    [(name, matrix), *_] = views.items()
    with progress("encode") as report:
        if projections:
            writers.project_rows(hasher, name, matrix, out=out, report=report)
        elif factors is not None:
            writers.encode_with_factors(hasher, name, matrix, out=out, factors=factors, report=report)
        else:
            writers.encode_rows(hasher, views, fused=fused, out=out, report=report)
    result = {
        "codes": str(out), "n": int(n_rows), "n_bits": int(hasher.n_bits), "view": view,
        "fused": fused, "projections": projections, "factors": None if factors is None else str(factors),
        "rows": rows.value, "model": str(model), "data": data[0] if len(data) == 1 else data,
    }  # fmt: skip
    if as_json:
        print_json(result)
    else:
        source = "all views together" if view is None else f"view '{view}'"
        what = f"rows of {hasher.n_bits} projections" if projections else f"codes of {hasher.n_bits} bits"
        say(f"Wrote {n_rows:,} {what}, from {source}, to {out}{f', and factors to {factors}' if factors else ''}.")


def choose(views: dict[str, Any], view: str | None, where: str) -> dict[Any, Any]:
    if view is not None and view not in views:
        raise DataError(f"The view must be one of {', '.join(map(repr, views))} in {where}. Got {view!r} instead.")
    return views if view is None else {view: views[view]}
