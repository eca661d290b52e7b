"""A running server follows a switch of generations: no failed answer, no mixed one, no restart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from fusehash.collection import Collection

QUERY = "/api/search?text=a%20red%20circle&k=62"


def distances(answer: dict[str, Any]) -> list[int]:
    """Bits in which the codes of the hits differ from the query's, counted here."""
    query = int(answer["code"], 16)
    return [(query ^ int(hit["code"], 16)).bit_count() for hit in answer["hits"]]


def codes(answer: dict[str, Any]) -> tuple[str, dict[int, str]]:
    return answer["code"], {hit["item"]["id"]: hit["code"] for hit in answer["hits"]}


def test_an_app_answers_with_the_current_generation(own_collection: Collection, client_of: Callable[..., Any]) -> None:
    client = client_of(own_collection)
    before = client.get(QUERY).json()
    assert (before["generation"], before["n_bits"]) == (1, 64)
    glance = client.get("/api/codes").json()
    with Collection.open(own_collection.path) as other:
        other.build_generation(n_bits=32, measure=False)
        assert client.get(QUERY).json() == before
        other.switch()
        after = client.get(QUERY).json()
        assert (after["generation"], after["n_bits"], len(after["code"])) == (2, 32, 8)
        assert [hit["distance"] for hit in after["hits"]] == distances(after)
        assert len(after["hits"]) == 62
        stats = client.get("/api/stats").json()
        assert (stats["generation"], stats["n_bits"]) == (2, 32)
        assert client.get("/api/codes").json()["n_bits"] == 32 != glance["n_bits"]
        stale = client.get("/api/search", params={"code": before["code"], "generation": 1})
        assert (stale.status_code, stale.json()["error"]["code"]) == (422, "unusable")
        stale = client.get("/api/search", params={"code": after["code"], "generation": 1})
        assert (stale.status_code, stale.json()["error"]["code"]) == (422, "unusable")
        assert "generation 2 is current" in stale.json()["error"]["message"]
        assert client.get("/api/search", params={"code": after["code"], "generation": 2}).status_code == 200
        other.switch(back=True)
    assert client.get(QUERY).json() == before


@pytest.mark.slow
def test_a_server_under_load_follows_a_switch(
    own_collection: Collection, optional: Callable[[str], ModuleType]
) -> None:
    optional("fastapi")
    optional("uvicorn")
    command = [sys.executable, "-m", "fusehash.cli", "serve", str(own_collection.path), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    answers: list[dict[str, Any]] = []
    stop = threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://[^/\s]+", process.stdout.readline())
            assert found
            address = found.group()

            def ask() -> None:
                while not stop.is_set():
                    with urllib.request.urlopen(address + QUERY, timeout=120) as answer:  # raises where it is no 200
                        answers.append(json.load(answer))

            failed: list[BaseException] = []
            threads = [threading.Thread(target=lambda: _noting(ask, failed)) for _ in range(3)]
            for thread in threads:
                thread.start()
            own_collection.build_generation(n_bits=32, measure=False)
            expected = {}
            for back in (False, True, True):
                own_collection.switch(back=back)
                asked = len(answers)
                while len(answers) < asked + 9 and not failed:
                    stop.wait(0.01)
                with urllib.request.urlopen(address + QUERY, timeout=120) as answer:
                    last = json.load(answer)
                assert last["generation"] == own_collection.generation
                expected[last["generation"]] = codes(last)
        finally:
            stop.set()
            for thread in threads:
                thread.join(300)
            process.terminate()
            process.wait(120)
    assert not failed
    assert {answer["generation"] for answer in answers} == {1, 2}
    for answer in answers:
        assert codes(answer) == expected[answer["generation"]]
        assert [hit["distance"] for hit in answer["hits"]] == distances(answer)


def _noting(work: Callable[[], None], failed: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        failed.append(error)
