"""Uploads: none stalls a search, all of them stay within the memory, and bodies of many megabytes meet their limit."""

from __future__ import annotations

import asyncio
import base64
import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest

from fusehash.app import Limits
from fusehash.collection import Collection, CollectionError

PATIENCE = 120.0


class Slow:
    """An encoder that waits, in place of a large picture."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.started, self.go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._encoder, name)

    def _wait(self) -> None:
        self.started.set()
        assert self.go_on.wait(PATIENCE)

    def transform(self, items: Any) -> Any:
        self._wait()
        return self._encoder.transform(items)

    def encode(self, items: Any) -> Any:
        self._wait()
        return self._encoder.encode(items)


def test_a_picture_does_not_stall_searches_by_text(own_collection: Collection, draw: Callable[..., bytes]) -> None:
    from fusehash.collection.encoding import FittedEncoder

    own_collection.check()
    snapshot = own_collection._now()
    slow = Slow(snapshot._loaded["image"].encoder)
    snapshot._loaded["image"] = FittedEncoder("", slow)
    answers: dict[str, Any] = {}

    def search(name: str, **query: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.update({name: own_collection.search(**query)}), daemon=True)
        thread.start()
        return thread

    by_image = search("image", image=draw("red", "circle") + b" ")  # not one of the collection, which is not encoded
    assert slow.started.wait(PATIENCE)
    search("text", text="a red circle").join(20)
    text_was_answered = "text" in answers
    slow.go_on.set()
    by_image.join(PATIENCE)
    assert text_was_answered
    assert len(answers["image"]) > 0


def test_threads_with_one_encoder_get_their_own_problems(collection: Collection, draw: Callable[..., bytes]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    encoder = collection._now().encoder("image").encoder  # type: ignore[union-attr]
    good = draw("red", "circle")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: encoder.encode([b"broken" if i % 2 else good]), range(40)))
    assert [sorted(problems) for _, problems in answers] == [[0] if i % 2 else [] for i in range(40)]


def test_the_memory_of_all_decodings_is_bounded() -> None:
    from fusehash.app.pools import Budget

    async def run() -> int:
        budget, taken, most = Budget(100), 0, 0

        async def decode(amount: int) -> None:
            nonlocal taken, most
            async with budget.taking(amount):
                taken += min(amount, 100)
                most = max(most, taken)
                await asyncio.sleep(0.001)
                taken -= min(amount, 100)

        await asyncio.gather(*(decode(amount) for amount in [30, 90, 1000, 10, 50, 50, 100] * 10))
        assert taken == 0
        return most

    assert asyncio.run(run()) == 100


def test_requests_wait_in_a_line_of_bounded_length() -> None:
    from fusehash.app.errors import ApiError
    from fusehash.app.pools import Pool

    release = threading.Event()

    async def run() -> list[Any]:
        pool = Pool(threads=1, waiting=2)
        calls = [asyncio.create_task(pool.run(release.wait, PATIENCE)) for _ in range(5)]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        assert all(isinstance(call.exception(), ApiError) for call in done)
        release.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(run())
    assert answers.count(True) == 3
    assert [error.status_code for error in answers if error is not True] == [503, 503]


@pytest.mark.slow
def test_bodies_of_many_megabytes_meet_their_limit(
    own_collection: Collection, client_of: Callable[..., Any], draw: Callable[..., bytes]
) -> None:
    limit = 50_000_000
    limits = Limits(upload_bytes=limit, batch_bytes=limit)
    client = client_of(own_collection, writable=True, token="a-token-for-tests-only", limits=limits)
    client.headers["Authorization"] = "Bearer a-token-for-tests-only"
    picture = draw("red", "circle")
    largest = picture + bytes(limit - len(picture))  # what follows the end of a PNG is ignored
    assert client.post("/api/search", files={"image": largest}).status_code == 200
    for larger in (largest + b"x", largest + bytes(100_000)):
        assert client.post("/api/search", files={"image": larger}).status_code == 413
    start = b'{"items": [{"key": "large", "image": "%b"}]' % base64.b64encode(picture)
    for size, status in ((limit, 200), (limit + 1, 413), (limit + 1_000_000, 413)):
        body = start + b" " * (size - len(start) - 1) + b"}"
        answer = client.post("/api/items", content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
    assert client.get("/api/health").status_code == 200


ROUTES = ("health", "stats", "labels", "clusters", "codes", "items", "items/1", "items/1/thumbnail", "search?text=red")


def test_a_collection_that_cannot_be_reached_is_503_everywhere(
    writer: Any, own_collection: Collection, draw: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*args: Any) -> Any:
        raise CollectionError(f"{own_collection.path} was replaced.")

    for name in ("reading", "writing", "data_version"):
        monkeypatch.setattr(own_collection._items, name, gone)
    answers = [writer.get(f"/api/{route}") for route in ROUTES]
    answers.append(writer.post("/api/search", files={"image": draw("red", "circle")}))
    answers.append(writer.post("/api/items", json={"items": [{"key": "new", "text": "a red house"}]}))
    answers.append(writer.delete("/api/items/1"))
    for answer in answers:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable"), answer.url
        assert str(own_collection.path) not in answer.text


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_a_folder_that_is_not_there_any_more_is_503_everywhere(
    writer: Any, own_collection: Collection, replaced: bool
) -> None:
    folder = own_collection.path
    aside = folder.with_name("aside")
    assert writer.get("/api/health").status_code == 200
    if replaced:
        shutil.copytree(folder, aside)
        folder.rename(folder.with_name("before"))
        aside.rename(folder)
    else:
        folder.rename(aside)
    answers = [writer.get(f"/api/{route}") for route in ROUTES]
    answers.append(writer.post("/api/items", json={"items": [{"key": "new", "text": "a red house"}]}))
    answers.append(writer.delete("/api/items/1"))
    assert {(answer.status_code, str(answer.url)) for answer in answers if answer.status_code != 503} == set()
