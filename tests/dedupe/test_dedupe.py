"""Perceptual hashes equal imagehash bit for bit; groups, reports, and that nobody loses a picture."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from fusehash import dedupe
from fusehash.cli import app
from fusehash.encoders.reading import open_image
from fusehash.errors import DataError, ParameterError


def picture(seed: int, side: int = 160) -> Image.Image:
    """A smooth random picture: enough structure that a smaller copy keeps its hash."""
    coarse = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((side, side * 3 // 4), Image.Resampling.BICUBIC)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Three pictures; two smaller copies of the first, one of them in a subfolder, and one of the second."""
    folder = tmp_path / "photos"
    (folder / "old").mkdir(parents=True)
    for seed, name in enumerate(("a.png", "b.png", "c.png")):
        picture(seed).save(folder / name)
    picture(0).resize((80, 60)).save(folder / "old" / "a small.jpg", quality=90)
    picture(0).resize((120, 90)).save(folder / "a copy.png")
    picture(1).save(folder / "b.jpg", quality=70)
    Image.new("RGB", (50, 50), "white").save(folder / "blank.png")
    Image.new("RGB", (60, 50), "red").save(folder / "red.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["dedupe", *map(str, words)], env={"COLUMNS": "200", "NO_COLOR": "1"})


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA", "CMYK", "LA"])
def test_hashes_equal_imagehash_bit_for_bit(optional: Callable[[str], ModuleType], mode: str) -> None:
    imagehash = optional("imagehash")
    rng = np.random.default_rng(0)
    for seed in range(40):
        width, height = rng.integers(1, 90, 2)
        noise = Image.fromarray(rng.integers(0, 256, (height, width, 4), dtype=np.uint8))
        image = (picture(seed, int(rng.integers(9, 300))) if seed % 2 else noise.convert("RGB")).convert(mode)
        for ours, theirs in ((dedupe.dhash, imagehash.dhash), (dedupe.phash, imagehash.phash)):
            code, expected = ours(image), theirs(image)
            assert dedupe.as_hex(code) == str(expected)
            assert np.array_equal(np.unpackbits(code, bitorder="little"), expected.hash.ravel())


def test_a_file_has_the_hash_that_imagehash_gives_it(photos: Path, optional: Callable[[str], ModuleType]) -> None:
    imagehash = optional("imagehash")
    for path in photos.glob("*.png"):
        with Image.open(path) as image:
            assert dedupe.as_hex(dedupe.phash(open_image(path))) == str(imagehash.phash(image))


@pytest.mark.parametrize("method", ["phash", "dhash"])
def test_groups_of_a_folder(photos: Path, method: str) -> None:
    found = dedupe.find(photos, method=method)
    groups = [[(m.picture.path.as_posix(), m.kind) for m in group] for group in found.groups]
    assert groups[0] == [("a.png", "keep"), ("a copy.png", "duplicate"), ("old/a small.jpg", "duplicate")]
    assert {name for name, _ in groups[1]} == {"b.png", "b.jpg"}
    assert groups[1][0] == ("b.png", "keep")  # as many pixels, and a larger file
    assert len(groups) == 2
    assert found.n_pictures == 6
    assert {path.name for path in found.plain} == {"blank.png", "red.png"}  # alike in their hash, not in what they show
    assert len(found.unreadable) == 1
    assert "broken.jpg" in found.unreadable[0]


def test_a_chain_is_shown_and_only_what_is_near_the_kept_one_is_a_duplicate(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = {"a.png": 0, "b.png": 0b111, "c.png": 0b111111}

    def chained(root: Path, path: Path, method: str) -> dedupe.Picture:
        code = np.full(8, 0xAA, np.uint8)
        code[0] ^= codes.get(path.name, 255)
        code[7] ^= 0 if path.name in codes else 255
        return dedupe.Picture(path.relative_to(root), code, 100 - codes.get(path.name, 0), 100, 5, 5)

    monkeypatch.setattr(dedupe.pictures, "_read", chained)
    found = dedupe.find(photos, 3)
    group = next(group for group in found.groups if group[0].picture.path.name == "a.png")
    assert [(m.picture.path.name, m.distance, m.kind) for m in group] == [
        ("a.png", 0, "keep"), ("b.png", 3, "duplicate"), ("c.png", 6, "similar"),
    ]  # fmt: skip
    removed = [step[0].path.name for step in dedupe.RemovalPlan.of(found).steps]
    assert "b.png" in removed
    assert "c.png" not in removed


def test_nothing_is_changed_without_the_code_of_the_dry_run(photos: Path, tmp_path: Path) -> None:
    before = names(photos)
    for option in (["--delete"], ["--move-to", tmp_path / "away"], []):
        assert call(photos, *option).exit_code == 0
    for wrong in ("", "yes", "12345678"):
        result = call(photos, "--delete", "--yes", wrong)
        assert result.exit_code == 1
        assert "nothing was done" in result.stderr
    assert names(photos) == before
    assert not (tmp_path / "away").exists()
    assert call(photos, "--yes", "1").exit_code == 2
    assert call(photos, "--delete", "--move-to", tmp_path / "away").exit_code == 2


def test_delete_does_what_the_dry_run_said(photos: Path) -> None:
    code = json.loads(call(photos, "--delete", "--json").stdout)["code"]
    assert f"--yes {code}" in call(photos, "--delete").stdout
    done = json.loads(call(photos, "--delete", "--yes", code, "--json").stdout)
    assert done["deleted"] == 3
    assert names(photos) == {"a.png", "b.png", "c.png", "blank.png", "red.png", "broken.jpg"}
    assert json.loads(call(photos, "--json").stdout)["groups"] == 0


def test_a_change_in_between_stops_it(photos: Path) -> None:
    code = json.loads(call(photos, "--delete", "--json").stdout)["code"]
    picture(0).resize((81, 60)).save(photos / "new.png")
    before = names(photos)
    assert "nothing was done" in call(photos, "--delete", "--yes", code).stderr
    assert names(photos) == before
    plan = dedupe.RemovalPlan.of(dedupe.find(photos))
    (photos / "a.png").unlink()  # the one to keep, after the plan was made
    with pytest.raises(DataError, match="0 of 4 pictures are done"):
        dedupe.carry_out(plan, plan.code)
    assert names(photos) == before - {"a.png"}


@pytest.mark.parametrize("links", [True, False])
def test_moved_pictures_can_be_put_back(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no links")))
    before = {name: (photos / name).read_bytes() for name in names(photos)}
    away = tmp_path / "away"
    code = json.loads(call(photos, "--move-to", away, "--json").stdout)["code"]
    assert json.loads(call(photos, "--move-to", away, "--yes", code, "--json").stdout)["moved"] == 3
    assert names(away) == {"a copy.png", "old/a small.jpg", "b.jpg", "moved.csv"}
    assert len(names(photos)) == len(before) - 3
    with (away / "moved.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            assert Path(row["kept"]).exists()
            shutil.move(row["is"], row["was"])
    assert {name: (photos / name).read_bytes() for name in names(photos)} == before


def test_moving_overwrites_nothing(photos: Path, tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    (away / "a copy.png").write_text("mine")
    code = json.loads(call(photos, "--move-to", away, "--json").stdout)["code"]
    result = call(photos, "--move-to", away, "--yes", code)
    assert result.exit_code == 1
    assert "already" in result.stderr
    assert (away / "a copy.png").read_text() == "mine"
    assert (photos / "a copy.png").exists()
    assert "is in" in call(photos, "--move-to", photos / "old" / "x").stderr


def test_reports(photos: Path, tmp_path: Path) -> None:
    (photos / "a copy.png").rename(photos / "=<b>&.png")
    page, table = tmp_path / "page.html", tmp_path / "groups.csv"
    result = call(photos, "--html", page, "--csv", table)
    assert result.exit_code == 0, result.stderr
    assert "groups 2, duplicates 3, plain 2, unreadable 1" in result.stdout
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5
    assert {row["path"] for row in rows} >= {"'=<b>&.png", "a.png"}  # not a formula
    html = page.read_text()
    assert html.count("data:image/jpeg;base64,") == 5
    assert "=&lt;b&gt;&amp;.png" in html
    assert "<b>&" not in html
    assert "<script" not in html
    assert "http" not in html.replace("http-equiv", "")


def test_codes_and_indexes(tmp_path: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (50, 8), dtype=np.uint8)
    codes[7] = codes[3] ^ 1 << np.arange(8).astype(np.uint8) * 0
    codes[40] = codes[3]
    np.save(tmp_path / "codes.npy", codes)
    table, page = tmp_path / "groups.csv", tmp_path / "page.html"
    result = call(tmp_path / "codes.npy", "--radius", 8, "--json", "--csv", table, "--html", page)
    assert json.loads(result.stdout) == {"groups": [[3, 7, 40]]}
    assert table.read_text().split() == ["group,id", "1,3", "1,7", "1,40"]
    assert "3, 7, 40" in page.read_text()
    with dedupe.pictures.HammingIndex.open(tmp_path / "codes.db", 64, warm=False) as index:
        index.add(codes, np.arange(50) + 1000)
    assert "1003, 1007, 1040" in call(tmp_path / "codes.db", "--radius", 8).stdout
    assert "Only pictures" in call(tmp_path / "codes.db", "--delete").stderr
    assert "There is no" in call(tmp_path / "nothing.npy").stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({"method": "ahash"}, ParameterError), ({"radius": -1}, ParameterError), ({"folder": "/nowhere"}, DataError)],
)
def test_wrong_arguments(photos: Path, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        dedupe.find(**{"folder": photos, **arguments})
