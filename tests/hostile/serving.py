"""Serve a small collection of texts with short limits: python tests/hostile/serving.py FOLDER LIMITS_AS_JSON [FILES]

FILES is how many files the process may have open. `attacked` runs it and gives its port.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORDS = ("red", "green", "blue", "house", "lake", "street", "tree", "boat")


def make(folder: Path) -> None:
    from fusehash.collection import Collection, NewItem

    texts = [f"a {first} {second}" for first in WORDS for second in WORDS if first != second]
    with Collection.create(folder, n_bits=16, image_encoder="classical", text_encoder="tfidf") as collection:
        collection.build([NewItem(text, None, text, (text.split()[1],)) for text in texts])


@contextmanager
def attacked(folder: Path, log: Path, files: int = 0, **limits: Any) -> Iterator[int]:
    """The port of a server, whose log goes to a file; it must still answer and end when asked to."""
    command = [sys.executable, __file__, str(folder), json.dumps(limits), str(files)]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        try:
            assert process.stdout is not None
            port = re.search(r":(\d+)/", process.stdout.readline())
            assert port, log.read_text()
            yield int(port.group(1))
            assert process.poll() is None, "the server has ended"
        finally:
            process.terminate()
            process.wait(120)


def main(folder: str, limits: str, files: str) -> None:
    from fusehash.app import Limits, create_app, server
    from fusehash.collection import Collection

    if int(files):
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
    bounds = Limits(**json.loads(limits))
    with Collection.open(folder) as collection, server.bind("127.0.0.1", 0) as listening:
        app = create_app(collection, limits=bounds)
        address = server.address(listening, "127.0.0.1")
        server.serve(app, listening, lambda: os.write(1, f"{address}\n".encode()) and None, bounds)


if __name__ == "__main__":
    main(*sys.argv[1:])
