"""Which variant of a public benchmark a file is, and what is wrong with it: `verify`.

Variants are known by their shapes and splits, as the papers state them, since most files were never published with
checksums. Only where the content itself has been compared between public copies is its hash known (Wiki). Of a
benchmark of captions only the numbers of photos are known: everybody computes features of their own. Nothing here leads
to a download.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fusehash import trust
from fusehash.datasets.arrays import ArrayContent, open_arrays, read_content, read_side
from fusehash.errors import DataError
from fusehash.views import BLOCK_ROWS, to_dense

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Variant:
    """One form in which a benchmark is used.

    widths : features by view, empty if everybody computes others; labels : classes or label columns, 0 if it has none
    split : how papers divide it; origin : where the original comes from, by name
    content : SHA-256 of its values (see `content_hash`), where public copies have been compared
    """

    title: str
    rows: int
    widths: dict[str, int]
    labels: int
    split: str
    origin: str
    content: str = ""

    @property
    def n_shapes(self) -> int:
        """How many shapes it has."""
        return 2 + len(self.widths)

    def points(self, rows: int, widths: dict[str, int], labels: int) -> int:
        """How many of the shapes agree."""
        return (rows == self.rows) + (labels == self.labels) + sum(widths.get(k) == w for k, w in self.widths.items())


_SAMPLED = "2,000 queries, 18,015 for the database, 5,000 of them for training; drawn at random, so that papers differ"
_SAMPLED_20000 = (
    "2,000 queries, 18,000 for the database, 5,000 or 10,000 of them for training; drawn at random, so that papers "
    "differ"
)
_MIRFLICKR = "MIRFlickr of Leiden University (Huiskes and Lew, 2008)"
_NUS = "NUS-WIDE of the National University of Singapore (Chua and others, 2009)"
_IAPR = (
    "IAPR TC-12 of ImageCLEF (Grubinger and others, 2006) with the labels of SAIAPR TC-12 (Escalante and others, 2010)"
)
_PASCAL = "Pascal Sentence of the University of Illinois (Rashtchian and others, 2010)"
_FLICKR8K = "Flickr8k of the University of Illinois (Hodosh, Young and Hockenmaier, 2013)"
_FLICKR30K = "Flickr30k of the University of Illinois (Young and others, 2014)"
_COCO = "MS COCO, 2014 training and validation photos (Lin and others, 2014)"
_WIKI = "the Wikipedia articles of the University of California, San Diego (Rasiwasia and others, 2010)"
_LARGEST_10 = "2,000 queries, all others for the database, 5,000 of them for training; drawn at random"
_LARGEST_21 = "2,100 queries, all others for the database, 10,500 of them for training; drawn at random"
_KARPATHY = "the split of Karpathy and Fei-Fei (2015)"


def _captions(title: str, photos: int, split: str, origin: str) -> tuple[Variant, Variant]:
    """A benchmark of photos with five captions each, as one pair per photo and as one pair per caption."""
    return (
        Variant(f"{title}, one pair per photo", photos, {}, 0, split, origin),
        Variant(f"{title}, one pair per caption, five for each photo", 5 * photos, {}, 0, split, origin),
    )


VARIANTS = (
    Variant(
        "Wiki, 128 SIFT words and 10 LDA topics, the features of the literature", 2866, {"image": 128, "text": 10}, 10,
        "2,173 training pairs, which are also the database, and 693 queries; fixed", _WIKI,
        "7f557bb31fdd4925469d2eb593f3b9497f4ea0c74cd034ee07a787d156de7792",
    ),
    Variant(
        "Wiki in a deep form, 4,096 CNN features and 300 of Doc2Vec", 2866, {"image": 4096, "text": 300}, 10,
        "2,173 training pairs; the other 693 are queries, or 231 for validation and 462 queries", _WIKI,
    ),
    Variant(
        "MIRFlickr25K, 150 edge histograms and 500 components of tags", 20015, {"image": 150, "text": 500}, 24,
        _SAMPLED, f"{_MIRFLICKR}; features made by later authors",
    ),
    Variant(
        "MIRFlickr25K, the same features, pairs with frequent tags only", 16738, {"image": 150, "text": 500}, 24,
        "drawn at random, so that papers differ", f"{_MIRFLICKR}; features made by later authors",
    ),
    Variant(
        "MIRFlickr25K in its deep form, 4,096 CNN-F features and 1,386 tags", 20015, {"image": 4096, "text": 1386}, 24,
        _SAMPLED, f"{_MIRFLICKR}; the form that DCMH used",
    ),
    Variant(
        "MIRFlickr25K, 512 GIST features and 1,386 tags", 20015, {"image": 512, "text": 1386}, 24,
        _SAMPLED, f"{_MIRFLICKR}; the tags of DCMH, for methods without networks",
    ),
    Variant(
        "NUS-WIDE with its 10 largest concepts, 500 visual words and 1,000 tags", 186577, {"image": 500, "text": 1000},
        10, _LARGEST_10, _NUS,
    ),
    Variant(
        "NUS-WIDE with its 10 largest concepts in a deep form, 4,096 CNN features and 1,000 tags", 186577,
        {"image": 4096, "text": 1000}, 10, _LARGEST_10, _NUS,
    ),
    Variant(
        "NUS-WIDE with its 21 largest concepts, 500 visual words and 1,000 tags", 195834, {"image": 500, "text": 1000},
        21, _LARGEST_21, f"{_NUS}; the form that DCMH used",
    ),
    Variant(
        "NUS-WIDE with its 21 largest concepts in a deep form, 4,096 CNN-F features and 1,000 tags", 195834,
        {"image": 4096, "text": 1000}, 21, _LARGEST_21, f"{_NUS}; the form that DCMH used",
    ),
    Variant(
        "NUS-WIDE-10k, 1,000 pairs of each of 10 concepts in a deep form, 4,096 CNN features and 300 of Doc2Vec", 10000,
        {"image": 4096, "text": 300}, 10, "8,000 training pairs, 1,000 for validation and 1,000 queries", _NUS,
    ),
    Variant(
        "IAPR TC-12, 512 GIST features and 2,912 words", 20000, {"image": 512, "text": 2912}, 255, _SAMPLED_20000, _IAPR
    ),
    Variant(
        "IAPR TC-12 in its deep form, 4,096 CNN-F features and 2,912 words", 20000, {"image": 4096, "text": 2912}, 255,
        _SAMPLED_20000, f"{_IAPR}; the form that DCMH used",
    ),
    Variant(
        "Pascal Sentence, 4,096 CNN features and 300 of Doc2Vec", 1000, {"image": 4096, "text": 300}, 20,
        "800 training pairs and 200 others, often halved into validation and queries", _PASCAL,
    ),
    Variant(
        "MS COCO with its 80 objects, photos without any left out", 122218, {}, 80,
        "5,000 queries, all others for the database, 10,000 of them for training; drawn at random", _COCO,
    ),
    *_captions("Flickr8k", 8091, "6,000 training, 1,000 validation and 1,000 query photos; fixed", _FLICKR8K),
    *_captions("Flickr8k with the photos of its split", 8000, "6,000, 1,000 and 1,000 photos; fixed", _FLICKR8K),
    *_captions("Flickr30k", 31783, f"29,000, 1,014 and 1,000 photos in {_KARPATHY}", _FLICKR30K),
    *_captions(
        "Flickr30k with the photos of its split", 31014, f"29,000, 1,014 and 1,000 photos: {_KARPATHY}",
        _FLICKR30K,
    ),
    *_captions(
        "MS COCO", 123287, f"113,287 training, 5,000 validation and 5,000 query photos: {_KARPATHY}", _COCO
    ),
)  # fmt: skip


def closest(rows: int, widths: dict[str, int], labels: int) -> tuple[Variant | None, bool]:
    """The variant with these shapes, or with all but one of at least four; and whether all agree."""
    best = max(VARIANTS, key=lambda v: (v.points(rows, widths, labels) / v.n_shapes, v.n_shapes))
    points = best.points(rows, widths, labels)
    exact = points == best.n_shapes
    return (best, exact) if exact or points == best.n_shapes - 1 >= 3 else (None, False)


@dataclass(frozen=True)
class Remark:
    """One thing that was looked at, and whether it is as it should be."""

    good: bool
    sentence: str


@dataclass(frozen=True)
class Verification:
    """What `verify` has found.

    sha256 : of the file, to compare with that of others
    variant : what it is, or what it is closest to; None if it is like nothing known
    exact : whether all shapes of the variant agree
    remarks : what is right and wrong with it
    """

    file: str
    sha256: str
    rows: int
    widths: dict[str, int]
    labels: int
    variant: Variant | None
    exact: bool
    remarks: tuple[Remark, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is wrong with it."""
        return all(remark.good for remark in self.remarks)


