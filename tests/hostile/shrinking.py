"""Failing cases made small, and kept for ever in `found/`: one file with a tree of files, its kind and what it did."""

from __future__ import annotations

import json
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hostile import corpus, mutators, runner

FOUND = Path(__file__).parent / "found"
MAX_STEPS = 150  # cases that one shrinking may run
MAX_BYTES = 40_000  # of a kept case


def cause(fault: dict[str, Any]) -> tuple[str, str, str]:
    """What faults of one cause share: kind, verdict, and the class and line of fusehash, not the message."""
    detail = fault["detail"]
    place = detail.split(": ")[0] if " at " in detail else detail
    return fault["kind"], fault["verdict"], place[:160]


def keep(faults: list[dict[str, Any]], per_cause: int, root: Path, folder: Path) -> None:
    """Shrink some cases of every cause and write them into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for fault in faults:
        groups.setdefault(cause(fault), []).append(fault)
    samples, workshop = corpus.load(root / "samples"), root / "workshop"
    workshop.mkdir()
    with runner.Arena(root / "samples", root / "shrinking") as arena:
        for group in groups.values():
            for fault in group[:per_cause]:
                tree, _ = mutators.mutated(fault["kind"], samples, Random(fault["seed"]), workshop)
                small = shrunk(arena, fault, tree)
                if small is not None:
                    write_case(folder, fault, small)


def shrunk(arena: runner.Arena, fault: dict[str, Any], tree: corpus.Tree) -> corpus.Tree | None:
    """A smaller tree with the same verdict; None if the case cannot be repeated or stays large."""
    steps = 0

    def fails(candidate: corpus.Tree) -> bool:
        nonlocal steps
        steps += 1
        [result] = arena.run([runner.request_of(fault["kind"], candidate, fault["seed"])])
        return bool(cause(result)[:2] == cause(fault)[:2])

    if not fails(tree):
        return None
    slow = fault["verdict"] in ("cpu", "hang")
    shrinking = True
    while shrinking and steps < (12 if slow else MAX_STEPS):
        shrinking = False
        for candidate in _smaller(tree):
            if steps >= (12 if slow else MAX_STEPS):
                break
            if fails(candidate):
                tree, shrinking = candidate, True
                break
    return tree if _size(tree) <= MAX_BYTES else None


def _smaller(tree: corpus.Tree) -> Iterator[corpus.Tree]:
    """Trees without a file, or with a shorter one."""
    if len(tree) > 1:
        for name in tree:
            yield {other: data for other, data in tree.items() if other != name}
    for name, data in tree.items():
        if isinstance(data, bytes):
            for part in (2, 4, 8, 16):
                length = len(data) // part
                if length:
                    for start in range(len(data) - length, -1, -length):
                        yield {**tree, name: data[:start] + data[start + length :]}


def _size(tree: corpus.Tree) -> int:
    """Bytes of the tree in a kept file."""
    return len(zlib.compress(json.dumps(runner.pack(tree)).encode(), 9))


def write_case(folder: Path, fault: dict[str, Any], tree: corpus.Tree) -> Path:
    """Keep a case; its name is its kind, verdict and checksum."""
    packed = zlib.compress(json.dumps(runner.pack(tree)).encode(), 9)
    path = folder / f"{fault['kind']}-{fault['verdict']}-{zlib.crc32(packed):08x}.json"
    note = {"kind": fault["kind"], "verdict": fault["verdict"], "detail": fault["detail"], "seed": fault["seed"]}
    path.write_text(json.dumps({**note, "tree": b85encode(packed).decode()}, indent=1) + "\n")
    return path


def read_case(path: Path) -> dict[str, Any]:
    """The request that repeats a kept case."""
    case = json.loads(path.read_text())
    tree = json.loads(zlib.decompress(b85decode(case["tree"])))
    return {"kind": case["kind"], "seed": case["seed"], "tree": tree}
