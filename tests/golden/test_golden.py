"""Files that earlier versions wrote open with the current code and give the same codes and answers.

Every folder next to this file is a set that write.py wrote once, with all of its parts or with some. Sets are added,
never changed.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal

import fusehash as fh
from fusehash.collection import Collection
from fusehash.experiments.metrics import collect
from fusehash.experiments.spec import parse_spec
from fusehash.experiments.store import ResultStore
from fusehash.hashers.baselines import agh

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import write  # noqa: E402

SETS = sorted(folder for folder in HERE.iterdir() if (folder / "codes.npz").exists())
FLOATS = sorted(HERE.glob("*/floats"))
RETRIEVERS = sorted(path.parent for path in HERE.glob("*/retriever.npz"))
MODELS = sorted(path for folder in SETS for path in folder.glob("*.safetensors") if ".encoder." not in path.name)
LATEST = SETS[-1]
CHANGED: tuple[str, ...] = ()  # methods whose codes changed on purpose since then; empty it with the next set


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", MODELS, ids=label)
def test_a_model_file_encodes_as_it_did(path: Path) -> None:
    data, codes = np.load(path.parent / "data.npz"), np.load(path.parent / "codes.npz")
    new = {name: data[name][write.N_TRAIN :] for name in ("image", "text")}
    model = fh.load(path)
    for view, rows in new.items():
        assert_array_equal(model.encode(rows, view=view), codes[f"{path.stem}/{view}"])
    if f"{path.stem}/fused" in codes:
        assert_array_equal(model.encode_fused(new), codes[f"{path.stem}/fused"])
        assert_array_equal(model.codes_, codes[f"{path.stem}/train"])


@pytest.mark.parametrize("name", write.variants())
def test_a_new_fit_gives_the_codes_of_the_latest_set(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, codes = np.load(LATEST / "data.npz"), np.load(LATEST / "codes.npz")
    if name in CHANGED:
        pytest.skip(f"{name} learns other codes since the set {LATEST.name}, on purpose")
    if f"{name}/train" not in codes:
        pytest.skip(f"{name} is newer than the set {LATEST.name}")
    model = write.build(*write.variants()[name])
    train = {view: data[view][: write.N_TRAIN] for view in ("image", "text")}
    same_blas = (LATEST / "linear_algebra.txt").read_text().strip() == write.linear_algebra()
    if name == "agh" and (not same_blas or tuple(map(int, sklearn.__version__.split(".")[:2])) < (1, 9)):
        # Its k-means finds other centers from the same seed, and nothing of these codes is left with other anchors.
        anchors = iter([fh.load(LATEST / "agh.safetensors").graphs_[view].anchors for view in train])
        monkeypatch.setattr(agh, "kmeans_anchors", lambda *_: next(anchors))
    model.fit(train, data["labels"][: write.N_TRAIN] if model.supervised else None)
    for view in train:
        got = np.unpackbits(model.encode(data[view][write.N_TRAIN :], view=view))
        expected = np.unpackbits(codes[f"{name}/{view}"])
        # Another BLAS rounds differently, and loops that start at random codes amplify that.
        assert np.mean(got == expected) >= (1.0 if same_blas else 0.9)


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
def test_an_index_file_holds_and_answers_what_it_did(folder: Path, tmp_path: Path) -> None:
    expected = np.load(folder / "index.npz")
    shutil.copy(folder / "index.fhi", tmp_path)
    with fh.HammingIndex.open(tmp_path / "index.fhi", warm=False) as index:
        assert_array_equal(index.ids, expected["ids"])
        assert_array_equal(index.get(expected["ids"]), expected["codes"])
        distances, ids = index.search(expected["queries"], k=5)
        assert_array_equal(distances, expected["distances"])
        assert_array_equal(ids, expected["found"])
        index.remove(expected["ids"][:1])  # and it can still be written


@pytest.mark.parametrize("folder", sorted(f.parent for f in HERE.glob("*/vectors.fhi")), ids=lambda folder: folder.name)
def test_an_index_file_with_vectors_holds_and_answers_what_it_did(folder: Path, tmp_path: Path) -> None:
    expected = np.load(folder / "vectors.npz")
    for file in folder.glob("vectors.fhi*"):
        shutil.copy(file, tmp_path)
    with fh.HammingIndex.open(tmp_path / "vectors.fhi", warm=False) as index:
        ids = expected["ids"]
        assert_array_equal(index.ids, ids)
        assert_array_equal(index.get(ids), expected["codes"])
        assert_array_equal(index.get_vectors(ids), expected["vectors"])
        assert_array_equal(index.get_factors(ids), expected["factors"])
        distances, found = index.search(expected["scores"], k=5)
        assert_array_equal(found, expected["found"])
        np.testing.assert_allclose(distances, expected["distances"])
        rescored, nearest = index.search(expected["scores"], k=5, rescore=expected["queries"], candidates=50)
        assert_array_equal(nearest, expected["nearest"])
        np.testing.assert_allclose(rescored, expected["rescored"], rtol=1e-5)
        index.remove(ids[:1])  # and it can still be written


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
def test_a_collection_finds_what_it_found(folder: Path, tmp_path: Path) -> None:
    expected = json.loads((folder / "collection.json").read_text())
    shutil.copytree(folder / "small.collection", tmp_path / "small.collection")
    with Collection.open(tmp_path / "small.collection") as collection:
        assert len(collection) == expected["items"]
        for query in ("a red thing", "green number2", "blue"):
            hits = collection.search(text=query, k=6)
            assert [[hit.item.key, hit.distance] for hit in hits] == expected[query]
        collection.remove([5])
        assert len(collection) == expected["items"] - 1


@pytest.mark.parametrize("folder", SETS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_an_encoder_file_encodes_as_it_did(folder: Path, name: str) -> None:
    expected = np.load(folder / "encoders.npz")
    encoder = fh.encoders.load(folder / f"{name}.encoder.safetensors")
    np.testing.assert_allclose(encoder.transform(list(expected["texts"])), expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("folder", [folder for folder in SETS if (folder / "results").exists()], ids=lambda f: f.name)
def test_a_result_store_gives_the_scores_it_gave(folder: Path) -> None:
    expected = json.loads((folder / "results.json").read_text())
    spec, store = parse_spec(write.EXPERIMENT, "golden"), ResultStore(folder / "results")
    [results] = collect(spec, store)
    assert results.missing == []
    assert len(store) == 6
    assert {record.settings.method for record in store} == {"fusehash", "agsfh", "regression"}
    for line in spec.lines:
        for protocol in spec.protocols:
            for direction in results.directions:
                score = results.score(line, write.N_BITS, protocol, direction)
                assert score is not None
                assert score.mean == expected[f"{line.label} {protocol} {score.direction}"]


@pytest.mark.parametrize("folder", FLOATS, ids=lambda folder: folder.parent.name)
def test_a_model_of_float_targets_encodes_as_it_did(folder: Path) -> None:
    model, expected = fh.load(folder / "model.safetensors"), np.load(folder / "rows.npz")
    for view in ("image", "text"):
        codes, factors = model.encode(expected[view][write.N_TRAIN :], view=view, with_factors=True)
        assert_array_equal(codes, expected[f"{view}/codes"])
        np.testing.assert_allclose(factors, expected[f"{view}/factors"], rtol=1e-5, atol=1e-6)
        projections = model.project(expected[view][write.N_TRAIN :], view=view)
        np.testing.assert_allclose(projections, expected[f"{view}/projections"], rtol=1e-5, atol=1e-6)


def test_a_new_fit_of_float_targets_gives_the_codes_of_the_latest_set() -> None:
    if "floats" in CHANGED:
        pytest.skip(f"its codes are others since the set {FLOATS[-1].parent.name}, on purpose")
    expected = np.load(FLOATS[-1] / "rows.npz")
    model = write.learn_floats({view: expected[view][: write.N_TRAIN] for view in ("image", "text")})
    same_blas = (FLOATS[-1].parent / "linear_algebra.txt").read_text().strip() == write.linear_algebra()
    for view in ("image", "text"):
        codes, _ = model.encode(expected[view][write.N_TRAIN :], view=view, with_factors=True)
        got = np.unpackbits(codes)
        assert np.mean(got == np.unpackbits(expected[f"{view}/codes"])) >= (1.0 if same_blas else 0.9)


@pytest.mark.parametrize("folder", RETRIEVERS, ids=lambda folder: folder.name)
def test_a_retriever_answers_as_it_did(folder: Path, tmp_path: Path) -> None:
    expected, rows = np.load(folder / "retriever.npz"), write.embeddings()
    for name in ("joint", "texts"):
        shutil.copytree(folder / f"{name}.retriever", tmp_path / name)
    with fh.Retriever.open(tmp_path / "joint") as retriever:
        new = rows["text"][write.N_TRAIN :]
        answers = {"joint": retriever.search(new, k=5, view="text")}
        answers["rescored"] = retriever.search(new, k=5, view="text", candidates=50)
        retriever.remove([0])  # and it can still be written
    with fh.Retriever.open(tmp_path / "texts") as retriever:
        asked = ["a cat on the mat", "a cat on the tree", "a cat on the sea"]
        answers["texts"] = retriever.search(asked, k=4, view="text")
    for name, (ids, scores) in answers.items():
        assert_array_equal(ids, expected[f"{name}/ids"])
        np.testing.assert_allclose(scores, expected[f"{name}/scores"], rtol=1e-5, atol=1e-6)
