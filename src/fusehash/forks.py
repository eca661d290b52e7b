"""Locks that are free in a forked child: the thread that held one in the parent does not exist there."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_locks: WeakSet[Any] = WeakSet()


def new_lock() -> Any:
    """A reentrant lock that no fork leaves locked forever."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def is_held_here(lock: Any) -> bool:
    """Whether this thread holds a reentrant lock."""
    return bool(lock._is_owned())


def _free_locks() -> None:
    for lock in _locks:
        if not is_held_here(lock):  # the thread that forked goes on and releases its locks itself
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)
