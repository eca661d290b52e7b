"""HashTransformer: scikit-learn's own checks, names of features, containers, pipelines."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fusehash import bits, datasets, hashers
from fusehash.errors import DataError, ParameterError
from fusehash.integrations.sklearn import HashTransformer

DATA = datasets.make_paired(120, views={"image": 8, "text": 6}, n_classes=3, random_state=0)
X = np.hstack([DATA.views["image"], DATA.views["text"]])
COLUMNS = {"image": list(range(8)), "text": list(range(8, 14))}


def transformer(method="regression", **options):
    return HashTransformer(hashers.make(method, n_bits=16, random_state=0), **{"columns": COLUMNS, **options})


@parametrize_with_checks([HashTransformer(hashers.make("regression", n_bits=8, random_state=0))])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([HashTransformer()])
def test_scikit_learns_own_checks_of_the_default(estimator, check):
    check(estimator)


def test_it_gives_what_the_hasher_gives():
    model = hashers.make("regression", n_bits=16, random_state=0).fit(DATA.views)
    fitted = transformer().fit(X)
    assert np.array_equal(fitted.transform(X), model.project_fused(DATA.views))
    signs = transformer(output="signs").fit_transform(X)
    assert np.array_equal(signs, bits.unpack(model.encode_fused(DATA.views), 16))


def test_names_and_containers(optional):
    pandas = optional("pandas")
    names = [f"column {i}" for i in range(14)]
    frame = pandas.DataFrame(X, columns=names)
    columns = {"image": names[:8], "text": names[8:]}
    fitted = transformer(columns=columns).set_output(transform="pandas").fit(frame)
    out = fitted.transform(frame)
    assert list(out.columns) == [f"hashtransformer{i}" for i in range(16)]
    assert np.array_equal(out.to_numpy(), transformer().fit(X).transform(X))
    with pytest.raises(ValueError, match="feature names"):
        fitted.transform(frame[names[::-1]])


def test_it_works_in_a_pipeline_with_a_search_and_labels():
    model = make_pipeline(transformer("fdch"), LogisticRegression())  # fdch learns from labels
    search = GridSearchCV(model, {"hashtransformer__hasher__n_bits": [8, 16]}, cv=2).fit(X, DATA.labels)
    assert search.best_score_ > 0.5
    assert clone(model).get_params()["hashtransformer__hasher__n_bits"] == 16


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"columns": {"image": [0, 99]}}, DataError),
        ({"columns": {"image": ["nothing"]}}, DataError),
        ({"columns": {}}, ParameterError),
        ({"columns": 5}, ParameterError),
        ({"output": "bytes"}, ParameterError),
    ],
)
def test_wrong_settings_are_one_sentence(options, error):
    with pytest.raises(error, match="must be"):
        transformer(**options).fit(X)
    with pytest.raises(ParameterError, match="'hasher'"):
        HashTransformer(hasher=LogisticRegression()).fit(X)
