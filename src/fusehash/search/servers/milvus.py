"""An index on a Milvus server (extra ``milvus``): binary vectors, all of them compared (BIN_FLAT, HAMMING), so exact.

    NAME           one entity per code: its id, which is the primary key, and the code
    NAME_last_id   the highest id ever used, so that a removed id is never counted out again

You get the promises of Milvus, which has no transactions. Every read is strongly consistent: it sees all changes that
have returned. Ids are checked before anything is written. A change is sent in requests of 16,384 codes, so other
readers may see a part of a larger one; if the call raises in the middle, a part may be written, and the error says so.
A request that is repeated after a lost connection writes by primary key and changes nothing twice. Two writers never
count out the same id, but if both add the same explicit id at the same time, the later code replaces the earlier one.
Acknowledged requests are in the message queue of the server: they survive kill -9, and a power failure as far as the
queue does.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import DataError, ParameterError
from fusehash.extras import require
from fusehash.search.ids import check_here, check_new, count_on, selected
from fusehash.search.rows import Allowed, CodeRows, Ids, InRange, Nearest
from fusehash.search.servers.address import Address, IndexServerError, NoIndexError, check_name

_MAX_RESULTS = 16384  # per query, and the entities per request
_MAX_BATCH_RESULTS = 1 << 18  # per request, summed over its queries
_MAX_LISTED = 50_000  # ids in one filter expression
_SPARE_RESULTS = 64  # requested in addition to 2 k, so that ties at the k-th distance are usually complete
_LOWEST, _HIGHEST = 1 - (1 << 63), (1 << 63) - 2  # ids; Milvus does not parse a lower one and reserves the higher one
# Servers hang up on clients that send keepalive pings every few seconds.
_GRPC_OPTIONS = {"grpc.keepalive_time_ms": 300_000, "grpc.keepalive_permit_without_calls": 0,
                 "grpc.use_local_subchannel_pool": 1}  # fmt: skip
# What Milvus says of a collection that is gone, and while it is away or coming back.
_REMOVED = ("collection not found", "can't find collection", "CollectionNotExists")
_UNAVAILABLE = (
    "UNAVAILABLE", "DEADLINE_EXCEEDED", "Retry timeout", "Fail connecting", "not loaded", "not fully loaded",
    "node not", "node offline", "no available", "channel not", "not ready", "unavailable", "Unhealthy",
    "closed channel",
)  # fmt: skip

Answer = NDArray[Any]  # of one query
_ANSWER = np.dtype([("distance", np.int32), ("id", np.int64)])


class MilvusStore:
    """One index on a Milvus server."""

    def __init__(self, address: Address, n_bits: int | None) -> None:
        self._name = check_name(address.path, address.shown)
        self._counter = f"{self._name}_last_id"
        self._shown = address.shown
        self._last_id = -1  # the highest id ever used is at least this
        self._writer = threading.Lock()
        self._call = _Client(address)
        try:
            self.n_bits = self._prepare(n_bits)
        except BaseException:
            self._call.close()
            raise

    def __str__(self) -> str:
        return f"at {self._shown}"

    def __len__(self) -> int:
        return int(self._query("", ["count(*)"])[0]["count(*)"])

    def ids(self) -> Ids:
        return self._read_all(["id"])[0]

    def here(self, ids: Ids) -> NDArray[Any]:
        return np.isin(ids, self._read(ids, ["id"])[0])

    def get(self, ids: Ids) -> Codes:
        stored, codes = self._read(ids, ["id", "code"])
        check_here(ids, np.isin(ids, stored))
        return codes[np.searchsorted(stored, ids)]

    def rows(self) -> CodeRows:
        blocks = list(self.blocks(65536))
        return CodeRows.gathered(self.n_bits // 8, sum(len(ids) for ids, _ in blocks), blocks)

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        """Everything is read first: Milvus keeps no snapshots."""
        ids, codes = self._read_all(["id", "code"])
        return ((ids[part], codes[part]) for part in _slices(len(ids), size))

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        with self._writer:
            if ids is None:
                ids = self._next_ids(len(codes))
            elif ids.min() < _LOWEST or ids.max() > _HIGHEST:
                raise DataError(f"Ids on Milvus must be from {_LOWEST} to {_HIGHEST}. Got others.")
            else:
                check_new(self._read(ids, ["id"])[0])
                highest = int(ids.max())
                if highest > self._last_id:
                    self._last_id = max(highest, self._note_last_id(highest))
            self._send("insert", ids, codes)
        return ids

    def remove(self, ids: Ids) -> None:
        self.replace(ids, None)

    def replace(self, ids: Ids, codes: Codes | None) -> None:
        with self._writer:
            check_here(ids, self.here(ids))
            self._send("delete" if codes is None else "upsert", ids, codes)

    def _send(self, method: str, ids: Ids, codes: Codes | None = None) -> None:
        try:
            for part in _slices(len(ids), _MAX_RESULTS):
                if codes is None:
                    self._call(method, self._name, filter=_any_of(ids[part]))
                else:
                    pairs = zip(ids[part].tolist(), codes[part], strict=True)
                    self._call(method, self._name, [{"id": id, "code": code.tobytes()} for id, code in pairs])
        except IndexServerError as error:
            concerned = f"{len(ids)} ids from {ids.min()} to {ids.max()}"
            raise IndexServerError(f"{error} A part of this change of {concerned} may be written.") from None

    def _next_ids(self, count: int) -> Ids:
        """Reserve the next ids. Of two writers that note the same ids, at least one sees the other and goes on."""
        while True:
            ids = count_on(self._last_id, count)
            self._last_id = self._note_last_id(int(ids[-1]))
            if self._last_id < ids[0]:
                self._last_id = int(ids[-1])
                return ids
            time.sleep(random.uniform(0.0, 0.1))

    def _note_last_id(self, last_id: int) -> int:
        """Note that ids up to this one are used and delete lower notes; the highest note of others."""
        key = secrets.randbits(62)
        self._call("upsert", self._counter, [{"key": key, "last_id": last_id, "unused": b"\0"}])
        notes = {note["key"]: note["last_id"] for note in self._query("", ["key", "last_id"], self._counter)}
        if lower := [other for other, noted in notes.items() if noted < last_id]:
            self._call("delete", self._counter, ids=lower)
        return max((noted for other, noted in notes.items() if other != key), default=-1)

    def search(self, queries: Codes, k: int, allowed: Allowed, threads: int | None) -> Nearest:
        chosen = self._chosen(allowed)
        answers = self._answers(queries, chosen, lambda filter: self._nearest(queries, k, filter))
        if answers:
            columns = min(k, *map(len, answers))
        else:
            columns = min(k, len(self) if chosen is None else int(np.count_nonzero(self.here(chosen))))
        table = np.array([answer[:columns] for answer in answers], _ANSWER).reshape(len(queries), columns)
        return table["distance"].copy(), table["id"].copy()

    def range_search(self, queries: Codes, radius: int, allowed: Allowed, threads: int | None) -> InRange:
        chosen = self._chosen(allowed)
        answers = self._answers(queries, chosen, lambda filter: self._within(queries, radius, filter))
        offsets = np.concatenate([[0], np.cumsum([len(answer) for answer in answers])]).astype(np.int64)
        flat = np.concatenate([np.empty(0, _ANSWER), *answers])
        return offsets, flat["distance"].copy(), flat["id"].copy()

    def _answers(self, queries: Codes, chosen: Ids | None, ask: Callable[[str], list[Answer]]) -> list[Answer]:
        """The answers of all queries in order of (distance, id); ``ask`` is called once for every 50,000 chosen ids."""
        filters = [""] if chosen is None else [_any_of(chosen[part]) for part in _slices(len(chosen), _MAX_LISTED)]
        parts = [ask(filter) for filter in filters if len(queries)]
        whole = [np.concatenate([np.empty(0, _ANSWER), *(part[i] for part in parts)]) for i in range(len(queries))]
        return [np.sort(answer, order=["distance", "id"]) for answer in whole]

    def _nearest(self, queries: Codes, k: int, filter: str) -> list[Answer]:
        """At least the k nearest of every query. Milvus orders by distance alone, and ties may be cut off."""
        if k >= _MAX_RESULTS:
            return self._within(queries, self.n_bits, filter)
        limit = min(_MAX_RESULTS, 2 * k + _SPARE_RESULTS)
        answers = self._ask(queries, limit, filter)
        for i, answer in enumerate(answers):
            if len(answer) == limit and (kth := np.sort(answer["distance"])[k - 1]) == answer["distance"].max():
                answers[i] = self._with_ties(queries[i : i + 1], answer, k, int(kth), filter)
        return answers

    def _with_ties(self, query: Codes, answer: Answer, k: int, kth: int, filter: str) -> Answer:
        """Add the ties at the k-th distance that belong to the k nearest: those with the lowest ids."""
        while True:
            last = np.sort(answer, order=["distance", "id"])["id"][k - 1]
            ties = self._ask(query, _MAX_RESULTS, _both(filter, f"id < {last}"), (kth, kth))[0]
            answer = np.unique(np.concatenate([answer, ties]))
            if len(ties) < _MAX_RESULTS:
                return answer

    def _within(self, queries: Codes, radius: int, filter: str) -> list[Answer]:
        """All results of every query up to ``radius``. An answer that is full is requested again in two halves."""
        answers = self._ask(queries, _MAX_RESULTS, filter, (0, radius))
        for i, answer in enumerate(answers):
            if len(answer) == _MAX_RESULTS:
                middle = np.sort(answer["id"])[len(answer) // 2]
                halves = [_both(filter, f"id {sign} {middle}") for sign in ("<", ">=")]
                answers[i] = np.concatenate([self._within(queries[i : i + 1], radius, half)[0] for half in halves])
        return answers

    def _ask(self, queries: Codes, limit: int, filter: str, between: tuple[int, int] | None = None) -> list[Answer]:
        """The ``limit`` nearest of every query, or any at distances ``between`` two values, both included."""
        params = {}
        if between is not None:  # Milvus excludes "radius" and includes "range_filter"
            params = {"radius": min(between[1], self.n_bits) + 1, "range_filter": between[0]}
        answers = []
        for part in _slices(len(queries), max(1, _MAX_BATCH_RESULTS // limit)):
            for hits in self._call(
                "search", self._name, data=[code.tobytes() for code in queries[part]], limit=limit, filter=filter,
                search_params={"metric_type": "HAMMING", "params": params}, consistency_level="Strong",
                anns_field="code",
            ):  # fmt: skip
                answers.append(np.empty(len(hits), _ANSWER))
                answers[-1]["distance"], answers[-1]["id"] = hits.distances, hits.ids
        return answers

    def compact(self) -> None:
        """Flush, after which searches are several times faster, and compact."""
        try:
            self._call("flush", self._name)
            self._call("compact", self._name)
        except IndexServerError as error:
            if "UNIMPLEMENTED" not in str(error):  # milvus-lite has nothing to compact
                raise

    def stats(self) -> dict[str, Any]:
        counts = {"n_bits": self.n_bits, "count": len(self), "memory_bytes": 0}
        return {**counts, "engine": "milvus", "address": self._shown}

    def close(self) -> None:
        self._call.close()

    def _prepare(self, n_bits: int | None) -> int:
        """Create the collections where they are missing; the width of the codes."""
        exists = self._call("has_collection", self._name)
        if exists:
            fields = {field["name"]: field for field in self._call("describe_collection", self._name)["fields"]}
            if fields.keys() != {"id", "code"}:
                raise IndexServerError(f"The collection at {self._shown} is not an index of fusehash.")
            n_bits = int(fields["code"]["params"]["dim"])
        if n_bits is None:
            raise NoIndexError(f"There is no index at {self._shown}; pass n_bits to create one.")
        if not exists or not self._call("has_collection", self._counter):
            self._create(self._name, ["id"], "code", n_bits)
            self._create(self._counter, ["key", "last_id"], "unused", 8)  # every collection needs a vector
        return n_bits

    def _create(self, name: str, integers: list[str], vector: str, n_bits: int) -> None:
        """Create, index and load a collection; several processes may do so at the same time."""
        milvus = _pymilvus()
        schema = milvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        for field in integers:
            schema.add_field(field, milvus.DataType.INT64, is_primary=field == integers[0])
        schema.add_field(vector, milvus.DataType.BINARY_VECTOR, dim=n_bits)
        index = milvus.MilvusClient.prepare_index_params()
        index.add_index(vector, index_type="BIN_FLAT", metric_type="HAMMING")
        options: dict[str, Any] = {"schema": schema, "index_params": index, "consistency_level": "Strong"}
        self._call("create_collection", name, at_least_s=60.0, **options)  # loading takes seconds

    def _query(self, filter: str, fields: list[str], name: str | None = None) -> list[dict[str, Any]]:
        options: dict[str, Any] = {} if fields == ["count(*)"] else {"limit": _MAX_RESULTS}
        options |= {"filter": filter, "output_fields": fields, "consistency_level": "Strong"}
        return list(self._call("query", name or self._name, **options))

    def _read(self, ids: Ids, fields: list[str]) -> tuple[Ids, Codes]:
        """Those of some ids that are in the index, ascending, and their codes."""
        ids = _possible(np.unique(ids))
        return self._joined([self._page(_any_of(ids[part]), fields) for part in _slices(len(ids), _MAX_RESULTS)])

    def _read_all(self, fields: list[str]) -> tuple[Ids, Codes]:
        """All ids, ascending, and their codes. Milvus answers queries in order of the primary key."""
        pages = [self._page("", fields)]
        while len(pages[-1][0]) == _MAX_RESULTS:
            pages.append(self._page(f"id > {pages[-1][0][-1]}", fields))
        return self._joined(pages)

    def _page(self, filter: str, fields: list[str]) -> tuple[Ids, Codes]:
        rows = sorted(self._query(filter, fields), key=itemgetter("id"))
        codes = [row["code"] for row in rows if "code" in row]
        data = b"".join(code if isinstance(code, bytes) else code[0] for code in codes)
        ids = np.fromiter((row["id"] for row in rows), np.int64, len(rows))
        return ids, np.frombuffer(data, np.uint8).reshape(len(codes), self.n_bits // 8)

    def _joined(self, pages: list[tuple[Ids, Codes]]) -> tuple[Ids, Codes]:
        pages = [(np.empty(0, np.int64), np.empty((0, self.n_bits // 8), np.uint8)), *pages]
        return np.concatenate([ids for ids, _ in pages]), np.concatenate([codes for _, codes in pages])

    def _chosen(self, allowed: Allowed) -> Ids | None:
        if allowed is None or allowed.dtype != bool:
            return None if allowed is None else _possible(allowed)
        ids = self.ids()
        return ids[selected(allowed, len(ids))]


class _Client:
    """Calls methods of pymilvus.MilvusClient, again while the server is away; safe for threads and after a fork."""

    def __init__(self, address: Address) -> None:
        self._address = address
        host, _, port = address.hosts.rpartition(":")
        if not host or not port.isdigit():
            raise ParameterError("HammingIndex", "engine", "milvus://host:port/name", address.shown)
        self._host = host.strip("[]"), int(port)
        self._lock = threading.Lock()
        self._client: Any = None
        self._process = 0
        self._closed = False
        self._answered = False  # whether the server has ever answered

    def __call__(self, method: str, *values: Any, at_least_s: float = 0.0, **options: Any) -> Any:
        errors = _pymilvus().MilvusException, require("grpc", "The Milvus engine").RpcError, OSError
        deadline = time.monotonic() + max(at_least_s, self._address.timeout)
        while True:
            client = None
            try:
                client = self._connected()
                return getattr(client, method)(*values, timeout=max(1.0, deadline - time.monotonic()), **options)
            except IndexServerError:
                raise
            except errors as error:
                reason = self._address.hide(getattr(error, "message", "") or getattr(error, "strerror", "") or error)
                refused = isinstance(error, OSError)
                away = refused or any(sign in reason for sign in _UNAVAILABLE)
                if any(sign in reason for sign in _REMOVED):
                    raise IndexServerError(
                        f"The index at {self._address.shown} was removed while it was open."
                    ) from None
                if not away or (refused and not self._answered) or time.monotonic() > deadline - 0.5:
                    problem = f"{'cannot be reached' if away else 'reported an error'}: {reason[:300]}"
                    raise IndexServerError(f"The Milvus server at {self._address.shown} {problem}.") from None
                self._forget(client)
            method = "upsert" if method == "insert" else method  # the lost request may have been carried out
            time.sleep(0.2)

    def close(self) -> None:
        self._closed = True
        self._forget(self._client)

    def _forget(self, client: Any) -> None:
        with self._lock, contextlib.suppress(Exception):
            if client is not None and client is self._client:
                self._client = None
                if self._process == os.getpid():
                    client.close()

    def _connected(self) -> Any:
        with self._lock:
            if self._closed:
                raise IndexServerError(f"The index at {self._address.shown} is closed; open it again.")
            if self._client is None or self._process != os.getpid():
                # Raises at once if nobody listens, where pymilvus would keep trying.
                socket.create_connection(self._host, timeout=self._address.timeout).close()
                options = self._address.options
                scheme = "https" if options.get("secure", "").lower() in ("true", "1", "yes") else "http"
                login = {"user": self._address.user, "token": options.get("token", "")}
                login["password"] = self._address.password or os.environ.get("MILVUS_PASSWORD", "")
                self._client = _pymilvus().MilvusClient(
                    uri=f"{scheme}://{self._address.hosts}", db_name=options.get("database", ""), dedicated=True,
                    timeout=self._address.timeout, grpc_options=_GRPC_OPTIONS,
                    **{name: value for name, value in login.items() if value},
                )  # fmt: skip
                self._process, self._answered = os.getpid(), True
            return self._client


def _pymilvus() -> Any:
    milvus = require("pymilvus", "The Milvus engine")
    # It logs a traceback for every error that it also raises.
    for name in [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "pymilvus"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return milvus


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def _possible(ids: Ids) -> Ids:
    return ids[(ids >= _LOWEST) & (ids <= _HIGHEST)]


def _any_of(ids: Ids) -> str:
    return f"id in [{','.join(map(str, ids.tolist()))}]"


def _both(*filters: str) -> str:
    return " and ".join(filter for filter in filters if filter)
