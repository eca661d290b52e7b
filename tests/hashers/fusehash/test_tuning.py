"""The tuner: what it measures on held-out rows, what it tries, and what it takes."""

from __future__ import annotations

import warnings
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fusehash as fh
from fusehash.errors import FusehashWarning
from fusehash.hashers.fusehash.fitted import Choices
from fusehash.hashers.fusehash.tuning.agreement import (
    MAX_FALL,
    MAX_RAISED,
    RAISED_ROWS,
    graph_agreement,
    raised_weight,
    starting_weight,
)
from fusehash.hashers.fusehash.tuning.measures import count_distinct, live_share, warn_if_uneven
from fusehash.hashers.fusehash.tuning.references import MIN_REFERENCE_GAIN, REFERENCES
from fusehash.hashers.fusehash.tuning.trials import (
    HELD_OUT,
    NOTHING,
    TRIAL_ANCHORS,
    HeldOut,
    Trial,
    measures_of,
    run_trial,
)
from fusehash.hashers.fusehash.tuning.walk import LINEAR as STRONG_RIDGE
from fusehash.hashers.fusehash.tuning.walk import Walk
from fusehash.numerics.sparse import SparseRows
from untuned import FIXED, UNTUNED


def test_tuning_is_reported_and_needs_no_labels(model: fh.FuseHash) -> None:
    tuning = model.tuning_
    assert set(tuning["chosen"]) >= {"feature_map", "kernel_width", "ridge", "graph_weight", "spectral_power"}
    assert len(tuning["trials"]) > 10
    assert all(trial["partners"] > 0.0 and 0.0 <= trial["live_bits"] <= 1.0 for trial in tuning["trials"])
    assert set(tuning["evenness"]) == {"image", "text"}
    assert set(tuning["fusion_weights"]) == {"image", "text"}
    best = max(trial["score"] for trial in tuning["trials"])
    assert chosen_trial(tuning)["score"] >= best - 6 * 0.06  # never more than a margin below, step by step


def chosen_trial(tuning: dict[str, Any]) -> dict[str, Any]:
    """The trial of the chosen settings whose score is that of the model."""
    trials = [t for t in tuning["trials"] if all(t[k] == v for k, v in tuning["chosen"].items())]
    return next(t for t in trials if t["score"] == tuning["score"])


def test_fixed_parameters_stay_fixed(made: Any) -> None:
    model = fh.FuseHash(n_bits=16, random_state=0, view_weights=(1.0, 3.0), **FIXED).fit(
        made.views.rows(made.train[:300])
    )
    assert len(model.tuning_["trials"]) == 1
    chosen = model.tuning_["chosen"]
    assert {name: chosen[name] for name in FIXED} == FIXED
    assert chosen["view_weights"] == [1.0, 3.0]
    assert chosen["hash_ridge"] == pytest.approx(0.003)


