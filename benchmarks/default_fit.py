"""The default FuseHash(): the whole fit, tuning included, against the paper's loop, and as the data grow.

    python benchmarks/default_fit.py           # a few minutes; writes benchmarks/results/default_fit-DATE.json

At N = 5,000 the whole fit is compared with two iterations of the plain transcription of the paper (paper_loop.py), in
the same run. Larger sizes run in child processes, so that peak memory is each one's own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import fusehash as fh
from paper_loop import DIMS, GROWTH, GROWTH_DIMS, N, Transcription, make_views, resident
from runs import described, result_path, store


def fit_seconds(views: dict[str, Any], n_bits: int) -> tuple[float, dict[str, Any]]:
    started = time.perf_counter()
    model = fh.FuseHash(n_bits=n_bits, random_state=0).fit(views)
    return time.perf_counter() - started, model.tuning_["chosen"]


def compare(repetitions: int) -> dict[str, Any]:
    views = make_views(N, DIMS)
    fh.FuseHash(n_bits=16, random_state=0).fit(make_views(600, DIMS))  # compile
    reference = Transcription(views, 0)
    plain, whole = [], []
    for _ in range(repetitions):
        started = time.perf_counter()
        reference.iterate()
        reference.iterate()
        plain.append(time.perf_counter() - started)
        whole.append(fit_seconds(views, 32)[0])
    return {"n": N, "two_plain_iterations_s": plain, "whole_fit_s": whole, "ratio": min(plain) / min(whole)}


def grow_one(n: int) -> dict[str, Any]:
    fh.FuseHash(n_bits=16, random_state=0).fit(make_views(600, GROWTH_DIMS))
    views = make_views(n, GROWTH_DIMS)
    before = resident()
    seconds, chosen = fit_seconds(views, 64)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    data = sum(view.nbytes for view in views.values())
    return {"n": n, "fit_s": seconds, "extra_mib": (peak - before) / 2**20, "data_mib": data / 2**20, "chosen": chosen}


def processor_seconds() -> dict[str, Any]:
    """Processor and wall seconds of the default fit of 2,000 rows, on one thread; for a machine that others use too."""
    fh.FuseHash(n_bits=16, random_state=0).fit(make_views(600, GROWTH_DIMS))
    views = make_views(2_000, GROWTH_DIMS)
    wall, processor = time.perf_counter(), time.process_time()
    model = fh.FuseHash(n_bits=64, random_state=0, n_threads=1).fit(views)
    seconds = {"processor_s": time.process_time() - processor, "wall_s": time.perf_counter() - wall}
    return {"n": 2_000, **seconds, "trials": len(model.tuning_["trials"]), "chosen": model.tuning_["chosen"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processor", action="store_true", help="print the processor time of 2,000 rows, and stop")
    parser.add_argument("--one", type=int)
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.processor:
        print(json.dumps(processor_seconds()))
        return
    if arguments.one:
        print(json.dumps(grow_one(arguments.one)))
        return
    result: dict[str, Any] = {
        **described(),
        "comparison": compare(arguments.repetitions),
        "growth": [],
    }
    print(result["comparison"])
    for n in GROWTH:
        command = [sys.executable, __file__, "--one", str(n)]
        result["growth"].append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(result["growth"][-1])
    store(result_path("default_fit"), result)


if __name__ == "__main__":
    main()
