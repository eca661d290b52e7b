"""A folder of photos with captions and labels as a paired data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fusehash import datasets
from fusehash.datasets.photos import PhotoDataset
from fusehash.errors import DataError, FusehashWarning

COLORS = {"red": (210, 30, 30), "green": (20, 160, 60), "blue": (30, 60, 200)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, optional: Any) -> Path:
    """30 pictures of one color each with captions; one more is damaged, one has no label."""
    image_module = optional("PIL.Image")
    optional("cv2")
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    lines = ["image,caption,labels"]
    for i in range(31):
        name = list(COLORS)[i % 3]
        pixels = np.clip(rng.normal(COLORS[name], 25, (40, 48, 3)), 0, 255).astype(np.uint8)
        image_module.fromarray(pixels).save(root / f"{i}.png")
        lines.append(f"{i}.png,a {name} wall number {i},{name if i < 30 else ''}")
    (root / "broken.png").write_bytes(b"no picture")
    lines.append("broken.png,a broken thing,red")
    (root / "captions.csv").write_text("\n".join(lines))
    return root


@pytest.fixture(scope="module")
def photos(folder: Path) -> Any:
    with pytest.warns(FusehashWarning, match=r"^1 pictures of .* cannot be read and are left out\.$"):
        return datasets.load(folder)


def test_items_with_picture_caption_and_label_are_kept(photos: Any) -> None:
    assert isinstance(photos, PhotoDataset)
    assert photos.views.n_rows == len(photos.texts) == len(photos.images) == 30
    assert photos.label_names == ("blue", "green", "red")
    for row, text in enumerate(photos.texts):
        assert [photos.label_names[j] for j in np.flatnonzero(photos.labels[row])] == [text.split()[1]]
    assert len(photos.query) == 5
    assert np.array_equal(np.sort(np.concatenate([photos.query, photos.database])), np.arange(30))


@pytest.mark.slow
def test_the_split_is_seeded(folder: Path, photos: Any) -> None:
    with pytest.warns(FusehashWarning):
        again, other = (datasets.load(folder.name, folder.parent, split_seed=seed, n_train=9) for seed in (0, 1))
    assert np.array_equal(again.query, photos.query)
    assert not np.array_equal(other.query, photos.query)
    assert len(again.train) == 9
    assert len(again.database) == 25


def test_thumbnails_are_small(photos: Any) -> None:
    pictures = photos.thumbnails(16)
    assert len(pictures) == 30
    assert all(picture[:4] + picture[8:12] == b"RIFFWEBP" and len(picture) < 2000 for picture in pictures)


def test_too_few_items_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes((folder / "0.png").read_bytes())
    (tmp_path / "captions.csv").write_text("image,caption,labels\n0.png,one,red\n")
    with pytest.raises(DataError, match=r"must hold at least 4 pictures with captions and labels\. Got 1\.$"):
        datasets.load(tmp_path)
    with pytest.raises(DataError, match=r"queries must leave two others\. Got 30\.$"), pytest.warns(FusehashWarning):
        datasets.load(folder, n_query=30)
