"""How soon the page of `fusehash serve` shows results over 100,000 items in Chromium, and how much it loads for them.

    python benchmarks/page_budget.py [--items 100000] [--runs 5] [--collection FOLDER]

The first items have drawn pictures with captions, the others captions alone. Every run is a browser profile without a
cache, on the start page and on the address of a search, once as the machine is and once with a processor that is four
times slower (what Lighthouse calls a phone). "results" is the time until the first card is there, "pictures" until the
thumbnails on the screen are loaded too, both from the start of the navigation. Browser and server share the machine;
"processor" is what both use from the navigation until the network is quiet.
Results go to benchmarks/results/page-DATE.json.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from runs import described, result_path, store
from serve_load import BATCH, caption

PICTURES = 2_000  # items with a picture; model and encoders are learned from them and as many texts
BUDGET = {"results_ms": 1_000, "script_bytes": 60_000}
PLACES = {"start": "", "search": "#text=a+red+boat+near+a+calm+river"}
SLOWER = {"desktop": 1, "phone": 4}  # times that the processor is slower
WATCH = """() => {
    window.seen = {};
    const look = () => {
        if (document.querySelector(".card")) seen.results ??= performance.now();
        const late = (image) => image.getBoundingClientRect().top < innerHeight && !image.complete;
        const isLate = [...document.querySelectorAll(".card img")].some(late);
        if (seen.results && !isLate) seen.pictures ??= performance.now();
        if (!seen.pictures) requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
    window.shift = 0;
    new PerformanceObserver((list) => { for (const entry of list.getEntries()) shift += entry.value; })
        .observe({ type: "layout-shift", buffered: true });
}"""
READ = """() => {
    const loaded = performance.getEntriesByType("resource");
    const all = [...loaded, ...performance.getEntriesByType("navigation")];
    const scripts = loaded.filter(({ name }) => name.endsWith(".js"));
    const sum = (list, what) => list.reduce((total, entry) => total + entry[what], 0);
    return {
        results_ms: seen.results, pictures_ms: seen.pictures, layout_shift: shift,
        scripts: scripts.length, script_bytes: sum(scripts, "decodedBodySize"), requests: loaded.length + 1,
        transferred_bytes: sum(all, "transferSize"),
        nodes: document.querySelectorAll("*").length,
    };
}"""


def draw(rng: np.random.Generator) -> bytes:
    """A picture with a few rectangles."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (640, 480), tuple(rng.integers(0, 256, 3).tolist()))
    pen = ImageDraw.Draw(image)
    for _ in range(6):
        x, y, width, height = rng.integers([0, 0, 40, 40], [600, 440, 300, 300]).tolist()
        pen.rectangle((x, y, x + width, y + height), fill=tuple(rng.integers(0, 256, 3).tolist()))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()


def make(folder: Path, count: int) -> float:
    """A collection of `count` items; how many seconds it took."""
    from fusehash.collection import Collection, NewItem

    rng, started = np.random.default_rng(0), time.perf_counter()
    items = [
        NewItem(f"{i}.jpg", draw(rng) if i < PICTURES else None, caption(rng), (f"label{i % 20}",))
        for i in range(count)
    ]
    encoders = {"image_encoder": "classical:n_words=8,n_keypoints=20", "text_encoder": "tfidf"}
    with Collection.create(folder, **encoders) as collection:
        collection.build(items[: 2 * PICTURES])
        for start in range(2 * PICTURES, count, BATCH):
            collection.add(items[start : start + BATCH])
            print(f"{min(start + BATCH, count):,} items after {time.perf_counter() - started:.0f} s", flush=True)
    return time.perf_counter() - started


def processor_ms() -> float:
    """What the browser and the server have used so far; unlike other times, it says something on a busy machine."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            used += 1e3 * sum(process.cpu_times()[:2])
    return used


def visit(browser: Any, address: str, slower: int) -> dict[str, float]:
    """What one visit without a cache takes."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.add_init_script(f"({WATCH})()")
    context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    before = processor_ms()
    page.goto(address)
    page.wait_for_function("() => window.seen?.pictures", timeout=120_000)
    page.wait_for_load_state("networkidle")
    read: dict[str, float] = page.evaluate(READ) | {"processor_ms": processor_ms() - before}
    context.close()
    return read


def visits(address: str, runs: int) -> dict[str, dict[str, float]]:
    """The median of several visits to each place, and the longest time to the first results."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    summary = {}
    with sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        visit(browser, address, 1)  # the first visit also starts the browser
        for device, slower in SLOWER.items():
            for name, place in PLACES.items():
                seen = [visit(browser, address + place, slower) for _ in range(runs)]
                medians = {key: round(statistics.median(one[key] for one in seen), 3) for key in seen[0]}
                summary[f"{name}, {device}"] = medians | {
                    "results_ms_max": round(max(s["results_ms"] for s in seen), 1)
                }
                print(f"{name}, {device}: {summary[f'{name}, {device}']}", flush=True)
        browser.close()
    return summary


def cold(address: str) -> dict[str, float]:
    """Seconds of the first answers after the start of the server, which read the collection."""
    times = {}
    for name, path in (("items", "api/items?limit=48"), ("search", "api/search?text=red+boat&k=48")):
        started = time.perf_counter()
        with urllib.request.urlopen(address + path, timeout=120) as answer:
            answer.read()
        times[name] = round(time.perf_counter() - started, 3)
    return times


def main() -> None:
    """Make, serve, visit, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--collection", type=Path, help="keep the collection here, and use it if it is there")
    given = parser.parse_args()
    head = described()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.collection or Path(scratch) / "page.collection"
        if not folder.exists():
            make(folder, given.items)
        command = [sys.executable, "-m", "fusehash.cli", "serve", str(folder), "--port", "0"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
            try:
                assert server.stdout is not None
                address = re.search(r"http://\S+", server.stdout.readline())
                if not address:
                    raise SystemExit("The server did not start.")
                first, seen = cold(address.group()), visits(address.group(), given.runs)
            finally:
                server.terminate()
                server.wait(20)
    result = head | {
        "items": given.items,
        "pictures": min(PICTURES, given.items),
        "runs": given.runs,
        "budget": BUDGET,
        "first_answer_seconds": first,
        "visits": seen,
    }
    print(json.dumps(result, indent=2))
    store(result_path("page"), result)


if __name__ == "__main__":
    main()
