"""Addresses of servers that keep an index, the errors of servers, and how to connect.

    postgresql://user:password@host:5432/database?index=name      (postgres.py, extra ``postgres``)
    milvus://user:password@host:19530/name                        (milvus.py, extra ``milvus``)

``?timeout=seconds`` is how long to wait for a server or for another writer. All other options of a PostgreSQL address
go to libpq (``sslmode=verify-full``); Milvus takes ``secure=true`` (TLS), ``database=`` and ``token=``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, TypeGuard
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from fusehash.errors import FusehashError, ParameterError

if TYPE_CHECKING:
    from fusehash.search.store import Store

SCHEMES = ("postgresql", "postgres", "milvus")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_SECRETS = ("password", "token", "sslpassword", "oauth_client_secret")


class IndexServerError(FusehashError, OSError):
    """A server that keeps an index cannot be reached or reports an error.

    Every method of `HammingIndex` may raise it if the engine is the address of a server. The message names the server
    without its password. If the outcome of a change is unknown, or if a part of it may be written, the message says so.
    """


class NoIndexError(IndexServerError):
    """There is no index at an address."""


@dataclass(frozen=True)
class Address:
    """The parts of an address. ``shown`` is the address without its secrets."""

    scheme: str
    hosts: str  # host:port; for PostgreSQL also empty, or several with commas
    user: str
    path: str  # the database of PostgreSQL, or the name of the index on Milvus
    shown: str
    timeout: float
    options: dict[str, str] = field(repr=False)
    password: str = field(repr=False)

    def hide(self, text: object) -> str:
        """Text of a driver on one line, without the secrets of this address and without its final period."""
        line = " ".join(str(text).split())
        for secret in (self.password, *(self.options.get(name, "") for name in _SECRETS)):
            for form in {secret, quote(secret, safe=""), quote(secret)} - {""}:
                line = line.replace(form, "***")
        return line.rstrip(".")


def is_address(engine: object) -> TypeGuard[str]:
    """Whether this is the address of a server rather than an engine or a file."""
    return isinstance(engine, str) and engine.split("://")[0].lower() in SCHEMES and "://" in engine


def is_other_address(text: object) -> TypeGuard[str]:
    """Whether this looks like an address of an unsupported server; it may contain a password."""
    return isinstance(text, str) and "://" in text and not is_address(text)


def scheme_of(address: str) -> str:
    """What may be shown of an address that cannot be parsed."""
    return f"{address.split('://')[0]}://..."


def without_secrets(address: str) -> str:
    """An address that may be shown and stored."""
    return parse(address).shown


def parse(address: str, timeout: float = 30.0) -> Address:
    """Split an address into its parts."""
    try:
        address.encode()  # a terminal passes bytes that are no UTF-8 as halves of characters
        parts = urlsplit(address)
        if parts.fragment or "@" in parts.path + parts.query:  # a password that was cut in two must not be shown
            raise ValueError
    except ValueError:
        expected = "an address scheme://user:password@host:port/name in which special characters are percent-encoded"
        raise ParameterError("HammingIndex", "engine", expected, "another") from None
    login, _, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    public = {name: value for name, value in options.items() if name not in _SECRETS}
    shown = f"{parts.scheme}://{user + '@' if user else ''}{hosts}{parts.path}"
    shown += f"?{urlencode(public, safe='/')}" if public else ""
    try:
        seconds = float(options.pop("timeout", timeout))
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 1e6:
        raise ParameterError("HammingIndex", "engine", "an address whose timeout is a number of seconds", shown)
    path = unquote(parts.path.lstrip("/"))
    return Address(parts.scheme, hosts, unquote(user), path, shown, seconds, options, unquote(password))


def check_name(name: str, shown: str) -> str:
    """The name of an index, which every server accepts without quotes."""
    if not _NAME.fullmatch(name):
        expected = "an address with the name of an index, at most 50 letters, digits and underscores, no digit first"
        raise ParameterError("HammingIndex", "engine", expected, shown)
    return name


def exists(address: str) -> bool:
    """Whether there is an index at an address; raises if the server cannot be reached."""
    try:
        connect(address, None).close()
    except NoIndexError:
        return False
    return True


def connect(engine: str, n_bits: int | None, *, timeout: float = 30.0) -> Store:
    """Open the index at an address; with ``n_bits``, create it if there is none."""
    address = parse(engine, timeout)
    module, name = ("milvus", "MilvusStore") if address.scheme == "milvus" else ("postgres", "PostgresStore")
    store: Store = getattr(import_module(f"fusehash.search.servers.{module}"), name)(address, n_bits)
    if n_bits is not None and store.n_bits != n_bits:
        store.close()
        raise ParameterError("HammingIndex", "n_bits", f"{store.n_bits}, the width of {address.shown}", n_bits)
    return store
