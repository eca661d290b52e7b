"""Threads and memory that requests share: a bounded number at work, a bounded number waiting, without a thread each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from fusehash.app.errors import ApiError

T = TypeVar("T")


class Pool:
    """At most `threads` calls at work and `waiting` calls in line; the next one is answered with 503."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._limiter, self._most, self._inside = anyio.CapacityLimiter(threads), threads + waiting, 0

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        if self._inside >= self._most:
            raise ApiError(503, "busy", "Too many requests are waiting; try again in a moment.", {"Retry-After": "2"})
        self._inside += 1
        try:
            return await anyio.to_thread.run_sync(work, *args, limiter=self._limiter)
        finally:
            self._inside -= 1


class Budget:
    """A number of bytes that is never exceeded by those who take from it; first come, first served."""

    def __init__(self, total: int) -> None:
        self._total = self._free = total
        self._line, self._change = anyio.Lock(), anyio.Event()

    @asynccontextmanager
    async def taking(self, amount: int) -> AsyncIterator[None]:
        """Wait for `amount` bytes, or for all of them if it is more, and give them back at the end."""
        amount = min(amount, self._total)
        async with self._line:
            while self._free < amount:
                self._change = anyio.Event()
                await self._change.wait()
            self._free -= amount
        try:
            yield
        finally:
            self._free += amount
            self._change.set()
