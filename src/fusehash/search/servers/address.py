"""Addresses of servers that hold an index, and what is said when they cannot be reached.

    postgresql://user:password@host:5432/database?index=name      (postgres.py, extra ``postgres``)
    milvus://user:password@host:19530/name                        (milvus.py, extra ``milvus``)

``?timeout=seconds`` says how long to wait for a server, or for another writer. Whatever else stands after the question
mark goes to PostgreSQL's client library as it is (``sslmode=verify-full``); Milvus knows ``secure=true`` (TLS) and
``database=``. A password is better left out of an address: PostgreSQL takes it from PGPASSWORD or ~/.pgpass, Milvus
from MILVUS_PASSWORD. It is never shown again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from fusehash.errors import FusehashError, ParameterError

if TYPE_CHECKING:
    from fusehash.search.store import ServerStore

SCHEMES = ("postgresql", "postgres", "milvus")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_SECRETS = ("password", "token", "sslpassword", "oauth_client_secret")


class IndexServerError(FusehashError, OSError):
    """A server cannot be reached or does not do what is asked; the sentence says what is known of the outcome."""


class NoIndexError(IndexServerError):
    """There is no index at an address."""


class IndexGoneError(IndexServerError):
    """An index was removed from a server while it was open."""


@dataclass(frozen=True)
class Address:
    """An address taken apart. ``shown`` is what may be seen: the address without its secrets."""

    scheme: str
    hosts: str  # host:port, for PostgreSQL also several with commas, or empty
    user: str
    path: str  # of a server: PostgreSQL's database, or the name of the index on Milvus
    shown: str
    timeout: float
    options: dict[str, str] = field(repr=False)
    password: str = field(repr=False)

    def hide(self, text: object) -> str:
        """What somebody else says about this address, on one line, without its secrets."""
        told = " ".join(str(text).split())
        for secret in (self.password, *(self.options.get(name, "") for name in _SECRETS)):
            for form in {secret, quote(secret, safe=""), quote(secret)} - {""}:
                told = told.replace(form, "***")
        return told.rstrip(".")


def is_address(engine: object) -> TypeGuard[str]:
    """Whether this names a server rather than an engine or a file."""
    return isinstance(engine, str) and engine.split("://")[0].lower() in SCHEMES and "://" in engine


def is_other_address(text: object) -> TypeGuard[str]:
    """Whether this looks like the address of something that is not known here; it may hold a password."""
    return isinstance(text, str) and "://" in text and not is_address(text)


def scheme_of(address: str) -> str:
    """What may be shown of an address that cannot be taken apart."""
    return f"{address.split('://')[0]}://..."


def without_secrets(address: str) -> str:
    """An address that may be shown and kept."""
    return parse(address).shown


def parse(address: str, timeout: float = 30.0) -> Address:
    """Take an address apart."""
    try:
        parts = urlsplit(address)
        if parts.fragment or "@" in parts.path + parts.query:  # a password that was cut in two must not be shown
            raise ValueError
    except ValueError:
        expected = "an address scheme://user:password@host:port/name in which special characters are percent-encoded"
        raise ParameterError("HammingIndex", "engine", expected, "another") from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    kept = {name: value for name, value in options.items() if name not in _SECRETS}
    shown = f"{parts.scheme}://{user + '@' if user else ''}{hosts}{parts.path}"
    shown += f"?{urlencode(kept, safe='/')}" if kept else ""
    try:
        seconds = float(options.pop("timeout", timeout))
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise ParameterError("HammingIndex", "engine", "an address whose timeout is a number of seconds", shown)
    path = unquote(parts.path.lstrip("/"))
    return Address(parts.scheme, hosts, unquote(user), path, shown, seconds, options, unquote(password))


def check_name(name: str, shown: str) -> str:
    """Names of indexes are plain, so that every server takes them and nothing needs to be quoted."""
    if not _NAME.fullmatch(name):
        expected = "an address with the name of an index, at most 50 letters, digits and underscores, no digit first"
        raise ParameterError("HammingIndex", "engine", expected, shown)
    return name


def beside(address: str, suffix: str) -> str:
    """The address of another index on the same server, named after this one."""
    parts = urlsplit(address)
    if parts.scheme == "milvus":
        return urlunsplit(parts._replace(path=f"{parts.path}_{suffix}"))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    options["index"] = f"{options.get('index', 'codes')}_{suffix}"
    return urlunsplit(parts._replace(query=urlencode(options, safe="/")))


def exists(address: str) -> bool:
    """Whether there is an index; an error where that cannot be known."""
    try:
        connect(address, None).close()
    except NoIndexError:
        return False
    return True


def drop(address: str) -> None:
    """Remove an index from a server; none there is well, too."""
    try:
        store = connect(address, None)
    except NoIndexError:
        return
    try:
        store.drop()
    finally:
        store.close()


def connect(engine: str, n_bits: int | None, *, timeout: float = 30.0) -> ServerStore:
    """The index at an address; made where there is none and ``n_bits`` says how wide."""
    address = parse(engine, timeout)
    store: ServerStore
    if address.scheme == "milvus":
        from fusehash.search.servers.milvus import MilvusStore

        store = MilvusStore(address, n_bits)
    else:
        from fusehash.search.servers.postgres import PostgresStore

        store = PostgresStore(address, n_bits)
    if n_bits is not None and store.n_bits != n_bits:
        store.close()
        raise ParameterError("HammingIndex", "n_bits", f"{store.n_bits}, the width of {address.shown}", n_bits)
    return store
