"""Text features that need no download: tf-idf of words and character n-grams, and topics."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from fusehash.encoders.base import Encoder, Progress, Single
from fusehash.errors import DataError
from fusehash.parameters import Rule, integer, resolve_seed, rng_for

Floats = NDArray[np.float64]

MAX_WORDS, MAX_GRAMS = 20_000, 20_000
FEW_TEXTS = 20  # with fewer texts every term is kept, otherwise those that occur in at least two texts
SMALL = 1e-5  # singular values below this share of the largest are rounding errors

# Topics.
MAX_TOPIC_WORDS = 5000
COMMON = 0.5  # words in more than this share of the texts belong to no topic
STEPS, TOL = 100, 1e-3


class TextEncoder(Encoder):
    """Base class of the text encoders: reports items that are not texts."""

    modality: ClassVar[str] = "text"
    batch_rows: ClassVar[int] = 256

    def _read(self, items: Sequence[Any]) -> tuple[dict[int, Any], dict[int, str]]:
        problems = {}
        for position, item in enumerate(items):
            if not isinstance(item, str):
                problems[position] = f"A text must be a string. Got {type(item).__name__} instead."
            elif not item.strip():
                problems[position] = "The text must have at least one character. It is empty."
        return {position: item for position, item in enumerate(items) if position not in problems}, problems

    def _blank(self) -> Single:
        return self._rows(["a"])

    def _check_terms(self, terms: list[Any]) -> None:
        """Raise ValueError unless terms of a file are strings, and texts can be encoded with them."""
        if not terms or not all(isinstance(term, str) for term in terms):
            raise ValueError("not the terms of texts")
        self._rows([" ".join(terms[:10])])

    def _usable(self, items: Sequence[Any]) -> list[str]:
        """The texts to learn from; the other items are reported in `problems_`."""
        texts, self.problems_ = self._read(items)
        if not texts:
            first = next(iter(self.problems_.values()), "There are none.")
            raise DataError(f"{type(self).__name__} needs at least one text that can be read. {first}")
        return list(texts.values())


class TfidfEncoder(TextEncoder):
    """Words and character n-grams, weighted by tf-idf and reduced to their leading singular directions (LSA).

        x_t = (1 + ln count_t) idf_t,   idf_t = 1 + ln((1 + n) / (1 + df_t))

    for words and for runs of 3 to 5 characters within words, each block scaled to length 1. With X = [words, runs] and
    its truncated singular value decomposition X ~ U S V', a text becomes x V / ||x V||. The division keeps short texts
    from gathering near the origin. Runs of characters let "mountain" find "mountains", in any language written with
    spaces. A text without known terms is a row of zeros; an empty one is a row of NaN.

    Parameters
    ----------
    n_components : int, default=256
        Number of columns; smaller if there are fewer texts or terms.
    random_state : int, Generator or None, default=0
        Seed of the singular value decomposition.

    Attributes
    ----------
    words_, grams_ : list of str
        The known terms, in the order of their columns.
    idf_ : ndarray of shape (n_words + n_grams,), float32
        Weights of the terms.
    components_ : ndarray of shape (n_words + n_grams, n_features_), float32
        V.

    References
    ----------
    Deerwester et al., Indexing by latent semantic analysis, JASIS 1990.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoder = encoders.make("tfidf").fit(["mountains and a lake", "a red house", "a red street"])
    >>> query, *texts = encoder.transform(["mountain", "a lake in the mountains", "houses"])
    >>> bool(query @ texts[0] > query @ texts[1])
    True
    """

    name: ClassVar[str] = "tfidf"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"n_components": integer(1)}

    def __init__(self, *, n_components: int = 256, random_state: Any = 0) -> None:
        self.n_components, self.random_state = n_components, random_state

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        texts = self._usable(items)
        progress(0, 2, "learning words")
        self.words_ = known_terms(texts, "word", MAX_WORDS)
        self.grams_ = known_terms(texts, "char_wb", MAX_GRAMS)
        if not self.words_ and not self.grams_:
            raise DataError(f"{type(self).__name__} needs texts with letters or digits. There are none in these.")
        counts = sp.hstack(self._counts(texts)).tocsr()
        occurs = np.bincount(counts.indices, minlength=counts.shape[1])
        self.idf_ = (1.0 + np.log((1.0 + len(texts)) / (1.0 + occurs))).astype(np.float32)
        progress(1, 2, "singular value decomposition")
        weighted = sp.csr_array(sp.hstack(self._blocks(texts)), dtype=np.float32)
        self.components_ = leading(weighted, self.n_components, resolve_seed(self.random_state))
        self.n_features_ = self.components_.shape[1]
        progress(2, 2, "done")

    def _rows(self, contents: list[str]) -> Single:
        # A sparse row times a dense matrix is summed term by term, independently of the other rows.
        rows, start = np.zeros((len(contents), self.components_.shape[1]), np.float32), 0
        for block in self._blocks(contents):
            rows += block @ self.components_[start : start + block.shape[1]]
            start += block.shape[1]
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return (rows / np.where(lengths > SMALL, lengths, np.float32(1.0))).astype(np.float32, copy=False)

    def _load(self) -> list[Any]:
        return [counter(kind, terms) for kind, terms in (("word", self.words_), ("char_wb", self.grams_)) if terms]

    def _counts(self, texts: list[str]) -> list[Any]:
        """How often each known word and each known run of characters occurs."""
        cleaned = [clean(text) for text in texts]
        return [each.transform(cleaned) for each in self._loaded()]

    def _blocks(self, texts: list[str]) -> list[Any]:
        """Weighted words and weighted runs of characters: one row per text, of length 1 / sqrt(2) or 0."""
        blocks, start = [], 0
        for counts in self._counts(texts):
            weights = ((1.0 + np.log(counts.data)) * self.idf_[start + counts.indices]).astype(np.float32)
            row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
            lengths = np.sqrt(2.0 * np.bincount(row, weights.astype(np.float64) ** 2, counts.shape[0]))
            weights /= lengths[row].astype(np.float32)
            blocks.append(sp.csr_array((weights, counts.indices, counts.indptr), shape=counts.shape))
            start += counts.shape[1]
        return blocks

    def _check_state(self) -> None:
        n_terms = len(self.words_) + len(self.grams_)
        if self.idf_.shape != (n_terms,) or self.components_.shape != (n_terms, self.n_features_):
            raise ValueError("terms, weights and components do not belong together")
        self._check_terms(self.words_ + self.grams_)


class LdaEncoder(TextEncoder):
    """Shares of topics in a text, as in the text view of the Wiki dataset; rows sum to 1.

    The topics are learned with scikit-learn's variational Bayes. For a text with word counts n, E = exp(E[ln beta]) of
    the topics (topics x words) and prior a = 1 / n_topics, its topics are the fixed point of

        theta = exp(psi(gamma)),   gamma = a + theta * ((n / (theta E)) E')

    normalized to sum 1. Each row stops by itself, when the mean change of its gamma is below 1e-3. A text without known
    words is a row of zeros; an empty one is a row of NaN.

    Parameters
    ----------
    n_topics : int, default=10
        Number of topics, the columns.
    max_iter : int, default=20
        Passes over the texts while learning.
    random_state : int, Generator or None, default=0
        Seed.

    Attributes
    ----------
    words_ : list of str
        The known words, in the order of their columns.
    topics_ : ndarray of shape (n_topics, n_words)
        exp(E[ln beta]).

    References
    ----------
    Blei, Ng and Jordan, Latent Dirichlet allocation, JMLR 2003.

    Examples
    --------
    >>> from fusehash import encoders
    >>> encoder = encoders.make("lda", n_topics=2).fit(["red house", "green lake", "red street", "green lake"])
    >>> encoder.transform(["red house"]).shape
    (1, 2)
    """

    name: ClassVar[str] = "lda"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"n_topics": integer(2), "max_iter": integer(1)}

    def __init__(self, *, n_topics: int = 10, max_iter: int = 20, random_state: Any = 0) -> None:
        self.n_topics, self.max_iter, self.random_state = n_topics, max_iter, random_state

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        from sklearn.decomposition import LatentDirichletAllocation

        texts = self._usable(items)
        progress(0, 1, "learning topics")
        self.words_ = known_terms(texts, "word", MAX_TOPIC_WORDS, COMMON)
        if not self.words_:
            raise DataError(f"{type(self).__name__} needs texts with words of two letters or more. There are none.")
        random = np.random.RandomState(int(rng_for(resolve_seed(self.random_state), "topics").integers(2**31)))
        model = LatentDirichletAllocation(self.n_topics, max_iter=self.max_iter, random_state=random)
        model.fit(self._counts(texts))
        self.topics_ = np.ascontiguousarray(model.exp_dirichlet_component_, dtype=np.float64)
        self.n_features_ = self.n_topics
        progress(1, 1, "done")

    def _rows(self, contents: list[str]) -> Single:
        counts = self._counts(contents)
        theta = topic_shares(counts, self.topics_)
        theta[np.diff(counts.indptr) == 0] = 0.0
        return theta.astype(np.float32)

    def _load(self) -> Any:
        return counter("word", self.words_)

    def _counts(self, texts: list[str]) -> Any:
        return sp.csr_array(self._loaded().transform([clean(text) for text in texts]), dtype=np.float64)

    def _check_state(self) -> None:
        if self.topics_.shape != (self.n_features_, len(self.words_)):
            raise ValueError("topics and words do not belong together")
        self._check_terms(self.words_)


def clean(text: str) -> str:
    """One spelling for texts that read the same: composed, compatible, lower case."""
    return unicodedata.normalize("NFKC", text).lower()


def counter(kind: str, terms: list[str] | None, **params: Any) -> Any:
    """scikit-learn's counter of terms: words of two letters or more, or runs of 3 to 5 characters within words."""
    from sklearn.feature_extraction.text import CountVectorizer

    runs = (3, 5) if kind == "char_wb" else (1, 1)
    return CountVectorizer(analyzer=kind, ngram_range=runs, lowercase=False, vocabulary=terms, **params)


def known_terms(texts: list[str], kind: str, limit: int, max_share: float = 1.0) -> list[str]:
    """The vocabulary, sorted: the `limit` most frequent terms; empty if there are no terms at all."""
    cleaned = [clean(text) for text in texts]
    for min_texts in (1,) if len(texts) < FEW_TEXTS else (2, 1):
        for share in dict.fromkeys((max_share, 1.0)):
            try:
                fitted = counter(kind, None, max_features=limit, min_df=min_texts, max_df=share).fit(cleaned)
            except ValueError:  # no term is left: relax the limits
                continue
            return sorted(fitted.vocabulary_)
    return []


def leading(X: Any, n_components: int, seed: int) -> Single:
    """V (terms, r): leading right singular vectors of a sparse matrix."""
    from sklearn.utils.extmath import randomized_svd

    rank = min(n_components, *X.shape)
    random = np.random.RandomState(int(rng_for(seed, "components").integers(2**31)))
    _, S, Vt = randomized_svd(X, rank, n_iter=5, random_state=random)
    keep = max(1, int(np.sum(SMALL * S[0] < S)))
    return np.ascontiguousarray(Vt[:keep].T, dtype=np.float32)


def topic_shares(counts: Any, topics: Floats) -> Floats:
    """Shares of topics (rows, topics) of texts from their word counts; see LdaEncoder."""
    n_topics = len(topics)
    by_word = np.ascontiguousarray(topics.T)
    gamma = np.ones((counts.shape[0], n_topics))
    running = np.arange(counts.shape[0])
    for _ in range(STEPS):
        some = counts[running]
        before = gamma[running]
        theta = np.exp(psi(before) - psi(before.sum(axis=1, keepdims=True)))  # exp(E[ln theta])
        rows = np.repeat(np.arange(len(running)), np.diff(some.indptr))
        expected = np.einsum("ij,ij->i", theta[rows], by_word[some.indices])
        ratio = sp.csr_array((some.data / (expected + np.finfo(float).eps), some.indices, some.indptr), some.shape)
        after = 1.0 / n_topics + theta * (ratio @ by_word)
        gamma[running] = after
        running = running[np.abs(after - before).mean(axis=1) >= TOL]
        if not running.size:
            break
    return gamma / gamma.sum(axis=1, keepdims=True)
