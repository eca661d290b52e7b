"""kill -9 at random moments of build, add, update, remove and reindex: `python crash_rounds.py FOLDER ROUNDS SEED`.

Every round forks a child that opens the collection and carries out a list of calls known beforehand, telling through a
pipe when each has returned; it is killed at a random moment. The collection must then open without repair and hold
exactly what the acknowledged calls left, or that and the one call that was under way. Every 10th round begins with a
new folder, so that creation is killed, too. Prints what happened as JSON.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import fake_encoders  # noqa: E402

from killing import told_before_kill  # noqa: E402

fake_encoders.install()
from PIL import Image  # noqa: E402

from fusehash.collection import Collection, NewItem  # noqa: E402

Facts = tuple[str, tuple[str, ...], int]  # text, labels, number of the picture (0: none)
Content = dict[str, tuple[Facts, bool]]  # key -> what it is, and whether a build brought it
Call = tuple[str, dict[str, Facts]]
ROOM = 60


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def facts(rng: np.random.Generator) -> Facts:
    words = rng.choice(["red", "green", "blue", "tall", "small", "round", "old", "new"], 4)
    labels = tuple(sorted(set(rng.choice(["a", "b", "c"], 2))))
    return " ".join(words), tuple(str(label) for label in labels), int(rng.integers(0, 1000))


def plan(rng: np.random.Generator, content: Content, count: int) -> list[Call]:
    """Calls that are right for this content, one after the other."""
    content, calls = dict(content), []
    for _ in range(count):
        kind = str(rng.choice(["build", "add", "add", "update", "remove", "reindex"]))
        here = [str(key) for key in rng.permutation(list(content))]
        free = [f"item{i}" for i in range(ROOM) if f"item{i}" not in content]
        if kind == "build":  # some stay as they are, some change, some go, some come
            built = [key for key in here if content[key][1]]
            kept = {key: content[key][0] for key in built[: len(built) * 3 // 4]}
            chosen = {**kept, **{key: facts(rng) for key in (built[:2] + free[: int(rng.integers(5, 12))])}}
        elif kind == "add":
            chosen = {key: facts(rng) for key in free[: int(rng.choice([1, 3, 8]))]}
        elif kind == "update":
            chosen = {key: facts(rng) for key in here[:3]}
        elif kind == "remove":
            chosen = {key: content[key][0] for key in here[: int(rng.choice([1, 4]))]}
        else:
            chosen = {}
        if (not chosen and kind != "reindex") or (kind == "reindex" and len(content) < 4):
            continue
        calls.append((kind, chosen))
        content = after(content, calls[-1])
    return calls


def after(content: Content, call: Call) -> Content:
    kind, chosen = call
    if kind == "build":
        others = {key: value for key, value in content.items() if not value[1] and key not in chosen}
        return {**others, **{key: (value, True) for key, value in chosen.items()}}
    if kind == "remove":
        return {key: value for key, value in content.items() if key not in chosen}
    if kind == "update":
        # A picture that is not given (number 0) stays.
        return {
            **content,
            **{key: ((*value[:2], value[2] or content[key][0][2]), content[key][1]) for key, value in chosen.items()},
        }
    return {**content, **{key: (value, False) for key, value in chosen.items()}} if kind == "add" else content


def carry_out(collection: Collection, call: Call) -> None:
    kind, chosen = call
    items = [
        NewItem(key, picture(number) if number else None, text, labels)
        for key, (text, labels, number) in chosen.items()
    ]
    if kind == "remove":
        ids = {item.key: item.id for item in collection.items(0, 1000)}
        collection.remove([ids[key] for key in chosen])
    elif kind == "reindex":
        collection.reindex()
    else:
        getattr(collection, kind)(items)


def child(path: Path, calls: list[Call], pipe: int) -> None:
    collection = Collection.open(path) if path.exists() else Collection.create(path, n_bits=16)
    os.write(pipe, b".")
    for call in calls:
        carry_out(collection, call)
        os.write(pipe, b".")
    time.sleep(2)


def read(path: Path) -> Content:
    """What the collection holds, with everything that must fit together checked."""
    if not path.exists():
        return {}
    with Collection.open(path) as collection:
        stored = collection._stored()
        found: Content = {}
        for entry in stored.values():
            thumbnail = collection.thumbnail(entry.id or 0)
            assert (thumbnail is None) == (entry.image is None), f"half an item: {entry}"
            found[entry.key] = ((entry.text or "", entry.labels, entry.image), entry.built)  # type: ignore[assignment]
        labels: dict[str, int] = {}
        for entry in stored.values():
            for label in entry.labels:
                labels[label] = labels.get(label, 0) + 1
        assert collection.labels() == labels
        stats = collection.stats()
        if stats["trained"]:
            assert stats["codes"] == len(stored), "codes and items differ"
            hits = collection.search("red tall new", k=1000)
            assert {hit.item.key for hit in hits} == set(stored)
        return found


def comparable(content: Content) -> Any:
    from fusehash.collection.items import content_hash

    return {
        key: ((text, labels, content_hash(picture(number)) if number else None), built)
        for key, ((text, labels, number), built) in content.items()
    }


def main(folder: Path, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    warm = Collection.create(folder / "warm", n_bits=16)  # what is compiled here need not be in every child
    warm.build([NewItem(f"i{i}", picture(i), f"red {i}") for i in range(12)])
    read(folder / "warm")
    warm.close()
    content: Content = {}
    path = folder / "0"
    done = completed = unopened = 0
    kinds: dict[str, int] = {}
    for number in range(rounds):
        if number % 10 == 0:
            path, content = folder / f"{number}.collection", {}
        calls = plan(rng, content, 8)
        seconds = float(rng.choice([rng.uniform(0, 0.03), rng.uniform(0, 0.3), rng.uniform(0, 1.0)]))
        steps = told_before_kill(partial(child, path, calls), seconds, told_first=int(rng.integers(3)))
        unopened += not steps
        count = max(0, steps - 1)
        expected = content
        for call in calls[:count]:
            expected = after(expected, call)
            kinds[call[0]] = kinds.get(call[0], 0) + 1
        found = read(path)
        if found != comparable(expected):
            assert steps, f"round {number}: content changed without a call"
            assert count < len(calls), f"round {number}: content changed after the last call"
            expected = after(expected, calls[count])
            assert found == comparable(expected), f"round {number}: neither before nor after {calls[count][0]}"
            completed += 1
        content, done = expected, done + count
    outcome = {"rounds": rounds, "acknowledged": done, "completed": completed, "unopened": unopened, "kinds": kinds}
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
