"""Benchmark files by name, and generic paired files: `load`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.datasets.arrays import ArrayContent, open_arrays, read_content
from fusehash.datasets.base import PairedDataset
from fusehash.datasets.folders import default_captions
from fusehash.datasets.photos import load_photos
from fusehash.datasets.splits import SplitRule, make_split
from fusehash.errors import DataError, ParameterError
from fusehash.views import PairedViews, to_dense


@dataclass(frozen=True)
class Benchmark:
    """One published dataset: its usual file names and the split that papers use."""

    files: tuple[str, ...]
    rule: SplitRule


GENERIC = SplitRule(n_query=2000, n_train=None)
SAMPLED = SplitRule(n_query=2000, n_train=5000)
BENCHMARKS = {
    "wiki": Benchmark(("wiki.npz", "wiki.mat", "wikiData.mat"), SplitRule(n_query=693, n_train=None)),
    "mirflickr25k": Benchmark(("mirflickr25k.npz", "mirflickr25k.mat", "mirflickr.mat", "FLICKR-25K.mat"), SAMPLED),
    "nuswide": Benchmark(("nuswide.npz", "nuswide.mat", "NUS-WIDE.mat", "NUS-WIDE-TC10.mat"), SAMPLED),
    "iaprtc12": Benchmark(("iaprtc12.npz", "iaprtc12.mat", "IAPRTC-12.mat"), GENERIC),
}
SUFFIXES = (".npz", ".mat")


def benchmark_of(name: str) -> str:
    """The benchmark whose file has this name, as "mirflickr25k" for "FLICKR-25K.mat"; else the name itself."""
    files = {file.lower(): benchmark for benchmark, entry in BENCHMARKS.items() for file in entry.files}
    return files.get(Path(name).name.lower(), name)


def names() -> list[str]:
    """List every name that `load` knows.

    Examples
    --------
    >>> from fusehash import datasets
    >>> datasets.names()
    ['wiki', 'mirflickr25k', 'nuswide', 'iaprtc12', 'paired']
    """
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
    """Load a benchmark by name, or any paired file, with the split that its papers use.

    Parameters
    ----------
    name : str or path-like
        "wiki", "mirflickr25k", "nuswide", "iaprtc12", "paired" (a generic file), or the path of a file or of a folder
        of photos with captions (see `load_photos`).
    path : str or path-like, optional
        The file, or its folder; by default the environment variable FUSEHASH_DATA, or the current folder.
    split_seed : int, default=0
        Seed of everything that is drawn at random. A split that the file holds needs none.
    n_query, n_train : int, optional
        Number of queries and of training pairs; by default those of the file, or the numbers of the paper.
    stack_images : bool, default=False
        Join the views whose names begin with "image" into one view "image". Each feature is standardized on the
        training pairs and each block is divided by the square root of its width, so that all have the same weight.

    Returns
    -------
    PairedDataset

    Raises
    ------
    ParameterError, DataError
        If the name is unknown, or the file is missing, damaged, or in no layout of `fusehash.datasets.arrays`.

    Notes
    -----
    Wiki: the canonical 2,173 training pairs, which are also the database, and 693 queries. Others: 2,000 queries, all
    other pairs as database, 5,000 of them (IAPR TC-12: all) for training. Without labels you can fit, but not evaluate.

    Examples
    --------
    >>> import numpy as np, tempfile, pathlib
    >>> from fusehash import datasets
    >>> file = pathlib.Path(tempfile.mkdtemp(), "mine.npz")
    >>> np.savez(file, image=np.eye(50), text=np.eye(50), labels=np.arange(50) % 5)
    >>> datasets.load(file, n_query=10).database.size
    40
    """
    if isinstance(name, str | os.PathLike) and default_captions(Path(path or "") / name):
        return load_photos(Path(path or "") / name, split_seed=split_seed, n_query=n_query, n_train=n_train)
    title, file, rule = _find(name, path)
    content = read_content(open_arrays(file))
    split = make_split(content, rule, n_query=n_query, n_train=n_train, seed=split_seed, name=file.name)
    views = stacked_images(content, split.train, file) if stack_images else content.views
    return PairedDataset(title, PairedViews(views), content.labels, *split, content.label_names)


def _find(name: str | os.PathLike[str], path: str | os.PathLike[str] | None) -> tuple[str, Path, SplitRule]:
    if isinstance(name, str) and name.lower() in BENCHMARKS:
        benchmark = BENCHMARKS[name.lower()]
        folder = Path(path) if path is not None else Path(os.environ.get("FUSEHASH_DATA", "."))
        return name.lower(), _file_in(folder, benchmark.files, name), benchmark.rule
    if isinstance(name, str) and name.lower() == "paired":
        if path is None:
            raise ParameterError("load", "path", "the path of a .npz or .mat file when the name is 'paired'", None)
        file = _file_in(Path(path), (), name)
        return file.stem, file, GENERIC
    if not isinstance(name, str | os.PathLike) or not (Path(name).suffix.lower() in SUFFIXES or Path(name).exists()):
        raise ParameterError("load", "name", f"one of {', '.join(names())}, or the path of a file", name)
    file = Path(path or "") / name
    if not file.exists():
        raise DataError(f"There must be a file or folder at {file}. None was found.")
    file = _file_in(file, (), str(name))
    return file.stem, file, GENERIC


def _file_in(path: Path, candidates: tuple[str, ...], name: str) -> Path:
    """The file itself, or the file of a folder that has one of the names; without names, its only paired file."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise DataError(f"The data of '{name}' must be at {path}. There is no file and no folder.")
    if candidates:
        present = {file.name.lower(): file for file in sorted(path.iterdir()) if file.is_file()}
        for candidate in candidates:
            if candidate.lower() in present:
                return present[candidate.lower()]
        raise DataError(f"The folder {path} must hold one of the files {', '.join(candidates)}. None was found.")
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
    if len(files) != 1:
        listed = ", ".join(file.name for file in files) or "none"
        raise DataError(f"The folder {path} must hold exactly one .npz or .mat file; else name one. Found: {listed}.")
    return files[0]


def stacked_images(content: ArrayContent, train: Any, file: Path) -> dict[str, Any]:
    """The views, with all image features joined into one view "image"."""
    blocks = [name for name in content.views if name.startswith("image")]
    if not blocks:
        raise DataError(f"Stacking needs a view whose name begins with 'image'. {file.name} has none.")
    joined = np.concatenate([standardized(content.views[name], train) for name in blocks], axis=1)
    others = {name: matrix for name, matrix in content.views.items() if name not in blocks}
    return {"image": joined, **others}


def standardized(matrix: Any, train: Any) -> Any:
    """Features with mean 0 and variance 1 on the training rows, divided by the square root of their number."""
    dense = to_dense(matrix).astype(np.float64)
    mean, spread = dense[train].mean(axis=0), dense[train].std(axis=0)
    spread[spread <= 1e-12 * np.abs(mean).clip(min=1.0)] = np.inf  # a constant feature becomes 0
    return ((dense - mean) / spread / np.sqrt(dense.shape[1])).astype(np.float32)
