"""Text features that need no download: tf-idf of words and character n-grams, cut to a few hundred numbers."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from fusehash.encoders.base import Batch, Encoder, Progress, Single
from fusehash.errors import DataError
from fusehash.parameters import check_integer, resolve_seed, rng_for

MAX_WORDS, MAX_GRAMS = 20_000, 20_000
# Of few texts every term is kept; of many, those that occur once say nothing about the others.
FEW_TEXTS = 20
# Directions with less of the largest singular value than this are rounding.
SMALL = 1e-5


class TextEncoder(Encoder):
    """Base of the text encoders: sorts out what is no text."""

    modality: ClassVar[str] = "text"
    batch_rows: ClassVar[int] = 256

    def _encode(self, items: Sequence[Any]) -> Batch:
        problems = {place: told for place, item in enumerate(items) if (told := problem_of(item)) is not None}
        good = [place for place in range(len(items)) if place not in problems]
        rows = np.full((len(items), self.n_features_), np.nan, dtype=np.float32)
        if good:
            rows[good] = self._features([items[place] for place in good])
        return rows, problems

    @abstractmethod
    def _features(self, texts: list[str]) -> Single:
        """Features of texts, row by row."""

    def _usable(self, items: Sequence[Any]) -> list[str]:
        """The texts to learn from; the others are told in `problems_`."""
        self.problems_ = {place: told for place, item in enumerate(items) if (told := problem_of(item)) is not None}
        texts = [item for place, item in enumerate(items) if place not in self.problems_]
        if not texts:
            first = next(iter(self.problems_.values()), "There are none.")
            raise DataError(f"{type(self).__name__} needs at least one text that can be read. {first}")
        return texts


class TfidfEncoder(TextEncoder):
    """Words and character n-grams, weighted by tf-idf and cut to their leading singular directions (LSA).

        x_t = (1 + ln count_t) idf_t,   idf_t = 1 + ln((1 + n) / (1 + df_t))

    for words and for runs of 3 to 5 characters within words, each block scaled to length 1. With X = [words, runs] and
    its truncated singular value decomposition X ~ U S V', a text becomes x V / ||x V||: without the division, short
    texts, of which little is kept, would all lie near the origin and find each other. Runs of characters let a query
    find "mountains" by "mountain", in any language that is written with spaces. A text of which nothing is known is a
    row of zeros; one without any character is a row of NaN.

    Parameters
    ----------
    n_components : columns; fewer where there are fewer texts or terms.
    random_state : seed of the singular value decomposition.

    Attributes
    ----------
    words_, grams_ : the known terms, in order of their columns.
    idf_ : (n_words + n_grams,) weights.
    components_ : (n_words + n_grams, n_features_) float32, V.
    """

    name: ClassVar[str] = "tfidf"
    summary: ClassVar[str] = "tf-idf of words and character n-grams, cut to 256 numbers"

    words_: list[str]
    grams_: list[str]
    idf_: Single
    components_: Single

    def __init__(self, *, n_components: int = 256, random_state: Any = 0) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def _check_params(self) -> None:
        check_integer(type(self).__name__, "n_components", self.n_components, low=1)

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        texts = self._usable(items)
        progress(0, 2, "learning words")
        self.words_ = known_terms(texts, "word", MAX_WORDS)
        self.grams_ = known_terms(texts, "char_wb", MAX_GRAMS)
        if not self.words_ and not self.grams_:
            raise DataError(f"{type(self).__name__} needs texts with letters or digits. There are none in these.")
        self.__dict__.pop("_runtime", None)
        counts = sp.hstack(self._counts(texts)).tocsr()
        occurs = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf_ = (1.0 + np.log((1.0 + len(texts)) / (1.0 + occurs))).astype(np.float32)
        progress(1, 2, "singular value decomposition")
        self.components_ = leading(self._weighted(texts), self.n_components, resolve_seed(self.random_state))
        self.n_features_ = self.components_.shape[1]
        progress(2, 2, "done")

    def _features(self, texts: list[str]) -> Single:
        # A sparse row times a dense matrix is summed term by term: no other row has a part in it.
        rows, start = np.zeros((len(texts), self.components_.shape[1]), np.float32), 0
        for block in self._blocks(texts):
            rows += block @ self.components_[start : start + block.shape[1]]
            start += block.shape[1]
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return rows / np.where(lengths > SMALL, lengths, np.float32(1.0))

    def _counts(self, texts: list[str]) -> list[Any]:
        """How often each known word and each known run of characters occurs."""
        if not hasattr(self, "_runtime"):
            kinds = (("word", self.words_), ("char_wb", self.grams_))
            self._runtime = [counter(kind, terms) for kind, terms in kinds if terms]
        cleaned = [clean(text) for text in texts]
        return [each.transform(cleaned) for each in self._runtime]

    def _blocks(self, texts: list[str]) -> list[Any]:
        """Weighted words and weighted runs of characters, a row a text, each of length 1 / sqrt(2) or 0."""
        blocks, start = [], 0
        for counts in self._counts(texts):
            weights = ((1.0 + np.log(counts.data)) * self.idf_[start + counts.indices]).astype(np.float32)
            row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
            lengths = np.sqrt(2.0 * np.bincount(row, weights.astype(np.float64) ** 2, counts.shape[0]))
            weights /= lengths[row].astype(np.float32)
            blocks.append(sp.csr_array((weights, counts.indices, counts.indptr), shape=counts.shape))
            start += counts.shape[1]
        return blocks

    def _weighted(self, texts: list[str]) -> Any:
        return sp.csr_array(sp.hstack(self._blocks(texts)), dtype=np.float32)

    def _check_state(self) -> None:
        n_terms = len(self.words_) + len(self.grams_)
        if self.idf_.shape != (n_terms,) or self.components_.shape != (n_terms, self.n_features_):
            raise ValueError("terms, weights and components do not belong together")


def problem_of(item: Any) -> str | None:
    """Why an item is no text, or None."""
    if not isinstance(item, str):
        return f"A text must be a string. Got {type(item).__name__} instead."
    return None if item.strip() else "The text must have at least one character. It is empty."


def clean(text: str) -> str:
    """One spelling for what is read alike: composed, compatible, small letters."""
    return unicodedata.normalize("NFKC", text).lower()


def counter(kind: str, terms: list[str] | None, **params: Any) -> Any:
    """scikit-learn's counter of terms: words of two letters or more, or runs of 3 to 5 characters within words."""
    from sklearn.feature_extraction.text import CountVectorizer

    runs = (3, 5) if kind == "char_wb" else (1, 1)
    return CountVectorizer(analyzer=kind, ngram_range=runs, lowercase=False, vocabulary=terms, **params)


def known_terms(texts: list[str], kind: str, limit: int, max_share: float = 1.0) -> list[str]:
    """The terms to know, sorted: at most `limit`, the most frequent; none where there are no terms at all."""
    cleaned = [clean(text) for text in texts]
    for min_texts in (1,) if len(texts) < FEW_TEXTS else (2, 1):
        for share in dict.fromkeys((max_share, 1.0)):
            try:
                found = counter(kind, None, max_features=limit, min_df=min_texts, max_df=share).fit(cleaned)
            except ValueError:  # no term is left: be less choosy
                continue
            return sorted(found.vocabulary_)
    return []


def leading(X: Any, n_components: int, seed: int) -> Single:
    """V (terms, r): leading right singular vectors of a sparse matrix."""
    from sklearn.utils.extmath import randomized_svd

    rank = min(n_components, *X.shape)
    random = np.random.RandomState(int(rng_for(seed, "components").integers(2**31)))
    _, S, Vt = randomized_svd(X, rank, n_iter=5, random_state=random)
    keep = max(1, int(np.sum(SMALL * S[0] < S)))
    return np.ascontiguousarray(Vt[:keep].T, dtype=np.float32)
