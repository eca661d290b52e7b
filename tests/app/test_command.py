"""`fusehash serve`: a real process, from its first line to its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from fusehash.cli import app
from fusehash.errors import MissingPackageError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["serve", *arguments])


@pytest.fixture(autouse=True)
def _needs(optional: Callable[[str], ModuleType]) -> None:
    optional("fastapi")
    optional("uvicorn")


def test_serve_prints_the_address_and_keeps_the_token(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusehash.app import server

    monkeypatch.setattr(server, "serve", lambda app, listening, ready: ready())
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-the-token\n")
    done = run(str(pictures), "--port", "0", "--writable", "--token-file", str(token))
    assert done.exit_code == 0, done.stderr
    assert re.match(rf"Serving {re.escape(str(pictures))} at http://127\.0\.0\.1:\d+/ ", done.stdout)
    assert "0123456789abcdef" not in done.output
    assert "the token for writing is" in run(str(pictures), "--port", "0", "--writable").stderr


@pytest.mark.slow
def test_writing_with_a_token_file_and_stopping(pictures: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-the-token\n")
    command = [sys.executable, "-m", "fusehash.cli", "serve", str(pictures), "--port", "0", "--writable"]
    with subprocess.Popen(
        [*command, "--token-file", str(token)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found
            with urllib.request.urlopen(f"{found.group()}api/stats") as answer:
                assert json.load(answer)["writable"] is True
                assert "server" not in answer.headers
            request = urllib.request.Request(f"{found.group()}api/items/77", method="DELETE")
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(request)
            request.add_header("Authorization", "Bearer 0123456789abcdef-the-token")
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(request)
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0
        complaints = process.stderr.read()
        assert "Traceback" not in complaints
        assert "0123456789abcdef" not in complaints


@pytest.mark.slow
def test_what_is_wrong_takes_one_sentence(pictures: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("abc")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cases: list[tuple[tuple[str, ...], int, str]] = [
            ((str(tmp_path / "none"),), 1, "There is no collection"),
            ((str(tmp_path),), 1, "not a fusehash collection"),
            ((str(pictures), "--token-file", str(short)), 2, "--writable"),
            ((str(pictures), "--writable", "--token-file", str(short)), 1, "at least 16"),
            ((str(pictures), "--port", str(taken.getsockname()[1])), 1, "could not be opened"),
            ((str(pictures), "--host", "no such host"), 1, "must be an address"),
            ((str(pictures), "--writable", "--token-file", str(tmp_path / "none")), 1, "There is no file"),
            ((str(pictures), "--writable", "--token-file", str(tmp_path)), 1, "cannot be read"),
            ((str(truncated(pictures, tmp_path, "model-*")),), 1, "safetensors is damaged"),
            ((str(truncated(pictures, tmp_path, "image-*")),), 1, "encoder is damaged"),
        ]
        for arguments, status, sentence in cases:
            done = run(*arguments)
            assert done.exit_code == status, done.stderr
            assert sentence in " ".join(done.stderr.split())
            assert "Traceback" not in done.stderr
            assert not done.stdout


def truncated(pictures: Path, folder: Path, pattern: str) -> Path:
    """A copy of a collection of which a file has lost its end."""
    copy = folder / f"{pattern[:5]}.collection"
    shutil.copytree(pictures, copy)
    (file,) = copy.glob(pattern)
    file.write_bytes(file.read_bytes()[:1000])
    return copy


def test_what_a_host_means() -> None:
    from fusehash.app import server

    assert server.is_local("127.0.0.1")
    assert server.is_local("::1")
    assert server.is_local("localhost")
    assert not server.is_local("0.0.0.0")
    assert not server.is_local("photos.example")
    with server.bind("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        assert server.address(listening, "127.0.0.1") == f"http://127.0.0.1:{port}/"
        assert server.address(listening, "0.0.0.0") == f"http://localhost:{port}/"
        assert server.address(listening, "::1") == f"http://[::1]:{port}/"


def test_missing_packages_raise_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusehash.app import create_app

    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(MissingPackageError, match=r"fastapi.*fusehash\[serve\]"):
        create_app(None)  # type: ignore[arg-type]
