"""What a visitor of `fusehash serve` notices while 1,000 slow connections and 8 uploaders attack it.

    python benchmarks/attacked_server.py [--before OTHER_TREE] [--items 100000] [--seconds 30]

Half of the slow connections send the head of a request, half the body of an upload, one byte per second each; they come
back a second after they are closed. The uploaders send pictures of 32 million pixels (62 kB of PNG, 16 bits per pixel),
with transparency, and photos of 8 MB, one after the other. Meanwhile two visitors search by text, one over one
connection, one with a new connection per query, 20 times a second. Then 80 clients ask for the groups of similar items
at once while one asks for the health. Server, attackers and visitors are processes of their own on one machine. The
server may have 1,024 files open. With --before, the server of another source tree is measured first. Results go to
benchmarks/results/attacked_server-DATE.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from runs import described, result_path, store
from serve_load import ADJECTIVES, NOUNS, caption

LEARNED, BATCH, PICTURES = 5_000, 20_000, 60
SLOW, UPLOADERS, OVERVIEWS = 1_000, 8, 80
PAUSE = 0.05  # of a visitor between two queries
TIMEOUT = 10.0
HEAD = "Host: localhost\r\nUser-Agent: benchmark\r\n"


def make(folder: Path, count: int) -> None:
    """A collection of `count` texts, a few of them with pictures."""
    from PIL import Image

    from fusehash.collection import Collection, NewItem

    rng = np.random.default_rng(0)

    def picture() -> bytes:
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((160, 120)).save(file, "PNG")
        return file.getvalue()

    items = [NewItem(f"{i}", picture() if i < PICTURES else None, caption(rng), ()) for i in range(count)]
    with Collection.create(folder, image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build(items[:LEARNED])
        for start in range(LEARNED, count, BATCH):
            collection.add(items[start : start + BATCH])
            print(f"{min(start + BATCH, count):,} items", file=sys.stderr, flush=True)


# -- attackers -----------------------------------------------------------------------------------------------------


async def trickle(port: int, number: int, until: float, seen: Counter[str]) -> None:
    """Send a request byte by byte, and again when the server has had enough."""
    if number % 2:
        start = f"GET /api/search?text=a HTTP/1.1\r\n{HEAD}X-Slow: "
    else:
        kind = "Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5000000\r\n\r\n"
        start = f"POST /api/search HTTP/1.1\r\n{HEAD}{kind}--x\r\n"
    await asyncio.sleep(number / SLOW)
    while time.time() < until:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            seen["connections"] += 1
            try:
                writer.write(start.encode())
                while time.time() < until and not reader.at_eof():
                    writer.write(b"a")
                    await writer.drain()
                    await asyncio.sleep(1)
            finally:
                writer.close()
        await asyncio.sleep(1)


async def upload(port: int, number: int, until: float, seen: Counter[str]) -> None:
    """Send large pictures, one after the other."""
    pictures = large_pictures()
    while time.time() < until:
        number += 1
        body = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n%b\r\n--x--\r\n'
        body = body.replace(b"%b", pictures[number % len(pictures)])
        kind = f"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        status = "failed"
        with contextlib.suppress(OSError, IndexError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(f"POST /api/search HTTP/1.1\r\n{HEAD}{kind}\r\n".encode() + body)
                await writer.drain()
                status = (await reader.read()).split(b" ", 2)[1].decode()
            finally:
                writer.close()
        seen[f"uploads answered with {status}"] += 1
        if status != "200":
            await asyncio.sleep(0.2)


@cache
def large_pictures() -> list[bytes]:
    from PIL import Image

    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (2400, 3200, 3), np.uint8))
    deep, clear = Image.fromarray(np.zeros((4000, 8000), np.uint16)), Image.new("RGBA", (8000, 4000))
    files = []
    for image, kind in ((deep, "PNG"), (noise, "JPEG"), (clear, "PNG")):
        file = io.BytesIO()
        image.save(file, kind, **({"quality": 85} if kind == "JPEG" else {}))
        files.append(file.getvalue())
    return files


async def attack(kind: str, port: int, seconds: float) -> None:
    large_pictures()
    print("ready", flush=True)
    until, seen = time.time() + seconds, Counter[str]()
    work, count = (trickle, SLOW) if kind == "slow" else (upload, UPLOADERS)
    await asyncio.gather(*(work(port, i, until, seen) for i in range(count)))
    print(json.dumps(seen))


# -- visitors ------------------------------------------------------------------------------------------------------


class Visitor:
    """Asks and measures."""

    def __init__(self, port: int, *, keep: bool) -> None:
        self._port, self._keep = port, keep
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.times: list[float] = []
        self.failures = 0

    async def ask(self, path: str) -> None:
        started, answered = time.perf_counter(), False
        with contextlib.suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, ValueError):
            answered = await asyncio.wait_for(self._answer(path), TIMEOUT)
        self.times.append(time.perf_counter() - started if answered else TIMEOUT)
        if not answered:
            self.failures += 1
        if not (self._keep and answered) and self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _answer(self, path: str) -> bool:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\n{HEAD}\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        await reader.readexactly(int(length.group(1)) if length else 0)
        return head.startswith(b"HTTP/1.1 200")


async def visit(visitor: Visitor, number: int, until: float) -> None:
    rng = np.random.default_rng(number)
    while time.perf_counter() < until:
        words = [*rng.choice(ADJECTIVES, 1), *rng.choice(NOUNS, int(rng.integers(1, 4)))]
        await visitor.ask(f"/api/search?k=24&text={'+'.join(words)}")
        await asyncio.sleep(PAUSE)


async def search(port: int, seconds: float) -> dict[str, Any]:
    visitors, until = [Visitor(port, keep=keep) for keep in (True, False)], time.perf_counter() + seconds
    await asyncio.gather(*(visit(visitor, i, until) for i, visitor in enumerate(visitors)))
    return summary([t for visitor in visitors for t in visitor.times], sum(v.failures for v in visitors))


async def health(port: int, crowd: int) -> dict[str, Any]:
    """The health while `crowd` clients ask for the groups."""
    visitors = [Visitor(port, keep=False) for _ in range(crowd)]
    asking = [asyncio.create_task(visitor.ask("/api/clusters")) for visitor in visitors]
    watcher = Visitor(port, keep=True)
    while not all(task.done() for task in asking) or len(watcher.times) < 20:
        await watcher.ask("/api/health")
        await asyncio.sleep(PAUSE)
    return summary(watcher.times, watcher.failures + sum(visitor.failures for visitor in visitors))


def summary(times: list[float], failures: int) -> dict[str, Any]:
    p50, p99 = np.percentile(times, [50, 99]) * 1e3
    measures = {"p50_ms": p50, "p99_ms": p99, "max_ms": max(times) * 1e3}
    return {
        "answers": len(times), "failures": failures, **{name: round(float(ms), 1) for name, ms in measures.items()}
    }  # fmt: skip


# -- all together --------------------------------------------------------------------------------------------------


def measure(tree: Path, folder: Path, seconds: float) -> dict[str, Any]:
    """Serve with the code of a tree, and attack it."""
    import psutil

    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "-m", "fusehash.cli", "serve", str(folder), "--port", "0"]
    limited = ["sh", "-c", 'ulimit -n 1024; exec "$@"', "sh", *command]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as server,
    ):
        try:
            assert server.stdout is not None
            address = re.search(r"http://\S+:(\d+)/", server.stdout.readline())
            if not address:
                raise SystemExit("The server did not start.")
            port, process = int(address.group(1)), psutil.Process(server.pid)
            result: dict[str, Any] = {"quiet": asyncio.run(search(port, seconds / 2))}
            base = [sys.executable, __file__, "--port", str(port), "--seconds", str(seconds + 3), "--attack"]
            kinds = ("slow", "upload")
            attackers = [subprocess.Popen([*base, kind], stdout=subprocess.PIPE, text=True) for kind in kinds]
            for attacker in attackers:
                assert attacker.stdout is not None
                attacker.stdout.readline()
            time.sleep(3)
            result["attacked"] = asyncio.run(search(port, seconds))
            result["attack"] = Counter()
            for attacker in attackers:
                result["attack"].update(json.loads(attacker.communicate(timeout=120)[0]))
            result["overviews"] = asyncio.run(health(port, OVERVIEWS))
            result["server_peak_mb"] = round(_peak(process) / 1e6)
            result["log_bytes"] = errors.seek(0, os.SEEK_END)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
    return result


def _peak(process: Any) -> int:
    """Largest resident memory of a process, in bytes."""
    status = Path(f"/proc/{process.pid}/status")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(peak.group(1)) * 1024 if peak else int(process.memory_info().rss)


def main() -> None:
    """Make, serve, attack, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--before", type=Path, help="another source tree, to be measured first")
    parser.add_argument("--collection", type=Path, help="keep the collection here, and use it if it is there")
    parser.add_argument("--attack", choices=("slow", "upload"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * SLOW), hard))
    if options.attack:
        asyncio.run(attack(options.attack, options.port, options.seconds))
        return
    head = described()
    trees = {"before": options.before} if options.before else {}
    trees["after"] = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.collection or Path(scratch) / "attacked.collection"
        if not folder.exists():
            make(folder, options.items)
        measured = {name: measure(tree.absolute(), folder, options.seconds) for name, tree in trees.items()}
    result = head | {
        "items": options.items,
        "slow_connections": SLOW,
        "uploaders": UPLOADERS,
        **measured,
    }
    print(json.dumps(result, indent=2))
    store(result_path("attacked_server"), result)


if __name__ == "__main__":
    main()
