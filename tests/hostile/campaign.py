"""The attack on everything that fusehash opens: `python tests/hostile/campaign.py --cases 200000 --out FOLDER`.

Prints one line per kind, writes files.json and the failing cases, shrunk, into the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # as pytest does

from hostile import corpus, guided, runner, shrinking, verdict  # noqa: E402

WORKERS = 2


@dataclass
class Figures:
    """What happened to the cases of one kind."""

    cases: int = 0
    refused: int = 0
    opened: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    largest: int = 0

    def count(self, result: dict[str, Any]) -> None:
        self.cases += 1
        if result["verdict"] in ("refused", "opened"):
            setattr(self, result["verdict"], getattr(self, result["verdict"]) + 1)
        else:
            self.faults[result["verdict"]] += 1
        self.slowest, self.largest = max(self.slowest, result["cpu"]), max(self.largest, result["memory"])


@dataclass
class Campaign:
    """The cases of a seed, run by some processes at once."""

    cases: int
    seed: str = "0"
    seconds: float = float("inf")
    kinds: tuple[str, ...] = ()
    figures: dict[str, Figures] = field(default_factory=dict)
    faults: list[dict[str, Any]] = field(default_factory=list)
    wall: float = 0.0
    cpu: float = 0.0  # of all processes, to build the samples and to run the cases

    def requests(self) -> Iterator[dict[str, Any]]:
        """Cases in a mixed order: after any number of them, every kind has had about its share."""
        kinds = [kind for kind in corpus.KINDS.values() if kind.name in (self.kinds or corpus.KINDS) and kind.share]
        total = sum(kind.share for kind in kinds)
        due = {kind.name: 0.0 for kind in kinds}
        for number in range(self.cases):
            for kind in kinds:
                due[kind.name] += kind.share / total
            name = max(due, key=lambda name: due[name])
            due[name] -= 1.0
            yield {"kind": name, "seed": f"{self.seed}/{name}/{number}"}

    def run(self, root: Path) -> None:
        started, used = time.monotonic(), _cpu_of_children()
        build_samples(root / "samples", self.kinds)
        requests, lock = self.requests(), threading.Lock()

        def take() -> Iterator[dict[str, Any]]:
            while True:
                with lock:
                    request = next(requests, None)
                if request is None or time.monotonic() - started > self.seconds:
                    return
                yield request

        def work(number: int) -> None:
            with runner.Arena(root / "samples", root / f"arena{number}") as arena:
                for result in arena.run(take()):
                    with lock:
                        self.figures.setdefault(result["kind"], Figures()).count(result)
                        if result["verdict"] in verdict.FAULTS:
                            self.faults.append(result)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))  # a process that ended early is an error, not fewer cases
        self.wall, self.cpu = time.monotonic() - started, _cpu_of_children() - used

    def report(self) -> str:
        """A table by kind, then the faults by kind, verdict and place."""
        head = f"{'kind':<15}{'cases':>8}{'refused':>9}{'opened':>8}{'faults':>8}{'slowest s':>11}{'largest MiB':>13}"
        lines = [head]
        for name in sorted(self.figures):
            row = self.figures[name]
            lines.append(
                f"{name:<15}{row.cases:>8}{row.refused:>9}{row.opened:>8}{row.faults.total():>8}{row.slowest:>11.2f}"
                f"{row.largest >> 20:>13}"
            )
        total = sum(row.cases for row in self.figures.values())
        lines.append(f"{total} cases, {len(self.faults)} faults, {self.wall:.0f} s, {self.cpu:.0f} s of CPU time")
        groups = Counter(shrinking.cause(fault) for fault in self.faults)
        lines += [f"{count:>7} {kind}: {what}: {where}" for (kind, what, where), count in groups.most_common()]
        return "\n".join(lines) + "\n"

    def as_json(self) -> dict[str, Any]:
        kinds = {
            name: {
                "cases": row.cases, "refused": row.refused, "opened": row.opened, "faults": dict(row.faults),
                "slowest_cpu_s": row.slowest, "largest_memory_bytes": row.largest,
            }
            for name, row in sorted(self.figures.items())
        }  # fmt: skip
        total = sum(row.cases for row in self.figures.values())
        return {
            "seed": self.seed, "cases": total, "faults": len(self.faults), "seconds": round(self.wall, 1),
            "cpu_seconds": round(self.cpu, 1), "kinds": kinds,
        }  # fmt: skip


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def build_samples(folder: Path, kinds: Iterable[str] = (), most: int | None = None) -> None:
    """Build the corpus in a process of its own, so that this one imports nothing."""
    program = (
        f"import sys, pathlib; from hostile import corpus; corpus.build(pathlib.Path(sys.argv[1]), {[*kinds]}, {most})"
    )
    environment = {**os.environ, **runner.ENVIRONMENT, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--kind", action="append", choices=list(corpus.KINDS), help="repeat for more; default: all")
    parser.add_argument("--shrink", type=int, default=0, metavar="N", help="shrink and keep N cases of each fault")
    parser.add_argument("--out", type=Path, default=None, help="folder for files.json and the faults")
    parser.add_argument("--guided", type=float, metavar="SECONDS", help="coverage-guided cases instead, with atheris")
    arguments = parser.parse_args()
    if arguments.guided is not None:
        return guided.main(arguments.guided, arguments.out or Path("attack"))
    campaign = Campaign(arguments.cases, arguments.seed, arguments.seconds, tuple(arguments.kind or ()))
    root = verdict.temporary_root()
    try:
        campaign.run(root)
        if arguments.shrink and arguments.out is not None:
            shrinking.keep(campaign.faults, arguments.shrink, root, arguments.out / "found")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    sys.stdout.write(campaign.report())
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "files.json").write_text(json.dumps(campaign.as_json(), indent=1) + "\n")
        (arguments.out / "faults.jsonl").write_text("".join(json.dumps(fault) + "\n" for fault in campaign.faults))
    return 1 if campaign.faults else 0


if __name__ == "__main__":
    sys.exit(main())
