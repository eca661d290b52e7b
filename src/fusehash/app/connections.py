"""Connections: how many may be open, and how long one may take to send the head of a request or to take an answer.

uvicorn has no such limits: its limit_concurrency refuses everybody once slow clients hold enough connections. Here a
new client takes the place of the one that has waited longest without a request, at the address that has most of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from fusehash.app.guard import Limits

SWEEP_SECONDS = 1.0
OTHER_FILES = 384  # that a server has open besides its connections: the collection, parts of uploads
MIN_CONNECTIONS = 16

log = logging.getLogger("fusehash.app")


class Connections:
    """The open connections of one server, each address in order of arrival."""

    def __init__(self, limits: Limits) -> None:
        self._limits, self._most = limits, min(limits.connections, max(MIN_CONNECTIONS, _max_files() - OTHER_FILES))
        self._by_address: dict[str, dict[LimitedProtocol, None]] = {}
        self._count = 0

    def enter(self, connection: LimitedProtocol) -> None:
        self._by_address.setdefault(connection.address, {})[connection] = None
        self._count += 1
        if self._count > self._most:
            log.warning("More than %d connections: those that wait longest without a request are closed.", self._most)
            (self._most_patient() or connection).transport.abort()

    def leave(self, connection: LimitedProtocol) -> None:
        neighbors = self._by_address.get(connection.address, {})
        if connection in neighbors:
            del neighbors[connection]
            self._count -= 1
            if not neighbors:
                del self._by_address[connection.address]

    async def sweep(self) -> None:
        """Close, forever, what has used up its time."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            for connection in [*self._all()]:
                connection.check_time(self._limits)

    def _all(self) -> Iterator[LimitedProtocol]:
        return (connection for neighbors in self._by_address.values() for connection in neighbors)

    def _most_patient(self) -> LimitedProtocol | None:
        """The connection to close: preferably one that never sent a whole request, at the most crowded address."""
        crowded_first = sorted(self._by_address.values(), key=len, reverse=True)
        for only_silent in (True, False):
            for neighbors in crowded_first:
                for connection in neighbors:
                    if connection.may_be_closed and not (only_silent and connection.has_asked):
                        return connection
        return None


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol, which reports to `Connections` when a connection comes and goes and what it is doing."""

    open_connections: Connections  # of the server; see `protocol_for`

    address = ""
    has_asked = False  # a request has been answered here
    _deadline_from: float | None = None  # when the head of a request began to arrive; None between requests
    _unread_from: float | None = None  # when the client stopped taking the answer

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing()

    @property
    def may_be_closed(self) -> bool:
        """Whether no whole request waits for its answer; half a body counts as little as half a head."""
        is_receiving = self.cycle is not None and self.cycle.more_body and not self.cycle.response_started
        return self.is_waiting or (is_receiving and not self.transport.is_closing())

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._deadline_from = time.monotonic()
        self.open_connections.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_connections.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deadline_from is None:
            self._deadline_from = time.monotonic()
        super().data_received(data)

    def on_response_complete(self) -> None:
        self.has_asked, self._deadline_from = True, None
        super().on_response_complete()

    def check_time(self, limits: Limits) -> None:
        """Close the connection if a request does not arrive, or an answer is not taken, in time."""
        now = time.monotonic()
        if self.transport.get_write_buffer_size() == 0:
            self._unread_from = None
        elif self._unread_from is None:
            self._unread_from = now
        if self._unread_from is not None and now - self._unread_from > limits.answer_seconds:
            self.transport.abort()  # to close it would wait for the client
        elif self.is_waiting and self._deadline_from is not None and now - self._deadline_from > limits.header_seconds:
            self.transport.close()


def protocol_for(connections: Connections) -> type[LimitedProtocol]:
    """The class that uvicorn makes a connection of, for one server."""
    return type("ServerProtocol", (LimitedProtocol,), {"open_connections": connections})


class FewLines(logging.Filter):
    """Lets every line of code write to the log a few times a minute; what was left out is counted in the next one."""

    LINES, SECONDS = 5, 60.0

    def __init__(self) -> None:
        super().__init__()
        self._since, self._written, self._left_out = 0.0, Counter[Any](), Counter[Any]()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self._since > self.SECONDS:
            self._since = record.created
            self._written.clear()
        line = record.pathname, record.lineno
        self._written[line] += 1
        if self._written[line] > self.LINES:
            self._left_out[line] += 1
            return False
        if left_out := self._left_out.pop(line, 0):
            record.msg, record.args = f"{record.getMessage()} (and {left_out:,} times more before)", None
        return True


def _max_files() -> int:
    """How many files and connections this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return 1 << 16
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 16 if soft == resource.RLIM_INFINITY else soft
