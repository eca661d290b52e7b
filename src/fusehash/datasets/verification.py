"""Which variant of a public benchmark a file is, and what is wrong with it: `verify`.

Variants are known by their shapes, since most were never published with checksums. Where the content itself has been
compared between public copies, its hash is known too. Nothing here leads to a download.
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
from fusehash.datasets.arrays import ArrayContent, open_arrays, read_content
from fusehash.errors import DataError
from fusehash.views import BLOCK_ROWS, to_dense

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Variant:
    """One form in which a benchmark is used.

    widths : features by view; labels : classes or label columns, 0 if it has none
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

    def points(self, rows: int, widths: dict[str, int], labels: int) -> int:
        """How many of the shapes agree."""
        return (rows == self.rows) + (labels == self.labels) + sum(widths.get(k) == w for k, w in self.widths.items())


_SAMPLED = "2,000 queries, 18,015 for the database, 5,000 of them for training; drawn at random, so that papers differ"
VARIANTS = (
    Variant(
        "Wiki, 128 SIFT words and 10 LDA topics, the features of the literature", 2866, {"image": 128, "text": 10}, 10,
        "2,173 training pairs, which are also the database, and 693 queries; fixed",
        "the Wikipedia articles of the University of California, San Diego (Rasiwasia and others, 2010)",
        "7f557bb31fdd4925469d2eb593f3b9497f4ea0c74cd034ee07a787d156de7792",
    ),
    Variant(
        "MIRFlickr25K, 150 edge histograms and 500 components of tags", 20015, {"image": 150, "text": 500}, 24,
        _SAMPLED,
        "MIRFlickr of Leiden University (Huiskes and Lew, 2008); features made by later authors",
    ),
    Variant(
        "MIRFlickr25K, the same features, pairs with frequent tags only", 16738, {"image": 150, "text": 500}, 24,
        "drawn at random, so that papers differ",
        "MIRFlickr of Leiden University (Huiskes and Lew, 2008); features made by later authors",
    ),
    Variant(
        "MIRFlickr25K in its deep form, 4,096 CNN-F features and 1,386 tags", 20015, {"image": 4096, "text": 1386}, 24,
        _SAMPLED, "MIRFlickr of Leiden University (Huiskes and Lew, 2008); the form that DCMH used",
    ),
    Variant(
        "NUS-WIDE with its 10 largest concepts, 500 visual words and 1,000 tags", 186577, {"image": 500, "text": 1000},
        10, "2,000 queries, all others for the database, 5,000 of them for training; drawn at random",
        "NUS-WIDE of the National University of Singapore (Chua and others, 2009)",
    ),
)  # fmt: skip
RECOGNIZED = 3  # of four shapes


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
    content = read_content(open_arrays(file))
    rows = content.n_rows
    widths = {name: int(matrix.shape[1]) for name, matrix in content.views.items()}
    labels = _n_labels(content.labels)
    best = max(VARIANTS, key=lambda variant: variant.points(rows, widths, labels))
    points = best.points(rows, widths, labels)
    variant = best if points >= RECOGNIZED else None
    found = [*_shapes(variant, rows, widths, labels), *_values(content, variant), *_split(content, rows)]
    return Verification(file.name, _sha256(file), rows, widths, labels, variant, points == 4, tuple(found))


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
    pairs = [("pairs", rows, variant.rows), ("classes", labels, variant.labels)]
    pairs += [(f"features of '{view}'", widths.get(view, 0), width) for view, width in variant.widths.items()]
    for what, got, expected in pairs:
        if got != expected:
            yield Remark(False, f"It has {got:,} {what}; the variant has {expected:,}.")


def _values(content: ArrayContent, variant: Variant | None) -> Iterator[Remark]:
    """Numbers that are none, rows without content, pairs that occur twice."""
    bad: dict[str, int] = {}
    for name, matrix in content.views.items():
        wrong = empty = 0
        for start in range(0, matrix.shape[0], BLOCK_ROWS):
            block = matrix[start : start + BLOCK_ROWS]
            dense = to_dense(block)
            wrong += int((~np.isfinite(dense)).any(axis=1).sum())
            empty += int((dense == 0).all(axis=1).sum())
        bad[name] = wrong
        if wrong:
            yield Remark(False, f"{wrong:,} rows of '{name}' hold NaN or infinity.")
        if empty:
            yield Remark(False, f"{empty:,} rows of '{name}' are all zeros.")
    if content.labels is None:
        yield Remark(False, "It has no labels, so that nothing can be evaluated.")
    else:
        without = int((np.asarray(content.labels.sum(axis=1)).ravel() == 0).sum()) if content.labels.ndim == 2 else 0
        if without:
            yield Remark(False, f"{without:,} rows have no label; no query finds them.")
    if not any(bad.values()):
        repeated = content.n_rows - len(set(_digests(content)))
        if repeated:
            yield Remark(False, f"{repeated:,} pairs repeat an earlier one in all views.")
    if variant is not None and variant.content:
        same = content.labels is not None and content_hash(content) == variant.content
        other = "Its values differ from those of the copies that were compared; numbers may not be comparable."
        yield Remark(same, "Its values are those of the public copies, bit by bit." if same else other)


def _split(content: ArrayContent, rows: int) -> Iterator[Remark]:
    if content.train is None or content.query is None:
        yield Remark(True, "It has no split of its own; `load` draws one from a seed.")
        return
    both = np.intersect1d(content.train, content.query).size
    parts = f"{len(content.train):,} training pairs and {len(content.query):,} queries"
    yield Remark(not both, f"Its split: {parts}." if not both else f"{both:,} queries are also training pairs.")
    for name, part in (("training", content.train), ("query", content.query)):
        if len(part) and not (np.min(part) >= 0 and np.max(part) < rows):
            yield Remark(False, f"Its {name} rows are not all rows of the file.")


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
