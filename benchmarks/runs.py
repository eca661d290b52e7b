"""What every stored run says of itself (date, machine, versions), and how it gets into benchmarks/results."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fusehash.files import write_atomically
from fusehash.numerics.parallel import n_cores

RESULTS = Path(__file__).parent / "results"


def described(*packages: str) -> dict[str, Any]:
    """The head of a run. Call it before you measure: the load is what other programs use, not the benchmark itself.

    `packages` are the distributions whose versions matter, in addition to Python, NumPy and numba.
    """
    return {"date": today(), "machine": machine(), "versions": versions(*packages)}


def today() -> str:
    """The date in UTC, as the names of result files have it."""
    return f"{datetime.now(UTC):%Y-%m-%d}"


def machine() -> dict[str, Any]:
    """Processor, cores that may be used and load averages of 1, 5 and 15 minutes; the GPU, if PyTorch is imported."""
    facts = {"processor": _processor(), "cores": n_cores(), "load": [round(load, 2) for load in os.getloadavg()]}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def versions(*packages: str) -> dict[str, str]:
    """Versions of those that are installed."""
    found = {"python": platform.python_version()}
    for name in ("numpy", "numba", *packages):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def result_path(name: str) -> Path:
    """The result file of today for a benchmark."""
    return RESULTS / f"{name}-{today()}.json"


def store(path: Path, run: Any) -> Path:
    """Write a run, completely or not at all; may be called again after every case. Returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(run, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
