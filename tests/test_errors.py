"""Sentences about errors of other packages."""

from __future__ import annotations

import pytest

from fusehash.errors import first_line


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("bad magic.\nat byte 3"), "bad magic"),
        (ValueError("\n\n  Error in node 3\n"), "Error in node 3"),
        (ValueError(), "ValueError"),
        (KeyError("x"), "'x'"),
    ],
)
def test_the_first_line_of_an_error_is_quoted(error, expected):
    assert first_line(error) == expected
