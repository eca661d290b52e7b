"""Kernels are compiled ahead, on another thread, while an index is opened."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from functools import cache

from fusehash.search.engines.scan import warm_up

logger = logging.getLogger(__name__)

_warming: list[threading.Thread] = []


@cache
def warm_up_soon(n_bits: int) -> None:
    """Compile the kernels of this width on another thread, once per process."""

    def work() -> None:
        try:
            warm_up(n_bits)
        except Exception as error:
            logger.warning("the kernels for %d bits could not be compiled ahead: %s", n_bits, error)

    # Not a daemon: a process must not end in the middle of a compilation.
    thread = threading.Thread(target=work, name="fusehash-warm-up")
    _warming.append(thread)
    thread.start()


def _finish_warm_up() -> None:
    """Before a fork: a child would wait for ever for the locks of a compiler thread that it does not have."""
    while _warming:
        with contextlib.suppress(RuntimeError):  # not started yet, or this very thread
            _warming.pop().join()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish_warm_up)
