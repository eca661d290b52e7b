"""Retriever: what goes in comes out, in another process too, and a folder that is not intact is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fusehash as fh
from fusehash.errors import DataError, FusehashWarning, ParameterError
from fusehash.retriever import RetrieverError

DATA = fh.datasets.make_paired(n_samples=200, views={"image": 12, "text": 12}, random_state=0)
IMAGES, TEXTS = (np.asarray(DATA.views[name]) for name in ("image", "text"))


@pytest.fixture(scope="module")
def model() -> fh.hashers.base.CrossModalHasher:
    return fh.hashers.make("cvh", n_bits=16).fit(DATA.views)


def test_a_folder_is_opened_in_one_line(model: fh.hashers.base.CrossModalHasher, tmp_path: Path) -> None:
    with fh.Retriever.create(tmp_path / "mine", model, vectors="float32", dim=12) as retriever:
        assert_array_equal(retriever.add(IMAGES[:150], view="image"), np.arange(150))
        retriever.add(TEXTS[:2], view="text", ids=[1000, 1001])
        retriever.remove([149])
        retriever.replace(IMAGES[150:151], [148], view="image")
        ids, scores = retriever.search(TEXTS[:5], 7, view="text")
        near, cosines = retriever.search(IMAGES[:5], 1, view="image", candidates=151)
    projections = model.project(TEXTS[:5], view="text")
    index = fh.HammingIndex(16)
    index.add(np.concatenate((model.encode(IMAGES[:148], view="image"), model.encode(IMAGES[150:151], view="image"))))
    index.add(model.encode(TEXTS[:2], view="text"), [1000, 1001])
    distances, expected = index.search(projections, 7)
    assert_array_equal(ids, expected)
    assert_allclose(scores, 1 - 2 * distances / np.abs(projections).sum(axis=1, keepdims=True))
    assert_array_equal(near[:, 0], np.arange(5))
    assert_allclose(cosines, 1, atol=1e-6)
    np.save(tmp_path / "texts.npy", TEXTS[:5])
    code = (
        "import fusehash as fh, numpy as np\n"
        "with fh.Retriever.open('mine') as r: print(r.search(np.load('texts.npy'), 7, view='text')[0].tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == ids.tolist()


def test_texts_and_pictures_go_in_and_ids_come_out(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    rng = np.random.default_rng(0)
    colors = {"red": (200, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 200), "white": (240, 240, 240)}
    words = [name for name in colors for _ in range(12)]
    texts = [f"a {word} wall and a {word} door" for word in words]
    noise = rng.integers(-15, 15, (len(words), 32, 32, 3))
    pictures = [
        Image.fromarray(np.clip(np.array(colors[word]) + grain, 0, 255).astype(np.uint8))
        for word, grain in zip(words, noise, strict=True)
    ]
    image = fh.encoders.make("classical", n_words=4, n_jobs=1).fit(pictures)
    text = fh.encoders.make("tfidf", n_components=4).fit(texts)
    views = {"image": image.transform(pictures), "text": text.transform(texts)}
    model = fh.hashers.make("cca_itq", n_bits=16, random_state=0).fit(views)
    encoders = {"image": image, "text": text}
    with fh.Retriever.create(tmp_path / "mine", model, encoders=encoders) as retriever:
        retriever.add(pictures[:40], view="image")
        retriever.add(views["image"][40:], view="image")
        pictures[0].save(tmp_path / "red.png")
        ids, _ = retriever.search(["a blue wall"], 5, view="text")
        near, _ = retriever.search(tmp_path / "red.png", 5, view="image")
        expected = retriever.search(text.transform(["a blue wall"]), 5, view="text")[0]
        before = len(retriever)
        with pytest.raises(DataError, match=r"Item 1 is not: .*[^.]\.$"):
            retriever.add([pictures[0], b"no picture"], view="image")
        assert len(retriever) == before
    assert_array_equal(ids, expected)
    assert ids.shape == near.shape == (1, 5)
    assert {words[i] for i in ids[0]} == {"blue"}
    assert {words[i] for i in near[0]} == {"red"}
    code = (
        "import fusehash as fh\n"
        "with fh.Retriever.open('mine') as r: print(r.search('a blue wall', 5, view='text')[0].tolist())"
    )
    other = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(other.stdout) == ids.tolist()
    for wrong, sentence in [
        ({"sound": text}, "by view, of 'image', 'text'"),
        ({"text": object()}, "encoders of fusehash.encoders"),
        ({"text": fh.encoders.make("tfidf")}, "it is not fitted"),
        ({"image": text}, "with .* features for view 'image'"),
    ]:
        with pytest.raises(ParameterError, match=sentence):
            fh.Retriever.create(tmp_path / "other", model, encoders=wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()
    retriever = fh.Retriever.create(tmp_path / "rows", model, encoders={"text": text})
    with retriever, pytest.raises(DataError, match="view 'image' has none"):
        retriever.add(pictures[:2], view="image")
    for view in ("sound", 2, -1):
        with (
            fh.Retriever.open(tmp_path / "rows") as retriever,
            pytest.raises(DataError, match="one of 'image', 'text'"),
        ):
            retriever.add(texts[:2], view=view)
    with fh.Retriever.open(tmp_path / "rows") as retriever:
        assert_array_equal(retriever.add(texts[:2], view=np.int64(1)), [0, 1])  # type: ignore[arg-type]
    settings = json.loads((tmp_path / "mine" / "retriever.json").read_text())
    for name, sentence in [("../mine/encoder-0.encoder", "missing or a link"), ("encoder-9.encoder", "missing")]:
        changed = {**settings, "encoders": {"text": {**settings["encoders"]["text"], "file": name}}}
        (tmp_path / "mine" / "retriever.json").write_text(json.dumps(changed))
        with pytest.raises(RetrieverError, match=sentence):
            fh.Retriever.open(tmp_path / "mine")
    (tmp_path / "mine" / "retriever.json").write_text(json.dumps(settings))
    fh.encoders.save(fh.encoders.make("tfidf", n_components=4).fit(texts[:30]), tmp_path / "mine" / "encoder-1.encoder")
    with pytest.raises(RetrieverError, match="another one"):
        fh.Retriever.open(tmp_path / "mine")


def test_wrong_folders(model: fh.hashers.base.CrossModalHasher, tmp_path: Path) -> None:
    path = tmp_path / "mine"
    with pytest.raises(RetrieverError, match="There is no retriever"):
        fh.Retriever.open(path)
    fh.Retriever.create(path, model).close()
    with pytest.raises(RetrieverError, match="something already"):
        fh.Retriever.create(path, model)
    with pytest.raises(ParameterError, match="'vectors'"):
        fh.Retriever.create(tmp_path / "other", model, vectors="int3", dim=4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine"]
    with fh.Retriever.open(path) as retriever:
        retriever.add(IMAGES, view="image")
        with pytest.raises(DataError, match="keeps none"):
            retriever.search(IMAGES[:1], view="image", candidates=5)
    settings = path / "retriever.json"
    before = settings.read_text()
    for text, sentence in [
        ("{", "damaged"),
        ("[]", "damaged"),
        (before.replace('"version": 1', '"version": 3'), "newer fusehash"),
        (before.replace("fusehash-retriever", "else"), "damaged"),
    ]:
        settings.write_text(text)
        with pytest.raises(RetrieverError, match=sentence):
            fh.Retriever.open(path)
    settings.write_text(before)
    fh.hashers.make("cvh", n_bits=16).fit([IMAGES[:100], TEXTS[:100]]).save(path / "model.safetensors")
    with pytest.raises(RetrieverError, match="another one"):
        fh.Retriever.open(path)
    (path / "codes.db").unlink()
    with pytest.raises(RetrieverError, match=r"codes\.db"):
        fh.Retriever.open(path)


def test_items_that_an_encoder_knows_nothing_of_are_named(tmp_path: Path) -> None:
    texts = ["a red hat", "a blue coat", "a green shoe", "a red shoe"]
    encoder = fh.encoders.make("tfidf", n_components=2).fit(texts)
    model = fh.hashers.make("random", n_bits=8, random_state=0).fit({"text": encoder.transform(texts)})
    with fh.Retriever.create(tmp_path / "mine", model, encoders={"text": encoder}) as retriever:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            retriever.add(texts, view="text")
        with pytest.warns(FusehashWarning, match=r"view 'text' knows nothing of item 1 \(and 1 more\)"):
            retriever.search(["a red hat", "zzz", "yyy"], k=1, view="text")
