"""What every hasher must do with views: any number and kind of them, odd units, too few rows, too many bits."""

from __future__ import annotations

import warnings
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from fusehash import datasets, hashers
from fusehash.errors import DataError, FusehashWarning
from fusehash.hashers.linear import LinearHasher
from fusehash.views import PairedViews

DATA = datasets.make_paired(170, views={"image": 24, "text": 19}, n_classes=4, random_state=3)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)
N = len(TRAIN)
# Linear methods whose further bits still differ, or that say in a sentence of their own what becomes of them.
# Quantizers do not warn: more bits than dimensions copy a ranking better, since each is another rotation.
QUANTIZERS = tuple(hashers.names("quantizer"))
WARN_OTHERWISE = ("fsh", "jimfh", "cmfh", "imh", "cvh", "scvh", "cca_itq", "scm", *QUANTIZERS)


@pytest.fixture
def fitted(trained):
    return trained(TRAIN)


@pytest.mark.parametrize("m", [1, 3])
def test_any_number_of_views_can_be_learned_from(build, m, fit):
    data = datasets.make_paired(120, views={f"v{i}": 20 + i for i in range(m)}, n_classes=4, random_state=0)
    train, new = data.views.rows(data.train), data.views.rows(data.query)
    model = build()
    if not model.min_views <= m <= (model.max_views or m):
        with pytest.raises(DataError, match=rf"needs .* views\. Got {m}: v0"):
            fit(model, train)
        return
    fit(model, train)
    for name in new:
        assert model.encode(new[name], view=name).shape == (len(new), 2)
    for some in range(1, m + 1):
        subset = {name: new[name] for name in new.names[:some]}
        assert model.encode_fused(subset).shape == (len(new), 2)
    assert model.score(new) > 0.5 or not model.comparable


@pytest.mark.base_class
@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8])
def test_other_number_types_count_as_their_values(build, dtype, same, learned, fit):
    views = {name: np.round(matrix * 10 + 100).clip(0, 255).astype(dtype) for name, matrix in TRAIN.items()}
    wide = {name: matrix.astype(np.float64) for name, matrix in views.items()}
    model, expected = fit(build(), views), fit(build(), wide)
    assert same(learned(model), learned(expected))
    assert np.array_equal(model.encode(views["text"], view="text"), expected.encode(wide["text"], view="text"))


@pytest.mark.base_class
def test_sparse_views_count_as_their_values(build, same, learned, fit):
    dense = {name: np.where(matrix > matrix.mean(axis=0), matrix, 0.0) for name, matrix in TRAIN.items()}
    model = fit(build(), {"image": sp.csr_matrix(dense["image"]), "text": sp.coo_array(dense["text"])})
    assert same(learned(model), learned(fit(build(), dense)))
    assert np.array_equal(
        model.encode(sp.csc_matrix(dense["image"]), view="image"), model.encode(dense["image"], view="image")
    )


@pytest.mark.parametrize("m", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_order_of_views_in_a_mapping_decides_nothing(build, m, same, learned):
    """Everything learned and codes of new items are the same to the last bit."""
    sizes = {f"v{i}": 20 + i for i in range(m)}
    data = datasets.make_paired(130, views=sizes, n_classes=4, random_state=0)
    train, new = data.views.rows(data.train), data.views.rows(data.query)
    model = build()
    if m > (model.max_views or m):
        pytest.skip(f"{model.method} takes {model.max_views} views")
    labels = np.arange(len(train)) % 4 if model.supervised else None
    if model.method == "fusehash":
        model.set_params(view_weights=[1.0, 2.0, 0.5][:m])
    expected = clone(model).fit(train, labels)
    for names in list(permutations(sizes))[1:]:
        other = clone(model).fit({name: train[name] for name in names}, labels)
        assert same(learned(other), learned(expected))
        shuffled = {name: new[name] for name in names}
        assert np.array_equal(expected.project_fused(shuffled), expected.project_fused(new))
        assert other.score(shuffled) == expected.score(new)


def test_a_list_of_many_views_keeps_its_order():
    views = PairedViews([np.ones((3, i + 1)) for i in range(12)])
    assert views.in_order().names == views.names


@pytest.mark.base_class
def test_paired_views_and_a_mapping_are_the_same(build, fitted, fit):
    assert np.array_equal(fit(build(), dict(TRAIN.items())).codes_, fitted.codes_)
    assert np.array_equal(fit(build(), PairedViews(TRAIN)).codes_, fitted.codes_)


def test_duplicate_and_constant_features_are_no_trouble(build, fit):
    views = {
        name: np.hstack([matrix, matrix[:, :5], np.full((N, 2), 3.7), np.zeros((N, 1))])
        for name, matrix in TRAIN.items()
    }
    model = fit(build(), views)
    assert model.score(views) > 0.6 or not model.comparable
    for name in views:
        assert np.abs(model.project(views[name], view=name)).max() < 1e6


def test_duplicate_rows_get_the_same_codes(build, fit):
    twice = np.concatenate([np.arange(N), np.arange(40)])
    model = fit(build(), TRAIN.rows(twice))
    for name in TRAIN:
        codes = model.encode(TRAIN[name][twice], view=name)
        assert np.array_equal(codes[N:], codes[:40])


@pytest.mark.parametrize(
    ("offset", "scale"),
    [(1e6, 1.0), *(pytest.param(*far, marks=pytest.mark.slow) for far in ((0.0, 1e-9), (1e6, 1e9)))],
)
def test_a_far_origin_and_odd_units_still_learn(build, offset, scale, fit):
    views = {name: (matrix / matrix.std() + offset) * scale for name, matrix in TRAIN.items()}
    model = build()
    if not model.scale_free and (offset, scale) != (0.0, 1.0):
        pytest.skip("its settings are in units of the features")
    assert fit(model, views).score(views) > 0.6 or not model.comparable


def test_two_rows_are_enough(build, fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusehashWarning)
        model = fit(build(n_bits=8), TRAIN.rows([0, 5]))
    assert model.codes_.shape == (2, 1)


def test_more_bits_than_directions_work_with_a_warning_at_the_caller(build):
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((50, 3))
    views = {"a": shared @ rng.standard_normal((3, 9)), "b": shared @ rng.standard_normal((3, 7))}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = build().fit(views, np.arange(50) % 4)
    assert model.encode_fused(views).shape == (50, 2)
    # The closed form maps to anchors first, which vary in more directions.
    if isinstance(model, LinearHasher) and hasattr(model, "weights_") and model.method not in WARN_OTHERWISE:
        assert [w.filename for w in caught if w.category is FusehashWarning] == [__file__]
        assert "16 bits of data that vary in 6 directions" in str(caught[-1].message)


def test_enough_directions_give_no_warning(build, fit):
    if build.method == "sign":
        pytest.skip("signs of what is not centered are nearly constant where the mean is large, and it warns")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(build(), TRAIN)
