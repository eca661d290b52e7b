"""What every hasher must do: the checks that `fusehash.testing` offers to other packages, and some of our own."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from fusehash import bits, datasets, hashers
from fusehash.testing.checks import all_checks
from fusehash.testing.subject import Subject

DATA = datasets.make_paired(170, views={"image": 24, "text": 19}, n_classes=4, random_state=3)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)
N = len(TRAIN)


_subjects: dict[str, Subject] = {}


@pytest.mark.parametrize("check", all_checks(), ids=lambda check: check.__name__)
def test_it_passes_the_public_checks(build, check):
    if build.method not in _subjects:
        settings = {"n_bits": 16, "random_state": 0}
        params = {name: value for name, value in build().get_params().items() if name not in settings}
        _subjects[build.method] = Subject(hashers.get(build.method), params)
    check(_subjects[build.method])


@pytest.fixture
def fitted(trained):
    return trained(TRAIN)


# -- scikit-learn's manners ------------------------------------------------------------------------------------------


def test_names_and_summary_are_given(build):
    model = build()
    assert model.method in hashers.names()
    assert hashers.get(model.method) is type(model)
    assert model.summary
    assert type(model).__doc__


def test_an_unknown_parameter_is_refused_with_the_known_ones(build):
    with pytest.raises(ValueError, match="n_bits") as caught:
        hashers.make(build().method, bits=16)
    assert "'bits'" in str(caught.value)


def test_learned_attributes_say_what_it_was_fitted_on(fitted):
    assert fitted.view_names_ == ["image", "text"]
    assert fitted.n_features_ == {"image": 24, "text": 19}
    assert fitted.n_samples_ == N


@pytest.mark.base_class
def test_grid_search_over_the_code_length_works(build):
    search = GridSearchCV(build(), {"n_bits": [8, 16]}, cv=2).fit(TRAIN, DATA.labels[DATA.train])
    assert search.best_params_["n_bits"] in (8, 16)
    assert search.best_estimator_.codes_.shape == (N, search.best_params_["n_bits"] // 8)
    low = 0.45 if search.best_estimator_.method == "jimfh" else 0.5  # two of its eight bits are joint, which is few
    assert np.all(search.cv_results_["mean_test_score"] > low) or not search.best_estimator_.comparable


# -- codes -----------------------------------------------------------------------------------------------------------


@pytest.mark.base_class
def test_a_list_of_arrays_works_and_gives_the_same_codes(build, fitted, fit):
    listed = fit(build(), [TRAIN["image"], TRAIN["text"]])
    assert listed.view_names_ == ["view0", "view1"]
    assert np.array_equal(listed.codes_, fitted.codes_)
    assert np.array_equal(listed.encode(NEW["text"], view="view1"), fitted.encode(NEW["text"], view="text"))
    assert listed.score([NEW["image"], NEW["text"]]) == fitted.score(NEW)


@pytest.mark.base_class
def test_a_view_may_be_named_by_position(fitted):
    for position, name in enumerate(("image", "text")):
        for number in (position, np.int64(position)):
            assert np.array_equal(fitted.encode(NEW[name], view=number), fitted.encode(NEW[name], view=name))


@pytest.mark.base_class
def test_fused_codes_take_a_list_in_the_order_of_fit(fitted):
    expected = fitted.encode_fused({"text": NEW["text"], "image": NEW["image"]})
    assert np.array_equal(fitted.encode_fused([NEW["image"], NEW["text"]]), expected)
    assert fitted.score([NEW["image"], NEW["text"]]) == fitted.score(NEW)


@pytest.mark.base_class
def test_fused_codes_of_one_view_are_the_codes_of_that_view(fitted):
    for name in NEW:
        assert np.array_equal(fitted.encode_fused({name: NEW[name]}), fitted.encode(NEW[name], view=name))


def test_fused_codes_of_training_pairs_are_close_to_the_learned_ones(fitted):
    agree = bits.unpack(fitted.encode_fused(TRAIN), 16) == bits.unpack(fitted.codes_, 16)
    found_by_search = fitted.method == "rfdh"  # its codes are no function of the features
    assert agree.mean() > (0.7 if found_by_search else 0.8 if fitted.supervised else 0.9)  # labels are in the codes


@pytest.mark.base_class
@pytest.mark.parametrize("missing", [[0], [3], [0, 1, 5], list(range(len(NEW)))])
def test_a_row_that_misses_a_view_is_encoded_from_the_others(fitted, missing):
    holed = NEW["image"].copy()
    holed[missing] = np.nan
    codes = fitted.encode_fused({"image": holed, "text": NEW["text"]})
    expected = fitted.encode_fused(NEW)
    expected[missing] = fitted.encode(NEW["text"], view="text")[missing]
    assert np.array_equal(codes, expected)


@pytest.mark.base_class
def test_one_item_that_misses_a_view_is_encoded_as_in_a_batch(fitted):
    alone = fitted.encode_fused({"image": np.full((1, 24), np.nan), "text": NEW["text"][2:3]})
    assert np.array_equal(alone, fitted.encode(NEW["text"], view="text")[2:3])


# -- one row, any batch ----------------------------------------------------------------------------------------------


def test_rows_equal_to_the_mean_encode_alike_alone_and_in_a_batch(fitted):
    for name in TRAIN:
        mean = TRAIN[name].mean(axis=0)
        rows = np.vstack([mean, TRAIN[name][:70], mean, mean * (1 + 1e-15), mean, -mean])
        batch = fitted.encode(rows, view=name)
        assert np.array_equal(batch[0], batch[71])
        for i in (0, 71, 72, 73, 74):
            assert np.array_equal(fitted.encode(rows[i : i + 1], view=name), batch[i : i + 1])


# -- seeds and threads -----------------------------------------------------------------------------------------------


@pytest.mark.base_class
def test_seeds_come_in_several_kinds(build, fitted, fit):
    assert np.array_equal(fit(build(random_state=np.int64(0)), TRAIN).codes_, fitted.codes_)
    for kind in (np.random.default_rng, np.random.RandomState):
        first, again = (fit(build(random_state=kind(5)), TRAIN).codes_ for _ in range(2))
        assert np.array_equal(first, again)
    assert fit(build(random_state=None), TRAIN).codes_.shape == (N, 2)


# -- progress --------------------------------------------------------------------------------------------------------


def test_tuning_reports_numbered_steps_in_order():
    calls = []
    hashers.make("fusehash", n_bits=16, random_state=0, callback=lambda *call: calls.append(call)).fit(TRAIN)
    steps = [step for step, total, _ in calls if total]
    assert steps
    assert steps == sorted(steps)
    assert all(step <= total for step, total, _ in calls if total)


@pytest.mark.base_class
def test_a_callback_that_raises_stops_the_fit_and_the_next_fit_works(build, fitted, fit):
    def stop(step, total, message):
        raise KeyboardInterrupt

    model = build(callback=stop)
    with pytest.raises(KeyboardInterrupt):
        fit(model, TRAIN)
    assert not hasattr(model, "codes_")
    assert np.array_equal(fit(model.set_params(callback=None), TRAIN).codes_, fitted.codes_)
