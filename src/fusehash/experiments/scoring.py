"""Codes that were made elsewhere, by any framework: read from .npz files, checked, and stored as runs.

One file per code length and seed. Its arrays are named by what was encoded; {view} is a view of the data set:

    query_{view}                  the queries, each from this view alone
    train                         the training pairs, by the codes that training gave them (protocol U)
    train_{view}                  the training items, each from this view alone (H)
    new, new_{view}               database items that training did not see: fused (FN), from this view alone (HN)
    half, half_{view}, half_query_{view}   where the data set has no such items: by a second model, which learned from
                                  a seeded half of the training rows, the other half and the queries (FN, HN)
    seed                          one number, optional

`rows_of` says which rows these are. Codes are packed bits (uint8), or signs: -1 and 1, 0 and 1, or booleans.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash import bits
from fusehash.datasets.arrays import ArrayFile, open_arrays
from fusehash.errors import DataError
from fusehash.evaluation import PROTOCOLS
from fusehash.evaluation.protocols import StageName, halves
from fusehash.experiments.methods import made_elsewhere
from fusehash.experiments.spec import DatasetSpec, Series, Spec
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings, now
from fusehash.parameters import MAX_BITS, integer, multiple_of

LOOKS_UNPACKED = 32  # rows of 0 and 1 from which an array of bytes is taken for unpacked bits


@dataclass(frozen=True)
class Scored:
    """What was stored: the specification that shows it, and protocols for which codes are missing, with the reason."""

    spec: Spec
    skipped: dict[str, str]


def array_names(dataset: DatasetRecord) -> dict[str, tuple[StageName, str]]:
    """Name in a file -> stage and name of these codes in `evaluation.protocols.StageCodes`."""
    names: dict[str, tuple[StageName, str]] = {"train": ("train", "unified")}
    has_new = bool(dataset.rows.new.size)
    names["new" if has_new else "half"] = ("train", "new:fused") if has_new else ("half", "fused")
    for view in dataset.views:
        names[f"query_{view}"] = "train", f"query:{view}"
        names[f"train_{view}"] = "train", f"hashed:{view}"
        if has_new:
            names[f"new_{view}"] = "train", f"new:hashed:{view}"
        else:
            names[f"half_query_{view}"] = "half", f"query:{view}"
            names[f"half_{view}"] = "half", f"hashed:{view}"
    return names


def rows_of(dataset: DatasetRecord, seed: int) -> dict[str, NDArray[Any]]:
    """The rows that other frameworks encode and learn from; `half_learned` is what the second model learns from."""
    rows = dataset.rows
    out = {"query": rows.query, "train": rows.train}
    if rows.new.size:
        return {**out, "new": rows.new}
    learned, searched = halves(rows.train, seed)
    return {**out, "half_learned": learned, "half": searched}


def store_codes(
    files: Sequence[Path], dataset: DatasetRecord, store: ResultStore, label: str, *, supervised: bool = False,
    k: int | None = 50, ties: str = "expected", requested: DatasetSpec,
) -> Scored:  # fmt: skip
    """Read files of codes, store each as a run, and return the specification of their table."""
    method = made_elsewhere(label, supervised=supervised)
    counted: Counter[int] = Counter()
    records = [record for file in files for record in _records(file, dataset, method, counted)]
    seen: dict[tuple[int, int, str], None] = {}
    for record in records:
        key = record.settings.n_bits, record.settings.seed, record.settings.stage
        if key in seen:
            raise DataError(f"Files must differ in code length or seed. Two have {key[0]} bits and seed {key[1]}.")
        seen[key] = None
    store.put_dataset(dataset)
    for record in records:
        store.put(record)
    lengths, seeds = sorted({key[0] for key in seen}), sorted({key[1] for key in seen})
    codes = {(record.settings.stage, name) for record in records for name in record.codes}
    skipped = {name: reason for name in PROTOCOLS if (reason := _missing(name, dataset, codes))}
    protocols = tuple(name for name in PROTOCOLS if name not in skipped)
    spec = Spec(
        name=f"codes of {label}", title=f"{label} on {dataset.name}", notes="", datasets=(requested,),
        runs=(Series(label, method, {}),), bits=tuple(lengths), seeds=tuple(seeds), protocols=protocols, k=k, ties=ties,
        sections=("map",), paper=None,
    )  # fmt: skip
    if not protocols:
        raise DataError(f"No protocol can be scored with these codes. {' '.join(skipped.values())}")
    return Scored(spec, skipped)


def _missing(protocol: str, dataset: DatasetRecord, codes: set[tuple[StageName, str]]) -> str:
    """Why a protocol cannot be scored; "" if it can."""
    stage = dataset.rows.stage(protocol)
    known = {value: name for name, value in array_names(dataset).items()}
    wanted = [(stage, f"query:{view}") for view in dataset.views]
    wanted += [(stage, PROTOCOLS[protocol].code_name(stage, view)) for view in dataset.views]
    absent = [known[need] for need in dict.fromkeys(wanted) if need not in codes]
    return f"{protocol} needs {', '.join(absent)}." if absent else ""


def _records(file: Path, dataset: DatasetRecord, method: str, counted: Counter[int]) -> list[RunRecord]:
    """The runs of one file; files without a seed are seeds 0, 1, 2, ... of their code length, in the order given."""
    content, names = open_arrays(file), array_names(dataset)
    unknown = [name for name in content.shapes if name not in names and name != "seed"]
    if unknown or not set(content.shapes) & set(names):
        got = f"Got {unknown[0]!r}" if unknown else f"It has: {content.keys}; got none"
        raise DataError(f"The arrays of {file.name} must be among {', '.join(names)} and seed. {got} of these.")
    stages: dict[StageName, dict[str, NDArray[np.uint8]]] = {"train": {}, "half": {}}
    for name, (stage, key) in names.items():
        if name in content.shapes:
            codes = packed(content.read(name), f"Array {name} of {file.name}")
            expected = len(dataset.rows.coded(key, stage, 0))
            if len(codes) != expected:
                raise DataError(f"Array {name} of {file.name} must have {expected:,} rows. Got {len(codes):,} instead.")
            stages[stage][key] = codes
    widths = {codes.shape[1] for stage in stages.values() for codes in stage.values()}
    if len(widths) > 1:
        lengths = ", ".join(str(8 * width) for width in sorted(widths))
        raise DataError(f"The codes of {file.name} must have one length. Got {lengths} bits.")
    n_bits = 8 * widths.pop()
    seed = _seed(content, file) if "seed" in content.shapes else counted[n_bits]
    counted[n_bits] += 1
    return [
        RunRecord(RunSettings(dataset.fingerprint, method, {}, n_bits, seed, stage), codes, None, 0.0, {}, {}, now())
        for stage, codes in stages.items()
        if codes
    ]


def _seed(content: ArrayFile, file: Path) -> int:
    value = np.asarray(content.read("seed")).ravel()
    if value.size != 1 or not integer().accepts(value[0]):
        raise DataError(f"Array seed of {file.name} must be one integer of at least 0. Got {value[:5]!r} instead.")
    return int(value[0])


def packed(array: Any, what: str) -> NDArray[np.uint8]:
    """Codes as packed bits, from packed bits or from signs."""
    values = np.asarray(array)
    if values.ndim != 2 or not values.size:
        raise DataError(f"{what} must be a matrix with a code per row. Got shape {values.shape} instead.")
    if values.dtype == np.uint8:
        if len(values) >= LOOKS_UNPACKED and values.max() <= 1:
            raise DataError(f"{what} must be packed bits if it is uint8. It has 0 and 1 only: save these as bool.")
        codes = values
    else:
        low = values.min() if values.dtype.kind in "biuf" else np.nan
        is_signs = values.dtype.kind in "biuf" and np.isin(values, (-1, 1) if low == -1 else (0, 1)).all()
        if not is_signs or values.shape[1] % 8:
            got = f"Got {values.dtype} of shape {values.shape}"
            raise DataError(f"{what} must hold packed bits (uint8), or -1 and 1, or 0 and 1, 8 or 16 ... a row. {got}.")
        codes = bits.pack(np.where(values > 0, 1.0, -1.0))
    multiple_of(8, MAX_BITS).check(what, "n_bits", 8 * codes.shape[1])
    return codes
