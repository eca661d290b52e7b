"""One writer at a time."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any
from weakref import WeakSet

from fusehash.errors import FusehashError
from fusehash.files import try_lock, unlock

_POLL_SECONDS = 0.05


class WriterLock:
    """Held by the one process, and in it the one thread, that writes.

    The operating system releases it when that process ends, however it ends.
    """

    def __init__(self, path: Path, timeout: float, unavailable: type[FusehashError], busy: str) -> None:
        self._path, self._timeout, self._unavailable, self._busy = path, timeout, unavailable, busy
        self._threads: Any = threading.Lock()
        self._file: Any = None
        writer_locks.add(self)

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._timeout
        if not self._threads.acquire(timeout=max(self._timeout, 0.001)):
            raise self._unavailable(self._busy)
        try:
            try:
                flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # a link could lead anywhere
                self._file = os.fdopen(os.open(self._path, flags, 0o666), "r+b", buffering=0)
            except OSError as error:
                raise self._unavailable(f"{self._path.parent} cannot be written: {error.strerror}.") from error
            while not try_lock(self._file.fileno()):
                if time.monotonic() >= deadline:
                    raise self._unavailable(self._busy)
                time.sleep(_POLL_SECONDS)
        except BaseException:
            self._release()
            raise

    def __exit__(self, *error: object) -> None:
        self._release()

    def leave_to_parent(self) -> None:
        """Forget the lock in a forked child; a child that unlocked it would unlock it for its parent too."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._threads._at_fork_reinit()

    def _release(self) -> None:
        if self._file is not None:
            unlock(self._file.fileno())  # closing alone would leave it to a forked child
            self._file.close()
            self._file = None
        if self._threads.locked():  # not in a child that was forked meanwhile
            self._threads.release()


writer_locks: WeakSet[WriterLock] = WeakSet()
