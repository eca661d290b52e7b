"""How fast `fusehash serve` answers text queries over 100,000 items while several clients ask at once.

    python benchmarks/serve_load.py [--items 100000] [--clients 8] [--seconds 20]

The collection is made of captions from a word list: learned from 5,000 of them, the others added. The server is a
process of its own, the clients share another one, so on a machine with few cores they get in each other's way: what is
printed is what a client sees. The server's own time on a processor tells more on a busy machine. Results go to
benchmarks/results/serve-DATE.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from runs import described, result_path, store

LEARNED, BATCH = 5_000, 20_000
NOUNS = re.findall(
    r"\w+",
    """boat bridge car cat child church city cloud coast cow dancer desert dog dress field flag flower forest garden
glacier guitar harbour hat hill horse house island jacket kitchen lake lamp market meadow mirror monument mountain
museum night ocean palm park people plane plate player pond rain river road rock roof sand school shirt shop sky snow
square stadium station statue street sun table temple tourist tower train tree valley village wall waterfall window
woman zebra""",
)
ADJECTIVES = re.findall(
    r"\w+",
    """ancient big black blue bright brown calm cloudy cold colorful dark dry empty golden green gray high
long narrow old orange quiet red round sandy small snowy steep striped sunny tall warm white wide wooden
yellow""",
)
PLACES = ("behind", "below", "beside", "in", "left", "near", "on", "over", "right", "under")


def caption(rng: np.random.Generator) -> str:
    """A made-up caption."""
    a, b, c = rng.choice(NOUNS, 3, replace=False)
    first, second = rng.choice(ADJECTIVES, 2, replace=False)
    return f"a {first} {a} {rng.choice(PLACES)} a {second} {b} with a {c}"


def make(folder: Path, count: int) -> float:
    """A collection of `count` texts; how many seconds it took."""
    from fusehash.collection import Collection, NewItem

    rng, started = np.random.default_rng(0), time.perf_counter()
    items = [NewItem(f"{i}", None, caption(rng), (f"label{i % 20}",)) for i in range(count)]
    with Collection.create(folder, image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build(items[:LEARNED])
        for start in range(LEARNED, count, BATCH):
            collection.add(items[start : start + BATCH])
            print(f"{min(start + BATCH, count):,} items after {time.perf_counter() - started:.0f} s", flush=True)
    return time.perf_counter() - started


async def one_client(client: Any, number: int, until: float, times: list[float]) -> None:
    """Ask, wait for the answer, ask again."""
    rng = np.random.default_rng(number + 1)
    while time.perf_counter() < until:
        words = [*rng.choice(ADJECTIVES, 1), *rng.choice(NOUNS, int(rng.integers(1, 4)))]
        started = time.perf_counter()
        answer = await client.get("/api/search", params={"text": " ".join(words), "k": 24})
        times.append(time.perf_counter() - started)
        answer.raise_for_status()
        if len(answer.json()["hits"]) != 24:
            raise RuntimeError("An answer must have 24 results.")


async def load(address: str, server: int, clients: int, seconds: float) -> dict[str, float]:
    """What `clients` clients see over some seconds, after a second that does not count."""
    import httpx
    import psutil

    times: list[float] = []
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=30) as client:
        await asyncio.gather(*(one_client(client, i, time.perf_counter() + 1, []) for i in range(clients)))
        started, busy = time.perf_counter(), sum(psutil.Process(server).cpu_times()[:2])
        await asyncio.gather(*(one_client(client, i, started + seconds, times) for i in range(clients)))
        took, busy = time.perf_counter() - started, sum(psutil.Process(server).cpu_times()[:2]) - busy
    p50, p90, p99 = np.percentile(times, [50, 90, 99]) * 1e3
    return {
        "clients": clients, "answers": len(times), "answers_per_second": round(len(times) / took, 1),
        "p50_ms": round(p50, 2), "p90_ms": round(p90, 2), "p99_ms": round(p99, 2), "max_ms": round(max(times) * 1e3, 2),
        "server_cpu_ms_per_answer": round(busy / len(times) * 1e3, 2),
    }  # fmt: skip


def main() -> None:
    """Make, serve, ask, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--collection", type=Path, help="keep the collection here, and use it if it is there")
    given = parser.parse_args()
    head = described()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.collection or Path(scratch) / "load.collection"
        built = None if folder.exists() else make(folder, given.items)
        command = [sys.executable, "-m", "fusehash.cli", "serve", str(folder), "--port", "0"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        ) as server:
            try:
                assert server.stdout is not None
                address = re.search(r"http://\S+", server.stdout.readline())
                if not address:
                    raise SystemExit("The server did not start.")
                runs = [asyncio.run(load(address.group(), server.pid, n, given.seconds)) for n in (1, given.clients)]
            finally:
                server.terminate()
                server.wait(20)
    result = head | {
        "items": given.items,
        "n_bits": 64,
        "results_per_query": 24,
        "build_seconds": None if built is None else round(built, 1),
        "runs": runs,
    }
    print(json.dumps(result, indent=2))
    store(result_path("serve"), result)


if __name__ == "__main__":
    main()