def verify(path: str | os.PathLike[str]) -> Verification:
    """Say which variant of a public benchmark a file is, and what is wrong with it.

    Parameters
    ----------
    path : path
        A .npz or .mat file in one of the layouts that `load` reads.

    Returns
    -------
    Verification

    Raises
    ------
    DataError
        If the file cannot be read at all, or is in no known layout.

    Examples
    --------
    >>> import numpy as np, pathlib, tempfile
    >>> from fusehash.datasets.verification import verify
    >>> file = pathlib.Path(tempfile.mkdtemp(), "mine.npz")
    >>> np.savez(file, image=np.random.rand(50, 4), text=np.random.rand(50, 3), labels=np.arange(50) % 5)
    >>> verify(file).variant is None
    True
    """
    file = Path(path)
    arrays = open_arrays(file)
    content = read_side(arrays) or read_content(arrays)
    rows = content.n_rows
    widths = {name: int(matrix.shape[1]) for name, matrix in content.views.items()}
    labels = _n_labels(content.labels)
    variant, exact = closest(rows, widths, labels)
    remarks = [*_shapes(variant, rows, widths, labels), *_values(content, variant), *_split(content, rows)]
    return Verification(file.name, _sha256(file), rows, widths, labels, variant, exact, tuple(remarks))


