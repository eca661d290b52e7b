"""What the commands ask for in the same words: data, method, parameters, and where results go."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.datasets import PairedDataset
    from fusehash.hashers.base import CrossModalHasher
    from fusehash.views import PairedViews


def whole_number(text: str | int) -> int:
    """An option that is a whole number; who gives something else is told what came."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number. Got {text!r} instead.") from None


Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="A dataset file (.npz, .mat), or a name such as wiki with --data; "
        "or one file for each view, NAME=FILE (.npy, .zarr, .parquet), which is read in blocks.",
    ),
]
Labels = Annotated[
    Path | None, typer.Option("--labels", help="A .npy file with the labels of the rows, where DATA is files of views.")
]
Folder = Annotated[Path | None, typer.Option("--data", help="The folder (or file) of a dataset given by name.")]
SplitSeed = Annotated[int, typer.Option(min=0, help="Seed of the split, where the file has none.")]
NTrain = Annotated[int | None, typer.Option(min=1, help="Training pairs to draw; default: the file's or the paper's.")]
StackImages = Annotated[bool, typer.Option("--stack-images", help="Join all image features into one view.")]
Method = Annotated[str, typer.Option(help="The method, by name.")]
Bits = Annotated[int, typer.Option(parser=whole_number, metavar="<int>", help="Length of the codes, a multiple of 8.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the method; repeat for more.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class Rows:
    """What a method learns from: views and labels of the training rows, and where they come from."""

    name: str
    views: PairedViews
    labels: Any
    split: str
    dataset: PairedDataset | None = None  # None: files of views, which need no labels and no queries


def load_data(
    data: Sequence[str],
    folder: Path | None,
    split_seed: int,
    n_train: int | None = None,
    stack_images: bool = False,
    labels: Path | None = None,
) -> PairedDataset:
    """The dataset that DATA and its options name, with a split and, where it has them, labels."""
    from fusehash import datasets

    files = view_files(data)
    if files is None:
        if labels is not None:
            raise typer.BadParameter("a dataset has its own labels.", param_hint="'--labels'")
        return datasets.load(data[0], folder, split_seed=split_seed, n_train=n_train, stack_images=stack_images)
    refuse_dataset_options(folder, stack_images)
    if labels is None:
        raise typer.BadParameter("files of views need --labels FILE here.", param_hint="'--labels'")
    from fusehash.datasets.arrays import ArrayContent
    from fusehash.datasets.base import tidy_labels
    from fusehash.datasets.loading import GENERIC
    from fusehash.datasets.splits import make_split

    views, known = open_views(files), tidy_labels(read_labels(labels))
    name = "+".join(files)
    rows = ArrayContent({}, known)
    split = make_split(rows, GENERIC, n_query=None, n_train=n_train, seed=split_seed, name=name)
    return datasets.PairedDataset(name, views, known, split.train, split.query, split.database, split.sentence)


def load_training(
    data: Sequence[str],
    folder: Path | None,
    split_seed: int,
    n_train: int | None = None,
    stack_images: bool = False,
    labels: Path | None = None,
) -> Rows:
    """The training rows of a dataset; of files of views every row, or ``n_train`` of them."""
    files = view_files(data)
    if files is None:
        dataset = load_data(data, folder, split_seed, n_train, stack_images, labels)
        known = None if dataset.labels is None else dataset.labels[dataset.train]
        return Rows(dataset.name, dataset.views.rows(dataset.train), known, dataset.split, dataset)
    import numpy as np

    refuse_dataset_options(folder, stack_images)
    views, known = open_views(files), None if labels is None else read_labels(labels)
    if known is not None and len(known) != views.n_rows:
        raise DataError(f"The labels must have one row for each of the {views.n_rows} items. Got {len(known)} instead.")
    name = "+".join(files)
    if n_train is None:
        return Rows(name, views, known, f"all {views.n_rows:,} rows")
    if n_train > views.n_rows:
        raise DataError(f"--n-train must be at most the {views.n_rows} rows of the files. Got {n_train} instead.")
    drawn = np.sort(np.random.default_rng(split_seed).choice(views.n_rows, n_train, replace=False))
    sentence = f"{n_train:,} of {views.n_rows:,} rows drawn at random (seed {split_seed})"
    return Rows(name, views.rows(drawn), None if known is None else known[drawn], sentence)


def view_files(data: Sequence[str]) -> dict[str, str] | None:
    """Name -> file where DATA is files of views (NAME=FILE, or FILE named as the view); None where it is a dataset."""
    from fusehash.streams.opening import is_view_path

    files: dict[str, str] = {}
    for entry in data:
        name, equals, path = entry.partition("=")
        if not equals or not name or path.lower().endswith((".npz", ".mat")) or os.sep in name:
            name, path = Path(entry).name.partition(".")[0], entry
            if not is_view_path(path):
                if len(data) == 1:
                    return None
                raise typer.BadParameter(f"{entry!r} is no file of a view; one dataset must stand alone.")
        if name in files:
            raise typer.BadParameter(f"the view {name!r} is given twice.")
        files[name] = path
    return files


def open_views(files: dict[str, str]) -> PairedViews:
    """The files as paired views, read when rows are asked for."""
    from fusehash.streams import open_view
    from fusehash.views import PairedViews

    return PairedViews({name: open_view(path) for name, path in files.items()})


def read_labels(path: Path) -> Any:
    """Labels from a .npy file, never unpickled."""
    import numpy as np

    try:
        labels = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"The labels were looked for at {path}, where there is no file.") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"The labels {path.name} must be an intact .npy file. It could not be read.") from error
    if not isinstance(labels, np.ndarray) or labels.ndim not in (1, 2):
        raise DataError(f"The labels {path.name} must be class numbers or a 0/1 matrix. Got shape {np.shape(labels)}.")
    return labels


