"""Benchmark files by name, and generic paired files: `load`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.datasets.arrays import open_arrays
from fusehash.datasets.base import PairedDataset
from fusehash.datasets.layouts import Content, read_content
from fusehash.datasets.photos import is_photo_folder, load_photos
from fusehash.datasets.splits import SplitRule, make_split
from fusehash.errors import DataError, ParameterError
from fusehash.views import PairedViews


@dataclass(frozen=True)
class Benchmark:
    """One published dataset: the file names it goes by and the split its papers use."""

    files: tuple[str, ...]
    rule: SplitRule


BENCHMARKS = {
    "wiki": Benchmark(("wiki.npz", "wiki.mat", "wikiData.mat"), SplitRule(n_query=693, n_train=None)),
    "mirflickr25k": Benchmark(
        ("mirflickr25k.npz", "mirflickr25k.mat", "mirflickr.mat", "FLICKR-25K.mat"),
        SplitRule(n_query=2000, n_train=5000),
    ),
    "nuswide": Benchmark(
        ("nuswide.npz", "nuswide.mat", "NUS-WIDE.mat", "NUS-WIDE-TC10.mat"),
        SplitRule(n_query=2000, n_train=5000),
    ),
    "iaprtc12": Benchmark(("iaprtc12.npz", "iaprtc12.mat", "IAPRTC-12.mat"), SplitRule(n_query=2000, n_train=None)),
}
GENERIC = SplitRule(n_query=2000, n_train=None)
SUFFIXES = (".npz", ".mat")


def names() -> list[str]:
    """Every name that `load` knows."""
    return [*BENCHMARKS, "paired"]


def load(
    name: str | os.PathLike[str],
    path: str | os.PathLike[str] | None = None,
    *,
    split_seed: int = 0,
    n_query: int | None = None,
    n_train: int | None = None,
    stack_images: bool = False,
) -> PairedDataset:
    """Load a benchmark by name, or any paired file, with the split its papers use.

    Parameters
    ----------
    name : "wiki", "mirflickr25k", "nuswide", "iaprtc12", "paired" (a generic file), or the path of a file, or of a
        folder of photos with captions (`fusehash.datasets.photos`)
    path : the file, or the folder that holds it; by default the folder named by the environment variable
        FUSEHASH_DATA, else the current one
    split_seed : seed of whatever is drawn at random; a split that the file itself holds needs none
    n_query : how many queries to draw; by default those of the file, else the paper's number
    n_train : how many training pairs to draw; by default those of the file, at most the paper's number
        (5,000 for MIRFlickr25K and NUS-WIDE)
    stack_images : join the views whose names begin with "image" into one view "image": each feature standardized
        on the training pairs, each block divided by the square root of its width, so that all blocks weigh the same

    Notes
    -----
    Wiki: the canonical 2,173 training pairs (also the database) and 693 queries. MIRFlickr25K: 2,000 queries, the
    other 18,015 as database, 5,000 of them for training. NUS-WIDE: 2,000 queries, the others as database, 5,000 of
    them for training. Files: .npz and .mat (v5, v7.3) in the layouts of `fusehash.datasets.layouts`. From a .npz
    file without labels one can learn, but not evaluate.
    """
    if isinstance(name, str | os.PathLike):
        folder = Path(name) if path is None else Path(path) / name
        if is_photo_folder(folder):
            return load_photos(folder, split_seed=split_seed, n_query=n_query, n_train=n_train)
    title, file, rule = _find(name, path)
    content = read_content(open_arrays(file))
    split = make_split(content, rule, n_query=n_query, n_train=n_train, seed=split_seed, name=file.name)
    views = stacked_images(content, split.train, file) if stack_images else content.views
    return PairedDataset(
        name=title,
        views=PairedViews(views),
        labels=content.labels,
        train=split.train,
        query=split.query,
        database=split.database,
        split=split.sentence,
        label_names=content.label_names,
    )


def _find(name: str | os.PathLike[str], path: str | os.PathLike[str] | None) -> tuple[str, Path, SplitRule]:
    """Title, file and split rule behind what was asked for."""
    if isinstance(name, str) and name.lower() in BENCHMARKS:
        benchmark = BENCHMARKS[name.lower()]
        folder = Path(path) if path is not None else Path(os.environ.get("FUSEHASH_DATA", "."))
        return name.lower(), _file_in(folder, benchmark.files, name), benchmark.rule
    if isinstance(name, str) and name.lower() == "paired":
        if path is None:
            raise ParameterError("load", "path", "the path of a .npz or .mat file when the name is 'paired'", None)
        file = _file_in(Path(path), (), name)
        return file.stem, file, GENERIC
    try:
        file = Path(name)
    except TypeError:
        raise ParameterError("load", "name", f"one of {', '.join(names())}, or the path of a file", name) from None
    if file.suffix.lower() not in SUFFIXES and not file.exists():
        raise ParameterError("load", "name", f"one of {', '.join(names())}, or the path of a file", str(name))
    if path is not None:
        file = Path(path) / file
    if not file.exists():
        raise DataError(f"There must be a file or folder at {file}. None was found.")
    file = _file_in(file, (), str(name))
    return file.stem, file, GENERIC


def _file_in(path: Path, candidates: tuple[str, ...], name: str) -> Path:
    """The file itself, or the one of its known names (without any: the only paired file) in a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(f"The data of '{name}' was looked for at {path}, where there is no file and no folder.")
    if candidates:
        present = {file.name.lower(): file for file in sorted(path.iterdir()) if file.is_file()}
        for candidate in candidates:
            if candidate.lower() in present:
                return present[candidate.lower()]
        raise DataError(f"The folder {path} must hold one of the files {', '.join(candidates)}. None was found.")
    found = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise DataError(f"The folder {path} must hold exactly one .npz or .mat file; else name one. Found: {listed}.")
    return found[0]


def stacked_images(content: Content, train: Any, file: Path) -> dict[str, Any]:
    """The views with all image features joined into one view "image"."""
    blocks = [name for name in content.views if name.startswith("image")]
    if not blocks:
        raise DataError(f"Stacking needs a view whose name begins with 'image'. {file.name} has none.")
    joined = np.concatenate([standardized(content.views[name], train) for name in blocks], axis=1)
    others = {name: matrix for name, matrix in content.views.items() if name not in blocks}
    return {"image": joined, **others}


def standardized(matrix: Any, train: Any) -> Any:
    """One block of features, each with mean 0 and variance 1 on the training rows, the block with total variance 1."""
    dense = np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=np.float64)
    mean, spread = dense[train].mean(axis=0), dense[train].std(axis=0)
    spread[spread <= 1e-12 * np.abs(mean).clip(min=1.0)] = np.inf  # a constant feature says nothing
    return ((dense - mean) / spread / np.sqrt(dense.shape[1])).astype(np.float32)
