"""An index in a PostgreSQL server (extra ``postgres``): psycopg, and pgvector for the distance of bit strings.

    fusehash_index   one row an index: its width, the highest id ever used, how many codes, a number that counts changes
    NAME             (id bigint primary key, code bit(n)), NAME from ?index= of the address, "codes" by default

Every change is one transaction that holds its row of fusehash_index locked, so that writers wait for each other and
readers see all of it or nothing. Searches are exact: all codes in order of (code <~> query, id), or those whose ids are
allowed; an approximate index that somebody may have laid over the table is not used. Codes travel in PostgreSQL's
binary format: their bytes as they are, so that the bytes that come back are those that went. What happens when the
connection is lost stands in postgres_connections.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fusehash.bits import Codes
from fusehash.errors import CorruptIndexError, ParameterError
from fusehash.search.rows import Distances, Ids, Ints, check_here, check_new, chosen_by_mask, count_on
from fusehash.search.servers import postgres_rows as binary
from fusehash.search.servers.address import Address, IndexGoneError, IndexServerError, NoIndexError, check_name
from fusehash.search.servers.postgres_connections import Connections, driver, reason

T = TypeVar("T")

_STATE = (
    "CREATE TABLE IF NOT EXISTS fusehash_index (name text PRIMARY KEY, n_bits integer NOT NULL, "
    "last_id bigint NOT NULL, count bigint NOT NULL, generation bigint NOT NULL)"
)
_LOCK = 0x46484958  # "FHIX": held while tables are made
_QUERIES = 64  # answered by one statement


class PostgresStore:
    """One index in a PostgreSQL database."""

    def __init__(self, address: Address, n_bits: int | None) -> None:
        self._driver, self._address = driver(), address
        self._sql = self._driver.sql
        self._name = check_name(address.options.get("index", "codes"), address.shown)
        if self._name in ("fusehash_index", "fusehash_new"):  # tables of its own
            raise ParameterError("HammingIndex", "engine", "an address with another name of an index", address.shown)
        self._connections = Connections(address)
        try:
            self.n_bits = self._connections.changing(lambda cursor: self._prepare(cursor, n_bits))
        except BaseException:
            self._connections.close()
            raise

    # -- what is there -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._connections.reading(lambda cursor: int(self._state(cursor)[1]))

    def __str__(self) -> str:
        return f"at {self._address.shown}"

    def ids(self) -> Ids:
        ids = self._connections.reading(self._all_ids)
        ids.flags.writeable = False
        return ids

    def here(self, ids: Ids) -> NDArray[Any]:
        found = self._connections.reading(
            lambda cursor: self._some(cursor, "SELECT id FROM {} WHERE id = ANY(%s)", ids)
        )
        return np.isin(ids, found)

    def get(self, ids: Ids) -> Codes:
        def read(cursor: Any) -> tuple[Ids, Codes]:
            # COPY takes no parameters; the numbers are written out by the driver.
            wanted = self._sql.Literal(np.unique(ids).tolist())
            query = "COPY (SELECT id, code FROM {} WHERE id = ANY({}) ORDER BY id) TO STDOUT BINARY"
            return binary.rows(self._copied(cursor, self._text(query, wanted)), self.n_bits)

        found, codes = self._connections.reading(read)
        spots = np.searchsorted(found, ids)
        here = np.zeros(len(ids), bool)
        here[spots < len(found)] = found[spots[spots < len(found)]] == ids[spots < len(found)]
        check_here(ids, here)
        return codes[spots]

    def blocks(self, size: int) -> Iterator[tuple[Ids, Codes]]:
        """One connection of its own reads a snapshot as long as the iteration lasts."""
        connection = self._connections.connect()
        try:
            connection.isolation_level = self._driver.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT 1")  # which is when the snapshot is taken
        except self._driver.Error as error:
            connection.close()
            raise self._connections.told(error) from None
        return self._pages(connection, size)

    def _pages(self, connection: Any, size: int) -> Iterator[tuple[Ids, Codes]]:
        first = self._text(
            "COPY (SELECT id, code FROM {} ORDER BY id LIMIT {}) TO STDOUT BINARY", self._sql.Literal(size)
        )
        after = "COPY (SELECT id, code FROM {} WHERE id > {} ORDER BY id LIMIT {}) TO STDOUT BINARY"
        try:
            with connection.cursor() as cursor:
                ids, codes = binary.rows(self._copied(cursor, first), self.n_bits)
                while len(ids):
                    yield ids, codes
                    last, most = self._sql.Literal(int(ids[-1])), self._sql.Literal(size)
                    ids, codes = binary.rows(self._copied(cursor, self._text(after, last, most)), self.n_bits)
        except self._driver.Error as error:
            raise self._connections.told(error) from None
        finally:
            connection.close()

    # -- changes -------------------------------------------------------------------------------------------------

    def add(self, ids: Ids | None, codes: Codes) -> Ids:
        def write(cursor: Any) -> Ids:
            last_id, _ = self._locked(cursor)
            new = count_on(last_id, len(codes)) if ids is None else ids
            if ids is not None:
                check_new(np.sort(self._some(cursor, "SELECT id FROM {} WHERE id = ANY(%s)", ids)))
            self._copy_in(cursor, self._text("COPY {} (id, code) FROM STDIN BINARY"), new, codes)
            self._note(cursor, max(last_id, int(new.max())), len(new))
            return new

        return self._connections.changing(write)

    def remove(self, ids: Ids) -> None:
        def write(cursor: Any) -> None:
            last_id, _ = self._locked(cursor)
            self._check_here(cursor, ids)
            cursor.execute(self._text("DELETE FROM {} WHERE id = ANY(%s)"), (ids.tolist(),))
            self._note(cursor, last_id, -len(ids))

        self._connections.changing(write)

    def replace(self, ids: Ids, codes: Codes) -> None:
        def write(cursor: Any) -> None:
            last_id, _ = self._locked(cursor)
            self._check_here(cursor, ids)
            cursor.execute(
                self._text("CREATE TEMPORARY TABLE fusehash_new (id bigint, code bit({1})) ON COMMIT DROP", self._width)
            )
            self._copy_in(cursor, self._text("COPY fusehash_new (id, code) FROM STDIN BINARY"), ids, codes)
            cursor.execute(self._text("UPDATE {0} SET code = n.code FROM fusehash_new AS n WHERE {0}.id = n.id"))
            self._note(cursor, last_id, 0)

        self._connections.changing(write)

    # -- searches ------------------------------------------------------------------------------------------------

    def search(
        self, queries: Codes, k: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Distances, Ids]:
        query = (
            "SELECT r.distance, r.id FROM unnest(%s::bit({1})[]) WITH ORDINALITY AS q(code, number) CROSS JOIN LATERAL "
            "(SELECT t.code <~> q.code AS distance, t.id FROM {0} AS t {2} ORDER BY 1, 2 LIMIT %s) AS r "
            "ORDER BY q.number, r.distance, r.id"
        )

        def read(cursor: Any) -> tuple[Distances, Ids]:
            chosen = self._chosen(cursor, allowed)
            narrowed, values = self._narrowed(chosen)
            columns = min(k, self._how_many(cursor, chosen))
            distances = np.empty((len(queries), columns), np.int32)
            ids = np.empty((len(queries), columns), np.int64)
            self._exactly(cursor)
            for start in range(0, len(queries) if columns else 0, _QUERIES):
                some = queries[start : start + _QUERIES]
                cursor.execute(self._text(query, self._width, narrowed), (binary.literals(some), *values, columns))
                found = np.array(cursor.fetchall(), dtype=[("distance", np.int32), ("id", np.int64)])
                if len(found) != len(some) * columns:
                    raise CorruptIndexError(
                        f"The index at {self._address.shown} should have given {len(some) * columns} codes. Got "
                        f"{len(found)} instead."
                    )
                found = found.reshape(len(some), columns)
                distances[start : start + len(some)], ids[start : start + len(some)] = found["distance"], found["id"]
            return distances, ids

        return self._connections.reading(read)

    def range_search(
        self, queries: Codes, radius: int, allowed: NDArray[Any] | None, threads: int | None
    ) -> tuple[Ints, Distances, Ids]:
        query = (
            "SELECT r.number, r.distance, r.id FROM (SELECT q.number, t.code <~> q.code AS distance, t.id "
            "FROM unnest(%s::bit({1})[]) WITH ORDINALITY AS q(code, number) CROSS JOIN {0} AS t {2}) AS r "
            "WHERE r.distance <= %s ORDER BY 1, 2, 3"
        )
        kind = [("number", np.int64), ("distance", np.int32), ("id", np.int64)]

        def read(cursor: Any) -> tuple[Ints, Distances, Ids]:
            narrowed, values = self._narrowed(self._chosen(cursor, allowed))
            self._exactly(cursor)
            parts, counts = [], []
            for start in range(0, len(queries), _QUERIES):
                some = queries[start : start + _QUERIES]
                limit = min(radius, self.n_bits)
                cursor.execute(self._text(query, self._width, narrowed), (binary.literals(some), *values, limit))
                parts.append(np.array(cursor.fetchall(), dtype=kind))
                counts.append(np.bincount(parts[-1]["number"] - 1, minlength=len(some)))
            found = np.concatenate(parts) if parts else np.empty(0, kind)
            offsets = np.concatenate([[0], *counts]).cumsum().astype(np.int64)
            return offsets, found["distance"].copy(), found["id"].copy()

        return self._connections.reading(read)

    def compact(self) -> None:
        def work(cursor: Any) -> None:
            cursor.execute(self._text("VACUUM {}"))

        self._connections.reading(work, autocommit=True)

    def stats(self) -> dict[str, Any]:
        def read(cursor: Any) -> dict[str, Any]:
            _, count, generation = self._state(cursor)
            cursor.execute("SELECT pg_total_relation_size(%s::regclass), version()", (f'"{self._name}"',))
            size, version = cursor.fetchone()
            known = {"n_bits": self.n_bits, "count": count, "memory_bytes": 0, "engine": "postgresql"}
            sizes = {"generation": generation, "table_bytes": size, "server": " ".join(version.split()[:2])}
            return {**known, "address": self._address.shown, **sizes}

        return self._connections.reading(read)

    def drop(self) -> None:
        def work(cursor: Any) -> None:
            cursor.execute("DELETE FROM fusehash_index WHERE name = %s", (self._name,))
            cursor.execute(self._text("DROP TABLE IF EXISTS {}"))

        self._connections.changing(work)

    def close(self) -> None:
        self._connections.close()

    # -- statements ----------------------------------------------------------------------------------------------

    def _prepare(self, cursor: Any, n_bits: int | None) -> int:
        """Make the tables where they are not yet there; the width of the codes."""
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        cursor.execute("SELECT to_regtype('vector') IS NOT NULL, to_regclass('fusehash_index') IS NOT NULL")
        has_vector, has_state = cursor.fetchone()
        if has_state:
            cursor.execute("SELECT n_bits FROM fusehash_index WHERE name = %s", (self._name,))
            if found := cursor.fetchone():
                return int(found[0])
        if n_bits is None:
            raise NoIndexError(
                f"There is no index at {self._address.shown}; to create one, say of how many bits (n_bits)."
            )
        if not has_vector:
            try:
                cursor.execute("CREATE EXTENSION vector")
            except self._driver.Error as error:
                raise IndexServerError(
                    f"The database at {self._address.shown} needs the extension pgvector, 0.7 or later, and it could "
                    f"not be created: {self._address.hide(reason(error))}."
                ) from None
        cursor.execute(_STATE)
        try:
            cursor.execute(
                self._text("CREATE TABLE {} (id bigint PRIMARY KEY, code bit({}) NOT NULL)", self._sql.Literal(n_bits))
            )
        except self._driver.errors.DuplicateTable:
            raise IndexServerError(
                f"The database at {self._address.shown} has a table {self._name} that is not an index of fusehash."
            ) from None
        cursor.execute("INSERT INTO fusehash_index VALUES (%s, %s, -1, 0, 0)", (self._name, n_bits))
        return n_bits

    def _state(self, cursor: Any, ending: str = "") -> tuple[int, int, int]:
        query = f"SELECT last_id, count, generation FROM fusehash_index WHERE name = %s {ending}"
        cursor.execute(query, (self._name,))
        found = cursor.fetchone()
        if found is None:
            raise IndexGoneError(f"The index at {self._address.shown} was removed while it was open.")
        return tuple(found)

    def _locked(self, cursor: Any) -> tuple[int, int]:
        """The highest id ever used and the number of codes; other writers wait from here on."""
        return self._state(cursor, "FOR UPDATE")[:2]

    def _note(self, cursor: Any, last_id: int, more: int) -> None:
        query = (
            "UPDATE fusehash_index SET last_id = %s, count = count + %s, generation = generation + 1 WHERE name = %s"
        )
        cursor.execute(query, (last_id, more, self._name))

    def _check_here(self, cursor: Any, ids: Ids) -> None:
        check_here(ids, np.isin(ids, self._some(cursor, "SELECT id FROM {} WHERE id = ANY(%s)", ids)))

    def _some(self, cursor: Any, query: str, ids: Ids) -> Ids:
        cursor.execute(self._text(query), (ids.tolist(),))
        return np.array([id for (id,) in cursor.fetchall()], np.int64)

    def _copy_in(self, cursor: Any, statement: Any, ids: Ids, codes: Codes) -> None:
        with cursor.copy(statement) as copy:
            for part in binary.stream(ids, codes):
                copy.write(part)

    def _copied(self, cursor: Any, statement: Any) -> bytes:
        with cursor.copy(statement) as copy:
            return b"".join(copy)

    def _all_ids(self, cursor: Any) -> Ids:
        return binary.ids(self._copied(cursor, self._text("COPY (SELECT id FROM {} ORDER BY id) TO STDOUT BINARY")))

    def _chosen(self, cursor: Any, allowed: NDArray[Any] | None) -> Ids | None:
        if allowed is None or allowed.dtype != bool:
            return allowed
        return chosen_by_mask(self._all_ids(cursor), allowed)

    def _narrowed(self, chosen: Ids | None) -> tuple[Any, tuple[Any, ...]]:
        if chosen is None:
            return self._sql.SQL(""), ()
        return self._sql.SQL("WHERE t.id = ANY(%s)"), (chosen.tolist(),)

    def _how_many(self, cursor: Any, chosen: Ids | None) -> int:
        if chosen is None:
            return self._state(cursor)[1]
        cursor.execute(self._text("SELECT count(*) FROM {} WHERE id = ANY(%s)"), (chosen.tolist(),))
        return int(cursor.fetchone()[0])

    def _exactly(self, cursor: Any) -> None:
        """No approximate index may answer; looking up allowed ids goes through bitmaps all the same."""
        cursor.execute("SET LOCAL enable_indexscan = off")

    @property
    def _width(self) -> Any:
        return self._sql.Literal(self.n_bits)

    def _text(self, query: str, *more: Any) -> Any:
        return self._sql.SQL(query).format(self._sql.Identifier(self._name), *more)
