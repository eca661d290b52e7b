"""What several commands read: data, methods and their parameters, captions, and the paths of results."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import wording
from fusehash.errors import DataError, warn

if TYPE_CHECKING:
    from fusehash.collection import NewItem
    from fusehash.datasets import PairedDataset
    from fusehash.hashers.base import CrossModalHasher
    from fusehash.views import PairedViews


def whole_number(text: str | int) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"must be a whole number. Got {text!r} instead.") from None


Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="A dataset file (.npz, .mat), or a name such as wiki with --data; "
        "or one file for each view, NAME=FILE (.npy, .zarr, .parquet), which are read in blocks.",
    ),
]
Labels = Annotated[
    Path | None, typer.Option("--labels", help="A .npy file with the labels of the rows, if DATA is files of views.")
]
Folder = Annotated[Path | None, typer.Option("--data", help="The folder (or file) of a dataset given by name.")]
SplitSeed = Annotated[int, typer.Option(min=0, help="Seed of the split, if the file has none.")]
NTrain = Annotated[int | None, typer.Option(min=1, help="Training pairs to draw; default: the file's or the paper's.")]
StackImages = Annotated[bool, typer.Option("--stack-images", help="Join all image features into one view.")]
Method = Annotated[str, typer.Option(help="The method, by name.")]
Bits = Annotated[int, typer.Option(parser=whole_number, metavar="<int>", help="Length of the codes, a multiple of 8.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", metavar="KEY=VALUE", help="A parameter of the method; repeat for more.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


@dataclass(frozen=True)
class TrainingRows:
    """What a method learns from: views and labels of the training rows, and where they come from."""

    name: str
    views: PairedViews
    labels: Any
    split: str
    dataset: PairedDataset | None = None  # None for files of views, which have no split


def load_data(
    data: Sequence[str], folder: Path | None, split_seed: int, n_train: int | None = None, stack_images: bool = False,
    labels: Path | None = None,
) -> PairedDataset:  # fmt: skip
    """The dataset of DATA and its options, with a split and, if it has them, labels."""
    from fusehash import datasets

    files = view_files(data, folder, stack_images)
    if files is None:
        if labels is not None:
            raise typer.BadParameter("a dataset has its own labels.", param_hint="'--labels'")
        return datasets.load(data[0], folder, split_seed=split_seed, n_train=n_train, stack_images=stack_images)
    if labels is None:
        raise typer.BadParameter("files of views need --labels FILE here.", param_hint="'--labels'")
    from fusehash.datasets.arrays import ArrayContent
    from fusehash.datasets.base import tidy_labels
    from fusehash.datasets.loading import GENERIC
    from fusehash.datasets.splits import make_split

    views, matrix, name = open_views(files), tidy_labels(read_labels(labels)), "+".join(files)
    split = make_split(ArrayContent({}, matrix), GENERIC, n_query=None, n_train=n_train, seed=split_seed, name=name)
    return datasets.PairedDataset(name, views, matrix, *split)


def load_training(
    data: Sequence[str], folder: Path | None, split_seed: int, n_train: int | None = None, stack_images: bool = False,
    labels: Path | None = None,
) -> TrainingRows:  # fmt: skip
    """The training rows of a dataset; of files of views all rows, or ``n_train`` of them."""
    files = view_files(data, folder, stack_images)
    if files is None:
        dataset = load_data(data, folder, split_seed, n_train, stack_images, labels)
        learned = None if dataset.labels is None else dataset.labels[dataset.train]
        return TrainingRows(dataset.name, dataset.views.rows(dataset.train), learned, dataset.split, dataset)
    import numpy as np

    views, matrix = open_views(files), None if labels is None else read_labels(labels)
    if matrix is not None and len(matrix) != views.n_rows:
        raise DataError(f"The labels must have one row per item, {views.n_rows}. Got {len(matrix)} instead.")
    name = "+".join(files)
    if n_train is None:
        return TrainingRows(name, views, matrix, f"all {views.n_rows:,} rows")
    if n_train > views.n_rows:
        raise DataError(f"--n-train must be at most the {views.n_rows} rows of the files. Got {n_train} instead.")
    drawn = np.sort(np.random.default_rng(split_seed).choice(views.n_rows, n_train, replace=False))
    sentence = f"{n_train:,} of {views.n_rows:,} rows drawn at random (seed {split_seed})"
    return TrainingRows(name, views.rows(drawn), None if matrix is None else matrix[drawn], sentence)


def view_files(data: Sequence[str], folder: Path | None, stack_images: bool) -> dict[str, str] | None:
    """Name -> file if DATA is files of views (NAME=FILE, or FILE named as the view); None if it is a dataset."""
    from fusehash.streams import is_view_path

    files: dict[str, str] = {}
    for entry in data:
        name, equals, path = entry.partition("=")
        if not equals or not name or path.lower().endswith((".npz", ".mat")) or os.sep in name:
            name, path = Path(entry).name.partition(".")[0], entry
            if not is_view_path(path):
                if len(data) == 1:
                    return None
                raise typer.BadParameter(f"{entry!r} is not a file of a view; give one dataset, or only views.")
        if name in files:
            raise typer.BadParameter(f"the view {name!r} is given twice.")
        files[name] = path
    if folder is not None or stack_images:
        raise typer.BadParameter("are for datasets, not for files of views.", param_hint="'--data' / '--stack-images'")
    return files


def open_views(files: dict[str, str]) -> PairedViews:
    """The files as paired views, which are read when rows are needed."""
    from fusehash.streams import open_view
    from fusehash.views import PairedViews

    return PairedViews({name: open_view(path) for name, path in files.items()})


def read_labels(path: Path) -> Any:
    """Class numbers or a 0/1 matrix from a .npy file."""
    labels = load_npy(path)
    if labels.ndim not in (1, 2):
        raise DataError(f"The labels {path.name} must be class numbers or a 0/1 matrix. Got shape {labels.shape}.")
    return labels


def load_npy(path: Path) -> Any:
    """The array of a .npy file, never unpickled."""
    import numpy as np

    from fusehash import trust
    from fusehash.streams.npy import read_npy_header

    with trust.open_file(path, f"The file {path}") as file:
        shape, by_columns, dtype = read_npy_header(file, str(path))
        if dtype.kind not in "biufcSU" or not dtype.itemsize:
            what = "Python objects" if dtype.hasobject else dtype
            raise DataError(f"The file {path} must hold numbers or words. Got {what} instead.")
        array = np.fromfile(file, dtype, math.prod(shape))
    try:
        return array.reshape(shape, order="F" if by_columns else "C")
    except ValueError as error:  # no numbers, and still more of them than can be counted
        raise DataError(f"The file {path} must hold numbers or words. It has the shape {shape}.") from error


def parse_params(entries: Sequence[str] | None) -> dict[str, Any]:
    """KEY=VALUE options as parameters; a value is JSON (3, 0.1, true, null, [1, 2]) or else plain text."""
    params: dict[str, Any] = {}
    for entry in entries or ():
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
    from fusehash.parameters import check

    named = {"n_bits": bits, "random_state": seed}
    for key, option in (("n_bits", "--bits"), ("random_state", "--seed")):
        if key in params:
            raise typer.BadParameter(f"{key!r} has its own option: {option}.", param_hint="'--param'")
    if method not in hashers.names():
        raise DataError(f"--method must be one of {', '.join(hashers.names())}. Got {method!r} instead.")
    rules = hashers.get(method).parameter_rules()
    for key in params:
        if key not in rules and key not in hashers.get(method).REMOVED:
            free = sorted(set(rules) - {"n_bits", "random_state", "callback"})
            near = get_close_matches(key, free)
            listed = "; ".join(f"{name} ({rules[name].expected})" for name in near) or ", ".join(free)
            raise DataError(f"--param must name a parameter of {method}: {listed}. Got {key!r} instead.")
    hasher = hashers.make(method, **named, **params)
    check(type(hasher).__name__, rules, {"n_bits": bits, **params})  # before the data is read
    return hasher


def refuse(only_for: str = "an index of codes", **options: Any) -> None:
    """Raise for options that have no effect here."""
    for name, value in options.items():
        if value not in (None, [], ()):
            raise typer.BadParameter(f"is for {only_for}.", param_hint=f"'{wording.option_of(name)}'")


def check_target(path: Path) -> None:
    """Raise before the work begins if a result cannot be written there."""
    if path.is_dir():
        raise DataError(f"The file to write must not be a folder. Got {path}.")
    check_folder(path, "The file to write")


def check_folder(path: Path, what: str) -> None:
    """Raise before the work begins if nothing can be created there."""
    folder = path.parent
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"{what} must be in a folder that exists. {folder} {problem}.")
    if not os.access(folder, os.W_OK):
        raise DataError(f"{what} must be in a folder that can be written to. {folder} cannot.")


def check_captions(items: list[NewItem], photos: Path, captions: Path | None) -> None:
    """Raise or warn if captions and pictures do not match."""
    from fusehash.datasets.folders import default_captions

    captions = captions or default_captions(photos)
    if captions is None or not photos.is_dir():
        return
    if not any(item.text or item.labels for item in items):
        warn(f"{captions.name} has no captions; the pictures are indexed without texts.")
        return
    pictures = [item for item in items if has_picture(item)]
    lone = [item for item in items if not has_picture(item)]
    if not pictures or not lone:
        return
    if not any(item.text or item.labels for item in pictures):
        named = next((item.key for item in lone if item.image is not None), None)
        reason = f"it names {named!r}, in the folder is {pictures[0].key!r}" if named else "no row names a picture"
        raise DataError(f"The captions in {captions.name} must belong to pictures in {photos}. None does: {reason}.")
    nameless = sum(item.image is None for item in lone)
    if nameless:
        warn(f"{nameless:,} texts of {captions.name} name no picture; they are indexed as texts only.")


def without_missing(items: list[NewItem]) -> list[NewItem]:
    """Items to update; if a picture is named but missing, the stored one stays."""
    missing = sum(item.image is not None and not has_picture(item) for item in items)
    if missing:
        warn(f"{missing:,} of {len(items):,} pictures are named but missing; those in the collection stay.")
    return [item if has_picture(item) else replace(item, image=None) for item in items]


def has_picture(item: NewItem) -> bool:
    """Whether the picture of an item exists."""
    from fusehash.datasets.folders import exists

    return exists(item.image) if isinstance(item.image, Path) else item.image is not None
