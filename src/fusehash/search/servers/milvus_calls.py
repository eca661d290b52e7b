"""Calls to a Milvus server: every read strongly consistent, every error one sentence, expressions over integers.

Milvus answers at most 16,384 results a query and 16,384 rows a request; what needs more is asked in parts.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from fusehash.errors import DataError, ParameterError
from fusehash.search.rows import Ids
from fusehash.search.servers.address import Address, IndexGoneError, IndexServerError

MOST = 16384  # results of a query, rows of a request
_LISTED = 50_000  # integers written into one expression
_LOWEST = -(1 << 63)
_GONE = ("collection not found", "can't find collection", "CollectionNotExists")
# An idle connection is left alone: servers hang up on clients that ask every few seconds whether they are still there,
# and the next connection of the process to that place would be made to wait for it.
_QUIET = {
    "grpc.keepalive_time_ms": 300_000,
    "grpc.keepalive_permit_without_calls": 0,
    "grpc.use_local_subchannel_pool": 1,
}
#: What is said while a server is away or coming back.
_AWAY = (
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "Retry timeout", "Fail connecting", "not loaded", "not fully loaded",
    "node offline", "node not", "no available", "channel not", "not ready", "unavailable", "Unhealthy",
    "closed channel",
)  # fmt: skip


class Calls:
    """A client of one server; safe to use from several threads, and made anew in a process that was forked."""

    def __init__(self, address: Address) -> None:
        self._address = address
        host, _, port = address.hosts.rpartition(":")
        if not host or not port.isdigit():
            raise ParameterError("HammingIndex", "engine", "milvus://host:port/name", address.shown)
        self._place = host.strip("[]"), int(port)
        secure = address.options.get("secure", "").lower() in ("true", "1", "yes")
        self._uri = f"{'https' if secure else 'http'}://{address.hosts}"
        self._lock = threading.Lock()
        self._client: Any = None
        self._owner = 0
        self._closed = False
        self._reached = False  # whether the server has ever answered

    @property
    def timeout(self) -> float:
        return self._address.timeout

    @property
    def shown(self) -> str:
        return self._address.shown

    def __call__(self, name: str, *values: Any, patience: float = 0.0, **options: Any) -> Any:
        """Call a method of the client; while the server is away, again with a new client until the time is up.

        All that fusehash asks of Milvus may be asked twice: rows and tickets are written under numbers of their own.
        """
        pymilvus, deadline = _import(), time.monotonic() + max(patience, self.timeout)
        while True:
            client = None
            try:
                client = self._connected()
                return getattr(client, name)(*values, timeout=max(1.0, deadline - time.monotonic()), **options)
            except (pymilvus.MilvusException, _rpc_error(), _UnreachableError) as error:
                said = self._address.hide(getattr(error, "message", "") or error)
                if any(sign in said for sign in _GONE):
                    raise IndexGoneError(f"The index at {self.shown} was removed while it was open.") from None
                away = isinstance(error, _UnreachableError) or any(sign in said for sign in _AWAY)
                absent = isinstance(error, _UnreachableError) and not self._reached
                if not away or absent or time.monotonic() > deadline - 0.5:
                    what = "cannot be reached" if away else "could not do what was asked"
                    raise IndexServerError(f"The Milvus server at {self.shown} {what}: {said[:300]}.") from None
                self._forget(client)
            time.sleep(0.2)

    def rows(self, collection: str, filter: str, fields: list[str]) -> list[dict[str, Any]]:
        """What a filter finds; the caller sees to it that this is at most `MOST`."""
        options: dict[str, Any] = {"output_fields": fields, "consistency_level": "Strong", "limit": MOST}
        return list(self("query", collection, filter=filter, **options))

    def count(self, collection: str, filter: str) -> int:
        """How many rows a filter finds."""
        found = self("query", collection, filter=filter, output_fields=["count(*)"], consistency_level="Strong")
        return int(found[0]["count(*)"])

    def has(self, collection: str) -> bool:
        return bool(self("has_collection", collection))

    def schema(self) -> tuple[Any, Any]:
        """An empty schema and the kinds of fields there are."""
        pymilvus = _import()
        return pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False), pymilvus.DataType

    def create(self, collection: str, schema: Any, vector: str) -> None:
        """Make a collection, searched by comparing everything, and let it be loaded."""
        index = _import().MilvusClient.prepare_index_params()
        index.add_index(vector, index_type="BIN_FLAT", metric_type="HAMMING")
        options: dict[str, Any] = {"schema": schema, "index_params": index, "consistency_level": "Strong"}
        self("create_collection", collection, patience=60.0, **options)  # it is also loaded, which takes its time

    def close(self) -> None:
        self._closed = True
        self._forget(self._client)

    def _forget(self, client: Any) -> None:
        with self._lock:
            if client is None or client is not self._client:
                return
            self._client = None
        if self._owner == os.getpid():
            with contextlib.suppress(Exception):
                client.close()

    def _connected(self) -> Any:
        with self._lock:
            if self._closed:
                raise IndexServerError(f"The index at {self.shown} is closed; open it again.")
            if self._client is None or self._owner != os.getpid():
                try:  # says at once that nobody listens, where the client would keep trying
                    socket.create_connection(self._place, timeout=self.timeout).close()
                except OSError as error:
                    raise _UnreachableError(error.strerror or error) from None
                options, pymilvus = self._address.options, _import()
                secrets = {"user": self._address.user, "token": options.get("token", "")}
                secrets["password"] = self._address.password or os.environ.get("MILVUS_PASSWORD", "")
                self._client = pymilvus.MilvusClient(
                    uri=self._uri, db_name=options.get("database", ""), timeout=self.timeout, dedicated=True,
                    grpc_options=_QUIET,
                    **{name: value for name, value in secrets.items() if value},
                )  # fmt: skip
                self._owner, self._reached = os.getpid(), True
            return self._client


class _UnreachableError(Exception):
    """Nobody listens there."""


def any_of(field: str, values: Ids) -> Iterator[tuple[str, Ids]]:
    """Expressions that together say that ``field`` is one of ``values`` (ascending), each with its values."""
    for start in range(0, len(values), _LISTED):
        some = values[start : start + _LISTED]
        yield _expression(field, some), some


def _expression(field: str, values: Ids) -> str:
    # Milvus reads a number without its sign first, so that the lowest one cannot be written.
    if values[0] == _LOWEST:
        lowest = f"{field} < {_LOWEST + 1}"
        return lowest if len(values) == 1 else f"({lowest} or {_expression(field, values[1:])})"
    low, high = int(values[0]), int(values[-1])
    if high - low + 1 == len(values):
        return f"({field} >= {low} and {field} <= {high})"
    return f"{field} in [{','.join(map(str, values.tolist()))}]"


def parts(count: int, size: int = MOST) -> Iterator[slice]:
    """0 to ``count`` in slices."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def code_of(value: Any) -> bytes:
    """A binary vector as it comes back: bytes, in a list of one."""
    return value if isinstance(value, bytes) else bytes(value[0])


def matrix(values: list[bytes], n_bits: int) -> Any:
    """Codes out of binary vectors."""
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), n_bits // 8)


def _rpc_error() -> Any:
    import grpc

    return grpc.RpcError


def _import() -> Any:
    try:
        import pymilvus
    except ImportError as error:
        raise DataError(
            "The Milvus engine needs the package pymilvus; pip install 'fusehash[milvus]' brings it."
        ) from error
    # It prints a traceback for every error that it also raises; these are told once, here.
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "pymilvus"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return pymilvus
