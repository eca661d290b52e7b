"""How much memory there is, and the refusal of work that needs more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fusehash.errors import DataError

UNLOOKED = 2**28  # bytes that are taken without asking how many there are
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_memory(owner: str, content: str, n_bytes: int) -> None:
    """Raise DataError if `content`, of at least so many bytes, cannot be held by this process."""
    if n_bytes > UNLOOKED and n_bytes > (left := available_memory()):
        raise DataError(
            f"{owner} must fit into the {left / 2**30:,.1f} GiB of memory that are available. "
            f"Got {content}, which take at least {n_bytes / 2**30:,.1f} GiB. "
            "Reduce the features first, for example with TruncatedSVD of scikit-learn."
        )


def available_memory() -> int:
    """Bytes that this process can still take: of the machine, of its container, and of its own limit (ulimit -v)."""
    limits = [sys.maxsize]
    free = [line for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    limits += [1024 * int(line.split()[1]) for line in free]
    limits += [int(line) for path in CGROUPS for line in _lines(path) if line.isdecimal()]
    if os.name == "posix":
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        limits.append(page * os.sysconf("SC_PHYS_PAGES"))
        if (most := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            taken = [page * int(line.split()[0]) for line in _lines(Path("/proc/self/statm"))]
            limits.append(max(most - sum(taken), 0))
    return min(limits)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not on this platform
        return []
