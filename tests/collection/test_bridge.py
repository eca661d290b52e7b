"""Bridges: the formula against a slow reference, and pictures without captions that words find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fusehash.collection import Collection
from fusehash.collection import bridge as bridges
from fusehash.collection.bridge import Bridge
from fusehash.collection.items import CorruptCollectionError
from fusehash.errors import ModelFileError


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def paired(count: int, seed: int = 0) -> tuple[Any, Any]:
    """Images and texts that a hidden matrix connects."""
    rng = np.random.default_rng(seed)
    hidden = rng.normal(size=(count, 4))
    first, second = (np.random.default_rng(9 + view).normal(size=(4, width)) for view, width in enumerate((12, 7)))
    noise = [rng.normal(size=(count, width)) for width in (12, 7)]
    return hidden @ first + 0.3 * noise[0] + 1, hidden @ second + 0.3 * noise[1] - 1


@pytest.mark.parametrize("count", [9, 60])  # fewer pairs than features, and more
def test_what_captions_add_is_ridge_regression_on_what_is_left(learned_bridge: Any, count: int) -> None:
    bridge = learned_bridge(*paired(200))
    images, texts = paired(count, 1)
    X, T = unit(images), unit(texts)
    rest = T - T.mean(axis=0) - (X - X.mean(axis=0)) @ bridge.weights
    X = X - X.mean(axis=0)
    penalty = (X * X).sum() / count
    rows = np.vstack([X, np.sqrt(penalty) * np.eye(X.shape[1])])
    expected = bridge.weights + np.linalg.lstsq(rows, np.vstack([rest, np.zeros((X.shape[1], 7))]), rcond=None)[0]
    refined = bridge.refined(images, texts)
    assert np.allclose(refined.weights, expected, atol=1e-5)
    captions = refined.captions(images)
    assert np.allclose((captions**2).sum(axis=1), 1, atol=1e-5)
    deviations = (unit(images) - refined.image_mean) @ refined.weights
    assert np.isclose(np.sqrt((deviations**2).sum(axis=1).mean()), refined.scale, rtol=1e-4)
    assert bridge.refined(images[:3], texts[:3]) is bridge


def test_a_bridge_expects_the_captions_of_new_pictures(learned_bridge: Any) -> None:
    bridge = learned_bridge(*paired(300))
    images, texts = paired(100, 2)
    scores = unit(bridge.captions(images) - bridge.text_mean) @ unit(unit(texts) - bridge.text_mean).T
    assert np.mean(scores.argmax(axis=1) == np.arange(100)) > 0.5


def test_files_of_bridges(learned_bridge: Any, tmp_path: Path) -> None:
    bridge = learned_bridge(*paired(100)).rounded()
    bridge.save(tmp_path / "x")
    again = Bridge.load(tmp_path / "x")
    images, _ = paired(5, 3)
    assert np.array_equal(again.captions(images), bridge.captions(images))
    whole = (tmp_path / "x").read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(30):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        (tmp_path / "x").write_bytes(bytes(damaged))
        with pytest.raises(ModelFileError):
            Bridge.load(tmp_path / "x")
    replace(bridge, text_mean=bridge.text_mean[:3]).save(tmp_path / "x")
    with pytest.raises(ModelFileError, match="damaged"):
        Bridge.load(tmp_path / "x")


def test_the_bridge_that_ships_is_small_and_intact() -> None:
    for (image, text), name in bridges.SHIPPED.items():
        path = Path(bridges.__file__).with_name("bridges") / name
        assert path.stat().st_size < 1_500_000
        bridge = bridges.shipped(name)
        assert (image, text, bridge.weights.shape) == ("efficientnet-lite0", "minilm", (1280, 384))
        rows = np.random.default_rng(0).uniform(size=(4, 1280)).astype(np.float32)
        assert np.isfinite(bridge.captions(rows)).all()


def colors(collection: Collection, query: str, k: int = 6) -> list[str]:
    return [hit.item.key.rstrip("0123456789") for hit in collection.search(query, k=k)]


def test_words_find_pictures_when_there_is_no_caption_at_all(bridged: ModuleType, items: Any, tmp_path: Path) -> None:
    pictures = [replace(item, text=None) for item in items(80)]
    with Collection.create(tmp_path / "c", n_bits=32) as collection:
        collection.build(pictures[:60])
        for color in ("red", "green", "blue", "yellow"):
            assert colors(collection, f"a {color} thing").count(color) >= 5
        before = {item.key: collection.search(like=item.id, k=1).code for item in collection.items(limit=100)}
        collection.add(pictures[60:])
        assert colors(collection, "a red thing", 20).count("red") >= 17
    with Collection.open(tmp_path / "c") as collection:
        assert colors(collection, "a blue thing").count("blue") >= 5
        after = {item.key: collection.search(like=item.id, k=1).code for item in collection.items(limit=100)}
        assert before.items() <= after.items()
        collection.check()


def test_the_captions_of_half_serve_the_other_half(bridged: ModuleType, items: Any, tmp_path: Path) -> None:
    given = [replace(item, text=item.text if i % 2 else None) for i, item in enumerate(items(80))]
    with Collection.create(tmp_path / "c", n_bits=32) as collection:
        collection.build(given)
        (first,) = (tmp_path / "c").glob("bridge-*")
        without = {item.key for item in given if item.text is None}
        for color in ("red", "green", "blue", "yellow"):
            hits = collection.search(f"a {color} thing", k=80)
            alone = [hit.item.key.rstrip("0123456789") for hit in hits if hit.item.key in without]
            assert alone[:6].count(color) >= 5 or color not in alone
        collection.build_generation(n_bits=16)
        collection.switch()
        assert colors(collection, "a green thing", 4).count("green") >= 3
        collection.switch(back=True)
        collection.drop(2)
        assert list((tmp_path / "c").glob("bridge-*")) == [first]


def test_a_damaged_bridge_is_one_sentence_and_a_reindex_makes_it_again(
    bridged: ModuleType, items: Any, tmp_path: Path
) -> None:
    pictures = [replace(item, text=None) for item in items(24)]
    with Collection.create(tmp_path / "c", n_bits=16) as collection:
        collection.build(pictures[:20])
    (path,) = (tmp_path / "c").glob("bridge-*")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with Collection.open(tmp_path / "c") as collection:
        with pytest.raises(CorruptCollectionError, match="a reindex makes it again"):
            collection.add(pictures[20:])
        assert colors(collection, "a red thing", 3)  # queries do not need it
        collection.reindex()
        Bridge.load(path)
        collection.add(pictures[20:])


def test_two_towers_of_one_model_are_a_bridge(fakes: ModuleType) -> None:
    from fusehash.collection.encoding import FittedEncoder
    from fusehash.collection.store import CollectionSettings, EncoderSettings

    def settings(image: dict[str, Any], text: dict[str, Any], name: str = "clip") -> CollectionSettings:
        return CollectionSettings(16, 0, EncoderSettings(name, image), EncoderSettings(name, text))

    assert bridges.exists(settings({}, {}))
    assert bridges.exists(settings({"model": "a", "batch_size": 3}, {"model": "a"}, "sentence-transformers"))
    assert not bridges.exists(settings({"model": "a"}, {"model": "b"}))
    assert bridges.exists(settings({"path": "/m/v.onnx"}, {"path": "/m/t.onnx"}, "onnx"))
    assert not bridges.exists(settings({"path": "/m/v.onnx"}, {"path": "/n/t.onnx"}, "onnx"))

    class Tower:
        n_features_ = 6

        def transform(self, items: Any) -> Any:
            return np.random.default_rng(0).normal(3, 1, (len(items), 6)).astype(np.float32)

    towers = {view: FittedEncoder(view, Tower()) for view in ("image", "text")}
    images = np.random.default_rng(1).normal(-2, 1, (50, 6)).astype(np.float32)
    bridge = bridges.first_bridge(settings({}, {}), towers, np.vstack([images, np.full((1, 6), np.nan)]))
    assert bridge is not None
    expected, texts = bridge.captions(images), unit(Tower().transform(bridges.COMMON_CAPTIONS))
    assert np.linalg.norm(expected.mean(axis=0) - texts.mean(axis=0)) < 0.1  # no gap between the towers
    towers["text"] = FittedEncoder("text", type("Other", (Tower,), {"n_features_": 5})())
    assert bridges.first_bridge(settings({}, {}), towers, images) is None
