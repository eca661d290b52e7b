"""Addresses of servers, which are never shown with a secret, and rows in the binary format of PostgreSQL."""

from __future__ import annotations

from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.errors import ParameterError
from fusehash.search import HammingIndex
from fusehash.search.servers import address as server
from fusehash.search.servers.postgres import from_copy, to_copy

SECRETS = st.text(st.characters(codec="ascii", min_codepoint=33), min_size=8)


@given(secret=SECRETS, scheme=st.sampled_from(server.SCHEMES))
def test_no_secret_is_shown(secret: str, scheme: str) -> None:
    secret = f"<{secret}>"
    login, token = quote(secret, safe=""), quote(secret)
    address = server.parse(f"{scheme}://me:{login}@host:19530/name?token={token}&sslmode=require")
    assert (address.user, address.password, address.path) == ("me", secret, "name")
    assert address.shown == f"{scheme}://me@host:19530/name?sslmode=require"
    assert secret not in repr(address)
    assert secret not in address.hide(f"cannot log in as me:{secret}.")
    assert quote(secret, safe="") not in address.hide(f"bad {quote(secret, safe='')}")


@given(secret=SECRETS)
def test_a_secret_that_is_not_encoded_is_not_shown_either(secret: str) -> None:
    secret = f"<{secret}>"
    try:
        address = server.parse(f"postgresql://me:{secret}@host/name")
        shown = f"{address!r} {address.shown}"
    except ParameterError as error:
        shown = str(error)
    assert secret not in shown


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("milvus://host:19530/", "the name of an index"),
        ("milvus://host:19530/1st", "the name of an index"),
        ("milvus://host:19530/a/b", "the name of an index"),
        ("milvus://host/name", "milvus://host:port/name"),
        ("milvus://host:19530/name?timeout=soon", "timeout is a number"),
        ("postgresql://host/database?index=drop%20table", "the name of an index"),
        ("postgresql://host/database?index=fusehash_index", "another name"),
        ("postgresql://host/database?index=fusehash_new", "another name"),
        ("POSTGRESQL://me@host/database?index=1st", "the name of an index"),
        ("POSTGRESQL://me:w0rd/w0rd@host/database", "percent-encoded"),
        ("postgresql+psycopg://me:w0rd@host/database", r"postgresql\+psycopg://\.\.\."),
        ("torch://me:w0rd@host/database", r"torch://\.\.\."),
        ("postgresql://me:w0rd/w0rd@host/database", "percent-encoded"),
        ("mysql://host/database", "'engine' parameter of HammingIndex must be one of scan"),
    ],
)
def test_addresses_that_cannot_be_used(address: str, message: str) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        HammingIndex(64, engine=address)
    assert "w0rd" not in str(caught.value)


def test_the_scheme_of_an_address_may_have_capitals() -> None:
    assert server.is_address("PostgreSQL://me:w0rd@host/name")
    assert server.without_secrets("PostgreSQL://me:w0rd@host/name") == "postgresql://me@host/name"
    assert "w0rd" not in server.without_secrets("postgresql://host/name?oauth_client_secret=w0rd")
    assert not server.is_address("postgresql")
    with pytest.raises(ParameterError, match=r"postgresql\+psycopg://\.\.\.") as caught:
        HammingIndex.open("postgresql+psycopg://me:w0rd@host/name", 64)
    assert "w0rd" not in str(caught.value)


@given(
    n_bytes=st.integers(1, 128), ids=st.lists(st.integers(-(2**63), 2**63 - 1), unique=True), seed=st.integers(0, 99)
)
def test_rows_come_back_from_the_binary_format(n_bytes: int, ids: list[int], seed: int) -> None:
    codes = np.random.default_rng(seed).integers(0, 256, (len(ids), n_bytes), dtype=np.uint8)
    stream = b"".join(to_copy(np.array(ids, np.int64), codes))
    read_ids, read_codes = from_copy(stream, 8 * n_bytes)
    assert read_ids.tolist() == ids
    assert_array_equal(read_codes, codes)
