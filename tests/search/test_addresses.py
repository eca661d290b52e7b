"""Addresses of servers: taken apart, and never shown with a secret; rows in PostgreSQL's binary format."""

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
from fusehash.search.servers import postgres_rows
from fusehash.search.servers.milvus_calls import any_of

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


def test_an_address_is_known_however_its_scheme_is_spelt() -> None:
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
    stream = b"".join(postgres_rows.stream(np.array(ids, np.int64), codes))
    found, same = postgres_rows.rows(stream, 8 * n_bytes)
    assert found.tolist() == ids
    assert_array_equal(same, codes)


@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), unique=True, min_size=1))
def test_expressions_say_which_ids(ids: list[int]) -> None:
    """Read by Python, whose words for this are the same."""
    wanted = np.sort(np.array(ids, np.int64))
    (expression, some), *more = any_of("id", wanted)
    assert not more
    assert_array_equal(some, wanted)
    assert str(-(2**63)) not in expression
    near = {id + step for id in ids for step in (-1, 0, 1) if -(2**63) <= id + step < 2**63}
    assert {id for id in near if _true(expression, id)} == set(ids)


def _true(expression: str, id: int) -> bool:
    """Evaluate `a or b`, `a and b`, comparisons and lists of numbers, without eval."""
    expression = expression.strip()
    if expression.startswith("(") and expression.endswith(")"):
        expression = expression[1:-1]
    if " or " in expression:
        one, other = expression.split(" or ", 1)
        return _true(one, id) or _true(other, id)
    if " and " in expression:
        return all(_true(part, id) for part in expression.strip("()").split(" and "))
    _, sign, value = expression.split(" ", 2)
    if sign == "in":
        return str(id) in value.strip("[]").split(",")
    return {"<": id < int(value), "<=": id <= int(value), ">=": id >= int(value)}[sign]