def content_hash(content: ArrayContent) -> str:
    """SHA-256 of views and labels in double precision, whatever the file and the order of its rows."""
    labels = content.labels.toarray() if sp.issparse(content.labels) else np.asarray(content.labels)
    classes = np.unique(labels, return_inverse=True)[1].reshape(len(labels), -1)
    rows = [row + label.astype("<i8").tobytes() for row, label in zip(_digests(content), classes, strict=True)]
    return hashlib.sha256(b"".join(sorted(rows))).hexdigest()


def _digests(content: ArrayContent) -> Iterator[bytes]:
    """A hash of every row, all views together."""
    for start in range(0, content.n_rows, BLOCK_ROWS):
        blocks = [content.views[name][start : start + BLOCK_ROWS] for name in sorted(content.views)]
        dense = [np.ascontiguousarray(to_dense(block), dtype="<f8") for block in blocks]
        for row in zip(*dense, strict=True):
            yield hashlib.blake2b(b"".join(part.tobytes() for part in row), digest_size=16).digest()


def _shapes(variant: Variant | None, rows: int, widths: dict[str, int], labels: int) -> Iterator[Remark]:
    if variant is None:
        yield Remark(True, "Its shapes are those of no variant that is known here.")
        return
    pairs = [("pair", rows, variant.rows), ("class", labels, variant.labels)]
    pairs += [(f"feature of '{view}'", widths[view], width) for view, width in variant.widths.items() if view in widths]
    for what, got, expected in pairs:
        if got != expected:
            yield Remark(False, f"It has {_count(got, what)}; the variant has {expected:,}.")
    for view in variant.widths.keys() - widths.keys():
        yield Remark(
            False, f"It has no '{view}': it is one side of the variant, and nothing can be learned from it alone."
        )


def _values(content: ArrayContent, variant: Variant | None) -> Iterator[Remark]:
    """Numbers that are none, rows without content, pairs that occur twice."""
    bad = False
    for name, matrix in content.views.items():
        wrong = empty = 0
        for start in range(0, matrix.shape[0], BLOCK_ROWS):
            block = matrix[start : start + BLOCK_ROWS]
            dense = to_dense(block)
            wrong += int((~np.isfinite(dense)).any(axis=1).sum())
            empty += int((dense == 0).all(axis=1).sum())
        bad = bad or wrong > 0
        if wrong:
            yield Remark(False, f"{_count(wrong, 'row')} of '{name}' {_are(wrong, 'holds', 'hold')} NaN or infinity.")
        if empty:
            yield Remark(False, f"{_count(empty, 'row')} of '{name}' {_are(empty, 'is', 'are')} all zeros.")
    yield from _label_remarks(content, variant)
    if not bad:
        repeated = content.n_rows - len(set(_digests(content)))
        if repeated and len(content.views) > 1:
            verb = _are(repeated, "repeats", "repeat")
            yield Remark(False, f"{_count(repeated, 'pair')} {verb} an earlier one in all views.")
    if variant is not None and variant.content:
        same = content.labels is not None and content_hash(content) == variant.content
        other = "Its values differ from those of the copies that were compared; numbers may not be comparable."
        yield Remark(same, "Its values are those of the public copies, bit by bit." if same else other)


def _label_remarks(content: ArrayContent, variant: Variant | None) -> Iterator[Remark]:
    if content.labels is None:
        needed = variant is not None and variant.labels > 0
        yield Remark(not needed, "It has no labels: only how often the partner is found can be measured, not MAP.")
    elif content.labels.ndim == 2:
        without = int((np.asarray(content.labels.sum(axis=1)).ravel() == 0).sum())
        if without:
            verb = _are(without, "has", "have")
            yield Remark(
                False, f"{_count(without, 'row')} {verb} no label; no query finds {_are(without, 'it', 'them')}."
            )


def _split(content: ArrayContent, rows: int) -> Iterator[Remark]:
    if content.train is None or content.query is None:
        yield Remark(True, "It has no split of its own; `load` draws one from a seed.")
        return
    both = np.intersect1d(content.train, content.query).size
    parts = f"{_count(len(content.train), 'training pair')} and {_count(len(content.query), 'query')}"
    verb = _are(both, "is also a training pair", "are also training pairs")
    yield Remark(not both, f"Its split: {parts}." if not both else f"{_count(both, 'query')} {verb}.")
    for name, part in (("training", content.train), ("query", content.query)):
        if len(part) and not (np.min(part) >= 0 and np.max(part) < rows):
            yield Remark(False, f"Its {name} rows are not all rows of the file.")


def _count(number: int, what: str) -> str:
    """As in "1 row", "2 rows of 'text'", "3 queries"."""
    noun, _, rest = what.partition(" of ")
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}" + (f" of {rest}" if rest else "")


def _are(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural


def _n_labels(labels: Any) -> int:
    if labels is None:
        return 0
    return int(labels.shape[1]) if labels.ndim == 2 else len(np.unique(labels))


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with trust.open_file(path, f"The file {path.name}", DataError) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
