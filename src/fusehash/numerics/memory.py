"""How much memory there is, and the refusal of work that needs more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fusehash.errors import DataError

UNCHECKED_BYTES = 2**28  # less is allocated without looking at the available memory
CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def check_memory(owner: str, content: str, n_bytes: int, device: str | None = None) -> None:
    """Raise DataError if `content`, of at least so many bytes, cannot be held by this process, or by a device."""
    if n_bytes <= UNCHECKED_BYTES:
        return
    available = available_memory() if device is None else device_memory(device)
    if n_bytes > available:
        place = "" if device is None else f" on {device}"
        raise DataError(
            f"{owner} must fit into the {available / 2**30:,.1f} GiB of memory that are available{place}. "
            f"Got {content}, which take at least {n_bytes / 2**30:,.1f} GiB. "
            "Reduce the features first, for example with TruncatedSVD of scikit-learn."
        )


def available_memory() -> int:
    """An upper bound of the bytes that this process can still allocate.

    The least of: free memory of the machine, the limit of its container, and what is left of ulimit -v.
    """
    limits = [sys.maxsize]
    free = [line for line in _lines(Path("/proc/meminfo")) if line.startswith("MemAvailable:")]
    limits += [1024 * int(line.split()[1]) for line in free]
    limits += [int(line) for path in CGROUPS for line in _lines(path) if line.isdecimal()]
    if os.name == "posix":
        import resource

        page = os.sysconf("SC_PAGE_SIZE")
        limits.append(page * os.sysconf("SC_PHYS_PAGES"))
        if (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
            used = [page * int(line.split()[0]) for line in _lines(Path("/proc/self/statm"))]
            limits.append(max(limit - sum(used), 0))
    return min(limits)


def device_memory(device: str) -> int:
    """The free bytes of a GPU of CUDA; nothing is known of other devices."""
    if not device.startswith("cuda"):
        return sys.maxsize
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:  # not on this platform
        return []
