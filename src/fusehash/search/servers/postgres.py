"""An index in a PostgreSQL database (extra ``postgres``): psycopg, its pool, and pgvector for the Hamming distance.

    fusehash_index   one row per index: width, highest id ever used, number of codes, number of changes (revision)
    NAME             (id bigint primary key, code bit(n)); NAME is ?index= of the address, "codes" by default

Every change is one transaction that locks its row of fusehash_index: writers wait for each other, readers see all of a
change or nothing. Searches compare all codes, or those whose ids are allowed, in order of (code <~> query, id).

A read that loses its connection is repeated once. So is a change, unless the connection broke during its commit: then
the server is asked whether it was committed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import CorruptIndexError, ParameterError
from fusehash.extras import require
from fusehash.search.ids import check_here, check_new, count_on, selected
from fusehash.search.rows import Allowed, CodeRows, Ids, InRange, Nearest
from fusehash.search.servers.address import Address, IndexServerError, NoIndexError, check_name

T = TypeVar("T")

_CREATE = (
    "CREATE TABLE IF NOT EXISTS fusehash_index (name text PRIMARY KEY, n_bits integer NOT NULL, "
    "last_id bigint NOT NULL, count bigint NOT NULL, revision bigint NOT NULL)"
)
_CREATION_LOCK = 0x46484958  # "FHIX": held while tables are created
_QUERIES_PER_STATEMENT = 64
_COPY_HEADER, _COPY_END = b"PGCOPY\n\xff\r\n\0" + bytes(8), b"\xff\xff"
_COPY_BLOCK = 1 << 16  # rows written at a time


class PostgresStore:
    """One index in a PostgreSQL database."""

    def __init__(self, address: Address, n_bits: int | None) -> None:
        self._connections = _Connections(address)
        self._run, self._driver, self._shown = self._connections.run, self._connections.driver, address.shown
        self._sql = self._driver.sql
        self._name = check_name(address.options.get("index", "codes"), address.shown)
        if self._name in ("fusehash_index", "fusehash_new"):  # tables of the store itself
            raise ParameterError("HammingIndex", "engine", "an address with another name of an index", address.shown)
        try:
            self.n_bits = self._run(lambda cursor: self._prepare(cursor, n_bits), write=True)
        except BaseException:
            self._connections.close()
            raise

    def __len__(self) -> int:
        return self._run(lambda cursor: int(self._state(cursor)[1]))

    def __str__(self) -> str:
        return f"at {self._shown}"

    def ids(self) -> Ids:
        return self._run(self._all_ids)

    def here(self, ids: Ids) -> NDArray[Any]:
        return np.isin(ids, self._run(lambda cursor: self._stored(cursor, ids)))

    def get(self, ids: Ids) -> Codes:
        query = "COPY (SELECT id, code FROM {} WHERE id = ANY({}) ORDER BY id) TO STDOUT BINARY"
        listed = self._sql.Literal(np.unique(ids).tolist())  # COPY takes no parameters
        stored, codes = self._run(lambda cursor: self._copy_out(cursor, query, listed))
        check_here(ids, np.isin(ids, stored))
        return codes[np.searchsorted(stored, ids)]

    def rows(self) -> CodeRows:
        blocks = list(self.blocks(65536))
        return CodeRows.gathered(self.n_bits // 8, sum(len(ids) for ids, _ in blocks), blocks)

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        """A separate connection reads one snapshot for as long as the iteration lasts."""
        return self._pages(self._connections.connect(snapshot=True), self._sql.Literal(size))

    def _pages(self, connection: Any, size: Any) -> Iterator[tuple[Ids, Codes]]:
        query, after = "COPY (SELECT id, code FROM {} {} ORDER BY id LIMIT {}) TO STDOUT BINARY", self._sql.SQL("")
        try:
            with connection.cursor() as cursor:
                while len((page := self._copy_out(cursor, query, after, size))[0]):
                    yield page
                    after = self._sql.SQL("WHERE id > {}").format(self._sql.Literal(int(page[0][-1])))
        except self._driver.Error as error:
            raise self._connections.explained(error) from None
        finally:
            connection.close()

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        def write(cursor: Any) -> Ids:
            last_id = self._state(cursor, "FOR UPDATE")[0]  # other writers wait until this transaction ends
            new = count_on(last_id, len(codes)) if ids is None else ids
            if ids is not None:
                check_new(np.sort(self._stored(cursor, ids)))
            self._copy_in(cursor, "COPY {} (id, code) FROM STDIN BINARY", new, codes)
            self._note(cursor, max(last_id, int(new.max())), len(new))
            return new

        return self._run(write, write=True)

    def remove(self, ids: Ids) -> None:
        delete = self._text("DELETE FROM {} WHERE id = ANY(%s)")
        self._change(ids, -len(ids), lambda cursor: cursor.execute(delete, (ids.tolist(),)))

    def replace(self, ids: Ids, codes: Codes) -> None:
        def write(cursor: Any) -> None:
            table = "CREATE TEMPORARY TABLE fusehash_new (id bigint, code bit({1})) ON COMMIT DROP"
            cursor.execute(self._text(table, self._sql.Literal(self.n_bits)))
            self._copy_in(cursor, "COPY fusehash_new (id, code) FROM STDIN BINARY", ids, codes)
            cursor.execute(self._text("UPDATE {0} SET code = n.code FROM fusehash_new AS n WHERE {0}.id = n.id"))

        self._change(ids, 0, write)

    def _change(self, ids: Ids, added: int, write: Callable[[Any], Any]) -> None:
        def work(cursor: Any) -> None:
            last_id = self._state(cursor, "FOR UPDATE")[0]
            check_here(ids, np.isin(ids, self._stored(cursor, ids)))
            write(cursor)
            self._note(cursor, last_id, added)

        self._run(work, write=True)

    def search(self, queries: Codes, k: int, allowed: Allowed, threads: int | None) -> Nearest:
        query = (
            "SELECT q.number, r.distance, r.id FROM unnest(%s::bit({1})[]) WITH ORDINALITY AS q(code, number) "
            "CROSS JOIN LATERAL (SELECT t.code <~> q.code AS distance, t.id FROM {0} AS t {2} ORDER BY 1, 2 LIMIT %s) "
            "AS r ORDER BY 1, 2, 3"
        )

        def read(cursor: Any) -> Nearest:
            chosen = self._chosen(cursor, allowed)
            available = self._state(cursor)[1] if chosen is None else len(self._stored(cursor, chosen))
            shape = len(queries), min(k, available)
            rows = self._rows(cursor, query, queries, chosen, shape[1])
            if len(rows) != shape[0] * shape[1]:
                raise CorruptIndexError(
                    f"The index at {self._shown} does not hold the {available} codes that it should."
                )
            return rows["distance"].reshape(shape).copy(), rows["id"].reshape(shape).copy()

        return self._run(read)

    def range_search(self, queries: Codes, radius: int, allowed: Allowed, threads: int | None) -> InRange:
        query = (
            "SELECT r.number, r.distance, r.id FROM (SELECT q.number, t.code <~> q.code AS distance, t.id "
            "FROM unnest(%s::bit({1})[]) WITH ORDINALITY AS q(code, number) CROSS JOIN {0} AS t {2}) AS r "
            "WHERE r.distance <= %s ORDER BY 1, 2, 3"
        )

        def read(cursor: Any) -> InRange:
            rows = self._rows(cursor, query, queries, self._chosen(cursor, allowed), min(radius, self.n_bits))
            counts = np.bincount(rows["query"], minlength=len(queries))
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            return offsets, rows["distance"].copy(), rows["id"].copy()

        return self._run(read)

    def _rows(self, cursor: Any, query: str, queries: Codes, chosen: Ids | None, limit: int) -> NDArray[Any]:
        """(query, distance, id) of all results of a search."""
        kind = np.dtype([("query", np.int64), ("distance", np.int32), ("id", np.int64)])
        narrowed = self._sql.SQL("" if chosen is None else "WHERE t.id = ANY(%s)")
        values = () if chosen is None else (chosen.tolist(),)
        statement, parts = self._text(query, self._sql.Literal(self.n_bits), narrowed), [np.empty(0, kind)]
        cursor.execute("SET LOCAL enable_indexscan = off")  # no approximate index over the table may answer
        for start in range(0, len(queries), _QUERIES_PER_STATEMENT):
            literals = ["x" + code.tobytes().hex() for code in queries[start : start + _QUERIES_PER_STATEMENT]]
            cursor.execute(statement, (literals, *values, limit))
            parts.append(np.array(cursor.fetchall(), kind))
            parts[-1]["query"] += start - 1
        return np.concatenate(parts)

    def compact(self) -> None:
        self._run(lambda cursor: cursor.execute(self._text("VACUUM {}")), autocommit=True)

    def stats(self) -> dict[str, Any]:
        def read(cursor: Any) -> dict[str, Any]:
            _, count, revision = self._state(cursor)
            cursor.execute("SELECT pg_total_relation_size(%s::regclass), version()", (f'"{self._name}"',))
            size, version = cursor.fetchone()
            counts = {"n_bits": self.n_bits, "count": count, "memory_bytes": 0, "engine": "postgresql"}
            server = {"table_bytes": size, "server": " ".join(version.split()[:2])}
            return {**counts, "address": self._shown, "revision": revision, **server}

        return self._run(read)

    def close(self) -> None:
        self._connections.close()

    def _prepare(self, cursor: Any, n_bits: int | None) -> int:
        """Create the tables where they are missing; the width of the codes."""
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
        if cursor.execute("SELECT to_regclass('fusehash_index') IS NOT NULL").fetchone()[0]:
            cursor.execute("SELECT n_bits FROM fusehash_index WHERE name = %s", (self._name,))
            if row := cursor.fetchone():
                return int(row[0])
        if n_bits is None:
            raise NoIndexError(f"There is no index at {self._shown}; pass n_bits to create one.")
        try:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        except self._driver.Error as error:
            if cursor.connection.closed:
                raise
            raise self._connections.explained(error, "needs the extension pgvector, 0.7 or later") from None
        cursor.execute(_CREATE)
        table = "CREATE TABLE {} (id bigint PRIMARY KEY, code bit({}) NOT NULL)"
        try:
            cursor.execute(self._text(table, self._sql.Literal(n_bits)))
        except self._driver.errors.DuplicateTable as error:
            raise self._connections.explained(error, "has a table that is not an index of fusehash") from None
        cursor.execute("INSERT INTO fusehash_index VALUES (%s, %s, -1, 0, 0)", (self._name, n_bits))
        return n_bits

    def _state(self, cursor: Any, ending: str = "") -> tuple[int, int, int]:
        """The highest id ever used, the number of codes, the number of changes."""
        query = f"SELECT last_id, count, revision FROM fusehash_index WHERE name = %s {ending}"
        row = cursor.execute(query, (self._name,)).fetchone()
        if row is None:
            raise IndexServerError(f"The index at {self._shown} was removed while it was open.")
        return tuple(row)

    def _note(self, cursor: Any, last_id: int, added: int) -> None:
        query = "UPDATE fusehash_index SET last_id = %s, count = count + %s, revision = revision + 1 WHERE name = %s"
        cursor.execute(query, (last_id, added, self._name))

    def _stored(self, cursor: Any, ids: Ids) -> Ids:
        """Those of some ids that are in the table."""
        cursor.execute(self._text("SELECT id FROM {} WHERE id = ANY(%s)"), (ids.tolist(),))
        return np.array([id for (id,) in cursor.fetchall()], np.int64)

    def _all_ids(self, cursor: Any) -> Ids:
        return self._copy_out(cursor, "COPY (SELECT id FROM {} ORDER BY id) TO STDOUT BINARY", n_bits=0)[0]

    def _chosen(self, cursor: Any, allowed: Allowed) -> Ids | None:
        if allowed is None or allowed.dtype != bool:
            return allowed
        ids = self._all_ids(cursor)
        return ids[selected(allowed, len(ids))]

    def _copy_in(self, cursor: Any, statement: str, ids: Ids, codes: Codes) -> None:
        with cursor.copy(self._text(statement)) as copy:
            for part in to_copy(ids, codes):
                copy.write(part)

    def _copy_out(self, cursor: Any, statement: str, *values: Any, n_bits: int | None = None) -> tuple[Ids, Codes]:
        with cursor.copy(self._text(statement, *values)) as copy:
            return from_copy(b"".join(copy), self.n_bits if n_bits is None else n_bits)

    def _text(self, query: str, *values: Any) -> Any:
        return self._sql.SQL(query).format(self._sql.Identifier(self._name), *values)


class _Connections:
    """A pool of connections for the threads of this process; transactions that survive a lost connection."""

    def __init__(self, address: Address) -> None:
        self.driver = require("psycopg", "The PostgreSQL engine")
        require("psycopg.sql", "The PostgreSQL engine")
        self._pools = require("psycopg_pool", "The PostgreSQL engine")
        logging.getLogger("psycopg.pool").setLevel(logging.ERROR)  # lost connections are raised here
        self._address = address
        login = quote(address.user, safe="") + (":" + quote(address.password, safe="") if address.password else "")
        options = {name: value for name, value in address.options.items() if name != "index"}
        where = f"{login + '@' if login else ''}{address.hosts}/{quote(address.path, safe='')}"
        self._conninfo = f"postgresql://{where}?{urlencode(options)}"
        self._settings = {
            "connect_timeout": max(2, round(address.timeout)), "application_name": "fusehash", "keepalives_idle": 30,
            "tcp_user_timeout": round(address.timeout * 1000), "prepare_threshold": None,
        }  # fmt: skip
        self._lock = threading.Lock()
        self._by_process: dict[int, Any] = {}  # a forked process needs a pool of its own and leaves the other alone
        self._closed = False

    def run(self, work: Callable[[Any], T], *, write: bool = False, autocommit: bool = False) -> T:
        """Run ``work`` in one transaction; once more if the connection is lost before the commit."""
        levels = self.driver.IsolationLevel
        for retry in (True, False):
            transaction = None
            try:
                with self._connection() as connection, connection.cursor() as cursor:
                    connection.autocommit = autocommit
                    connection.isolation_level = levels.READ_COMMITTED if write else levels.REPEATABLE_READ
                    number = cursor.execute("SELECT pg_current_xact_id()::text").fetchone()[0] if write else None
                    result = work(cursor)
                    transaction = number  # all that is left is to commit it
                return result
            except self.driver.Error as error:
                lost = bool(connection.closed or connection.broken)
                if lost and transaction is not None and self._is_committed(transaction, error):
                    return result
                if not lost or not retry:
                    raise self.explained(error) from None
                self._pool().check()  # idle connections may be lost as well
        raise AssertionError

    def connect(self, *, snapshot: bool = False) -> Any:
        """A connection outside the pool; with ``snapshot``, all it reads is as of now."""
        try:
            connection = self.driver.connect(self._conninfo, **self._settings)
            self._configure(connection)
            if snapshot:
                connection.isolation_level = self.driver.IsolationLevel.REPEATABLE_READ
                connection.execute("SELECT 1")
        except self.driver.Error as error:
            raise self.explained(error, "cannot be reached") from None
        return connection

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pool = self._by_process.pop(os.getpid(), None)
        if pool is not None:
            pool.close()

    def explained(self, error: Exception, problem: str = "reported an error") -> IndexServerError:
        """An error of the driver as one sentence about this server."""
        if isinstance(error, self.driver.errors.UndefinedTable):
            return IndexServerError(f"The index at {self._address.shown} was removed while it was open.")
        reason = self._reason(error)
        if isinstance(error, self.driver.errors.LockNotAvailable):
            reason = f"another writer has held the lock for {self._address.timeout:g} s"
        return IndexServerError(f"The PostgreSQL server at {self._address.shown} {problem}: {reason}.")

    def _reason(self, error: Exception) -> str:
        return self._address.hide((str(error).strip() or type(error).__name__).splitlines()[0])

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection of the pool; committed at the end, rolled back after an error."""
        pool, deadline = self._pool(), time.monotonic() + self._address.timeout
        while True:
            try:
                connection = pool.getconn(timeout=1.0)
                break
            except self._pools.PoolTimeout:
                self.connect().close()  # raises if the server cannot be reached
                if time.monotonic() > deadline:
                    raise IndexServerError(f"All connections to {self._address.shown} are in use.") from None
        try:
            with connection:
                yield connection
        finally:
            pool.putconn(connection)

    def _pool(self) -> Any:
        with self._lock:
            if self._closed:
                raise IndexServerError(f"The index at {self._address.shown} is closed; open it again.")
            if os.getpid() not in self._by_process:
                # The pool does not retry on its own: the next call does.
                self._by_process[os.getpid()] = self._pools.ConnectionPool(
                    self._conninfo, kwargs=self._settings, configure=self._configure, min_size=0, open=True,
                    max_size=32, num_workers=1, reconnect_timeout=0.0,
                )  # fmt: skip
            return self._by_process[os.getpid()]

    def _configure(self, connection: Any) -> None:
        connection.execute(
            "SELECT set_config('lock_timeout', %s, false), "
            "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
            "ELSE current_setting('synchronous_commit') END, false)",
            (f"{round(self._address.timeout * 1000)}ms",),
        )
        connection.commit()

    def _is_committed(self, transaction: str, error: Exception) -> bool:
        """Ask what became of a transaction whose connection broke during the commit."""
        deadline = time.monotonic() + self._address.timeout
        while time.monotonic() < deadline:  # the server may be restarting, or still be committing
            with contextlib.suppress(IndexServerError, self.driver.Error), contextlib.closing(self.connect()) as other:
                (status,) = other.execute("SELECT pg_xact_status(%s::xid8)", (transaction,)).fetchone()
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
            time.sleep(0.2)
        raise IndexServerError(
            f"The connection to {self._address.shown} broke during the commit of a change, and it is not known whether "
            f"the change is in the index: {self._reason(error)}."
        ) from None


