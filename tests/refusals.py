"""What a command prints if its input is wrong."""

from __future__ import annotations

from typer.testing import Result


def wrong(result: Result, sentence: str) -> None:
    """Exit 1, one line on stderr, nothing on stdout, no traceback."""
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("fusehash: ")
    assert result.stderr.count("\n") == 1
    assert sentence in result.stderr
