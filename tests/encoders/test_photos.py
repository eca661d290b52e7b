"""Real photos with captions: what the encoders give is worth learning from."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from fusehash import encoders, hashers
from fusehash.evaluation import mean_average_precision

pytestmark = pytest.mark.slow
N_TRAIN, N_DATABASE, N_QUERY = 240, 120, 60


@pytest.fixture(scope="module")
def photos(data_file, optional):
    """Features and labels of some photos: encoders learn from the first part, the rest is new to them."""
    optional("cv2")
    folder = data_file("iapr_photos")
    with (folder / "captions.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    order = np.random.default_rng(5).permutation(len(rows))[: N_TRAIN + N_DATABASE + N_QUERY]
    rows = [rows[position] for position in order]
    paths = [folder / "images" / row["image"] for row in rows]
    captions = [row["caption"] for row in rows]
    names = sorted({label for row in rows for label in row["labels"].split(";")})
    labels = np.array([[name in row["labels"].split(";") for name in names] for row in rows]).astype(int)
    images = encoders.make("classical").fit(paths[:N_TRAIN:3])
    texts = encoders.make("tfidf").fit(captions[:N_TRAIN])
    views = {"image": images.transform(paths), "text": texts.transform(captions)}
    assert images.problems_ == {}
    assert texts.problems_ == {}
    return views, labels


def scores(method: str, views: dict[str, np.ndarray], labels: np.ndarray) -> list[float]:
    """MAP@50 of new queries against new items, image to text and text to image."""
    train, database, query = np.split(np.arange(len(labels)), [N_TRAIN, N_TRAIN + N_DATABASE])
    model = hashers.make(method, n_bits=64, random_state=0).fit({name: X[train] for name, X in views.items()})
    return [
        mean_average_precision(
            model.encode(views[asked][query], view=asked),
            model.encode(views[searched][database], view=searched),
            (labels[query], labels[database]),
            k=50,
        )
        for asked, searched in (("image", "text"), ("text", "image"))
    ]


def test_features_are_complete(photos):
    views, _ = photos
    assert views["image"].shape == (420, 1296)
    assert views["text"].shape[0] == 420
    assert all(np.isfinite(X).all() for X in views.values())


@pytest.mark.filterwarnings("ignore::fusehash.errors.FusehashWarning")
def test_codes_from_these_features_beat_the_control(photos):
    control, learned = scores("random", *photos), scores("fusehash", *photos)
    chance = float(np.mean(photos[1][-N_QUERY:] @ photos[1][N_TRAIN:-N_QUERY].T > 0))
    for ours, theirs in zip(learned, control, strict=True):
        assert ours > theirs + 0.02  # on other photos, with as few to learn from: 0.044 to 0.093 with 450
        assert ours > chance + 0.10