def to_copy(ids: Ids, codes: Codes) -> Iterator[bytes]:
    """Rows of an index in the binary format of COPY: a header, rows, an end mark."""
    n_bytes = codes.shape[1]
    yield _COPY_HEADER
    for start in range(0, len(ids), _COPY_BLOCK):
        rows = np.empty(min(_COPY_BLOCK, len(ids) - start), _row(n_bytes))
        rows["fields"], rows["id_bytes"], rows["bytes"], rows["bits"] = 2, 8, 4 + n_bytes, 8 * n_bytes
        rows["id"], rows["code"] = ids[start : start + _COPY_BLOCK], codes[start : start + _COPY_BLOCK]
        yield rows.tobytes()
    yield _COPY_END


def from_copy(data: bytes, n_bits: int) -> tuple[Ids, Codes]:
    """Ids and codes from what COPY TO has written; with 0 bits, rows that have ids only."""
    extension = int.from_bytes(data[15:19], "big")
    rows = np.frombuffer(data[19 + extension : -2], _row(n_bits // 8))
    codes = np.ascontiguousarray(rows["code"]) if n_bits else np.empty((len(rows), 0), np.uint8)
    return rows["id"].astype(np.int64), codes


def _row(n_bytes: int) -> np.dtype[Any]:
    """The number of fields, then the length and content of each; a bit string is its number of bits and its bytes."""
    id = [("fields", ">i2"), ("id_bytes", ">i4"), ("id", ">i8")]
    return np.dtype([*id, ("bytes", ">i4"), ("bits", ">i4"), ("code", "u1", n_bytes)] if n_bytes else id)
