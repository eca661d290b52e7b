"""Real photos, the real encoders, as a user would index them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash.collection import Collection, NewItem, read_folder

pytestmark = pytest.mark.slow
HELD_OUT, DATABASE = 40, 240


@pytest.fixture(scope="module")
def photos(data_file: Any, optional: Any) -> list[NewItem]:
    optional("cv2")
    folder = data_file("iapr_photos")
    items = list(read_folder(folder / "images", folder / "captions.csv"))
    assert len(items) == 2400
    chosen = np.random.default_rng(0).permutation(len(items))[: HELD_OUT + DATABASE]
    return [items[i] for i in chosen]


@pytest.fixture(scope="module")
def collection(photos: list[NewItem], tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Collection.create(tmp_path_factory.mktemp("photos") / "c", n_bits=64) as made:
        report = made.build(photos[HELD_OUT:])
        assert (report.added, report.skipped) == (DATABASE, {})
        yield made


def mean_precision(collection: Collection, queries: list[NewItem], view: str, **options: Any) -> float:
    """Share of the first 20 that have a label in common with the query."""
    shares = []
    for query in queries:
        hits = collection.search(**{view: getattr(query, view)}, k=20, **options)
        shares.append(np.mean([bool(set(hit.item.labels) & set(query.labels)) for hit in hits]))
    return float(np.mean(shares))


@pytest.mark.parametrize("view", ["image", "text"])
def test_held_out_queries_find_what_shares_a_label(collection, photos, view):
    queries = [photo for photo in photos[:HELD_OUT] if photo.labels]
    labels = [set(photo.labels) for photo in photos[HELD_OUT:]]
    chance = np.mean([np.mean([bool(set(query.labels) & own) for own in labels]) for query in queries])
    found = mean_precision(collection, queries, view)
    assert found > chance + 0.08  # more with more photos to learn from


def test_a_photo_finds_itself_by_its_own_caption_and_image(collection, photos):
    some = photos[HELD_OUT : HELD_OUT + 20]
    by_text = [photo.key in {hit.item.key for hit in collection.search(photo.text, k=5)} for photo in some]
    by_image = [photo.key in {hit.item.key for hit in collection.search(image=photo.image, k=5)} for photo in some]
    assert np.mean(by_text) > 0.7
    assert np.mean(by_image) > 0.5


def test_a_few_words_of_a_caption_find_photos_that_are_said_to_show_them(collection, photos):
    rng = np.random.default_rng(0)
    words = {photo.key: re.findall(r"[a-z]{4,}", photo.text.lower()) for photo in photos[HELD_OUT:]}
    found = []
    for caption in list(words.values())[:100]:
        start = rng.integers(max(1, len(caption) - 1))
        asked = caption[start : start + 2]
        if asked:
            keys = [hit.item.key for hit in collection.search(" ".join(asked), k=5)]
            found.append(any(set(asked) <= set(words[key]) for key in keys))
    assert np.mean(found) > 0.97


def test_one_modality_and_broken_photos(collection, photos):
    photo = photos[0]
    assert isinstance(photo.image, Path)
    data = photo.image.read_bytes()
    report = collection.add(
        [
            NewItem("only image", data),
            NewItem("only text", None, photo.text),
            NewItem("cut off", data[:500], photo.text),
            NewItem("no image at all", b"GIF89a"),
        ]
    )
    assert report.added == 3
    assert set(report.skipped) == {"cut off", "no image at all"}
    assert {"only text", "cut off"} <= {hit.item.key for hit in collection.search(photo.text, k=5)}
    assert "only image" in {hit.item.key for hit in collection.search(image=data, k=5)}
    collection.remove(report.ids)


def test_separate_processes_read_what_others_wrote(data_file, optional, tmp_path):
    """Encoders and model come back from their files as they were."""
    optional("cv2")
    folder = data_file("iapr_photos")
    lines = (folder / "captions.csv").read_text(encoding="utf-8").splitlines()[:25]
    photos = tmp_path / "photos"
    photos.mkdir()
    for line in lines[1:]:
        name = line.split(",")[0]
        (photos / name).write_bytes((folder / "images" / name).read_bytes())
    (tmp_path / "captions.csv").write_text("\n".join(lines), encoding="utf-8")

    def run(*words: object) -> Any:
        command = [sys.executable, "-m", "fusehash.cli", *map(str, words), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    built = run("index", "photos", "--captions", "captions.csv", "--out", "my.collection", "--bits", 32)
    assert (built["added"], built["skipped"]) == (24, {})
    first = run("search", "my.collection", "kids sitting around a table", "-k", 5)
    assert len(first) == 5
    with Collection.open(tmp_path / "my.collection") as collection:
        hits = collection.search("kids sitting around a table", k=5)
    assert [hit["id"] for hit in first] == [hit.id for hit in hits]
