"""Row blocks on several threads, with results that do not depend on how many.

Each block is worked on by one thread, with BLAS held to one thread inside: BLAS threads that spin beside ours cost
more than they give, and a product computed by one thread is the same product whatever the machine. Results come back
in the order of the blocks, so sums over them are always added in the same order.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeVar

Block = TypeVar("Block")
Result = TypeVar("Result")


_here = threading.local()  # `is_worker`: this thread is one of several that share the cores


def n_cores() -> int:
    """Cores that the caller may use: one inside a thread of `map_blocks`, where the others are taken."""
    if getattr(_here, "is_worker", False):
        return 1
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


@lru_cache(maxsize=1)
def _blas(n_modules: int) -> Any:
    """The BLAS libraries of this process; looking for them costs milliseconds, so it is done when modules have come."""
    import scipy.linalg  # noqa: F401  (brings its own BLAS, which must be there to be found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Hold BLAS to one thread inside a `with` block."""
    limit: AbstractContextManager[Any] = _blas(len(sys.modules)).limit(limits=1, user_api="blas")
    return limit


def _become_worker() -> None:
    _here.is_worker = True


def map_blocks(
    work: Callable[[Block], Result], blocks: Iterable[Block], n_threads: int | None = None
) -> Iterator[Result]:
    """Yield work(block) for every block, in order; at most two results per thread are held at a time."""
    n_threads = n_threads or n_cores()
    with one_blas_thread():
        if n_threads == 1:
            for block in blocks:
                yield work(block)
            return
        with ThreadPoolExecutor(n_threads, initializer=_become_worker) as pool:
            waiting: deque[Future[Result]] = deque()
            try:
                for block in blocks:
                    waiting.append(pool.submit(work, block))
                    if len(waiting) >= 2 * n_threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:  # an error or Ctrl-C: do not start what has not begun
                for future in waiting:
                    future.cancel()
