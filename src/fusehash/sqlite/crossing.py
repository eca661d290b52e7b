"""How open SQLite files cross a fork: connections are closed before it, and those still in use stay with the parent."""

from __future__ import annotations

import os
import time
from typing import Any

from fusehash.forks import is_held_here
from fusehash.sqlite.database import Database, open_databases
from fusehash.sqlite.held import held_files, opening
from fusehash.sqlite.writers import writer_locks

_FORK_SECONDS = 10.0  # that a fork waits for calls of other threads to end
_held_for_fork: list[Any] = []
_crossing: list[Database] = []  # in use during the fork


def _before_fork() -> None:
    """Close all connections, except those that are in use for too long or by the very call that forks."""
    databases = open_databases()
    in_use = [database for database in databases if is_held_here(database.lock)]
    locks = [opening, *(database.lock for database in databases)]
    deadline = time.monotonic() + _FORK_SECONDS
    first = opening
    while True:  # who waits for one lock holds no other, so that nobody waits forever
        held = [first] if first.acquire(timeout=max(0.0, deadline - time.monotonic())) else []
        held += [lock for lock in locks if lock is not first and lock.acquire(blocking=False)]
        if len(held) == len(locks) or time.monotonic() >= deadline:
            break
        for lock in held:
            lock.release()
        first = next(lock for lock in locks if lock not in held)
    _held_for_fork[:] = held
    _crossing[:] = [database for database in databases if database in in_use or database.lock not in held]
    for database in databases:
        if database not in _crossing:
            database.disconnect()


def _after_fork_in_parent() -> None:
    _crossing.clear()
    while _held_for_fork:
        _held_for_fork.pop().release()


def _after_fork_in_child() -> None:
    connected = (database for database in open_databases() if database.is_connected)
    for database in dict.fromkeys([*_crossing, *connected]):
        database.leave_to_parent()
    for held in held_files.values():
        if not held.is_inherited:
            held.process = os.getpid()
    for lock in writer_locks:
        lock.leave_to_parent()
    _after_fork_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
