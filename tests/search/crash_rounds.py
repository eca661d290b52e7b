"""kill -9 at random moments, many rounds in one process: `python crash_rounds.py FOLDER ROUNDS SEED`.

Every round forks a child that opens the index and carries out a list of operations known beforehand, telling through a
pipe when each has returned; it is killed at a random moment. The index must then hold exactly what the acknowledged
operations left, or that and the one operation that was under way: no lost write, no mixed state, no repair by hand.
Every 20th round begins with a new file, so that creation is killed, too. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from fusehash.search import HammingIndex

sys.path.insert(0, str(Path(__file__).parents[1]))
from killing import told_before_kill

N_BITS = 64
Content = dict[int, bytes]
Operation = tuple[str, list[int], list[bytes]]


def plan(rng: np.random.Generator, content: Content, count: int) -> list[Operation]:
    """Operations that are right for this content, one after the other."""
    content, operations = dict(content), []
    for _ in range(count):
        kind = rng.choice(["add", "add", "add", "remove", "replace", "compact", "reopen"])
        here = list(content)
        if kind == "add":
            size = int(rng.choice([1, 2, 30, 3000]))
            ids = [int(i) for i in np.unique(rng.integers(-(2**40), 2**40, size)) if i not in content]
        else:
            ids = [int(i) for i in rng.permutation(here)[: int(rng.choice([1, 5, max(1, len(here) // 2)]))]]
        if kind in ("compact", "reopen"):
            ids = []
        elif not ids:
            continue
        codes = [rng.bytes(N_BITS // 8) for _ in ids] if kind in ("add", "replace") else []
        operations.append((str(kind), ids, codes))
        content = after(content, operations[-1])
        if len(content) > 12000:
            operations.append(("remove", list(content), []))
            content = {}
    return operations


def after(content: Content, operation: Operation) -> Content:
    kind, ids, codes = operation
    if kind == "remove":
        gone = set(ids)
        return {id: code for id, code in content.items() if id not in gone}
    return {**content, **dict(zip(ids, codes, strict=True))} if kind in ("add", "replace") else content


def child(path: Path, operations: list[Operation], pipe: int) -> None:
    index = HammingIndex.open(path, N_BITS, warm=False)
    os.write(pipe, b".")
    for kind, ids, codes in operations:
        matrix = np.frombuffer(b"".join(codes), np.uint8).reshape(-1, N_BITS // 8)
        if kind == "add":
            index.add(matrix, ids)
        elif kind == "remove":
            index.remove(ids)
        elif kind == "replace":
            index.replace(matrix, ids)
        elif kind == "compact":
            index.compact()
        else:
            index.close()
            index = HammingIndex.open(path, N_BITS, warm=False)
        os.write(pipe, b".")
    time.sleep(1)


def read(path: Path) -> Content:
    with HammingIndex.open(path, N_BITS, warm=False) as index:
        return {int(id): code.tobytes() for ids, codes in index for id, code in zip(ids, codes, strict=True)}


def main(folder: Path, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content: Content = {}
    path = folder / "codes.db"
    done = under_way = unopened = 0
    for number in range(rounds):
        if number % 20 == 0:
            path, content = folder / f"codes-{number}.db", {}
        operations = plan(rng, content, 12)
        seconds = float(rng.choice([rng.uniform(0, 0.003), rng.uniform(0, 0.02), rng.uniform(0, 0.08)]))
        told = told_before_kill(partial(child, path, operations), seconds, told_first=int(rng.integers(6)))
        if told == 0:
            unopened += 1
        count = max(0, told - 1)
        expected = content
        for operation in operations[:count]:
            expected = after(expected, operation)
        found = read(path)
        if found != expected:
            assert 0 < told <= len(operations), f"round {number}: content changed without a call"
            maybe = after(expected, operations[count])
            assert found == maybe, f"round {number}: neither before nor after {operations[count][0]}"
            under_way += 1
        content, done = found, done + count
    sys.stdout.write(json.dumps({"rounds": rounds, "acknowledged": done, "unopened": unopened, "completed": under_way}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
