"""Connections to a PostgreSQL server: reads in one snapshot, changes whole or not at all, across a lost connection.

A connection that was lost is made anew. What was read is read again, once. A change is tried again, once, if it had not
come to its end; if the connection broke while it was being committed, the server is asked what became of it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from fusehash.errors import DataError
from fusehash.search.servers.address import Address, IndexGoneError, IndexServerError

T = TypeVar("T")


class Connections:
    """A few connections that the threads of this process share, one for each call under way."""

    def __init__(self, address: Address) -> None:
        self._driver = driver()
        self._address = address
        login = quote(address.user, safe="") + (":" + quote(address.password, safe="") if address.password else "")
        options = {name: value for name, value in address.options.items() if name != "index"}
        where = f"{login + '@' if login else ''}{address.hosts}/{quote(address.path, safe='')}"
        self._conninfo = f"postgresql://{where}?{urlencode(options)}"
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._inherited: list[Any] = []  # connections of a parent process are not ours to use or close
        self._owner = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle if self._owner == os.getpid() else ():
            connection.close()

    def reading(self, work: Callable[[Any], T], *, autocommit: bool = False) -> T:
        """Read in one snapshot, once more on a new connection where the old one is gone."""
        for last in (False, True):
            connection = self._take()
            try:
                if autocommit:
                    connection.autocommit = True
                else:
                    connection.isolation_level = self._driver.IsolationLevel.REPEATABLE_READ
                with connection.cursor() as cursor:
                    result = work(cursor)
                connection.rollback()
            except self._driver.Error as error:
                gone = self._lost(connection)
                if gone and not last:
                    continue
                raise self.told(error) from None
            except BaseException:
                connection.close()
                raise
            self._give(connection)
            return result
        raise AssertionError

    def changing(self, work: Callable[[Any], T]) -> T:
        """Carry out a change in one transaction, or nothing of it."""
        for last in (False, True):
            connection, transaction, ended = self._take(), None, False
            try:
                connection.isolation_level = self._driver.IsolationLevel.READ_COMMITTED
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_current_xact_id()::text")
                    transaction = cursor.fetchone()[0]
                    result = work(cursor)
                ended = True
                connection.commit()
            except self._driver.Error as error:
                gone = self._lost(connection)
                if gone and ended and transaction is not None:
                    if self._committed(transaction, error):
                        return result
                elif not gone:
                    raise self.told(error) from None
                if last:
                    raise self.told(error) from None
                continue
            except BaseException:
                connection.close()  # which rolls back, whatever was under way
                raise
            self._give(connection)
            return result
        raise AssertionError

    def _lost(self, connection: Any) -> bool:
        """Whether a connection that failed was lost; those that wait beside it are then as good as lost, too."""
        lost = bool(connection.closed or connection.broken)
        connection.close()
        if lost:
            with self._lock:
                idle, self._idle = self._idle, []
            for other in idle:
                other.close()
        return lost

    def _committed(self, transaction: str, error: Exception) -> bool:
        """What became of a transaction whose connection broke at its end."""
        deadline = time.monotonic() + self._address.timeout
        while time.monotonic() < deadline:  # it may be coming back, or not yet have noticed that nobody waits
            with contextlib.suppress(IndexServerError, self._driver.Error), contextlib.closing(self.connect()) as asked:
                (status,) = asked.execute("SELECT pg_xact_status(%s::xid8)", (transaction,)).fetchone()
                if status in ("committed", "aborted"):
                    return bool(status == "committed")
            time.sleep(0.2)
        raise IndexServerError(
            f"The connection to {self._address.shown} broke while a change was being committed, and it is not known "
            f"whether it was: {self._address.hide(reason(error))}."
        ) from None

    def _take(self) -> Any:
        with self._lock:
            if self._closed:
                raise IndexServerError(f"The index at {self._address.shown} is closed; open it again.")
            if self._owner != os.getpid():
                self._inherited += self._idle
                self._idle, self._owner = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self.connect()

    def _give(self, connection: Any) -> None:
        connection.autocommit = False
        with self._lock:
            if not self._closed and self._owner == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def connect(self) -> Any:
        seconds = self._address.timeout
        try:
            connection = self._driver.connect(
                self._conninfo, connect_timeout=max(2, round(seconds)), application_name="fusehash",
                keepalives_idle=30, tcp_user_timeout=round(seconds * 1000), prepare_threshold=None,
            )  # fmt: skip
            connection.execute(
                "SELECT set_config('lock_timeout', %(wait)s, false), "
                "set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
                "ELSE current_setting('synchronous_commit') END, false)",
                {"wait": f"{round(seconds * 1000)}ms"},
            )
            connection.commit()
        except self._driver.Error as error:
            raise IndexServerError(
                f"The PostgreSQL server at {self._address.shown} cannot be reached: "
                f"{self._address.hide(reason(error))}."
            ) from None
        return connection

    def told(self, error: Exception) -> Exception:
        """What the driver says, in one sentence about this server."""
        if isinstance(error, self._driver.errors.UndefinedTable):
            return IndexGoneError(f"The index at {self._address.shown} was removed while it was open.")
        said = self._address.hide(reason(error))
        if isinstance(error, self._driver.errors.LockNotAvailable):
            said = f"another writer has been at work for {self._address.timeout:g} s"
        return IndexServerError(f"The index at {self._address.shown} could not do what was asked: {said}.")


def reason(error: Exception) -> str:
    """The first line of what PostgreSQL says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def driver() -> Any:
    """psycopg, or what to install."""
    try:
        import psycopg
        import psycopg.sql
    except ImportError as error:
        raise DataError(
            "The PostgreSQL engine needs the package psycopg; pip install 'fusehash[postgres]' brings it."
        ) from error
    return psycopg