def refuse_dataset_options(folder: Path | None, stack_images: bool) -> None:
    if folder is not None or stack_images:
        option = "--data" if folder is not None else "--stack-images"
        raise typer.BadParameter("is for datasets, not for files of views.", param_hint=f"'{option}'")


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


def make_hasher(method: str, *, bits: int, seed: int | None, params: dict[str, Any]) -> CrossModalHasher:
    """An unfitted hasher with the parameters of the command line."""
    from fusehash import hashers
    from fusehash.parameters import multiple_of

    named = {"n_bits": bits, "random_state": seed}
    for key, option in (("n_bits", "--bits"), ("random_state", "--seed")):
        if key in params:
            raise typer.BadParameter(f"{key!r} has an option of its own: {option}.", param_hint="'--param'")
    if method not in hashers.names():
        raise DataError(f"--method must be one of {', '.join(hashers.names())}. Got {method!r} instead.")
    known = hashers.get(method)._get_param_names()
    for key in params:
        if key not in known and key not in hashers.get(method).REMOVED:
            free = sorted(set(known) - {"n_bits", "random_state", "callback"})
            near = get_close_matches(key, free)
            listed = f"such as {', '.join(near)}" if near else f"one of {', '.join(free)}"
            raise DataError(f"--param must name a parameter of {method}, {listed}. Got {key!r} instead.")
    hasher = hashers.make(method, **named, **params)
    multiple_of(8).check(type(hasher).__name__, "n_bits", bits)  # at once, not after minutes of reading data
    return hasher


def check_target(path: Path) -> None:
    """Say at once, not after minutes of work, that a result could not be written there."""
    if path.is_dir() and path.suffix.lower() != ".zarr":
        raise DataError(f"The file to write must not be a folder. Got {path}.")
    check_place(path, "The file to write")


def check_place(path: Path, what: str) -> None:
    """Say at once, not after minutes of work, that nothing can be made there."""
    folder = path.parent
    if not folder.is_dir():
        told = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{what} must be in a folder that exists. {folder} {told}.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{what} must be in a folder that can be written to. {folder} cannot.")
