"""Checks before every request: hosts, headers, limits, and hostile uploads."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from fusehash.app import Limits
from fusehash.collection import Collection


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize("path", ["/", "/api/health", "/api/search", "/nothing", "/api/items/1/thumbnail"])
def test_every_answer_has_the_headers(client: Any, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "localhost."])
def test_own_names_are_known(client: Any, host: str) -> None:
    assert client.get("/api/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "10.0.0.1", "[::2]", "evil@localhost"])
def test_other_names_are_not(client: Any, host: str) -> None:
    assert code_of(client.get("/api/health", headers={"Host": host})) == (421, "unknown_host")


def test_names_that_were_allowed(collection: Collection, client_of: Callable[..., Any]) -> None:
    from fusehash.app.server import hosts_of

    named = client_of(collection, hosts=("photos.example",))
    assert named.get("/api/health", headers={"Host": "Photos.example:80"}).status_code == 200
    anywhere = client_of(collection, hosts=hosts_of("0.0.0.0"))
    assert anywhere.get("/api/health", headers={"Host": "192.168.1.7:8000"}).status_code == 200
    assert anywhere.get("/api/health", headers={"Host": "evil.example"}).status_code == 421


def test_other_sites_cannot_post(client: Any, draw: Callable[..., bytes]) -> None:
    answer = client.post(
        "/api/search", files={"image": draw("red", "circle")}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert code_of(answer) == (403, "cross_site")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "", "multipart/mixed; boundary=x", "image/png"])
def test_content_of_another_kind(client: Any, kind: str) -> None:
    answer = client.post("/api/search", content=b"x", headers={"Content-Type": kind})
    assert code_of(answer) == (415, "unsupported_media_type")


def test_the_limit_holds_whatever_the_length_says(collection: Collection, client_of: Callable[..., Any]) -> None:
    client = client_of(collection, limits=Limits(upload_bytes=50_000))
    assert code_of(client.post("/api/search", files={"image": bytes(70_000)})) == (413, "too_large")
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        while sent < 10_000_000:
            sent += 10_000
            yield bytes(10_000)

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert code_of(client.post("/api/search", content=endless(), headers=headers)) == (413, "too_large")
    # Parts that are no image count as well.
    wordy = client.post("/api/search", data={"other": "x" * 70_000}, files={"image": b"x"})
    assert code_of(wordy) == (413, "too_large")


def test_a_slow_sender_is_cut_off(collection: Collection, client_of: Callable[..., Any]) -> None:
    import anyio

    app = client_of(collection, limits=Limits(upload_seconds=1)).app
    sent: list[Any] = []

    async def receive() -> Any:
        await anyio.sleep_forever()

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"multipart/form-data; boundary=x")]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/search",
        "raw_path": b"/api/search",
        "query_string": b"",
        "headers": headers,
        "http_version": "1.1",
        "scheme": "http",
        "server": ("localhost", 80),
        "client": None,
    }

    async def run() -> None:
        with anyio.fail_after(120):
            await app(scope, receive, send)

    anyio.run(run)
    assert sent[0]["status"] == 408


def test_too_many_uploads_are_asked_to_come_back(collection: Collection, client_of: Callable[..., Any]) -> None:
    from fusehash.app.guard import Guard

    client = client_of(collection, limits=Limits(uploads=4, upload_bytes=10_000))
    client.get("/api/health")
    guard = client.app.middleware_stack
    while not isinstance(guard, Guard):
        guard = guard.app
    for others in ({"10.0.0.1": 40_000}, {"10.0.0.1": 20_000, "10.0.0.2": 20_000}, {"testclient": 20_000}):
        guard._held.update(others)
        answer = client.post("/api/search", files={"image": b"x"})
        assert code_of(answer) == (503, "busy")
        assert "retry-after" in answer.headers
        assert guard._held == others
        guard._held.clear()
    guard._held["10.0.0.1"] = 39_000  # somebody else
    assert client.post("/api/search", files={"image": b"x"}).status_code == 422
    assert guard._held == {"10.0.0.1": 39_000}


def _png(width: int, height: int, data: bytes) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 100,
        b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
        b"GIF89a" + b"\xff" * 40,
        b"%PDF-1.4",
        b"PK\x03\x04",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        _png(60_000, 60_000, bytes(1000)),
        _png(6_000, 6_000, bytes(1000)),
        _png(0, 5, b""),
        _png(64, 64, b""),
    ],
    ids=["empty", "zeros", "svg", "gif", "pdf", "zip", "eps", "bomb", "large", "flat", "without data"],
)
def test_hostile_uploads(client: Any, content: bytes) -> None:
    answer = client.post("/api/search", files={"image": ("x.png", content, "image/png")})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].endswith(".")


def test_truncated_image(client: Any, draw: Callable[..., bytes], optional: Callable[[str], ModuleType]) -> None:
    image = optional("PIL.Image")
    file = io.BytesIO()
    image.open(io.BytesIO(draw("red", "circle"))).save(file, "JPEG")
    half = file.getvalue()[: len(file.getvalue()) // 2]
    assert code_of(client.post("/api/search", files={"image": half})) == (422, "unusable")


def test_a_form_without_an_image(client: Any) -> None:
    assert code_of(client.post("/api/search", files={"other": b"x"})) == (422, "invalid")
    assert code_of(client.post("/api/search", data={"image": "/etc/passwd"}, files={"x": b""})) == (422, "invalid")


def test_limits_must_make_sense() -> None:
    with pytest.raises(ValueError, match="upload_bytes"):
        Limits(upload_bytes=0)
