"""kill -9 at random moments, many rounds in one process: `python crash_rounds.py FOLDER ROUNDS SEED [all]`.

Every round forks a child that opens the index, carries out a list of operations and writes to a pipe when each has
returned; it is killed at a random moment. The index must then hold exactly what the acknowledged operations left, or
that and the one operation that was under way: no lost write, no mixed state, no repair by hand. Every 20th round begins
with a new file. In every 5th round the child kills itself while it opens or creates the file, at one of its first file
operations, so that this happens however busy the computer is. With "all" the index keeps vectors and factors, which
follow from the codes and must be those of their code. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.bits import unpacked
from fusehash.search import HammingIndex

sys.path.insert(0, str(Path(__file__).parents[1]))
from killing import told_before_kill

N_BITS = 64
OPTIONS: dict[str, Any] = {"vectors": "int8", "dim": N_BITS, "factors": True} if sys.argv[-1] == "all" else {}
Content = dict[int, bytes]
Operation = tuple[str, list[int], list[bytes]]


def plan(rng: np.random.Generator, content: Content, length: int) -> list[Operation]:
    """Operations that are right for this content, one after the other."""
    content, operations = dict(content), []
    for _ in range(length):
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


def opened(path: Path) -> HammingIndex:
    return HammingIndex.open(path, N_BITS, warm=False, **OPTIONS)


def extras_of(codes: np.ndarray) -> dict[str, np.ndarray]:
    """The argument of a call that adds or replaces codes: numbers that say which codes they belong to."""
    return {"vectors": unpacked(codes) + 1.0, "factors": codes[:, :2].astype(np.float32)} if OPTIONS else {}


def die_at(number: int) -> None:
    """Kill this process at its next file operation (1), or at a later one."""
    events = count(1)

    def watch(event: str, arguments: object) -> None:
        if event in ("open", "os.link", "sqlite3.connect", "sqlite3.connect/handle") and next(events) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def child(path: Path, operations: list[Operation], dies_at: int, pipe: int) -> None:
    if dies_at:
        die_at(dies_at)
    index = opened(path)
    os.write(pipe, b".")
    for kind, ids, codes in operations:
        matrix = np.frombuffer(b"".join(codes), np.uint8).reshape(-1, N_BITS // 8)
        if kind == "add":
            index.add(matrix, ids, **extras_of(matrix))
        elif kind == "remove":
            index.remove(ids)
        elif kind == "replace":
            index.replace(matrix, ids, **extras_of(matrix))
        elif kind == "compact":
            index.compact()
        else:
            index.close()
            index = opened(path)
        os.write(pipe, b".")
    time.sleep(1)


def read(path: Path) -> Content:
    with opened(path) as index:
        if OPTIONS and len(index):
            codes = index.get(index.ids)
            numbers = unpacked(codes) + 1.0
            units, stored = numbers / np.linalg.norm(numbers, axis=1, keepdims=True), index.get_vectors(index.ids)
            rounding = 0.5 / 127 * units.max(axis=1, keepdims=True) + 1e-6
            assert np.all(np.abs(stored - units) <= rounding), "vectors of other codes"
            distances, ids = index.search(codes[:1], 1, rescore=numbers[:1], candidates=len(index))
            assert distances[0, 0] < 1e-3
            assert np.array_equal(index.get(ids[0]), codes[:1])
            assert np.array_equal(index.get_factors(index.ids), codes[:, :2])
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
        dies_at = int(rng.integers(1, 4)) if number % 5 == 0 else 0
        work = partial(child, path, operations, dies_at)
        reports = told_before_kill(work, seconds, told_first=1 if dies_at else int(rng.integers(6)))
        unopened += reports == 0
        n_done = max(0, reports - 1)
        expected = content
        for operation in operations[:n_done]:
            expected = after(expected, operation)
        stored = read(path)
        if stored != expected:
            assert 0 < reports <= len(operations), f"round {number}: content changed without a call"
            maybe = after(expected, operations[n_done])
            assert stored == maybe, f"round {number}: neither before nor after {operations[n_done][0]}"
            under_way += 1
        content, done = stored, done + n_done
    sys.stdout.write(json.dumps({"rounds": rounds, "acknowledged": done, "unopened": unopened, "completed": under_way}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
