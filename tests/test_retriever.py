"""Retriever: what goes in comes out, in another process too, and a folder that is not intact is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fusehash as fh
from fusehash.errors import DataError, ParameterError
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
        (before.replace('"version": 1', '"version": 2'), "newer fusehash"),
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
