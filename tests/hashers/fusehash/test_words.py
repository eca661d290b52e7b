"""Weights of words in the default."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import fusehash as fh
from fusehash.evaluation.metrics import pair_recall
from fusehash.hashers.fusehash.tuning.agreement import USUAL_AGREEMENT
from fusehash.parameters import ParameterError
from untuned import UNTUNED

N_TRAIN, N_NEW = 300, 200


def captions(seed: int = 0) -> dict[str, Any]:
    """Two bags about the same three of 60 things, among common words that are drawn for each bag alone."""
    rng = np.random.default_rng(seed)
    n = N_TRAIN + N_NEW
    things = np.zeros((n, 60))
    for row in things:
        row[rng.choice(60, 3, replace=False)] = 1.0
    views = {}
    for name in ("a", "b"):
        common, rare = rng.random((n, 30)) < 0.4, rng.random((n, 700)) < 0.003
        views[name] = sp.csr_array(np.hstack([things, common, rare]))
    return views


def recall(model: fh.FuseHash, views: dict[str, Any]) -> float:
    codes = [model.encode(X[N_TRAIN:], view=name) for name, X in views.items()]
    return float(np.mean(pair_recall(codes[0], codes[1], k=10)))


def test_words_that_pairs_share_count_more_and_find_partners(tmp_path: Path) -> None:
    views = captions()
    train = {name: X[:N_TRAIN] for name, X in views.items()}
    plain, weighted = (
        fh.FuseHash(n_bits=32, random_state=0, **(UNTUNED | {"word_weights": power})).fit(train) for power in (0.0, 1.0)
    )
    assert plain.fitted_.maps["a"].preparation.word_weights is None
    weights = weighted.fitted_.maps["a"].preparation.word_weights
    assert weights is not None
    assert weights[:60].mean() > 1.2 * weights[60:90].mean()
    assert recall(weighted, views) > recall(plain, views) + 0.1
    path = tmp_path / "model.safetensors"
    weighted.save(path)
    for name, X in views.items():
        assert_array_equal(fh.load(path).encode(X, view=name), weighted.encode(X, view=name))


def test_weights_are_used_where_views_agree_and_only_for_words() -> None:
    views = {name: X[:N_TRAIN] for name, X in captions().items()}
    both = fh.FuseHash(n_bits=16, random_state=0, n_threads=1).fit(views)
    expected = 1.0 - min(1.0, (USUAL_AGREEMENT / both.tuning_["agreement"]) ** 4) ** 2
    assert both.tuning_["chosen"]["word_weights"] == pytest.approx(expected)
    rng = np.random.default_rng(0)
    noise = {name: sp.csr_array(rng.random((N_TRAIN, 700)) < 0.02, dtype=float) for name in "ab"}
    for unrelated in (noise, {"a": rng.standard_normal((N_TRAIN, 8)), "b": rng.standard_normal((N_TRAIN, 600))}):
        model = fh.FuseHash(n_bits=16, random_state=0, n_threads=1).fit(unrelated)
        assert model.tuning_["chosen"]["word_weights"] == 0.0
        assert all(m.preparation.word_weights is None for m in model.fitted_.maps.values())
    with pytest.raises(ParameterError, match="word_weights"):
        fh.FuseHash(word_weights=-1.0).fit(views)


def test_learning_goes_on_with_the_weights_of_the_first_rows() -> None:
    views = captions()
    model = fh.FuseHash(n_bits=16, random_state=0, **(UNTUNED | {"word_weights": 1.0}))
    model.partial_fit({name: X[:200] for name, X in views.items()})
    before = model.fitted_.maps["a"].preparation.word_weights
    assert before is not None
    model.partial_fit({name: X[200:N_TRAIN] for name, X in views.items()})
    assert_array_equal(model.fitted_.maps["a"].preparation.word_weights, before)