def test_a_fit_that_collapses_warns_and_reports_it() -> None:
    """With so narrow a kernel, new rows are near no anchor."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((200, 5))
    views = {"a": latent @ rng.standard_normal((5, 40)), "b": latent @ rng.standard_normal((5, 30))}
    views = {name: X + rng.standard_normal(X.shape) for name, X in views.items()}
    with pytest.warns(FusehashWarning, match="much less even codes than training rows.*Train on more rows"):
        model = fh.FuseHash(n_bits=16, random_state=0, **{**UNTUNED, "kernel_width": 0.01}).fit(views)
    assert max(model.tuning_["evenness"].values()) < 0.5
    assert model.tuning_["live_bits"] == 0.0
    assert model.tuning_["score"] < np.log(NOTHING) + 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        even = fh.FuseHash(n_bits=16, random_state=0, **UNTUNED).fit(views)
    assert even.tuning_["live_bits"] == 1.0


def test_fixed_settings_are_checked_on_held_out_rows_also_if_rows_are_many() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((400, 3))
    views = {"a": latent @ rng.standard_normal((3, 8)), "b": latent @ rng.standard_normal((3, 8))}
    model = fh.FuseHash(n_bits=8, random_state=0, **UNTUNED).fit(views)
    assert model.tuning_["note"] == "every setting was given"
    assert min(model.tuning_["evenness"].values()) > 0.8
    assert len(model.tuning_["trials"]) == 1
    few = fh.FuseHash(n_bits=8, random_state=0).fit({name: X[:39] for name, X in views.items()})
    assert "no held-out rows were checked" in few.tuning_["note"]


def test_settings_under_which_held_out_rows_collapse_score_as_nothing() -> None:
    even = np.random.default_rng(0).integers(0, 256, (200, 2), dtype=np.uint8)
    constant = np.zeros_like(even)
    assert live_share(even, 16, 200) == 1.0
    assert live_share(constant, 16, 200) == live_share(constant, 16, 1) == 0.0
    half = even.copy()
    half[:, 0] = 255
    assert live_share(half, 16, 200) == pytest.approx(0.5)
    few = even[np.arange(200) % 8]  # as many codes as rows, or one for 25 rows
    assert live_share(few, 16, 8) > 0.0 == live_share(few, 16, 200)
    rows = np.repeat(np.eye(4), 3, axis=0)
    assert count_distinct(rows) == count_distinct(SparseRows.of(rows)) == 4


def test_uneven_codes_of_new_rows_warn_with_what_to_do() -> None:
    with pytest.warns(
        FusehashWarning, match="view 'b' much less even codes than training rows .40%.*Train on more rows"
    ):
        warn_if_uneven("FuseHash", {"a": 0.95, "b": 0.4})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_uneven("FuseHash", {"a": 0.95, "b": 0.9})


def test_what_is_chosen_is_no_worse_than_cca_and_strong_ridges(wide: Any, model: fh.FuseHash) -> None:
    for tuning in (wide[2].tuning_, model.tuning_):
        finals = [t for t in tuning["trials"] if t["n_anchors"] > TRIAL_ANCHORS]
        chosen = next(t for t in finals if all(t[k] == v for k, v in tuning["chosen"].items()))
        strong = [t for t in tuning["trials"] if t["feature_map"] == "linear" and t["ridge"] >= 1.0]
        cca = [t for t in finals if t["hash_functions"] == "canonical"]
        assert {t["ridge"] for t in strong} == {1.0, 3.0, 10.0}
        assert {t["feature_map"] for t in cca} == {"linear", "rbf"}
        assert {t["splits"] for t in finals} <= {1, 2}
        for trial in finals:
            if trial["splits"] == chosen["splits"]:  # tried on the same rows
                assert chosen["score"] >= trial["score"] - MIN_REFERENCE_GAIN


def correlated(n: int, widths: tuple[int, int]) -> dict[str, np.ndarray]:
    """Gaussian views whose weak directions are shared and whose strong ones are not: CCA is made for them."""
    rng = np.random.default_rng(0)
    shared, views = rng.standard_normal((n, 20)), {}
    for name, width in zip("ab", widths, strict=True):
        own = 6.0 * rng.standard_normal((n, 20)) @ rng.standard_normal((20, width))
        views[name] = shared @ rng.standard_normal((20, width)) + own + 0.5 * rng.standard_normal((n, width))
    return views


@pytest.mark.parametrize("widths", [(60, 80), (560, 80)])  # columns as they are, and products with anchors
def test_held_out_pairs_are_no_worse_than_by_cca_itq(widths: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark method, fitted to the raw kept rows of a split, has the score of the trial of that name."""
    splits = []

    class Seen(HeldOut):
        def __init__(self, kinds: Any, dtype: str, arrays: Any, n_bits: int, rng: np.random.Generator) -> None:
            order = deepcopy(rng).permutation(len(next(iter(arrays.values()))))
            super().__init__(kinds, dtype, arrays, n_bits, rng)
            held = int(HELD_OUT * len(order))
            raw = [{name: X[rows] for name, X in arrays.items()} for rows in (order[held:], order[:held])]
            splits.append((self, *raw))

    monkeypatch.setattr("fusehash.hashers.fusehash.tuning.HeldOut", Seen)
    model = fh.FuseHash(n_bits=32, random_state=0, n_threads=1).fit(correlated(600, widths))
    split, kept, held = splits[0]
    method = fh.hashers.CCAITQ(n_bits=32, random_state=0).fit(kept)
    projections = {name: method.project(X, view=name) for name, X in held.items()}
    score = measures_of(split, projections, method.encode_fused(held))[0]
    start, chosen = (Choices(**{**x, "view_weights": ()}) for x in (Choices().as_dict(), model.tuning_["chosen"]))
    reference = replace(start, **REFERENCES["CCA-ITQ"])
    trials = [run_trial((split, choices, 1000)) for choices in (start, chosen, reference)]
    assert trials[2].score == pytest.approx(score, abs=0.25)  # prepared views, and a softer rotation
    assert trials[1].score > score - MIN_REFERENCE_GAIN
    assert trials[0].score < score - 0.5  # without tuning it is much worse


def test_views_that_agree_on_neighborhoods_need_less_of_a_graph() -> None:
    rng = np.random.default_rng(0)
    graph = rng.random((50, 20))
    assert graph_agreement([graph, 3.0 * graph + 1.0]) == pytest.approx(1.0)
    assert abs(graph_agreement([graph, rng.random((50, 20))])) < 0.1
    assert graph_agreement([graph]) == 0.0
    X = rng.standard_normal((200, 6))
    same = fh.FuseHash(n_bits=16, random_state=0).fit({"a": X, "b": X @ rng.standard_normal((6, 8))})
    assert same.tuning_["agreement"] > 0.3
    assert same.tuning_["trials"][0]["graph_weight"] < 0.1


@given(agreement=st.floats(-1.0, 1.0), n_rows=st.integers(1, 10**7))
def test_weights_of_the_graph_follow_the_agreement_and_the_number_of_rows(agreement: float, n_rows: int) -> None:
    first, more = starting_weight(agreement), raised_weight(agreement, n_rows)
    assert 0.0 <= first <= 1.0
    assert first == 1.0 or agreement > 0.12
    assert first >= starting_weight(agreement + 0.1)
    assert 0.0 <= more <= MAX_RAISED
    assert more <= raised_weight(agreement + 0.1, n_rows)
    assert raised_weight(agreement, 2 * max(n_rows, RAISED_ROWS)) <= MAX_RAISED / 4
    assert first == 1.0 or agreement > 0.17 or first > more  # only where views agree there is more to give


