"""Text features against scikit-learn's own, and rows that depend on their text alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from fusehash import encoders
from fusehash.encoders.texts import clean, known_terms, leading, topic_shares
from fusehash.errors import DataError, ParameterError

THINGS = [
    "mountain",
    "river",
    "house",
    "street",
    "child",
    "tourist",
    "bicycle",
    "palm",
    "beach",
    "church",
    "desert",
    "lake",
]
PLACES = ["behind", "beside", "under", "above", "near"]
COLORS = ["red", "green", "blue", "white", "brown"]


def make_texts(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    return [
        " ".join(("a", *(rng.choice(words) for words in (COLORS, THINGS, PLACES, ["the"], COLORS, THINGS))))
        for _ in range(n)
    ]


TEXTS = make_texts(120)
BROKEN = [None, "", "  \n\t", 3, b"bytes"]


@pytest.fixture(scope="module")
def fitted():
    return {
        "tfidf": encoders.make("tfidf", n_components=20).fit(TEXTS),
        "lda": encoders.make("lda", n_topics=5, max_iter=5).fit(TEXTS),
    }


# -- formulas --------------------------------------------------------------------------------------------------------


def test_tfidf_is_that_of_scikit_learn(fitted):
    model = fitted["tfidf"]
    words = TfidfVectorizer(sublinear_tf=True, min_df=2).fit(TEXTS)
    grams = TfidfVectorizer(sublinear_tf=True, min_df=2, analyzer="char_wb", ngram_range=(3, 5)).fit(TEXTS)
    assert model.words_ == list(words.get_feature_names_out())
    assert model.grams_ == list(grams.get_feature_names_out())
    X = np.hstack([words.transform(TEXTS).toarray(), grams.transform(TEXTS).toarray()]) / np.sqrt(2.0)
    assert np.allclose(sp.hstack(model._blocks(TEXTS)).toarray(), X, atol=1e-6)
    _, _, Vt = np.linalg.svd(X)
    assert np.allclose(np.abs(np.sum(Vt[:8] * model.components_.T[:8], axis=1)), 1.0, atol=1e-3)
    kept = X @ model.components_
    expected = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    assert np.allclose(model.transform(TEXTS), expected, atol=1e-5)


def test_components_are_orthonormal_and_no_more_than_the_rank(fitted):
    V = fitted["tfidf"].components_
    assert np.allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-5)
    X = np.outer(np.arange(1, 6), np.arange(1, 9)).astype(float)
    assert leading(X, 4, 0).shape == (8, 1)


def test_topics_are_those_of_scikit_learn():
    counts = CountVectorizer().fit_transform(TEXTS).astype(float)
    model = LatentDirichletAllocation(4, max_iter=6, random_state=0).fit(counts)
    assert np.allclose(topic_shares(counts, model.exp_dirichlet_component_), model.transform(counts), atol=1e-9)


def test_terms_that_are_kept():
    many = [*["the common word"] * 30, "once"]
    assert known_terms(many, "word", 100) == ["common", "the", "word"]
    assert known_terms(many[-2:], "word", 100) == ["common", "once", "the", "word"]
    assert known_terms([f"w{i:03}" for i in range(40)], "word", 7) == [f"w{i:03}" for i in range(7)]
    assert known_terms(["same words"] * 30, "word", 100, 0.5) == ["same", "words"]  # else nothing would be left
    assert known_terms(["! ?"] * 3, "word", 100) == []


# -- encoders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_a_row_depends_on_its_text_alone(name, fitted, monkeypatch):
    model = fitted[name]
    rows = model.transform(TEXTS)
    assert rows.dtype == np.float32
    assert rows.shape == (120, model.n_features_)
    assert np.isfinite(rows).all()
    assert np.array_equal(model.transform(TEXTS[::-1])[::-1], rows)
    for size in (1, 7, 100):
        monkeypatch.setattr(type(model), "batch_rows", size)
        assert np.array_equal(model.transform(TEXTS), rows)
    assert np.array_equal(clone(model).fit(TEXTS).transform(TEXTS), rows)


@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_what_is_no_text_is_nan_and_told(name, fitted):
    model = fitted[name]
    rows = model.transform([*BROKEN, TEXTS[0]])
    assert np.isnan(rows[:5]).all()
    assert np.array_equal(rows[5], model.transform(TEXTS[:1])[0])
    model.transform(BROKEN)
    assert sorted(model.problems_) == [0, 1, 2, 3, 4]
    assert all(told.endswith(".") for told in model.problems_.values())
    again = clone(model).fit([*BROKEN, *TEXTS])
    assert sorted(again.problems_) == [0, 1, 2, 3, 4]
    assert again.words_ == model.words_


@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_unknown_words_are_zeros(name, fitted):
    rows = fitted[name].transform(["qqqq zzzz", "!!!"])
    assert not rows.any()
    assert fitted[name].problems_ == {}


def test_topics_sum_to_one(fitted):
    assert np.allclose(fitted["lda"].transform(TEXTS).sum(axis=1), 1.0, atol=1e-6)


def test_spelling_does_not_matter(fitted):
    rows = fitted["tfidf"].transform(["a red house", "A RED House", "a red \ufb01 house".replace("\ufb01 ", "")])
    assert (rows == rows[0]).all()
    assert clean("\uff28ouse") == "house"
    assert clean("e\u0301") == "\u00e9"


def test_a_part_of_a_word_is_near_the_word(fitted):
    house, houses, lake = fitted["tfidf"].transform(["house", "houses", "lake"])
    assert house @ houses > 3 * abs(house @ lake)


@pytest.mark.parametrize(
    "texts", [["one"], ["same", "same"], ["x y z", "p q"], ["\u5c71\u3068\u6d77", "\u6d77\u306e\u5bb6"], ["a" * 10000],
              ["\ud800 lone", "surrogate"], [f"word{i}" for i in range(30)]]
)  # fmt: skip
@pytest.mark.parametrize("name", ["tfidf", "lda"])
def test_odd_texts(name, texts):
    if name == "lda" and texts[0] == "x y z":
        with pytest.raises(DataError, match="two letters"):
            encoders.make(name).fit(texts)
    else:
        assert np.isfinite(encoders.make(name).fit(texts).transform(texts)).all()


def test_nothing_to_learn_from():
    for texts in ([], [""], [None, 3]):
        with pytest.raises(DataError, match="at least one text"):
            encoders.make("tfidf").fit(texts)
    with pytest.raises(DataError, match="letters"):
        encoders.make("lda").fit(["! ?"])
    with pytest.raises(DataError, match="list of texts"):
        encoders.make("tfidf").fit("one text")


@pytest.mark.parametrize(
    ("name", "param", "value"), [("tfidf", "n_components", 0), ("lda", "n_topics", 1), ("lda", "max_iter", 0)]
)
def test_wrong_parameters(name, param, value):
    with pytest.raises(ParameterError, match=param):
        encoders.make(name, **{param: value}).fit(TEXTS)


def test_a_fit_that_fails_leaves_the_encoder_as_it_was(fitted):
    before = fitted["tfidf"].transform(TEXTS)
    with pytest.raises(DataError):
        fitted["tfidf"].fit([""])
    assert np.array_equal(fitted["tfidf"].transform(TEXTS), before)


def test_a_second_fit_forgets_the_first():
    model = encoders.make("tfidf").fit(["red house", "green lake"])
    model.transform(["red"])
    model.fit(["tall tower", "deep sea"])
    assert not model.transform(["green lake"]).any()
