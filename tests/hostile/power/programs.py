"""Small programs that write everything fusehash writes, and what is read back after a loss of power.

A program is a generator: what it does before a `yield` has been acknowledged there. `read` returns the content as JSON
values, None if there is nothing yet, and raises if anything is half done; `go_on` shows that one can continue.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fusehash import encoders, hashers
from fusehash.encoders import base, texts
from fusehash.experiments.store import DatasetRecord, ResultStore, RunRecord, RunSettings
from fusehash.search import HammingIndex

_TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(_TESTS), str(_TESTS / "collection")]
import fake_encoders  # noqa: E402

REAL_ENCODERS = (base, texts)  # imported before the fakes come
fake_encoders.install()
from fusehash.collection import Collection, NewItem, generations, store, training  # noqa: E402
from fusehash.collection.encoding import load_encoder  # noqa: E402


@dataclass(frozen=True)
class Program:
    run: Callable[[Path], Iterator[str]]
    read: Callable[[Path], Any]
    go_on: Callable[[Path], None]


def in_a_killed_process(work: Callable[[], object]) -> None:
    """Call work() in a child that then ends by kill -9."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"the killed process: {error!r}\n".encode())
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)
    if os.waitpid(pid, 0)[1] != signal.SIGKILL:
        raise RuntimeError("the killed process failed")


# -- an index ----------------------------------------------------------------------------------------------------


def random_codes(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (count, 8), dtype=np.uint8)


def run_index(folder: Path) -> Iterator[str]:
    path = folder / "codes.fhi"
    with HammingIndex.open(path, 64, warm=False) as index:
        yield "create"
        for count in (3, 1, 400):
            index.add(random_codes(count, count))
            yield f"add {count}"
        index.remove(range(100, 250))
        yield "remove"
        index.replace(random_codes(30, 5), range(10, 40))
        yield "replace"
        index.compact()
        yield "compact"
        index.add(random_codes(2, 6))
        yield "add after compact"
    with HammingIndex.open(path, warm=False) as index:
        index.remove([0, 1])
        yield "remove after reopening"
    in_a_killed_process(lambda: HammingIndex.open(path, warm=False).add(random_codes(5, 7)))
    yield "add and be killed"
    with HammingIndex.open(path, warm=False) as index, HammingIndex.open(path, warm=False) as other:
        index.add(random_codes(2, 8))
        yield "add after the kill"
        other.replace(random_codes(1, 9), [2])
        yield "replace by another"
    yield "close"


def read_index(folder: Path) -> Any:
    path = folder / "codes.fhi"
    if not path.exists():
        return None
    with HammingIndex.open(path, warm=False) as index:
        content = {int(id): code.tobytes().hex() for ids, codes in index for id, code in zip(ids, codes, strict=True)}
        assert len(index) == len(content)
        return content


def go_on_with_index(folder: Path) -> None:
    before = read_index(folder) or {}
    with HammingIndex.open(folder / "codes.fhi", 64, warm=False) as index:
        (new,) = index.add(random_codes(1, 10))
    assert read_index(folder) == {**before, int(new): random_codes(1, 10)[0].tobytes().hex()}


# -- an index with vectors, which says in every vector which code it belongs to -------------------------------------


