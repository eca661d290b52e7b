"""How valid files become hostile ones. Everything is drawn from one `Random`, so that a seed names a case.

Plain mutators change bytes. Structural ones know a format: they parse it, change a value to an absurd one, and write it
again with lengths and checksums that fit, so that the checks behind a checksum are reached. Traps are built from
scratch: links, pipes, archives that explode, pickles.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

from hostile.corpus import Tree
from hostile.mutators.arrays import change_footer, change_mat, change_npy, change_npz, change_zarr_zip
from hostile.mutators.documents import change_json, change_lines, change_yaml
from hostile.mutators.pictures import change_png, picture_bomb
from hostile.mutators.plain import PLAIN, flip
from hostile.mutators.stored import change_pages, change_safetensors, change_sqlite
from hostile.mutators.traps import (
    captions_out,
    foreign,
    gone,
    hdf5_trap,
    link_out,
    names_out,
    parquet_bomb,
    pipe,
    zarr_bomb,
    zarr_code,
)
from hostile.mutators.values import Bytes, Trap


def _mutator_of(name: str, kind: str) -> Bytes | None:
    """The structural mutator for one file, by its name."""
    if name.endswith(".npy"):
        return change_npy
    if name.endswith(".npz"):
        return change_npz
    if name.endswith(".zip"):
        return change_zarr_zip
    if kind == "mat5":
        return change_mat
    if name.endswith((".parquet", ".pq")):
        return change_footer
    if name.endswith((".safetensors", ".encoder")) or "/model-" in name:
        return change_safetensors
    if name.endswith((".json", ".zarray", ".zattrs", ".zgroup")):
        return change_json
    if name.endswith((".yaml",)):
        return change_yaml
    if name.endswith((".csv", ".jsonl", "address.txt")):
        return change_lines
    if name.endswith((".fhi", ".db")):
        return change_pages
    return change_png if name.endswith(".png") else None


TRAPS: dict[str, tuple[Trap, ...]] = {
    "zarr": (zarr_code, zarr_bomb, zarr_code, zarr_bomb), "mat73": (hdf5_trap,) * 4, "hdf5": (hdf5_trap,) * 4,
    "parquet": (parquet_bomb,), "photos": (captions_out,) * 6, "collection": (names_out,) * 2, "image": (picture_bomb,),
}  # fmt: skip
PIPE_SHARE = 0.2
TRAP_SHARE = {"zarr": 0.4, "mat73": 0.5, "hdf5": 0.3, "photos": 0.6, "collection": 0.15}


def mutated(kind: str, samples: dict[str, list[Tree]], rng: Random, workshop: Path) -> tuple[Tree, list[str]]:
    """A hostile tree of a kind, and the names of what was done to it."""
    tree, applied = dict(rng.choice(samples[kind])), list[str]()
    if rng.random() < TRAP_SHARE.get(kind, 0.04):
        folder = any("/" in name for name in tree)
        pipes = () if kind == "hdf5" else (pipe,)  # the user opens that file, with h5py
        trap = rng.choice((*TRAPS.get(kind, ()), gone, *pipes, *((link_out,) if folder else ())))
        if trap is not pipe or rng.random() < PIPE_SHARE:  # pipes are few: each that is waited for takes long
            with contextlib.suppress(Exception):  # an earlier trap has taken what this one needs
                tree = trap(tree, rng, workshop)
                applied.append(trap.__name__)
    if rng.random() < 0.04:
        tree = foreign(samples, tree, rng)
        applied.append("foreign")
    for _ in range(rng.choice((1, 1, 1, 2, 3)) if not applied else rng.choice((0, 0, 1))):
        names = [name for name, data in tree.items() if isinstance(data, bytes)]
        if names:
            name = rng.choice(names)
            mutator = _mutator(name, kind, rng, workshop)
            try:
                tree[name] = mutator(tree[name], rng)  # type: ignore[arg-type]
            except Exception:  # an earlier change has made the format unreadable
                tree[name] = flip(tree[name], rng)  # type: ignore[arg-type]
            applied.append(mutator.__name__)
    return tree, applied


def _mutator(name: str, kind: str, rng: Random, workshop: Path) -> Bytes:
    if name.endswith((".db", ".fhi")) and rng.random() < 0.4:

        def change_rows(data: bytes, rng: Random) -> bytes:
            return change_sqlite(data, rng, workshop)

        return change_rows
    special = _mutator_of(name, kind)
    return special if special is not None and rng.random() < 0.55 else rng.choice(PLAIN)
