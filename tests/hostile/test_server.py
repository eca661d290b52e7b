"""Raw bytes to a running server: slow, endless, lying and broken requests are answered or closed, and others served."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from hostile import serving

PATIENCE = 120.0  # seconds; limits are 1 or 2, but the machine may be busy
HEAD = b"Host: localhost\r\n"
FORM = b"Content-Type: multipart/form-data; boundary=x\r\n"
FILE = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "texts.collection"
    serving.make(path)
    return path


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[int]:
    limits = {"header_seconds": 1, "upload_seconds": 2, "answer_seconds": 2, "upload_bytes": 100_000}
    log = folder.parent / "log"
    with serving.attacked(folder, log, **limits) as port:
        yield port
        assert ask(port, b"/api/health").startswith(b"HTTP/1.1 200")
    assert log.stat().st_size < 20_000, log.read_text()[:4000]


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def ask(port: int, path: bytes) -> bytes:
    with connect(port) as client:
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n")
        return everything(client)


def everything(client: socket.socket) -> bytes:
    """What comes until the server closes the connection, which it must do."""
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionError:  # it closed while we were sending
        pass
    return b"".join(parts)


def trickle(client: socket.socket, piece: bytes = b"a") -> bytes:
    """Send a little, again and again, until the server closes the connection; what it answered."""
    started, answer = time.monotonic(), b""
    client.settimeout(0.2)
    while time.monotonic() - started < PATIENCE:
        try:
            client.sendall(piece)
            part = client.recv(65536)
            if not part:
                return answer
            answer += part
        except TimeoutError:
            continue
        except ConnectionError:
            return answer
    raise AssertionError("the server keeps a slow connection open")


@pytest.mark.parametrize(
    "start",
    [b"", b"G", b"GET /api/health HTTP/1.1\r\nHost: loc", b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM],
    ids=["nothing", "a letter", "half a header", "no end of headers"],
)
def test_a_request_that_does_not_arrive_is_not_waited_for(port: int, start: bytes) -> None:
    with connect(port) as client:
        client.sendall(start)
        assert everything(client) == b""


def test_a_head_that_arrives_byte_by_byte(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"GET /api/health HTTP/1.1\r\n" + HEAD + b"X-Slow: ")
        assert trickle(client) == b""


def test_the_second_request_of_a_connection_may_not_be_slower_than_the_first(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"GET /api/health HTTP/1.1\r\n" + HEAD + b"\r\n")
        assert client.recv(20).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /api/health HTTP/1.1\r\n" + HEAD + b"X-Slow: ")
        assert b"HTTP/1.1" not in trickle(client)


@pytest.mark.parametrize("length", [b"Content-Length: 90000", b"Transfer-Encoding: chunked"], ids=["length", "chunked"])
def test_a_body_that_arrives_byte_by_byte(port: int, length: bytes) -> None:
    with connect(port) as client:
        chunked = b"chunked" in length
        client.sendall(b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + length + b"\r\n\r\n")
        client.sendall(b"%x\r\n%b\r\n" % (len(FILE), FILE) if chunked else FILE)
        answer = trickle(client, b"1\r\na\r\n" if chunked else b"a")
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert b"connection: close" in answer.lower()


def test_a_body_that_nobody_wants_is_not_read_for_ever(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"POST /api/search HTTP/1.1\r\n" + HEAD + b"Content-Type: text/plain\r\n")
        client.sendall(b"Content-Length: 90000\r\n\r\n")
        assert trickle(client).startswith(b"HTTP/1.1 415")
    with connect(port) as client:
        client.sendall(b"GET /api/health HTTP/1.1\r\n" + HEAD + b"Content-Length: 90000\r\n\r\n")
        assert trickle(client).startswith(b"HTTP/1.1 200")


def test_an_endless_body_ends_at_the_limit(port: int) -> None:
    with connect(port) as client:
        client.sendall(b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Transfer-Encoding: chunked\r\n\r\n")
        answer = trickle(client, b"4000\r\n" + bytes(0x4000) + b"\r\n")
    assert answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 400")) or not answer  # not, if it was reset


def test_an_answer_that_nobody_takes_is_dropped(port: int) -> None:
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(PATIENCE)
        client.connect(("127.0.0.1", port))
        with pytest.raises(ConnectionError):
            _send_without_reading(client, (b"GET /app.js HTTP/1.1\r\n" + HEAD + b"\r\n") * 2000)


def _send_without_reading(client: socket.socket, requests: bytes) -> None:
    client.sendall(requests)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(0.2)
        client.sendall(b"\r\n")


def test_pipelined_requests_are_answered_in_order(port: int) -> None:
    paths = [b"/api/items/%d" % (1 + i % 50) for i in range(100)]
    with connect(port) as client:
        for path in paths:
            client.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HEAD + b"\r\n")
        client.sendall(b"GET /api/health HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n")
        answers = everything(client).split(b"HTTP/1.1 200")[1:]
    bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
    assert [body.get("id") for body in bodies] == [*(int(path.rpartition(b"/")[2]) for path in paths), None]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\x00" * 1000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HEAD + b"".join(b"X-%d: a\r\n" % i for i in range(20_000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /api/search?text=%ff%fe%c3%28 HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /api/search?text=\xff\xfe HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /%ff%00%2e%2e/%2e%2e HTTP/1.1\r\n" + HEAD + b"\r\n",
        b"GET /api/items/1 HTTP/1.1\r\nHost: \xff\xfe\r\nX: \xc3\x28\r\n\r\n",
        b"POST /api/items HTTP/1.1\r\nAuthorization: Bearer \xff\xfe\r\n" + HEAD + b"Content-Length: 0\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: -1\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: 1e3\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: 4\r\n\r\n" + FILE,
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: 90000\r\n\r\n" + FILE,
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Content-Length: 5000000\r\n\r\n" + FILE,
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + FORM + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0",
        b"POST /api/search HTTP/1.1\r\n" + HEAD + b"Content-Type: multipart/form-data\r\nContent-Length: 3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\n" + HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HEAD + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n",
    ],
    ids=lambda value: repr(value[:60]),
)  # fmt: skip
def test_broken_requests_end(port: int, request_bytes: bytes) -> None:
    with connect(port) as client:
        try:
            client.sendall(request_bytes)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it did not want to hear more
        answer = everything(client)
    assert not answer or answer.startswith(b"HTTP/1.1 "), answer[:100]
    assert b"HTTP/1.1 5" not in answer
    assert str(Path.cwd()).encode() not in answer


def test_bad_connections_share_a_few_lines_of_the_log(port: int) -> None:
    for _ in range(500):
        with connect(port) as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert everything(client).startswith(b"HTTP/1.1 400")
    # The fixture looks at the size of the log.


@pytest.mark.slow
def test_silent_connections_give_way_to_visitors(folder: Path) -> None:
    """More connections than the process may have files: the old ones are closed, and the log stays short."""
    log = folder.parent / "crowded.log"
    with serving.attacked(folder, log, files=128, header_seconds=600) as port:
        silent = []
        try:
            for _ in range(400):
                silent.append(connect(port))
                silent[-1].sendall(b"GET /api/health HTTP/1.1\r\nX: ")
            for _ in range(3):
                assert ask(port, b"/api/search?text=red").startswith(b"HTTP/1.1 200")
                time.sleep(1)
        finally:
            for client in silent:
                client.close()
    assert log.stat().st_size < 20_000
