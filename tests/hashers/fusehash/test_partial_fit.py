"""partial_fit and merge: what is exact is exact, what is approximate is near the truth, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fusehash as fh
from fusehash import bits
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import average_precision
from fusehash.hashers.fusehash.fitted import RowFeatures, RowMaps
from fusehash.hashers.fusehash.kept_sums import SAMPLE_ROWS, FrameSums, targets_of_map
from fusehash.numerics.linalg import whitening
from untuned import UNTUNED

SETTINGS: dict[str, Any] = {**UNTUNED, "n_bits": 32, "n_anchors": 80, "n_kernel_anchors": 70, "random_state": 0}
DATA = fh.datasets.make_paired(1800, n_query=300, random_state=5)
LABELS = np.asarray(DATA.labels)
TODAY, TOMORROW, THIRD = (DATA.views.rows(np.arange(i, j)) for i, j in ((0, 700), (700, 1200), (1200, 1500)))
NEW = DATA.views.rows(DATA.query)


def build(**changes: Any) -> fh.FuseHash:
    return fh.FuseHash(**{**SETTINGS, **changes})


@pytest.fixture(scope="module")
def first() -> fh.FuseHash:
    """float64, so that what is exact shows."""
    return build(dtype="float64").partial_fit(TODAY)


@pytest.fixture(scope="module")
def second(first: fh.FuseHash) -> fh.FuseHash:
    return deepcopy(first).partial_fit(TOMORROW)


def with_missing(views: Any, seed: int) -> dict[str, Any]:
    """Some rows without an image, some without a text."""
    rng = np.random.default_rng(seed)
    out = {name: np.array(views[name]) for name in views}
    lost = rng.random(len(views))
    out["image"][lost < 0.2] = np.nan
    out["text"][lost > 0.85] = np.nan
    return out


def rows_of(model: fh.FuseHash, views: Any) -> tuple[Any, Any, Any]:
    """F, S and E as the fitted model sees them, row by row and view by view."""
    fitted = model.fitted_
    present = {name: ~np.isnan(np.asarray(views[name])).all(axis=1) for name in model.view_names_}
    prepared = {name: fitted.maps[name].preparation(np.nan_to_num(np.asarray(views[name]))) for name in present}
    F = np.hstack(
        [(fitted.maps[n].of_prepared(prepared[n]) - fitted.means[n]) * present[n][:, None] for n in model.view_names_]
    )
    maps = RowMaps(fitted.maps, fitted.graph, fitted.means)
    S = maps.graph_rows(RowFeatures(slice(0, len(F)), prepared, present, F))
    return F, S, np.stack([np.ones(len(F)), *present.values()], axis=1)


def learned(model: fh.FuseHash) -> dict[str, Any]:
    return {name: deepcopy(value) for name, value in vars(model).items() if name.endswith("_")}


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if hasattr(a, "__dataclass_fields__"):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


def wrong_bits(a: Any, b: Any) -> float:
    n_bits = 8 * a.shape[1]
    return float(np.mean(bits.unpack(a, n_bits) != bits.unpack(b, n_bits)))


# -- what is exact ---------------------------------------------------------------------------------------------------


def test_the_first_call_is_fit(first: fh.FuseHash) -> None:
    plain = build(dtype="float64").fit(TODAY)
    assert same({n: v for n, v in learned(first).items() if n not in ("sums_", "drift_")}, learned(plain))
    assert first.drift_ == 0.0
    assert not hasattr(deepcopy(first).fit(TODAY), "sums_")


@pytest.mark.parametrize("missing", ["error", "allow"])
def test_sums_are_those_of_all_rows(missing: str) -> None:
    change = (lambda views, seed: with_missing(views, seed)) if missing == "allow" else (lambda views, seed: views)
    days = [change(TODAY, 0), change(TOMORROW, 1), change(THIRD, 2)]
    model = build(dtype="float64", missing=missing).partial_fit(days[0])
    origin = deepcopy(model)
    maps = [origin, *(deepcopy(model.partial_fit(day)) for day in days[1:])]
    parts = [rows_of(origin, day) for day in days]
    A = np.vstack([np.hstack(part) for part in parts])
    B = bits.unpack(model.codes_, 32)
    sums = model.sums_.total.sums
    np.testing.assert_allclose(sums.gram, A.T @ A, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(sums.with_bits, A.T @ B, rtol=1e-7, atol=1e-7)
    # The real codes are those of the map of the day.
    Y = np.vstack([m.fitted_.code_map(*rows_of(m, day)[:2]) for m, day in zip(maps, days, strict=True)])
    np.testing.assert_allclose(sums.with_codes, A.T @ Y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sums.squares, (Y**2).sum(axis=0), rtol=1e-6)
    assert model.n_samples_ == len(model.codes_) == len(A)


@pytest.mark.parametrize("missing", ["error", "allow"])
def test_means_and_spectrum_are_those_of_all_rows(missing: str) -> None:
    days = [with_missing(v, i) for i, v in enumerate((TODAY, TOMORROW))] if missing == "allow" else [TODAY, TOMORROW]
    model = build(dtype="float64", missing=missing).partial_fit(days[0]).partial_fit(days[1])
    rows = [rows_of(model, day) for day in days]
    F, S, _ = (np.vstack(column) for column in zip(*rows, strict=True))
    width = model.fitted_.maps["image"].n_features
    for span in (slice(0, width), slice(width, None)):  # centered over the rows in which they are present
        np.testing.assert_allclose(F[:, span].sum(axis=0), 0.0, atol=1e-8)
    Q = [F[:, span] @ whitening(F[:, span].T @ F[:, span], 0.03) for span in (slice(0, width), slice(width, None))]
    graph_weight = 2.0  # of 1,200 rows
    T = S / np.sqrt(S.sum(axis=0))
    Z = np.hstack([*Q, np.sqrt(graph_weight) * (T - T.mean(axis=0))])
    w = np.linalg.eigvalsh(Z.T @ Z)[::-1][:32]
    np.testing.assert_allclose(model.eigenvalues_[:16], w[:16], rtol=1e-6)
    np.testing.assert_allclose(model.eigenvalues_, w, rtol=2e-2)  # the last ones are approximately


def test_codes_of_new_rows_are_their_fused_codes(second: fh.FuseHash, first: fh.FuseHash) -> None:
    assert np.array_equal(second.codes_[:700], first.codes_)
    assert wrong_bits(second.codes_[700:], second.encode_fused(TOMORROW)) < 1e-3


def test_the_order_of_the_views_does_not_matter(first: fh.FuseHash, second: fh.FuseHash) -> None:
    swapped = deepcopy(first).partial_fit({"text": TOMORROW["text"], "image": TOMORROW["image"]})
    assert same(learned(swapped), learned(second))


@pytest.mark.parametrize("changes", [{"graph_weight": 0.0}, {"latent_weight": 0.0}, {"nested": (16,)}, {"rank": 12}])
def test_every_form_goes_on(changes: dict[str, Any]) -> None:
    model = build(**changes).partial_fit(TODAY).partial_fit(TOMORROW).partial_fit(THIRD.rows([0]))
    assert model.codes_.shape == (1201, 4)
    assert wrong_bits(model.codes_[700:1200], model.encode_fused(TOMORROW)) < 0.02
    assert 0.0 < model.drift_ < 0.2
    for cut in (8, 16, 32):
        assert 0.6 < model.cut(cut).score(NEW) < 1.0


# -- merging ---------------------------------------------------------------------------------------------------------


def test_merge_is_the_sum_of_both(first: fh.FuseHash, second: fh.FuseHash) -> None:
    other = deepcopy(first).partial_fit(THIRD)
    merged = deepcopy(second).merge(other)
    in_turn = deepcopy(second).partial_fit(THIRD)
    np.testing.assert_allclose(merged.sums_.total.sums.gram, in_turn.sums_.total.sums.gram, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(merged.eigenvalues_, in_turn.eigenvalues_, rtol=1e-6)
    assert np.array_equal(merged.codes_, np.vstack([second.codes_, other.codes_[700:]]))
    assert merged.n_samples_ == 1500
    assert wrong_bits(merged.encode_fused(NEW), in_turn.encode_fused(NEW)) < 0.03
    untouched = deepcopy(second)
    assert same(learned(untouched.merge(first)), learned(second))  # which has nothing to add


def test_merge_refuses_what_cannot_be_added(first: fh.FuseHash, second: fh.FuseHash) -> None:
    before = learned(second)
    with pytest.raises(DataError, match="must have seen different rows"):
        second.merge(deepcopy(second))
    with pytest.raises(DataError, match="must come from one first partial_fit"):
        second.merge(build(dtype="float64").partial_fit(THIRD))
    with pytest.raises(DataError, match="without sums"):
        second.merge(build().fit(THIRD))
    assert same(learned(second), before)


# -- what is approximate ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shifted", [False, True])
def test_drift_is_the_share_of_bits_that_change(shifted: bool) -> None:
    rows = np.arange(1500)
    early = np.isin(LABELS[:1500], (0, 1, 2, 3)) if shifted else rows < 800
    old, new = DATA.views.rows(rows[early]), DATA.views.rows(rows[~early])
    model = build().partial_fit(old).partial_fit(new)
    truth = wrong_bits(model.codes_[: old.n_rows], model.encode_fused(old))
    assert truth > 0.01
    assert model.drift_ == pytest.approx(truth, abs=0.01)


def test_drift_of_few_rows_is_exact(first: fh.FuseHash) -> None:
    small = build(dtype="float64").partial_fit(TODAY.rows(np.arange(400)))
    model = small.partial_fit(TOMORROW)
    truth = wrong_bits(model.codes_[:400], model.encode_fused(TODAY.rows(np.arange(400))))
    assert model.drift_ == pytest.approx(truth, abs=1e-4)


@pytest.mark.slow
def test_new_rows_help() -> None:
    """Against the model of today alone; the views of a query each by themselves, among new items hashed likewise."""
    database = DATA.views.rows(np.arange(1200, 1500))
    relevant = LABELS[DATA.query], LABELS[1200:1500]

    def quality(model: fh.FuseHash) -> float:
        codes = {n: (model.encode(NEW[n], view=n), model.encode(database[n], view=n)) for n in model.view_names_}
        pairs = (("image", "text"), ("text", "image"))
        return float(np.mean([average_precision(codes[a][0], codes[b][1], relevant, k=50).mean() for a, b in pairs]))

    gains = []
    for seed in range(3):
        model = build(random_state=seed).partial_fit(TODAY.rows(np.arange(300)))
        before = quality(model)
        gains.append(quality(model.partial_fit(TODAY.rows(np.arange(300, 700))).partial_fit(TOMORROW)) - before)
    assert np.mean(gains) > 0.02


@pytest.mark.slow
def test_wiki(data_file: Callable[[str], Path]) -> None:
    """Half of the training rows, then the other half: better than the first half alone, and drift is measured."""
    wiki = fh.datasets.load("wiki", path=data_file("wiki.npz"))
    labels, rows = np.asarray(wiki.labels), np.random.default_rng(0).permutation(wiki.train)
    old, new, database = (wiki.views.rows(part) for part in (rows[:700], rows[700:1400], rows[1400:]))
    queries = wiki.views.rows(wiki.query)
    relevant = labels[wiki.query], labels[rows[1400:]]

    def quality(model: fh.FuseHash) -> float:
        searched, asked = model.encode(database["text"], view="text"), model.encode(queries["image"], view="image")
        return float(average_precision(asked, searched, relevant, k=50).mean())

    model = build(n_bits=64, n_anchors=300, n_kernel_anchors=300).partial_fit(old)
    alone = quality(model)
    model.partial_fit(new)
    assert quality(model) > alone + 0.01
    assert model.drift_ == pytest.approx(wrong_bits(model.codes_[:700], model.encode_fused(old)), abs=0.01)


def compared_projections(model: fh.FuseHash, *days: Any) -> list[tuple[Any, Any]]:
    """Of all rows in every view: by the regression on all rows with the targets of the map, and by the model."""
    F, S, _ = (np.vstack(column) for column in zip(*(rows_of(model, day) for day in days), strict=True))
    T = np.tanh(model.fitted_.code_map(F, S) / model.fitted_.softness)
    width = model.fitted_.maps["image"].n_features
    pairs = []
    for name, X in (("image", F[:, :width]), ("text", F[:, width:])):
        gram = X.T @ X
        W = np.linalg.solve(gram + 0.003 * np.trace(gram) / len(gram) * np.eye(len(gram)), X.T @ T)
        pairs.append((X @ W, X @ model.fitted_.weights[name]))
    return pairs


def test_hash_functions_are_near_those_of_all_rows(second: fh.FuseHash) -> None:
    for exact, ours in compared_projections(second, TODAY, TOMORROW):
        assert np.mean((exact > 0) != (ours > 0)) < 0.03
        assert np.linalg.norm(exact - ours) < 0.1 * np.linalg.norm(exact)


def test_hash_functions_are_exact_where_the_targets_are_known(
    first: fh.FuseHash, monkeypatch: pytest.MonkeyPatch
) -> None:
    A = np.hstack(rows_of(first, TODAY))

    def known(sums: Any, M: Any, ones: int, before: float, after: float) -> Any:
        return A.T @ np.tanh(A @ M / after)

    monkeypatch.setattr("fusehash.hashers.fusehash.partial_fit.targets_of_map", known)
    one_class = TOMORROW.rows(np.flatnonzero(LABELS[700:1200] == 0))  # so that means move
    for exact, ours in compared_projections(deepcopy(first).partial_fit(one_class), TODAY, one_class):
        assert np.linalg.norm(exact - ours) < 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize(("before", "after", "error"), [(0.0, 0.0, 0.01), (0.7, 0.4, 0.03)])
def test_normal_rows_give_the_targets_that_were_foreseen(before: float, after: float, error: float) -> None:
    def targets(Y: Any, softness: float) -> Any:
        return np.tanh(Y / softness) if softness else np.where(Y > 0, 1.0, -1.0)

    rng = np.random.default_rng(0)
    n = 200_000
    A = np.hstack([rng.standard_normal((n, 4)) @ rng.standard_normal((4, 4)) + [0.3, 0.0, -0.5, 1.0], np.ones((n, 1))])
    M, later = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    Y = A @ M
    AT = A.T @ targets(Y, before)
    sums = FrameSums(A.T @ A, A.T @ targets(Y, 0.0), A.T @ Y, (Y**2).sum(axis=0), AT)
    truth = A.T @ targets(A @ later, after)
    np.testing.assert_allclose(targets_of_map(sums, later, 4, before, after) / n, truth / n, atol=error)
    same_map = targets_of_map(sums, M, 4, before, before)
    np.testing.assert_allclose(same_map, AT, rtol=1e-9, atol=1e-6)


# -- the parts -------------------------------------------------------------------------------------------------------


def test_a_sample_holds_rows_and_their_codes(first: fh.FuseHash) -> None:
    sample = first.sums_.first.sample
    A = np.hstack(rows_of(first, TODAY))
    assert len(sample.columns) == SAMPLE_ROWS
    rows = [int(np.argmin(((A - row) ** 2).sum(axis=1))) for row in sample.columns]
    assert len(set(rows)) == len(rows)
    np.testing.assert_allclose(A[rows], sample.columns, atol=1e-9)
    assert np.array_equal(first.codes_[rows], sample.codes)


# -- files, places, refusals -----------------------------------------------------------------------------------------


def test_a_saved_model_goes_on_bit_for_bit(tmp_path: Any, second: fh.FuseHash) -> None:
    for model in (build().partial_fit(TODAY), deepcopy(second)):
        model.save(tmp_path / "model")
        loaded = fh.load(tmp_path / "model")
        assert same(learned(loaded), learned(model))
        assert np.array_equal(loaded.encode_fused(NEW), model.encode_fused(NEW))
        assert same(learned(loaded.partial_fit(THIRD)), learned(model.partial_fit(THIRD)))


def test_threads_do_not_matter() -> None:
    one, two = (build(n_threads=n).partial_fit(TODAY).partial_fit(TOMORROW) for n in (1, 2))
    assert same(learned(one), learned(two))


def test_tensors_give_what_arrays_give(optional: Callable[[str], ModuleType], second: fh.FuseHash) -> None:
    torch = optional("torch")

    def tensors(views: Any) -> dict[str, Any]:
        return {name: torch.as_tensor(np.asarray(views[name])) for name in views}

    model = build(dtype="float64").partial_fit(tensors(TODAY)).partial_fit(tensors(TOMORROW))
    assert all(isinstance(part, np.ndarray) for part in (model.codes_, model.sums_.total.sums.gram))
    np.testing.assert_allclose(model.eigenvalues_[:8], second.eigenvalues_[:8], rtol=1e-4)
    assert wrong_bits(model.codes_, second.codes_) < 0.02
    assert model.drift_ == pytest.approx(second.drift_, abs=0.01)
    assert wrong_bits(np.asarray(model.encode_fused(tensors(NEW))), second.encode_fused(NEW)) < 0.02


def test_a_view_may_be_missing_all_day() -> None:
    model = build(missing="allow").partial_fit(with_missing(TODAY, 0))
    texts = {"image": np.full(TOMORROW["image"].shape, np.nan), "text": TOMORROW["text"]}
    assert model.partial_fit(texts).codes_.shape == (1200, 4)
    assert np.isfinite(model.project_fused(NEW)).all()


def test_an_interrupted_call_leaves_the_model_as_it_was(first: fh.FuseHash) -> None:
    def stop_at(word: str) -> Callable[[int, int, str], None]:
        def callback(step: int, total: int, message: str) -> None:
            if word in message:
                raise KeyboardInterrupt

        return callback

    for word in ("sums of", "spectrum", "codes of"):
        model = deepcopy(first).set_params(callback=stop_at(word))
        with pytest.raises(KeyboardInterrupt):
            model.partial_fit(TOMORROW)
        assert same(learned(model), learned(first))
    fresh = build(callback=stop_at("continue"))
    with pytest.raises(KeyboardInterrupt):
        fresh.partial_fit(TODAY)
    assert not learned(fresh)


def test_refusals(first: fh.FuseHash) -> None:
    with pytest.raises(DataError, match="fit keeps no sums"):
        build().fit(TODAY).partial_fit(TOMORROW)
    with pytest.raises(DataError, match="cut to 8 bits"):
        first.cut(8).partial_fit(TOMORROW)
    with pytest.raises(ParameterError, match="32, as in the first call"):
        deepcopy(first).set_params(n_bits=64).partial_fit(TOMORROW)
    before = learned(first)
    with pytest.raises(DataError, match="as in the first call"):
        first.partial_fit({"image": TOMORROW["image"]})
    with pytest.raises(DataError, match="'text' must have 32 features"):
        first.partial_fit({"image": TOMORROW["image"], "text": TOMORROW["text"][:, :5]})
    with pytest.raises(DataError, match="finite"):
        first.partial_fit(with_missing(TOMORROW, 0))
    assert same(learned(first), before)
