"""What every hasher must do: scikit-learn's manners, codes, seeds, threads, files, bad input. A function per check."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from threadpoolctl import threadpool_limits

from fusehash import bits, datasets
from fusehash.errors import DataError, ParameterError
from fusehash.hashers.encoding import ENCODE_ROWS
from fusehash.testing.subject import Subject, learned, refused, require, same, through_a_file

CANDIDATES: tuple[Any, ...] = (object(), True, -1, 0, 1.5, -0.5, 12, np.nan, np.inf, "much", "", [])
SHORT = {"max_iter": 2, "n_anchors": 60, "n_atoms": 60, "lasso_iter": 5, "epochs": 1}  # settings of slow methods
BATCHES = (2, 3, ENCODE_ROWS - 1, ENCODE_ROWS, ENCODE_ROWS + 1, 3 * ENCODE_ROWS + 5)


# -- scikit-learn's manners --------------------------------------------------------------------------------------


def declares_its_name_and_summary(subject: Subject) -> None:
    cls = subject.cls
    require(cls.method, f"{subject.name} must have the attribute method, the name under which it is known.")
    require(cls.summary, f"{subject.name} must have the attribute summary, one line about it.")
    require(inspect.getdoc(cls), f"{subject.name} must have a docstring.")


def takes_keyword_arguments_only_and_stores_them(subject: Subject) -> None:
    signature = inspect.signature(subject.cls.__init__).parameters
    kinds = {parameter.kind for name, parameter in signature.items() if name != "self"}
    require(kinds <= {inspect.Parameter.KEYWORD_ONLY}, "__init__ must take keyword-only arguments (after *).")
    for name in subject.cls._get_param_names():
        thing: Any = object()
        stored = getattr(subject.cls(**{name: thing}), name)
        require(stored is thing, f"__init__ must store '{name}' as it comes, and leave checks to fit.")


def has_a_rule_for_every_parameter(subject: Subject) -> None:
    missing = [name for name in subject.cls._get_param_names() if name not in _rules(subject)]
    require(not missing, f"PARAMETERS must have a rule for every parameter. None for: {', '.join(missing)}.")
    for name, rule in _rules(subject).items():
        default = inspect.signature(subject.cls).parameters[name].default
        require(rule.accepts(default), f"The default of '{name}', {default!r}, must be {rule.expected}.")
        for value in CANDIDATES:
            if not rule.accepts(value):
                model = subject.cls(**{name: value})
                refused(f"{name}={value!r}", lambda model=model: model.fit({}), ParameterError, f"'{name}'")


def _rules(subject: Subject) -> dict[str, Any]:
    try:
        return subject.cls.parameter_rules()
    except KeyError as error:
        raise AssertionError(f"PARAMETERS must have a rule for every parameter. None for {error}.") from error


def can_be_cloned(subject: Subject) -> None:
    model = subject.fitted()
    copy = clone(model)
    require(copy.get_params() == model.get_params(), "clone must copy the settings.")
    require(not learned(copy), "What fit learns must have names that end in '_'; clone copied some of it.")
    require(copy.set_params(n_bits=32).n_bits == 32, "set_params must change a setting.")


def fit_returns_the_model_and_keeps_its_settings(subject: Subject) -> None:
    model = subject.build()
    before = model.get_params()
    require(subject.fit(model, subject.train) is model, "fit must return the model.")
    require(model.get_params() == before, "fit must leave the settings as they are.")


def leaves_its_input_alone(subject: Subject) -> None:
    views = {name: np.array(matrix) for name, matrix in subject.train.items()}
    kept = {name: matrix.copy() for name, matrix in views.items()}
    for matrix in views.values():
        matrix.setflags(write=False)
    model = subject.fit(subject.build(), views)
    for name, matrix in views.items():
        model.encode(matrix, view=name)
    model.encode_fused(views)
    require(same(views, kept), "fit and encode must leave the views as they are.")


def prints_and_travels_by_pickle(subject: Subject) -> None:
    model = subject.fitted()
    require(subject.name in repr(model), "repr must name the class.")
    if "<locals>" not in subject.cls.__qualname__:
        again = pickle.loads(pickle.dumps(model))  # our own bytes
        require(same(learned(again), learned(model)), "pickle must keep what was learned.")


def fitting_again_forgets_the_first_data(subject: Subject) -> None:
    model = subject.fitted()
    shared = np.random.default_rng(0).standard_normal((60, 30))
    names = list("xyzuvw")[: len(subject.train.names)]
    other = {name: shared[:, :: -1 - i] for i, name in enumerate(names)}
    expected = learned(subject.fit(subject.build(), other))
    again = learned(subject.fit(model, other))
    require(same(dict(sorted(again.items())), dict(sorted(expected.items()))), "A second fit must forget the first.")


# -- codes -------------------------------------------------------------------------------------------------------


def codes_have_the_promised_shape_and_type(subject: Subject) -> None:
    for n_bits in (8, 24):
        model = subject.fitted(n_bits=n_bits)
        n, names = len(subject.new), list(subject.new)
        require(model.view_names_ == sorted(names), f"view_names_ must be {sorted(names)}. Got {model.view_names_}.")
        for what, codes, rows in (
            ("codes_", model.codes_, len(subject.train)),
            ("encode", model.encode(subject.new[names[0]], view=names[0]), n),
            ("encode_fused", model.encode_fused(subject.new), n),
        ):
            expected = f"{what} must be uint8 of shape {(rows, n_bits // 8)}"
            got = f"Got {codes.dtype} of shape {codes.shape}."
            require(codes.dtype == np.uint8 and codes.shape == (rows, n_bits // 8), f"{expected}. {got}")
        for real in (model.project(subject.new[names[-1]], view=names[-1]), model.project_fused(subject.new)):
            require(real.shape == (n, n_bits), f"project must give shape {(n, n_bits)}. Got {real.shape}.")
            require(real.dtype == np.float64 and np.isfinite(real).all(), "project must give finite float64 numbers.")


def codes_are_the_signs_of_projections(subject: Subject) -> None:
    model = subject.fitted()
    for name, matrix in subject.new.items():
        signs = bits.pack(model.project(matrix, view=name))
        require(np.array_equal(model.encode(matrix, view=name), signs), "encode must pack the signs of project.")
    fused = bits.pack(model.project_fused(subject.new))
    require(np.array_equal(model.encode_fused(subject.new), fused), "encode_fused must pack project_fused.")


def codes_are_not_constant(subject: Subject) -> None:
    model = subject.fitted()
    least = 4 if model.supervised else len(subject.train) / 10  # one per class is natural
    require(len(np.unique(model.codes_, axis=0)) >= least, "codes_ must differ between rows.")
    for name, matrix in subject.new.items():
        different = len(np.unique(model.encode(matrix, view=name), axis=0))
        require(different > 2, f"Codes of view '{name}' must differ between rows. Got {different} different ones.")


def partners_are_nearer_than_strangers(subject: Subject) -> None:
    model = subject.fitted()
    if model.comparable and len(subject.train.names) > 1:
        for what, views, least in (("new rows", subject.new, 0.55), ("training rows", subject.train, 0.6)):
            score = model.score(views)
            require(score > least, f"The pair AUC of {what} must be above {least} on easy data. Got {score:.3f}.")


def a_row_that_misses_a_view_is_encoded_from_the_others(subject: Subject) -> None:
    if len(subject.train.names) < 2:
        return
    model, first, *others = subject.fitted(), *subject.new.names
    holed = {name: np.array(matrix) for name, matrix in subject.new.items()}
    holed[first][[0, 3]] = np.nan
    expected = model.encode_fused(subject.new)
    expected[[0, 3]] = model.encode_fused({name: subject.new[name] for name in others})[[0, 3]]
    require(np.array_equal(model.encode_fused(holed), expected), "encode_fused must take rows that miss a view.")


# -- one row, any batch ------------------------------------------------------------------------------------------


def a_row_has_the_same_projections_in_any_batch(subject: Subject) -> None:
    model, rng = subject.fitted(), np.random.default_rng(0)
    for name, matrix in subject.train.items():
        batch = model.project(matrix, view=name)
        for i in range(0, len(matrix), 9):
            alone = model.project(matrix[i : i + 1], view=name)
            require(np.array_equal(alone, batch[i : i + 1]), "A row alone must be projected as in a batch, bit by bit.")
        for size in BATCHES:
            rows = rng.integers(len(matrix), size=size)
            part = model.project(matrix[rows], view=name)
            require(np.array_equal(part, batch[rows]), "The place in a batch must not change a projection.")
    fused = model.project_fused(subject.new)
    for i in range(0, len(fused), 5):
        alone = model.project_fused(subject.new.rows([i]))
        require(np.array_equal(alone, fused[i : i + 1]), "A fused row alone must be projected as in a batch.")


def the_layout_in_memory_does_not_matter(subject: Subject) -> None:
    model = subject.fitted()
    for name, X in subject.train.items():
        expected = model.project(X, view=name)
        wide = np.zeros((len(X), 2 * X.shape[1]))
        wide[:, ::2] = X
        for other in (np.asfortranarray(X), wide[:, ::2], X.tolist(), sp.csr_matrix(X), sp.csc_matrix(X)):
            projected = model.project(other, view=name)
            require(np.array_equal(projected, expected), f"{type(other).__name__} must be projected as its values.")


# -- seeds, threads, progress ------------------------------------------------------------------------------------


def the_seed_decides(subject: Subject) -> None:
    if "random_state" not in subject.cls._get_param_names():
        require(subject.cls.seeded is False, "A method without random_state must have the attribute seeded = False.")
        return
    codes = subject.fitted().codes_
    again = subject.fit(subject.build(), subject.train).codes_
    require(np.array_equal(again, codes), "The same seed must give the same codes.")
    other = subject.fit(subject.build(random_state=1), subject.train).codes_
    is_random = not np.array_equal(other, codes)
    require(is_random == bool(subject.cls.seeded), "The attribute seeded must say whether the seed changes the codes.")


def the_number_of_threads_changes_nothing(subject: Subject) -> None:
    defaults = subject.build().get_params()
    n_rows = 600 if "subsample" in defaults else 2100  # two blocks of rows; these methods look at all pairs of rows
    widths = subject.train.n_features
    data = datasets.make_paired(n_rows, views=widths, n_classes=4, random_state=0).views
    short = {name: value for name, value in SHORT.items() if name in defaults}
    outcomes = []
    for n_threads, blas_threads in ((1, 1), (3, 2)):
        threads = {"n_threads": n_threads} if "n_threads" in defaults else {}
        with threadpool_limits(blas_threads):
            model = subject.fit(subject.build(**short, **threads), data)
            outcomes.append((learned(model), model.project_fused(subject.new)))
    require(same(*outcomes), "The number of threads must not change what is learned, nor codes.")


def progress_is_reported_in_order(subject: Subject) -> None:
    if "callback" not in subject.cls._get_param_names():
        return
    calls: list[Any] = []
    model = subject.fit(subject.build(callback=lambda *call: calls.append(call)), subject.train)
    require(calls, "fit must call callback(step, total, message), by self._report.")
    steps = [step for step, total, _ in calls if total]
    require(steps == sorted(steps), "Steps of progress must ascend.")
    require(all(step <= total and message for step, total, message in calls if total), "Steps must be at most total.")
    require(same(learned(model), learned(subject.fitted())), "Reporting progress must not change what is learned.")


def a_fit_that_fails_leaves_the_model_as_it_was(subject: Subject) -> None:
    if "callback" not in subject.cls._get_param_names():
        return

    def stop(*call: Any) -> None:
        raise RuntimeError("enough")

    model = subject.fitted()
    before = learned(model)
    again = model.set_params(callback=stop)
    refused("A callback that raises", lambda: subject.fit(again, subject.train.rows(slice(0, 100))), RuntimeError)
    require(same(learned(model), before), "A fit that fails must leave the fitted model as it was.")


# -- files and bad input -----------------------------------------------------------------------------------------


def a_saved_model_is_loaded_to_the_last_bit(subject: Subject) -> None:
    model = subject.fitted()
    loaded = through_a_file(model)
    require(loaded.get_params() == model.get_params(), "save must keep the settings.")
    require(same(learned(loaded), learned(model)), "save must keep what was learned.")
    for name, matrix in subject.new.items():
        equal = np.array_equal(loaded.project(matrix, view=name), model.project(matrix, view=name))
        require(equal, "A loaded model must project as the saved one.")
    require(np.array_equal(loaded.project_fused(subject.new), model.project_fused(subject.new)), "The same, fused.")


def a_cut_model_has_the_first_bits(subject: Subject) -> None:
    model = subject.fitted(n_bits=24)
    short = model.cut(8)
    for name, matrix in subject.new.items():
        equal = np.array_equal(short.encode(matrix, view=name), model.encode(matrix, view=name)[:, :1])
        require(equal, "cut(8) must keep the first 8 bits of every code.")


def bad_input_is_refused(subject: Subject) -> None:
    model, name = subject.fitted(), subject.new.names[0]
    spoilt = np.array(subject.train[name])
    spoilt[7, 3] = np.nan
    views = {**dict(subject.train.items()), name: spoilt}
    refused("NaN in fit", lambda: subject.fit(subject.build(), views), DataError, "finite")
    refused("NaN in encode", lambda: model.encode(spoilt, view=name), DataError, "finite")
    wide = np.hstack([subject.train[name]] * 2)
    refused("another number of features", lambda: model.encode(wide, view=name), DataError, "features")
    refused("an unknown view", lambda: model.encode(spoilt, view="nothing"), DataError, "view")
    fresh = subject.build()
    refused("encode before fit", lambda: fresh.encode(spoilt, view=name), NotFittedError, "fit")


def labels_are_used_as_declared(subject: Subject) -> None:
    labels = subject.data.labels[subject.data.train]
    if subject.cls.supervised:
        refused("fit without labels", lambda: subject.build().fit(subject.train), DataError, "labels")
    else:
        codes = subject.fit(subject.build(), subject.train, labels).codes_
        require(np.array_equal(codes, subject.fitted().codes_), "An unsupervised method must not use labels.")


def all_checks() -> list[Callable[[Subject], None]]:
    """Every check of this module, in order."""
    functions = [value for name, value in globals().items() if inspect.isfunction(value) and not name.startswith("_")]
    return [check for check in functions if check.__module__ == __name__ and check is not all_checks]
