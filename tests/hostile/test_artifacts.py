"""Models, encoders and stored results that were damaged, or made to do harm."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import fusehash
from fusehash import encoders, hashers
from fusehash.errors import FusehashError, FusehashWarning, ModelFileError
from fusehash.experiments.store import ResultStore
from fusehash.files import CHECKSUM
from fusehash.trust import TRUSTED_MODELS
from hostile.scale import cases
from sealing import parts, seal

GOLDEN = Path(__file__).parents[1] / "golden"
METHODS = ["fusehash", "agsfh", "agh", "fsh", "cca_itq", "random"]
TEXTS = ["a cat on the mat", "a dog on the tree", "a bird in the sea", "a fish in the sea"]
rng = np.random.default_rng(0)
ROWS = {"image": rng.random((30, 6)), "text": rng.random((30, 5))}


def write_model(path: Path, method: str = "cca_itq") -> None:
    hashers.make(method, n_bits=8, random_state=0).fit(ROWS).save(path)


def write_encoder(path: Path, name: str = "tfidf") -> None:
    encoders.save(encoders.make(name).fit(TEXTS), path)


def use_model(path: Path) -> list[bytes]:
    """Codes of new rows from a model."""
    model = fusehash.load(path)
    codes = [model.codes_, model.encode_fused(ROWS), *(model.encode(X, view=view) for view, X in ROWS.items())]
    return [code.tobytes() for code in codes]


def use_encoder(path: Path) -> list[bytes]:
    return [encoders.load(path).transform(TEXTS).tobytes()]


KINDS: list[tuple[Callable[[Path], None], Callable[[Path], list[bytes]]]] = [
    (write_model, use_model), (write_encoder, use_encoder)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("write", "use"), KINDS)
def test_a_flipped_bit_is_noticed_or_changes_nothing(write: Any, use: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    content, expected = path.read_bytes(), use(path)
    end_of_header = 8 + int.from_bytes(content[:8], "little")
    chosen = random.Random(0)
    positions = sorted(chosen.sample(range(8 * end_of_header), min(8 * end_of_header, cases(1200, 10_000))))
    positions += [chosen.randrange(8 * end_of_header, 8 * len(content)) for _ in range(cases(300, 3000))]
    noticed = 0
    for position in positions:
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            assert use(path) == expected, f"bit {position}"
        except ModelFileError:
            noticed += 1
    assert noticed > 0.9 * len(positions)


@pytest.mark.parametrize(("write", "use"), KINDS)
def test_a_new_file_without_its_checksum_is_refused(write: Any, use: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    arrays, entries = parts(path)
    del entries[CHECKSUM]
    save_file(arrays, str(path), entries)
    with pytest.raises(ModelFileError, match="checksum"):
        use(path)


@pytest.mark.parametrize("change", ["version", "value", "name", "shape"])
@pytest.mark.parametrize(("write", "use"), KINDS)
def test_every_part_of_a_file_is_in_its_checksum(write: Any, use: Any, change: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    arrays, entries = parts(path)
    name = max(arrays, key=lambda name: arrays[name].size)
    if change == "version":
        entries["version"] = "1"
    elif change == "value":
        arrays[name].reshape(-1)[3] += 1
    elif change == "name":
        arrays[f"{name}x"] = arrays.pop(name)
    else:
        arrays[name] = arrays[name][None]
    save_file(arrays, str(path), entries)
    with pytest.raises(ModelFileError, match="checksum"):
        use(path)


def test_absurd_headers_are_refused(tmp_path: Path) -> None:
    header = {"x": {"dtype": "F64", "shape": [1 << 60, 1 << 60], "data_offsets": [0, 8]}}
    twice = b'{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
    texts = [json.dumps(header).encode(), twice, b"[" * 50_000, b'{"x": 3}', b"[]", b"{}"]
    files = [len(text).to_bytes(8, "little") + text + bytes(8) for text in texts]
    for content in [*files, (1 << 62).to_bytes(8, "little") + b"{}", b"", b"\0"]:
        (tmp_path / "file").write_bytes(content)
        for load in (fusehash.load, encoders.load):
            with pytest.raises(ModelFileError):
                load(tmp_path / "file")


# ---- files with the right checksum, made to do harm

VALUES: list[Any] = [None, True, -1, 0, 1, 3, 10**12, 10**30, 0.5, -1e300, "x", "", [], [1], {}, {"$array": "codes_"}]
VALUES += [{"$class": "Preparation", "fields": {}}, {"$dict": [["image", 1]]}, float("nan"), float("inf")]


def spoiled(value: Any, chosen: random.Random) -> Any:
    """The same document with one value replaced."""
    if isinstance(value, dict | list) and value and chosen.random() < 0.9:
        copied = value.copy()
        key = chosen.choice(list(value)) if isinstance(value, dict) else chosen.randrange(len(value))
        copied[key] = spoiled(value[key], chosen)
        return copied
    return chosen.choice(VALUES)


def bent(array: Any, chosen: random.Random) -> Any:
    """An array of another shape, type or content."""
    other = chosen.choice([
        array[:0], array[:-1], array.reshape(-1), array[..., None], array.T, np.concatenate([array, array]),
        array.astype("i8"), array.astype("f2"), array > 0, np.full_like(array, 255), array * np.float64("nan"),
        array * np.float64("inf"), np.zeros((0, 0)), np.ones(()),
    ])  # fmt: skip
    return np.ascontiguousarray(other)


def attack(path: Path, use: Callable[[Path], Any], seed: int, n_cases: int) -> None:
    arrays, entries = parts(path)
    chosen = random.Random(seed)
    names = [name for name in entries if name not in ("format", "version", CHECKSUM)]
    for _ in range(n_cases):
        changed_arrays, changed_entries = dict(arrays), dict(entries)
        for _ in range(chosen.choice((1, 1, 2))):
            if chosen.random() < 0.5:
                name = chosen.choice(sorted(arrays))
                with np.errstate(all="ignore"):
                    changed_arrays[name] = bent(arrays[name], chosen)
            else:
                name = chosen.choice(names)
                changed_entries[name] = json.dumps(spoiled(json.loads(entries[name]), chosen))
        seal(path, changed_arrays, changed_entries)
        with suppress(FusehashError):
            use(path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_a_right_checksum_and_wrong_content_is_refused_or_encodes(method: str, tmp_path: Path) -> None:
    write_model(tmp_path / "model", method)
    attack(tmp_path / "model", use_model, 0, cases(150, 1500))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_an_encoder_with_a_right_checksum_and_wrong_content_is_refused_or_encodes(name: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder", name)
    attack(tmp_path / "encoder", use_encoder, 0, cases(150, 1500))


def test_an_encoder_file_does_not_decide_what_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoders.make("clip", modality="text", model="hf-hub:somebody/model")
    encoder.n_features_ = 512
    encoders.save(encoder, tmp_path / "encoder")
    with pytest.raises(ModelFileError, match="data may not choose"):
        encoders.load(tmp_path / "encoder")
    monkeypatch.setenv(TRUSTED_MODELS, "hf-hub:somebody/model")
    assert encoders.load(tmp_path / "encoder").n_features_ == 512


# ---- stored results


def use_store(folder: Path) -> list[Any]:
    store = ResultStore(folder)
    seen: list[Any] = [(record.settings.key, sorted(record.codes), record.fit_seconds) for record in store]
    return seen + [(record.rows.stages(["U", "HN"]), record.views) for record in store.datasets()]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A store of this version, with one run and one data set."""
    old, new = ResultStore(GOLDEN / "2026-11-second-design" / "results"), ResultStore(tmp_path / "results")
    new.put_dataset(old.datasets()[0])
    new.put(next(iter(old)))
    return tmp_path / "results"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["runs", "datasets"])