def vectors_of(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return codes.astype(np.float32) + 1.0


def run_vectors(folder: Path) -> Iterator[str]:
    path = folder / "codes.fhi"
    with HammingIndex.open(path, 64, vectors="float32", dim=8, warm=False) as index:
        yield "create"
        for count in (3, 1, 400):
            codes = random_codes(count, count)
            index.add(codes, vectors=vectors_of(codes))
            yield f"add {count}"
        index.remove(range(100, 250))
        yield "remove"
        codes = random_codes(30, 5)
        index.replace(codes, range(10, 40), vectors_of(codes))
        yield "replace"
        index.compact()
        yield "compact"
        index.add(codes[:2], vectors=vectors_of(codes[:2]))
        yield "add after compact"

    def add() -> None:
        HammingIndex.open(path, warm=False).add(codes[2:7], vectors=vectors_of(codes[2:7]))

    in_a_killed_process(add)
    yield "add and be killed"
    with HammingIndex.open(path, warm=False) as index, HammingIndex.open(path, warm=False) as other:
        index.remove(range(20))
        yield "remove after the kill"
        other.compact()
        yield "compact by another"
        index.add(codes[:3], vectors=vectors_of(codes[:3]))
        yield "add"
    yield "close"


def read_vectors(folder: Path) -> Any:
    content = read_index(folder)
    if content:
        with HammingIndex.open(folder / "codes.fhi", warm=False) as index:
            codes, query = index.get(index.ids), np.zeros((1, 8), np.uint8)
            assert np.array_equal(index.get_vectors(index.ids), vectors_of(codes)), "vectors of other codes"
            index.search(query, 5, rescore=vectors_of(query), candidates=1000)  # verifies all checksums
    return content


def go_on_with_vectors(folder: Path) -> None:
    before, path, codes = read_vectors(folder) or {}, folder / "codes.fhi", random_codes(1, 10)
    with HammingIndex.open(path, 64, vectors="float32", dim=8, warm=False) as index:
        (new,) = index.add(codes, vectors=vectors_of(codes))
        index.compact()
    assert read_vectors(folder) == {**before, int(new): codes[0].tobytes().hex()}


# -- a collection ------------------------------------------------------------------------------------------------

TEXTS = ["a red house", "a red barn", "a blue lake", "the blue sea", "green hills", "a green tree", "an old red tree"]


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def new_items(*numbers: int, text: str = "") -> list[NewItem]:
    return [
        NewItem(f"item{i}", picture(i) if i % 2 else None, text or TEXTS[i % len(TEXTS)], ("odd" if i % 2 else "even",))
        for i in numbers
    ]


def run_collection(folder: Path) -> Iterator[str]:
    path = folder / "my.collection"
    with Collection.create(path, n_bits=16, image_encoder="classical", text_encoder="tfidf") as collection:
        yield "create"
        collection.build(new_items(0, 1, 2, 3, 4))
        yield "build"
        collection.add(new_items(5, 6))
        yield "add"
        collection.update(new_items(1, 2, text="another text"))
        yield "update"
        collection.remove([1, 4])
        yield "remove"
        collection.reindex()
        yield "reindex"
        collection.build_generation(n_bits=24, measure=False)
        yield "build_generation"
        collection.add(new_items(7))
        yield "add between"
        collection.switch()
        yield "switch"
        collection.switch(back=True)
        yield "switch back"
    with Collection.open(path) as collection:
        collection.build(new_items(0, 1, 2, 8, 9, 10, 11, 12))
        yield "build again"
        collection.drop(3)
        yield "drop"
    in_a_killed_process(lambda: Collection.open(path).add(new_items(13)))
    yield "add and be killed"
    with Collection.open(path) as collection:
        collection.add(new_items(14))
        yield "add after the kill"
    yield "close"


def read_collection(folder: Path) -> Any:
    path = folder / "my.collection"
    if not path.exists():
        return None
    with Collection.open(path) as collection:
        entries, snapshot = list(collection._stored().values()), collection._now()
        for entry in entries:
            assert (collection.thumbnail(entry.id or 0) is None) == (entry.image is None), f"half an item: {entry}"
        with collection._items.reading() as database:
            kept = store.kept_states(database)
            for state in kept:
                generations._read_codes(database, state)  # raises if codes are missing or damaged
        for state in (*kept, snapshot.state):
            missing = [file.name for file in training.files_of(path, state).values() if not file.exists()]
            assert not missing, f"generation {state.generation} lacks {missing}"
        if snapshot.state.model:
            check_codes(path, collection, entries)
        return {
            "items": {e.key: [e.id, e.text, e.labels, e.image and e.image.hex(), e.built] for e in entries},
            "generation": [snapshot.state.generation, *(state.generation for state in kept)],
            "n_bits": snapshot.state.n_bits,
        }


def check_codes(path: Path, collection: Collection, entries: list[Any]) -> None:
    """Every item is found, with the code that the current model gives its text and its picture or thumbnail."""
    state, index = collection._now().state, collection._now().index
    model = training.load_model(path, state.model)
    fitted = {view: load_encoder(path, view, name).encoder for view, name in state.encoder_names.items()}
    blank = np.full(fitted["image"].n_features_, np.nan, np.float32)

    def codes(data: list[bytes | None]) -> list[bytes | None]:
        images = [blank if content is None else fitted["image"].transform([content])[0] for content in data]
        words = fitted["text"].transform([entry.text for entry in entries])
        return training.encode(model, {"image": np.array(images), "text": words})

    thumbnails = [collection.thumbnail(entry.id) for entry in entries]
    originals = [picture(int(entry.key.removeprefix("item"))) if entry.image else None for entry in entries]
    for entry, *expected in zip(entries, codes(originals), codes(thumbnails), strict=True):
        assert index.get([entry.id])[0].tobytes() in expected, f"{entry.key} has a code of another model"
    assert {hit.item.key for hit in collection.search("red", k=100)} == {entry.key for entry in entries}


def go_on_with_collection(folder: Path) -> None:
    path = folder / "my.collection"
    with (
        Collection.open(path)
        if path.exists()
        else Collection.create(path, n_bits=16, image_encoder="classical", text_encoder="tfidf") as collection
    ):
        collection.add([*new_items(20, 21)])
        if len(collection) > 3:
            collection.reindex()
    assert {"item20", "item21"} <= read_collection(folder)["items"].keys()


# -- models, encoders, results -----------------------------------------------------------------------------------


def views(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"image": rng.normal(size=(12, 5)), "text": rng.normal(size=(12, 4))}


def run_model(folder: Path) -> Iterator[str]:
    for seed in range(3):
        model = hashers.RegressionHasher(n_bits=16, random_state=seed).fit(views(0))
        model.save(folder / "model.safetensors")
        yield f"save {seed}"


def read_model(folder: Path) -> Any:
    path = folder / "model.safetensors"
    return hashers.load(path).encode_fused(views(1)).tobytes().hex() if path.exists() else None


def go_on_with_model(folder: Path) -> None:
    for _ in run_model(folder):
        read_model(folder)


def run_encoder(folder: Path) -> Iterator[str]:
    for count in (2, 3):
        encoder = encoders.make("tfidf", n_components=count).fit(TEXTS)
        encoders.save(encoder, folder / "text.encoder")
        yield f"save {count}"


def read_encoder(folder: Path) -> Any:
    path = folder / "text.encoder"
    return encoders.load(path).transform(TEXTS).tobytes().hex() if path.exists() else None


def go_on_with_encoder(folder: Path) -> None:
    for _ in run_encoder(folder):
        read_encoder(folder)


PRINT = "ab" * 32


def run_results(folder: Path) -> Iterator[str]:
    results = ResultStore(folder / "results")
    rows = np.arange(3)
    dataset = DatasetRecord(PRINT, "small", "made", rows % 2, rows, rows, rows, {"image": 5, "text": 4}, 3)
    results.put_dataset(dataset)
    yield "data set"
    settings = RunSettings(PRINT, "regression", {}, 16, 0, "train")
    record = RunRecord(settings, {"unified": np.arange(6, dtype=np.uint8).reshape(3, 2)}, None, 1.0, {}, {}, "2026")
    results.put(record)
    yield "run"
    results.put(replace(record, settings=replace(settings, seed=1)))
    yield "another run"
    results.put(replace(record, fit_seconds=2.0))
    yield "the first run again"
    results.put(replace(record, settings=replace(settings, dataset="cd" * 32)))
    yield "run of another data set"


def read_results(folder: Path) -> Any:
    results = ResultStore(folder / "results")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a damaged file is named in a warning
        runs = {str(record.settings): record.fit_seconds for record in results}
        names = [record.name for record in results.datasets()]
    return {"datasets": names, "runs": runs} if names or runs else None


def go_on_with_results(folder: Path) -> None:
    *_, last = run_results(folder)
    assert len(read_results(folder)["runs"]) == 3, last


PROGRAMS = {
    "index": Program(run_index, read_index, go_on_with_index),
    "vectors": Program(run_vectors, read_vectors, go_on_with_vectors),
    "collection": Program(run_collection, read_collection, go_on_with_collection),
    "model": Program(run_model, read_model, go_on_with_model),
    "encoder": Program(run_encoder, read_encoder, go_on_with_encoder),
    "results": Program(run_results, read_results, go_on_with_results),
}
