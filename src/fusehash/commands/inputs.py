"""What the commands ask for in the same words: data, method, parameters; and files that are written whole or not."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.datasets import PairedDataset
    from fusehash.hashers.base import CrossModalHasher

Data = Annotated[
    str, typer.Argument(metavar="DATA", help="A dataset file (.npz, .mat), or a name such as wiki with --data.")
]
Folder = Annotated[Path | None, typer.Option("--data", help="The folder (or file) of a dataset given by name.")]
SplitSeed = Annotated[int, typer.Option(min=0, help="Seed of the split, where the file has none.")]
NTrain = Annotated[int | None, typer.Option(min=1, help="Training pairs to draw; default: the file's or the paper's.")]
StackImages = Annotated[bool, typer.Option("--stack-images", help="Join all image features into one view.")]
Method = Annotated[str, typer.Option(help="The method, by name.")]
Bits = Annotated[int, typer.Option(help="Length of the codes, a multiple of 8.")]
Preset = Annotated[str | None, typer.Option(help="Settings of the method, such as paper.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the method; repeat for more.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def load_data(
    data: str, folder: Path | None, split_seed: int, n_train: int | None = None, stack_images: bool = False
) -> PairedDataset:
    """The dataset that DATA and its options name."""
    from fusehash import datasets

    return datasets.load(data, folder, split_seed=split_seed, n_train=n_train, stack_images=stack_images)


def parse_params(given: Sequence[str] | None) -> dict[str, Any]:
    """KEY=VALUE options as parameters; a value is JSON (3, 0.1, true, null, [1, 2]) or else plain text."""
    params: dict[str, Any] = {}
    for entry in given or ():
        key, equals, value = entry.partition("=")
        if not equals or not key.isidentifier():
            raise typer.BadParameter(f"{entry!r} is not of the form KEY=VALUE.", param_hint="'--param'")
        if key in params:
            raise typer.BadParameter(f"{key!r} is given twice.", param_hint="'--param'")
        try:
            params[key] = json.loads(value)
        except ValueError:
            params[key] = value
    return params


def make_hasher(
    method: str, *, bits: int, preset: str | None, seed: int | None, params: dict[str, Any]
) -> CrossModalHasher:
    """An unfitted hasher with the parameters of the command line."""
    from fusehash import hashers

    named = {"n_bits": bits, "random_state": seed, **({} if preset is None else {"preset": preset})}
    for key, option in (("n_bits", "--bits"), ("preset", "--preset"), ("random_state", "--seed")):
        if key in params:
            raise typer.BadParameter(f"{key!r} has an option of its own: {option}.", param_hint="'--param'")
    return hashers.make(method, **named, **params)


def check_target(path: Path) -> None:
    """Say at once, not after minutes of work, that a result could not be written there."""
    if path.is_dir():
        raise DataError(f"The file to write must not be a folder. Got {path}.")
    folder = path.parent
    if not folder.is_dir():
        raise DataError(f"The file to write must be in a folder that exists. {folder} does not.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"The file to write must be in a folder that can be written to. {folder} cannot.")


def write_npy(path: Path, array: Any) -> None:
    """Write one array; the file is complete or not there, and an old one stays until the new one is complete."""
    import numpy as np

    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            np.save(stream, array, allow_pickle=False)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # mkstemp makes private files
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
