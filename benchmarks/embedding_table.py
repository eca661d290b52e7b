"""The runs of `fusehash bench run embeddings/table` on many cores: one process per set, method and length.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/embedding_table.py embeddings --out results --workers 16
    python benchmarks/embedding_table.py FILE --tables     # of stored runs, the tables of docs/embeddings.md

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

import numpy as np

from fusehash.errors import FusehashError
from fusehash.experiments import embeddings
from fusehash.experiments.spec import load_spec

BITS = 256
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


def tables(file: Path) -> str:
    """Means of both directions and all seeds, float queries, in Markdown: one length of all sets, then all lengths."""
    found: dict[tuple[str, str, int], list[list[float]]] = {}
    for row in embeddings.read_rows(file):
        scores = row["scores"]["floats"]
        means = [float(np.mean([score[name] for score in scores])) for name in embeddings.COLUMNS]
        for n_bits in [row["n_bits"]] if row["label"] != "floats" else load_spec("embeddings/table").bits:
            found.setdefault((row["set"], row["label"], n_bits), []).append(means)
    sets = list(dict.fromkeys(name for name, _, _ in found))
    labels = ["floats", *(series.label for series in load_spec("embeddings/table").lines)]
    lengths = sorted({n_bits for _, _, n_bits in found})

    def cell(name: str, label: str, n_bits: int, columns: slice) -> str:
        runs = found.get((name, label, n_bits), [])
        return " / ".join(_short(value) for value in np.mean(runs, axis=0)[columns]) if runs else ""

    lines = [f"| {BITS} bits | {' | '.join(sets)} |", "|---" * (len(sets) + 1) + "|"]
    lines += [f"| {x} | {' | '.join(cell(name, x, BITS, slice(None)) for name in sets)} |" for x in labels]
    for title, column in (("partner in the first 10", 2), ("recall of the float ranking", 0)):
        lines += ["", f"| {title} | | {' | '.join(str(n) for n in lengths)} |", "|---" * (len(lengths) + 2) + "|"]
        for name in sets:
            for label in labels[1:] if column == 0 else labels:
                cells = [cell(name, label, n, slice(column, column + 1)) for n in lengths]
                lines.append(f"| {name} | {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(share: float) -> str:
    return "1" if share == 1.0 else f"{share:.3f}".removeprefix("0")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("fusehash-results"))
    parser.add_argument("--only", nargs="+", help="only these labels")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--tables", action="store_true", help="print tables of stored runs; runs nothing")
    args = parser.parse_args()
    if args.tables:
        print(tables(args.folder))
        return
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
