"""Load damaged array files in a process of its own: `python array_rounds.py KIND SEED CASES FOLDER`.

Prints how many were loaded, refused by us, and refused by an exception that is not ours.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import savemat

from fusehash import datasets
from fusehash.errors import FusehashError

WORDS = (b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\0" * 4, b"\0\0\0\x10", b"\xff" * 7 + b"\x7f", b"\0" * 8)


def originals(kind: str, path: Path) -> list[bytes]:
    """The same arrays, stored plainly and compressed."""
    rng = np.random.default_rng(0)
    images, texts = rng.standard_normal((12, 4)).astype("f4"), sp.random(12, 70, 0.05, random_state=0, format="csc")
    labels = rng.integers(0, 3, (12, 1)).astype(float)
    parts: dict[str, Any] = {"I_tr": images[:8], "T_tr": texts[:8].toarray(), "L_tr": labels[:8]}
    parts |= {"I_te": images[8:], "T_te": texts[8:], "L_te": labels[8:]}
    files = []
    for is_compressed in (False, True):
        if kind == "npz":
            save = np.savez_compressed if is_compressed else np.savez
            with path.open("wb") as file:
                save(file, image=images, text=texts.toarray(), labels=labels[:, 0].astype(int))
        elif kind == "mat":
            savemat(path, parts, do_compression=is_compressed, appendmat=False)
        else:
            write_hdf5(path, parts, {"compression": "gzip", "shuffle": True} if is_compressed else {})
        files.append(path.read_bytes())
    return files


def write_hdf5(path: Path, arrays: dict[str, Any], options: dict[str, Any]) -> None:
    import h5py

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, array in arrays.items():
            if sp.issparse(array):
                group = file.create_group(name)
                group.attrs["MATLAB_sparse"] = np.uint64(array.shape[0])
                group["data"] = array.data
                group["ir"], group["jc"] = array.indices.astype("u8"), array.indptr.astype("u8")
            else:
                file.create_dataset(name, data=array.T, **options)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3")


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with a few bits, bytes or words changed, cut off or moved; the first bytes stay."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, action = rng.randrange(4, len(damaged)), rng.random()
        if action < 0.5:
            damaged[at] ^= 1 << rng.randrange(8)
        elif action < 0.8:
            word = rng.choice(WORDS)
            at -= at % len(word) if at >= 8 else 0
            damaged[at : at + len(word)] = word
        elif action < 0.9 and at > 64:
            del damaged[at:]
        else:
            start = rng.randrange(len(damaged))
            damaged[at : at + 8] = damaged[start : start + 8]
    return bytes(damaged)


def peak_kib() -> int:
    """The most memory that this program held. `ru_maxrss` also counts the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


def main(kind: str, seed: int, cases: int, folder: Path) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    warnings.simplefilter("ignore")
    rng, path, outcome = random.Random(seed), folder / "data", Counter[str]()
    sources = originals(kind, path)
    for _ in range(cases):
        path.write_bytes(mutated(rng.choice(sources), rng))
        try:
            datasets.load(path)
            outcome["loaded"] += 1
        except FusehashError:
            outcome["refused"] += 1
        except Exception as error:
            outcome[f"{type(error).__name__}: {error}"] += 1
    outcome["memory"] = peak_kib()
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
