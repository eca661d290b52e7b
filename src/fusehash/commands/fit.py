"""`fusehash fit`: learn a model from the training rows of a dataset."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, progress, stdout

EXAMPLE = """Example: fusehash fit wiki.npz --bits 64 --out wiki.safetensors

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
        print_json(
            {
                "model": str(out),
                "method": method,
                "n_bits": bits,
                "seed": seed,
                "dataset": rows.name,
                "data_hash": None if rows.dataset is None else rows.dataset.fingerprint,
                "split": rows.split,
                "n_train": rows.views.n_rows,
                "views": rows.views.n_features,
                "seconds": round(seconds, 3),
            }
        )
        return
    views = " + ".join(f"{name} ({width:,})" for name, width in rows.views.n_features.items())
    console = stdout()
    items = "pairs" if len(rows.views.names) > 1 else "items"
    console.print(
        f"Learned {bits}-bit codes with {method} from {rows.views.n_rows:,} {items} of {rows.name}: {views}.",
        soft_wrap=True,
        markup=False,
    )
    console.print(f"Took {seconds:.1f} s. Saved to {out}.", soft_wrap=True, markup=False)
    options = (f" --data {folder}" if folder is not None else "") + (" --stack-images" if stack_images else "")
    console.print(
        f"Next: fusehash encode {out} {data[-1]}{options} --view {rows.views.names[-1]} --out codes.npy",
        soft_wrap=True,
        markup=False,
    )
