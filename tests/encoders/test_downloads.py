"""Models that are downloaded: without a network, an error at once; sentence-transformers by a stand-in."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fusehash import encoders
from fusehash.encoders import downloads, sentence
from fusehash.errors import DataError, MissingPackageError


@pytest.fixture
def answering() -> Iterator[Callable[[str], str]]:
    """`answering("200 OK")`: the address of a server that answers every request so."""
    servers = []

    def serve(status: str) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}"

    yield serve
    for server in servers:
        server.close()


@pytest.fixture
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def closed() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(("status", "expected"), [("200 OK", True), ("401 Unauthorized", True)])
def test_a_host_that_answers_is_reachable(status, expected, answering, no_proxy, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", answering(status))
    assert downloads._is_reachable() is expected


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1", "http://[", "nonsense"])
def test_a_host_that_does_not_is_not(endpoint, no_proxy, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    assert not downloads._is_reachable()


def test_a_proxy_counts_only_if_it_leads_to_the_host(answering, no_proxy, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://models.invalid")
    for proxy in (closed(), answering("403 Forbidden"), answering("502 Bad Gateway")):
        monkeypatch.setenv("https_proxy", proxy)
        assert not downloads._is_reachable()
    monkeypatch.setenv("HF_ENDPOINT", "http://models.invalid")
    monkeypatch.setenv("http_proxy", answering("503 Service Unavailable"))
    assert not downloads._is_reachable()
    monkeypatch.setenv("http_proxy", answering("200 OK"))
    assert downloads._is_reachable()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    """huggingface_hub's switch for work without a network."""
    package, constants = ModuleType("huggingface_hub"), SimpleNamespace(HF_HUB_OFFLINE=False)
    package.constants = constants  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setattr(downloads, "is_installed", lambda name: True)
    return constants


def test_without_a_network_models_are_looked_for_on_this_machine_only(hub, no_proxy, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", closed())
    with downloads.loading_models():
        assert hub.HF_HUB_OFFLINE
    assert not hub.HF_HUB_OFFLINE
    with pytest.raises(RuntimeError), downloads.loading_models():
        raise RuntimeError
    assert not hub.HF_HUB_OFFLINE


def test_with_a_network_they_may_be_downloaded(hub, answering, no_proxy, monkeypatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", answering("200 OK"))
    with downloads.loading_models():
        assert not hub.HF_HUB_OFFLINE


class Towers:
    """A stand-in for SentenceTransformer: mean colors, and counts of letters."""

    def __init__(self, name: str, device: str | None = None) -> None:
        if name == "unknown":
            raise OSError("We couldn't connect to the hub to load this file.\nTry again.")

    def encode(self, given: list[Any], *, batch_size: int, show_progress_bar: bool) -> Any:
        if isinstance(given[0], str):
            return np.array([[each.count(letter) + 0.5 for letter in "rgb"] for each in given])
        return np.array([np.asarray(each, float).mean(axis=(0, 1)) + 1.0 for each in given])


@pytest.fixture
def towers(hub, no_proxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = Towers  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    monkeypatch.setattr(sentence, "require", lambda name, what: package)
    monkeypatch.setenv("HF_ENDPOINT", closed())
    sentence._create.cache_clear()
    yield
    sentence._create.cache_clear()


def test_both_towers_of_sentence_transformers(towers, picture) -> None:
    images = encoders.make("sentence-transformers", modality="image").fit([])
    rows = images.transform([picture(1), None, picture(2)])
    assert np.isnan(rows).all(axis=1).tolist() == [False, True, False]
    assert np.allclose(np.linalg.norm(rows[[0, 2]], axis=1), 1.0)
    texts = encoders.make("sentence-transformers", modality="text").fit([]).transform(["rrr", "b"])
    assert texts.argmax(axis=1).tolist() == [0, 2]
    assert texts.shape == (2, 3)


def test_a_model_that_is_not_here_is_one_sentence_at_once(towers) -> None:
    with pytest.raises(DataError, match=r"must be on this machine or be possible to download\. It is not: We couldn't"):
        encoders.make("sentence-transformers", modality="text", model="unknown").fit([]).transform(["a"])


def test_without_the_package_the_sentence_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingPackageError, match=r"sentence"):
        encoders.make("sentence-transformers", modality="text").fit([]).transform(["a"])
