"""`fusehash index` and `fusehash search` on the address of a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import servers
from fusehash.cli import app


@pytest.mark.parametrize("name", ["postgresql", "milvus-lite"])
def test_an_index_on_a_server_from_the_command_line(name: str, tmp_path: Path) -> None:
    address, runner = servers.server(name).address(), CliRunner()
    codes = np.random.default_rng(0).integers(0, 256, (20, 8), dtype=np.uint8)
    np.save(tmp_path / "codes.npy", codes)
    np.save(tmp_path / "queries.npy", codes[:2])

    def ask(*words: str) -> Any:
        result = runner.invoke(app, [*words, "--json"])
        assert result.exit_code == 0, f"{result.output} {result.exception!r}"
        return json.loads(result.stdout)

    assert ask("index", "add", address, str(tmp_path / "codes.npy"))["count"] == 20  # made, as it was not there
    assert ask("index", "remove", address, "1", "3")["count"] == 18
    hits = ask("search", address, str(tmp_path / "queries.npy"), "-k", "1")
    assert hits[0] == {"query": 0, "ids": [0], "distances": [0]}
    assert hits[1]["ids"] != [1]
    assert ask("index", "stats", address)["address"] == address
    assert ask("index", "compact", address)["count"] == 18
    again = runner.invoke(app, ["index", "create", address, "--bits", "64"])
    assert again.exit_code != 0


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    np.save(tmp_path / "codes.npy", np.zeros((1, 8), np.uint8))
    for scheme in ("postgresql", "milvus", "POSTGRESQL", "Milvus", "postgresql+psycopg", "https"):
        address = f"{scheme}://me:s3cret@127.0.0.1:1/name"
        result = CliRunner().invoke(app, ["index", "add", address, str(tmp_path / "codes.npy")])
        assert result.exit_code != 0
        assert "s3cret" not in f"{result.output} {result.stderr} {result.exception!r}"