def test_weights_of_the_graph_at_some_agreements() -> None:
    assert [starting_weight(a) for a in (0.0, 0.12, 0.24, 0.5)] == pytest.approx([1.0, 1.0, 1 / 16, 0.0])
    assert [raised_weight(a, 1000) for a in (-0.1, 0.1, 0.2, 0.9)] == pytest.approx([0.0, 1 / 16, 1 / 4, MAX_RAISED])
    assert [raised_weight(0.2, n) for n in (1, 999)] == [0.0, 0.0]
    assert [raised_weight(0.2, n) for n in (1000, 1200, 2400, 6000)] == pytest.approx([1 / 4, 1 / 4, 1 / 16, 1 / 100])


def test_more_of_the_graph_comes_after_the_walk_where_views_agree() -> None:
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((1000, 6))
    noise = (1.2 * rng.standard_normal((1000, 20)) for _ in range(2))
    views = dict(zip("ab", (latent @ rng.standard_normal((6, 20)) + part for part in noise), strict=True))
    tuning = fh.FuseHash(n_bits=16, random_state=0, n_threads=1).fit(views).tuning_
    first, more = starting_weight(tuning["agreement"]), raised_weight(tuning["agreement"], 1000)
    assert 0.0 < first < more
    assert tuning["trials"][0]["graph_weight"] == first
    assert chosen_trial(tuning)["graph_weight"] == more
    given_weight = fh.FuseHash(n_bits=16, random_state=0, n_threads=1, graph_weight=0.1).fit(views)
    assert given_weight.tuning_["chosen"]["graph_weight"] == 0.1


@pytest.mark.parametrize(("score", "taken"), [(0.1, True), (0.02 - MAX_FALL, True), (-0.02 - MAX_FALL, False)])
def test_more_of_the_graph_is_not_taken_where_the_score_falls_far(score: float, taken: bool) -> None:
    light = replace(Choices(), graph_weight=0.1)
    walk = Walk(light, [], {"graph_weight"}, 2, ahead=False)
    grids = walk.next_grids()
    walk.add([trial(light, 0.0)], [trial(light, 0.0)])
    walk.decide(grids)
    assert walk.with_more_graph(0.05) is None
    more = walk.with_more_graph(0.4)
    assert more == replace(light, graph_weight=0.4)
    walk.add([trial(more, score)], [trial(more, score)])
    assert walk.raised(more).choices == (more if taken else light)
    assert walk.best.choices == light  # what references are compared with
    for fixed in (replace(light, graph_weight=0.0), replace(light, hash_functions="canonical")):
        assert Walk(fixed, [], {"graph_weight"}, 2, ahead=False).with_more_graph(0.4) is None
    assert Walk(light, [], set(), 2, ahead=False).with_more_graph(0.4) is None


RBF, LINEAR = Choices(), Choices(feature_map="linear", ridge=1.0, hash_ridge=0.1)


def trial(choices: Choices, score: float) -> Trial:
    none: Any = None
    return Trial(choices, TRIAL_ANCHORS, score, 1.0, 1.0, 1.0, {"a": 1.0}, none)


def decided(step: str, first: list[float], further: list[float]) -> tuple[Choices, list[Choices]]:
    """The choice between RBF, which scores 0, and LINEAR, and what was tried on more splits."""
    walk = Walk(RBF, [step], {"feature_map"}, 2, ahead=False)
    start = walk.next_grids()
    walk.add([trial(RBF, 0.0)], [trial(RBF, 0.0)])
    walk.decide(start)
    grids = {step: [LINEAR]}
    walk.add([trial(LINEAR, first[0])], [trial(LINEAR, score) for score in first[1:]])
    close = walk.close(grids)
    walk.extend([trial(c, {RBF: 0.0, LINEAR: score}[c]) for c in close for score in further])
    walk.decide(grids)
    return walk.best.choices, close


@pytest.mark.parametrize(
    ("first", "further", "is_close", "taken"),
    [
        ([0.02, 0.03], [0.06, 0.05], True, True),  # .025 is less than the margin of .03, .04 is more
        ([0.05, 0.04], [0.0, 0.0], True, False),
        ([0.10, 0.09], [], False, True),
        ([0.2], [], False, False),  # hopeless on the first split, so that nothing can be taken
    ],
)
def test_a_gain_near_its_margin_is_measured_on_more_splits(
    first: list[float], further: list[float], is_close: bool, taken: bool
) -> None:
    best, close = decided(STRONG_RIDGE, first, further)
    assert close == ([RBF, LINEAR] if is_close else [])
    assert best == (LINEAR if taken else RBF)


def test_other_steps_are_decided_on_the_first_splits() -> None:
    best, close = decided("ridge", [0.05, 0.06], [])
    assert close == []
    assert best == RBF
