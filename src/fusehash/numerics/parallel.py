"""Row blocks on several threads, with results that do not depend on how many.

Each block is worked on by one thread, with one BLAS thread inside, so that products do not depend on the number of
cores. Results come back in the order of the blocks, so that sums over them are always added in the same order.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
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
def _blas(n_modules: int) -> list[Any]:
    """The BLAS libraries of this process; to look for them takes milliseconds, so only if modules were imported."""
    import scipy.linalg  # noqa: F401  (brings its own BLAS, which must be there to be found)
    from threadpoolctl import ThreadpoolController

    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


def _set_threads(library: Any, n_threads: int) -> None:
    # From 3.8 on, threadpoolctl lets a thread set OpenBLAS only until another one has done so; here the last one does.
    release = getattr(library, "clear_controlling_thread", lambda force: None)
    release(force=True)
    library.set_num_threads(n_threads)
    release(force=True)


class _OneBlasThread:
    """The limit, which all threads share: the first one in sets it, the last one out restores what was before."""

    def __init__(self) -> None:
        self.lock, self.n_inside = threading.Lock(), 0
        self.before: dict[str, tuple[Any, int]] = {}  # libraries, by file, and their number of threads

    def __enter__(self) -> None:
        with self.lock:
            for library in _blas(len(sys.modules)):
                if library.filepath not in self.before:  # nobody is inside, or it was loaded since
                    self.before[library.filepath] = library, library.get_num_threads()
                    _set_threads(library, 1)
            self.n_inside += 1
            _here.n_inside = getattr(_here, "n_inside", 0) + 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.n_inside -= 1
            _here.n_inside -= 1
            while self.before and self.n_inside == 0:
                _set_threads(*self.before.popitem()[1])

    def forget_other_threads(self) -> None:
        """In a forked child, where they do not exist; the last block of this thread restores what was before."""
        self.lock, self.n_inside = threading.Lock(), getattr(_here, "n_inside", 0)


_one_blas_thread = _OneBlasThread()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_blas_thread.forget_other_threads)


def one_blas_thread() -> _OneBlasThread:
    """Hold BLAS to one thread inside a `with` block; blocks of several threads may overlap."""
    return _one_blas_thread


def map_blocks(work: Callable[[T], R], blocks: Iterable[T], n_threads: int | None = None) -> Iterator[R]:
    """Yield work(block) for every block, in order; at most two results per thread are held at a time."""
    n_threads = n_threads or n_cores()
    with one_blas_thread():
        if n_threads == 1 or (isinstance(blocks, Sized) and len(blocks) <= 1):  # no thread to start for one block
            for block in blocks:
                yield work(block)
            return
        with ThreadPoolExecutor(n_threads, initializer=setattr, initargs=(_here, "is_worker", True)) as pool:
            waiting: deque[Future[R]] = deque()
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
