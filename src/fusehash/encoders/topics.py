"""Topics of texts by latent Dirichlet allocation, the text features of the Wiki data set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import psi

from fusehash.encoders.base import Progress, Single
from fusehash.encoders.texts import TextEncoder, clean, counter, known_terms
from fusehash.errors import DataError
from fusehash.parameters import check_integer, resolve_seed, rng_for

Floats = NDArray[np.float64]

MAX_WORDS = 5000
COMMON = 0.5  # words of more than this share of the texts belong to no topic
STEPS, TOL = 100, 1e-3


class LdaEncoder(TextEncoder):
    """Shares of topics in a text; rows sum to 1. Ten topics are what the text view of the Wiki data set is made of.

    The topics are learned with scikit-learn's variational Bayes. For a text with word counts n, E = exp(E[ln beta]) of
    the topics (topics x words) and prior a = 1 / n_topics, its topics are the fixed point of

        theta = exp(psi(gamma)),   gamma = a + theta * ((n / (theta E)) E')

    normalized to sum 1; a row stops when the mean change of its gamma is below 1e-3, whatever the other rows do.
    A text without any known word is a row of zeros; one without any character is a row of NaN.

    Parameters
    ----------
    n_topics : number of topics, the columns.
    max_iter : passes over the texts while learning.
    random_state : seed.

    Attributes
    ----------
    words_ : the known words, in order of their columns.
    topics_ : (n_topics, n_words), exp(E[ln beta]).
    """

    name: ClassVar[str] = "lda"
    summary: ClassVar[str] = "shares of topics (latent Dirichlet allocation), as in the Wiki data set"

    words_: list[str]
    topics_: Floats

    def __init__(self, *, n_topics: int = 10, max_iter: int = 20, random_state: Any = 0) -> None:
        self.n_topics = n_topics
        self.max_iter = max_iter
        self.random_state = random_state

    def _check_params(self) -> None:
        check_integer(type(self).__name__, "n_topics", self.n_topics, low=2)
        check_integer(type(self).__name__, "max_iter", self.max_iter, low=1)

    def _fit(self, items: Sequence[Any], progress: Progress) -> None:
        from sklearn.decomposition import LatentDirichletAllocation

        texts = self._usable(items)
        progress(0, 1, "learning topics")
        self.words_ = known_terms(texts, "word", MAX_WORDS, COMMON)
        if not self.words_:
            raise DataError(f"{type(self).__name__} needs texts with words of two letters or more. There are none.")
        self.__dict__.pop("_runtime", None)
        random = np.random.RandomState(int(rng_for(resolve_seed(self.random_state), "topics").integers(2**31)))
        model = LatentDirichletAllocation(self.n_topics, max_iter=self.max_iter, random_state=random)
        model.fit(self._counts(texts))
        self.topics_ = np.ascontiguousarray(model.exp_dirichlet_component_, dtype=np.float64)
        self.n_features_ = self.n_topics
        progress(1, 1, "done")

    def _features(self, texts: list[str]) -> Single:
        counts = self._counts(texts)
        theta = topic_shares(counts, self.topics_)
        theta[np.diff(counts.indptr) == 0] = 0.0
        return theta.astype(np.float32)

    def _counts(self, texts: list[str]) -> Any:
        if not hasattr(self, "_runtime"):
            self._runtime = counter("word", self.words_)
        return sp.csr_array(self._runtime.transform([clean(text) for text in texts]), dtype=np.float64)

    def _check_state(self) -> None:
        if self.topics_.shape != (self.n_features_, len(self.words_)):
            raise ValueError("topics and words do not belong together")


def topic_shares(counts: Any, topics: Floats) -> Floats:
    """Shares of topics (rows, topics) of texts given by their word counts; see the formulas above."""
    n_topics = len(topics)
    by_word = np.ascontiguousarray(topics.T)
    gamma = np.ones((counts.shape[0], n_topics))
    running = np.arange(counts.shape[0])
    for _ in range(STEPS):
        some = counts[running]
        before = gamma[running]
        theta = _expected(before)
        rows = np.repeat(np.arange(len(running)), np.diff(some.indptr))
        expected = np.einsum("ij,ij->i", theta[rows], by_word[some.indices])
        ratio = sp.csr_array((some.data / (expected + np.finfo(float).eps), some.indices, some.indptr), some.shape)
        after = 1.0 / n_topics + theta * (ratio @ by_word)
        gamma[running] = after
        running = running[np.abs(after - before).mean(axis=1) >= TOL]
        if not running.size:
            break
    return gamma / gamma.sum(axis=1, keepdims=True)


def _expected(gamma: Floats) -> Floats:
    """exp(E[ln theta]) of a Dirichlet distribution."""
    result: Floats = np.exp(psi(gamma) - psi(gamma.sum(axis=1, keepdims=True)))
    return result
