"""What every hasher must do: scikit-learn's manners, codes, seeds, threads, progress."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_limits

from fusehash import bits, datasets, hashers
from fusehash.hashers.encoding import ENCODE_ROWS

DATA = datasets.make_paired(170, views={"image": 24, "text": 19}, n_classes=4, random_state=3)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)
N = len(TRAIN)


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


def test_arguments_are_keyword_only(build):
    parameters = inspect.signature(type(build()).__init__).parameters
    kinds = {p.kind for name, p in parameters.items() if name != "self"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    with pytest.raises(TypeError):
        type(build())(16)


def test_arguments_are_stored_as_given_and_not_looked_at(build):
    cls = type(build())
    for name in cls._get_param_names():
        thing = object()
        assert getattr(cls(**{name: thing}), name) is thing


def test_clone_copies_the_settings_and_nothing_learned(fitted, learned):
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not learned(copy)


@pytest.mark.base_class
def test_set_params_changes_a_setting(build, fit):
    model = build().set_params(n_bits=32)
    assert model.get_params()["n_bits"] == 32
    assert fit(model, TRAIN).codes_.shape == (N, 4)


def test_an_unknown_parameter_is_refused_with_the_known_ones(build):
    with pytest.raises(ValueError, match="n_bits") as caught:
        hashers.make(build().method, bits=16)
    assert "'bits'" in str(caught.value)


@pytest.mark.base_class
def test_fit_returns_the_model_and_leaves_the_settings(build, fit):
    model = build()
    before = model.get_params()
    assert fit(model, TRAIN) is model
    assert model.get_params() == before


def test_fit_and_encode_leave_the_input_alone(build, same, fit):
    views = {name: np.array(matrix) for name, matrix in TRAIN.items()}
    kept = {name: matrix.copy() for name, matrix in views.items()}
    for matrix in views.values():
        matrix.setflags(write=False)
    model = fit(build(), views)
    for name, matrix in views.items():
        model.encode(matrix, view=name)
    model.encode_fused(views)
    assert same(views, kept)


def test_learned_attributes_say_what_it_was_fitted_on(fitted):
    assert fitted.view_names_ == ["image", "text"]
    assert fitted.n_features_ == {"image": 24, "text": 19}
    assert fitted.n_samples_ == N


@pytest.mark.base_class
def test_labels_are_not_needed_and_not_used_by_unsupervised_methods(build, fitted):
    if not type(build()).supervised:
        labels = DATA.labels[DATA.train]
        assert np.array_equal(build().fit(TRAIN, labels).codes_, fitted.codes_)


def test_it_prints_and_travels_by_pickle(build, fitted, same, learned):
    assert type(fitted).__name__ in repr(fitted)
    again = pickle.loads(pickle.dumps(fitted))
    assert same(learned(again), learned(fitted))
    assert pickle.loads(pickle.dumps(build())).get_params() == build().get_params()


@pytest.mark.base_class
def test_grid_search_over_the_code_length_works(build):
    search = GridSearchCV(build(), {"n_bits": [8, 16]}, cv=2).fit(TRAIN, DATA.labels[DATA.train])
    assert search.best_params_["n_bits"] in (8, 16)
    assert search.best_estimator_.codes_.shape == (N, search.best_params_["n_bits"] // 8)
    low = 0.45 if search.best_estimator_.method == "jimfh" else 0.5  # two of its eight bits are joint, which is few
    assert np.all(search.cv_results_["mean_test_score"] > low) or not search.best_estimator_.comparable


def test_fitting_again_forgets_the_first_data_and_method(build, fitted, same, learned, fit):
    model = fitted
    shared = np.random.default_rng(0).standard_normal((60, 30))
    other = {"x": shared, "y": shared[:, ::-2]} if type(model).min_views > 1 else {"x": shared}
    fit(model, other)
    assert same(dict(sorted(learned(model).items())), dict(sorted(learned(fit(build(), other)).items())))


# -- codes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_bits", [8, 24])
def test_codes_have_the_promised_shape_and_type(build, n_bits, fit):
    model = fit(build(n_bits=n_bits), TRAIN)
    n = len(NEW)
    for codes, rows in (
        (model.codes_, N),
        (model.encode(NEW["image"], view="image"), n),
        (model.encode_fused(NEW), n),
    ):
        assert codes.shape == (rows, n_bits // 8)
        assert codes.dtype == np.uint8
    for real in (model.project(NEW["text"], view="text"), model.project_fused(NEW)):
        assert real.shape == (n, n_bits)
        assert real.dtype == np.float64
        assert np.isfinite(real).all()


def test_codes_are_the_signs_of_projections(fitted):
    for name in NEW:
        assert np.array_equal(fitted.encode(NEW[name], view=name), bits.pack(fitted.project(NEW[name], view=name)))
    assert np.array_equal(fitted.encode_fused(NEW), bits.pack(fitted.project_fused(NEW)))


def test_codes_are_not_constant(fitted):
    assert len(np.unique(fitted.codes_, axis=0)) >= (4 if fitted.supervised else N / 10)  # one a class is natural
    for name in NEW:
        assert len(np.unique(fitted.encode(NEW[name], view=name), axis=0)) > 2


def test_partners_are_nearer_than_strangers(fitted):
    if not fitted.comparable:
        pytest.skip("codes of different views are not meant to be compared")
    assert fitted.score(NEW) > 0.55
    assert fitted.score(TRAIN) > 0.6


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


def test_a_row_alone_has_exactly_the_projections_it_has_in_a_batch(fitted):
    for name in TRAIN:
        batch = fitted.project(TRAIN[name], view=name)
        for i in range(0, N, 9):
            assert np.array_equal(fitted.project(TRAIN[name][i : i + 1], view=name), batch[i : i + 1])


@pytest.mark.parametrize("size", [2, 3, ENCODE_ROWS - 1, ENCODE_ROWS, ENCODE_ROWS + 1, 3 * ENCODE_ROWS + 5])
def test_the_place_in_a_batch_does_not_matter(fitted, size):
    rng = np.random.default_rng(size)
    for name in TRAIN:
        expected = fitted.project(TRAIN[name], view=name)
        for _ in range(2):
            rows = rng.integers(N, size=size)
            assert np.array_equal(fitted.project(TRAIN[name][rows], view=name), expected[rows])


def test_rows_equal_to_the_mean_encode_alike_alone_and_in_a_batch(fitted):
    for name in TRAIN:
        mean = TRAIN[name].mean(axis=0)
        rows = np.vstack([mean, TRAIN[name][:70], mean, mean * (1 + 1e-15), mean, -mean])
        batch = fitted.encode(rows, view=name)
        assert np.array_equal(batch[0], batch[71])
        for i in (0, 71, 72, 73, 74):
            assert np.array_equal(fitted.encode(rows[i : i + 1], view=name), batch[i : i + 1])


def test_fused_rows_encode_alike_alone_and_in_a_batch(fitted):
    batch = fitted.project_fused(NEW)
    for i in range(len(NEW)):
        assert np.array_equal(fitted.project_fused(NEW.rows([i])), batch[i : i + 1])


def test_the_layout_in_memory_does_not_matter(fitted):
    for name in TRAIN:
        X = TRAIN[name]
        expected = fitted.project(X, view=name)
        wide = np.zeros((N, 2 * X.shape[1]))
        wide[:, ::2] = X
        for other in (
            np.asfortranarray(X),
            wide[:, ::2],
            X[::-1][::-1],
            X.tolist(),
            sp.csr_matrix(X),
            sp.csc_matrix(X),
        ):
            assert np.array_equal(fitted.project(other, view=name), expected)
        alone = np.asfortranarray(X)[7:8]
        assert np.array_equal(fitted.project(alone, view=name), expected[7:8])


# -- seeds and threads -----------------------------------------------------------------------------------------------


def test_another_seed_gives_other_codes_where_anything_is_random(build, fitted, fit):
    assert np.array_equal(fit(build(random_state=1), TRAIN).codes_, fitted.codes_) != bool(fitted.seeded)


@pytest.mark.base_class
def test_seeds_come_in_several_kinds(build, fitted, fit):
    assert np.array_equal(fit(build(random_state=np.int64(0)), TRAIN).codes_, fitted.codes_)
    for kind in (np.random.default_rng, np.random.RandomState):
        first, again = (fit(build(random_state=kind(5)), TRAIN).codes_ for _ in range(2))
        assert np.array_equal(first, again)
    assert fit(build(random_state=None), TRAIN).codes_.shape == (N, 2)


def test_the_number_of_threads_changes_nothing(build, fit, same, learned):
    defaults = build().get_params()
    n_rows = 600 if "subsample" in defaults else 2100  # two blocks of rows; these methods look at all pairs of rows
    data = datasets.make_paired(n_rows, views={"image": 24, "text": 19}, n_classes=4, random_state=0).views
    short = {"max_iter": 2, "n_anchors": 60, "n_atoms": 60, "lasso_iter": 5}
    short = {name: value for name, value in short.items() if name in defaults}
    outcomes = []
    for n_threads, blas_threads in ((1, 1), (3, 2)):
        threads = {"n_threads": n_threads} if "n_threads" in defaults else {}
        with threadpool_limits(blas_threads):
            model = fit(build(**short, **threads), data)
            outcomes.append((learned(model), model.project(NEW["image"], view="image"), model.encode_fused(NEW)))
    assert same(*outcomes)


# -- progress --------------------------------------------------------------------------------------------------------


def test_progress_is_reported_in_order_and_changes_nothing(build, fitted, fit, same, learned):
    calls = []
    model = fit(build(callback=lambda *call: calls.append(call)), TRAIN)
    steps = [step for step, total, _ in calls if total]  # a total of 0: the number of steps is unknown
    assert steps or (calls and build.method == "fusehash")  # its numbered steps are those of tuning
    assert steps == sorted(steps)
    assert all(step <= total and isinstance(message, str) and message for step, total, message in calls)
    assert same(learned(model), learned(fitted))


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


@pytest.mark.base_class
def test_a_fit_that_fails_leaves_the_fitted_model_as_it_was(fitted, fit, same, learned):
    def stop(step, total, message):
        raise RuntimeError("enough")

    before = learned(fitted)
    with pytest.raises(RuntimeError, match="enough"):
        fit(fitted.set_params(callback=stop), TRAIN.rows(slice(0, 100)))
    assert same(learned(fitted), before)
