"""Wide views, sparse ones above all: bags of words, a million columns."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import fusehash as fh
from wide_words import wide_words


def test_new_rows_of_wide_views_do_not_collapse(wide: Any) -> None:
    views, topics, model = wide
    codes = {name: model.encode(X[300:], view=name) for name, X in views.items()}
    score = fh.evaluation.mean_average_precision
    for a, b in (("abstract", "title"), ("title", "abstract")):
        assert (
            score(codes[a][:100], codes[b][100:], (topics[300:400], topics[400:])) > 0.95
        )  # .43 with a cut to components
    for packed in codes.values():
        means = np.abs(2.0 * np.unpackbits(packed, axis=1).mean(axis=0) - 1.0)
        assert means.max() < 0.8
        assert means.mean() < 0.25


def test_the_default_is_as_good_as_a_linear_map_on_few_rows_of_many_words(wide: Any) -> None:
    """300 rows of 2,000 words per view, where the default once had .41 and the linear map 1."""
    views, topics, model = wide
    linear = fh.FuseHash(n_bits=32, feature_map="linear", random_state=0).fit({n: X[:300] for n, X in views.items()})
    score, scores = fh.evaluation.mean_average_precision, []
    for fitted in (model, linear):
        codes = {name: fitted.encode(X[300:], view=name) for name, X in views.items()}
        scores.append(score(codes["title"][:100], codes["abstract"][100:], (topics[300:400], topics[400:])))
    assert scores[0] > scores[1] - 0.02


def test_one_view_wide_and_sparse_the_other_narrow() -> None:
    views, topics = wide_words(500, 3000)
    rng = np.random.default_rng(1)
    mixed = {"words": views["abstract"], "image": 3.0 * rng.standard_normal((10, 6))[topics]}
    mixed["image"] = mixed["image"] + rng.standard_normal((500, 6))
    model = fh.FuseHash(n_bits=32, random_state=0).fit({name: X[:300] for name, X in mixed.items()})
    codes = {name: model.encode(X[300:], view=name) for name, X in mixed.items()}
    for a, b in (("words", "image"), ("image", "words")):
        relevant = topics[300:350], topics[350:]
        assert fh.evaluation.mean_average_precision(codes[a][:50], codes[b][50:], relevant) > 0.8
    assert max(np.abs(2.0 * np.unpackbits(packed, axis=1).mean(axis=0) - 1.0).max() for packed in codes.values()) < 0.9


def test_sparse_and_dense_rows_get_equal_codes(wide: Any) -> None:
    views, _, model = wide
    for name, X in views.items():
        codes = model.encode(X[300:420], view=name)
        assert np.array_equal(model.encode(X[300:420].toarray(), view=name), codes)
        assert np.array_equal(model.encode(X[305:306], view=name), codes[5:6])
    some = {name: X[300:370] for name, X in views.items()}
    dense = {name: X.toarray() for name, X in some.items()}
    assert np.array_equal(model.encode_fused(some), model.encode_fused(dense))


def test_a_model_of_a_million_sparse_columns_is_small(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shape = (400, 1_000_000)
    wide = sp.csr_array((np.ones(4000), rng.integers(0, 300, 4000) * 3000, np.arange(0, 4001, 10)), shape)
    views = {"words": wide, "image": rng.standard_normal((400, 12)) + wide[:, :36_000:3000].toarray()}
    model = fh.FuseHash(n_bits=16, random_state=0).fit(views)
    model.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 2_000_000
    loaded = fh.load(tmp_path / "model")
    assert np.array_equal(loaded.encode(wide, view="words"), model.encode(wide, view="words"))


def test_several_entries_of_one_cell_are_their_sum(wide: Any) -> None:
    _, _, model = wide
    width = model.n_features_["title"]
    entries = np.array([1.0, 1.0, 1.0, 1.0, 3.0]), (np.zeros(5, int), np.array([7, 7, 7, 7, 40]))
    coordinates = sp.coo_array(entries, (1, width))
    doubled = sp.csr_array((entries[0], entries[1][1], [0, 5]), (1, width))
    ours = model.project(doubled, view="title")
    np.testing.assert_array_equal(ours, model.project(coordinates.toarray(), view="title"))


def test_tensors_of_wide_bags_are_encoded_on_the_host(wide: Any) -> None:
    torch = pytest.importorskip("torch")
    views, _, model = wide
    tensors = {name: torch.as_tensor(X[:70].toarray()) for name, X in views.items()}
    for name, X in tensors.items():
        assert np.array_equal(np.asarray(model.encode(X, view=name)), model.encode(views[name][:70], view=name))
    fused = model.encode_fused(tensors)
    assert isinstance(fused, torch.Tensor)
    assert np.array_equal(np.asarray(fused), model.encode_fused({name: X[:70] for name, X in views.items()}))
    started = fh.FuseHash(n_bits=16, random_state=0).partial_fit({name: X[:100] for name, X in views.items()})
    again = deepcopy(started)
    more = {name: X[100:160] for name, X in views.items()}
    started.partial_fit(more)
    again.partial_fit({name: torch.as_tensor(X.toarray()) for name, X in more.items()})
    assert np.array_equal(started.codes_, again.codes_)


def test_sparse_views_that_are_no_bags_are_learned_like_dense_ones() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 700)) * (rng.random((120, 700)) < 0.3)
    views = {"a": X, "b": X[:, :40] + 0.1 * rng.standard_normal((120, 40))}
    dense = fh.FuseHash(n_bits=16, random_state=0).fit(views)
    sparse = fh.FuseHash(n_bits=16, random_state=0).fit({**views, "a": sp.csr_array(X)})
    assert np.array_equal(dense.codes_, sparse.codes_)
