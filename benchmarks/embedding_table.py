"""The runs of `fusehash bench run embeddings/table` on many cores: one process per set, method and length.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/embedding_table.py embeddings --out results --workers 16

`embeddings` holds one folder per set (benchmarks/two_tower.py makes them). What is in `results` is not run again; the
command line reads it from there: `fusehash bench report embeddings/table --results results`.
"""

from __future__ import annotations

import argparse
import os
import time
from multiprocessing import Pool
from pathlib import Path
from tempfile import TemporaryDirectory

from fusehash.errors import FusehashError
from fusehash.experiments import embeddings
from fusehash.experiments.spec import load_spec

Job = tuple[Path, str, int, int]


def run(job: Job) -> tuple[str, str]:
    """The stored lines of one method at one length."""
    folder, label, n_bits, seeds = job
    with TemporaryDirectory() as results:
        spec = load_spec("embeddings/table").narrowed([label], [n_bits], seeds)
        try:
            files, _, _ = embeddings.run(spec, folder, results)
        except FusehashError as error:  # such as PQ without faiss
            print(f"{folder.name}, {label}, {n_bits} bits: {error}", flush=True)
            return folder.name, ""
        return folder.name, files[0].read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("fusehash-results"))
    parser.add_argument("--only", nargs="+", help="only these labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    spec = load_spec("embeddings/table")
    labels = args.only or [series.label for series in reversed(spec.lines)]  # the slow ones first
    sets = embeddings.find_sets(args.folder)
    jobs = [
        (path, label, n_bits, args.seeds) for label in labels for n_bits in sorted(spec.bits)[::-1] for path in sets
    ]
    (args.out / "embeddings").mkdir(parents=True, exist_ok=True)
    lines: dict[str, dict[str, None]] = {}
    started = time.perf_counter()
    with Pool(args.workers) as pool:
        for name, text in pool.imap_unordered(run, jobs):
            kept = lines.setdefault(name, {})
            is_first = not kept
            kept |= {line: None for line in text.splitlines() if is_first or '"label": "floats"' not in line}
            (args.out / "embeddings" / f"{name}.jsonl").write_text("\n".join(kept) + "\n" if kept else "")
    print(f"{sum(map(len, lines.values()))} runs, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
