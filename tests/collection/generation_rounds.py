"""kill -9 while generations are built, switched to and dropped: `python generation_rounds.py FOLDER ROUNDS SEED`.

As crash_rounds.py, with calls that concern generations between those that change items. After every kill, the
collection must open, hold what the acknowledged calls left (or that and the one under way), and every code must be the
one that the current model gives: no kill may leave a mixture of two generations.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import crash_rounds as rounds
import numpy as np
from crash_rounds import Call, Content, told_before_kill

from fusehash.collection import Collection, NewItem, generations, store, training
from fusehash.collection.encoding import load_encoder
from fusehash.collection.features import FeatureCache
from fusehash.collection.training import files_of
from fusehash.errors import DataError

KINDS = ("generation", "switch", "switch", "back", "drop")


def plan(rng: np.random.Generator, content: Content, count: int) -> list[Call]:
    """Calls that change items, and between them some that change generations."""
    calls: list[Call] = []
    for call in rounds.plan(rng, content, count):
        calls.append(call)
        content = rounds.after(content, call)
        if len(content) >= 4:
            calls += [(str(kind), {}) for kind in rng.choice(KINDS, int(rng.integers(0, 3)))]
    return calls


def after(content: Content, call: Call) -> Content:
    return content if call[0] in KINDS else rounds.after(content, call)


def carry_out(collection: Collection, call: Call) -> None:
    kind, _ = call
    if kind not in KINDS:
        rounds.carry_out(collection, call)
        return
    numbers = [kept.number for kept in collection.generations() if not kept.current]
    try:
        if kind == "generation":
            collection.build_generation(measure=False, random_state=len(numbers), n_bits=16 + 8 * (len(numbers) % 2))
        elif kind == "switch":
            collection.switch(numbers[-1] if numbers else None)
        elif kind == "back":
            collection.switch(back=True)
        elif len(numbers) > 2:
            collection.drop(numbers[0])
    except DataError:  # nothing to switch to, or nothing to learn from
        pass


def check_codes(path: Path) -> None:
    """Every item has the code that the current model gives it."""
    if not path.exists():
        return
    with Collection.open(path) as collection:
        with collection._items.reading() as database:
            for kept in store.kept_states(database):
                generations._read_codes(database, kept)  # raises if codes are missing or damaged
                assert all(file.exists() for file in files_of(path, kept).values()), (
                    f"generation {kept.generation} lacks a file"
                )
        state, entries = collection._now().state, list(collection._stored().values())
        if not state.model:
            return
        model = training.load_model(path, state.model)
        assert 8 * len(collection.query_code(text="red tall")) == state.n_bits == model.n_bits
        encoders = {view: load_encoder(path, view, name) for view, name in state.encoder_names.items()}
        features = FeatureCache(path / "features.db")
        expected = training.encode(model, training.matrices(entries, encoders, features))
        features.close()
        index = collection._now().index
        known = dict(zip(index.ids.tolist(), index.get(index.ids), strict=True))
        for entry, code in zip(entries, expected, strict=True):
            assert code == known[entry.id].tobytes(), f"{entry.key}: a code of another generation"


def child(path: Path, calls: list[Call], pipe: int) -> None:
    collection = Collection.open(path) if path.exists() else Collection.create(path, n_bits=16)
    os.write(pipe, b".")
    for call in calls:
        carry_out(collection, call)
        os.write(pipe, b".")
    time.sleep(2)


def main(folder: Path, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with Collection.create(folder / "warm", n_bits=16) as warm:  # what is compiled here need not be in every child
        warm.build([NewItem(f"i{i}", rounds.picture(i), f"red {i}") for i in range(12)])
    rounds.read(folder / "warm")
    content: Content = {}
    path, kinds, done = folder / "0", dict.fromkeys(KINDS, 0), 0
    for number in range(count):
        if number % 10 == 0:
            path, content = folder / f"{number}.collection", {}
        calls = plan(rng, content, 6)
        seconds = float(rng.choice([rng.uniform(0, 0.05), rng.uniform(0, 0.5), rng.uniform(0, 1.0)]))
        steps = told_before_kill(partial(child, path, calls), seconds, told_first=int(rng.integers(10)))
        finished = calls[: max(0, steps - 1)]
        for call in finished:
            content = after(content, call)
            kinds[call[0]] = kinds.get(call[0], 0) + 1
        done += len(finished)
        found = rounds.read(path)
        if found != rounds.comparable(content):
            assert steps, f"round {number}: content changed without a call"
            content = after(content, calls[len(finished)])
            assert found == rounds.comparable(content), f"round {number}: neither before nor after a call"
        check_codes(path)
    sys.stdout.write(json.dumps({"rounds": count, "acknowledged": done, "kinds": kinds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