def test_a_flipped_bit_in_a_stored_result_is_noticed_or_changes_nothing(results: Path, part: str) -> None:
    (path,) = (results / part).rglob("*.safetensors")
    content, expected, chosen = path.read_bytes(), use_store(results), random.Random(0)
    assert len(expected) == 2
    for _ in range(cases(60, 2000)):
        damaged, position = bytearray(content), chosen.randrange(8 * len(content))
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        got = use_store(results)
        assert got == expected or len(got) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", ["runs", "datasets"])
def test_a_stored_result_with_a_right_checksum_and_wrong_content_counts_as_missing(results: Path, part: str) -> None:
    (path,) = (results / part).rglob("*.safetensors")
    arrays, entries = parts(path)
    chosen = random.Random(0)
    for _ in range(cases(200, 2000)):
        facts = spoiled(json.loads(json.loads(entries["facts"])), chosen)
        name = chosen.choice(sorted(arrays))
        with np.errstate(all="ignore"):
            changed = {**arrays, name: bent(arrays[name], chosen)} if chosen.random() < 0.5 else arrays
        seal(path, changed, {**entries, "facts": json.dumps(json.dumps(facts))})
        use_store(results)


def test_a_damaged_result_is_named_in_a_warning(results: Path) -> None:
    (path,) = (results / "runs").rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.warns(FusehashWarning, match="It counts as missing"):
        assert list(ResultStore(results)) == []
