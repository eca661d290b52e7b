"""Coverage-guided cases for the readers that are written in Python: `campaign.py --guided SECONDS`, needs atheris.

atheris watches which lines of fusehash a case reaches and prefers cases that reach new ones. Each target runs in a
process of its own, since a failure ends the process; the input that failed is written into the output folder.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # as pytest does

MODULES = [
    "fusehash.trust", "fusehash.files.tensors", "fusehash.datasets.arrays", "fusehash.datasets.folders",
    "fusehash.experiments.spec.reading", "fusehash.streams.npy", "fusehash.collection.store.state",
    "fusehash.sqlite.checks", "fusehash.sqlite.database", "fusehash.search.servers.address", "fusehash.encoders.base",
    "fusehash.hashers.base", "fusehash.experiments.store.formats",
]  # fmt: skip
# kind -> files of its samples that become seeds
TARGETS = ("npy", "npz", "mat5", "model", "encoder", "results", "spec", "photos", "collection", "address", "codes")


def main(seconds: float, out: Path) -> int:
    """Run every target for its share of the time; the number of failures."""
    if importlib.util.find_spec("atheris") is None:
        sys.stdout.write("atheris is not installed: no coverage-guided cases.\n")
        return 0
    from hostile import campaign, verdict

    out.mkdir(parents=True, exist_ok=True)
    root = verdict.temporary_root()
    campaign.build_samples(root / "samples", TARGETS, most=1)
    figures: dict[str, Any] = {}
    for target in TARGETS:
        arguments = [target, str(root), str(out), f"{seconds / len(TARGETS):.0f}"]
        command, environment = [sys.executable, str(Path(__file__).resolve())], {**os.environ, "TMPDIR": str(root)}
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)
        counts = [line for line in done.stderr.splitlines() if "stat::number_of_executed_units" in line]
        figures[target] = {
            "cases": int(counts[0].split()[-1]) if counts else 0,
            "failed": done.returncode != 0,
            "last": done.stderr.splitlines()[-12:] if done.returncode else [],
        }
        end = "FAILED" if done.returncode else "no failure"
        sys.stdout.write(f"{target:<12}{figures[target]['cases']:>9} cases {end}\n")
    (out / "guided.json").write_text(json.dumps(figures, indent=1) + "\n")
    return sum(figure["failed"] for figure in figures.values())


def fuzz(target: str, root: Path, out: Path, seconds: str) -> None:
    """Run one target in this process until time is up or a case fails."""
    import atheris

    with atheris.instrument_imports(include=MODULES):
        for name in MODULES:
            importlib.import_module(name)
    from hostile import corpus

    sample = corpus.read_tree(root / "samples" / target / "0")
    seeds = root / f"seeds-{target}"
    seeds.mkdir()
    names = list(sample)
    for number, name in enumerate(names):
        (seeds / str(number)).write_bytes(bytes((number,)) + sample[name])  # type: ignore[arg-type]
    folder = Path(tempfile.mkdtemp(dir=root))
    limits = [f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=3000"]
    options = [*limits, "-print_final_stats=1", "-verbosity=0"]
    case = _case(target, sample, folder)
    case(bytes((0,)) + sample[names[0]])  # imports and compiles what it needs  # type: ignore[operator]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={out}/{target}-", str(seeds)], case)
    atheris.Fuzz()


def _case(target: str, sample: Any, folder: Path) -> Callable[[bytes], None]:
    """The first byte chooses a file of the sample, the rest is its content."""
    from random import Random

    from fusehash.errors import FusehashError
    from hostile import corpus, surface

    names = list(sample)
    surface.COMMAND_SHARE = surface.WRITING_SHARE = 0.0  # type: ignore[misc]

    def run(data: bytes) -> None:
        if not data:
            return
        surface.clear(folder)
        corpus.write_tree({**sample, names[data[0] % len(names)]: data[1:]}, folder, folder)
        with contextlib.suppress(FusehashError, surface.RefusedByLibraryError):
            surface.use(target, folder / corpus.KINDS[target].main, Random(0))

    return run


if __name__ == "__main__":
    fuzz(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
