"""FuseHash(target="floats"): the maps against their definition, and what the codes keep."""

from __future__ import annotations

import numpy as np
import pytest

import fusehash as fh
from fusehash import bits, hashers
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import evaluate_embeddings
from fusehash.hashers.fusehash.floats import balanced_maps, partner_share, share_a_space, tight_frame
from fusehash.numerics.linalg import CenteredGram
from fusehash.streams import passes_over
from joint import cut, joint_embeddings
from untuned import UNTUNED

VIEWS = joint_embeddings()
LEARNED, NEW = cut(VIEWS, slice(0, 300)), cut(VIEWS, slice(300, None))
OTHER = {"image": "text", "text": "image"}


def model_of(n_bits=48, views=LEARNED, **params):
    return fh.FuseHash(n_bits=n_bits, target="floats", random_state=0, **params).fit(views)


def test_balanced_maps_keep_all_products_and_balance_the_views():
    totals = {name: CenteredGram(48) for name in LEARNED}
    for name, X in LEARNED.items():
        totals[name].add(X)
    maps, spectrum = balanced_maps(totals, dict.fromkeys(totals, 0.0), 48)
    X, Y = (LEARNED[name] - LEARNED[name].mean(axis=0) for name in ("image", "text"))
    assert np.allclose(X @ maps["image"] @ (Y @ maps["text"]).T, X @ Y.T, atol=1e-8)
    for name, rows in (("image", X), ("text", Y)):
        Z = rows @ maps[name]
        assert np.allclose(Z.T @ Z / len(Z), np.diag(spectrum), atol=1e-9)
    # No other pair of rank-k maps keeps products between independent rows better (Eckart and Young).
    k = 8
    maps, _ = balanced_maps(totals, dict.fromkeys(totals, 0.0), k)
    V = np.linalg.eigh(totals["image"].gram + totals["text"].gram)[1][:, ::-1][:, :k]
    error = np.sum((X @ maps["image"] @ (Y @ maps["text"]).T - X @ Y.T) ** 2)
    assert error <= np.sum((X @ V @ (Y @ V).T - X @ Y.T) ** 2) * (1 + 1e-9)


@pytest.mark.parametrize(("rank", "n_bits"), [(5, 8), (8, 8), (12, 64)])
def test_frames_are_tight(rank, n_bits):
    F = tight_frame(rank, n_bits, np.random.default_rng(0))
    assert np.allclose(F @ F.T, n_bits / rank * np.eye(rank))


@pytest.mark.parametrize(("rank", "n_bits"), [(48, 48), (16, 128)])
def test_factors_follow_their_formulas(rank, n_bits):
    model = model_of(n_bits, rank=rank)
    X = NEW["image"]
    codes, factors = model.encode(X, view="image", with_factors=True)
    P = model.project(X, view="image")
    B = bits.unpack(codes, n_bits)
    assert np.array_equal(codes, bits.pack(P)) == (rank == n_bits)  # the best bits of a frame are not signs
    r = X - LEARNED["image"].mean(axis=0)
    assert np.allclose(factors[:, 1], r @ LEARNED["text"].mean(axis=0), atol=1e-6)
    # At the item itself the estimate is exact: scale <b, p> = |A'r|^2.
    assert np.allclose(factors[:, 0] * np.sum(P * B, axis=1), np.sum(P**2, axis=1) * rank / n_bits, rtol=1e-5)


def test_many_bits_give_the_cosine():
    model = model_of(4096, rank=48)
    codes, factors = model.encode(NEW["image"], view="image", with_factors=True)
    scores = model.project(NEW["text"], view="text") @ bits.unpack(codes, 4096).T * factors[:, 0] + factors[:, 1]
    exact = NEW["text"] @ NEW["image"].T
    differ = scores - exact
    assert np.std(differ - differ.mean(axis=1, keepdims=True)) < 0.15 * np.std(
        exact - exact.mean(axis=1, keepdims=True)
    )


def test_it_keeps_the_float_ranking_better_than_the_quantizers_across_a_gap():
    def recall(model):
        return np.mean([score.recall for score in evaluate_embeddings(model, NEW)])

    ours = recall(model_of(96))
    for name in ("sign", "centered_sign", "rabitq", "itq"):
        assert ours > recall(hashers.make(name, n_bits=96, random_state=0).fit(LEARNED)) + 0.03


def test_unpaired_rows_count():
    views = {name: np.vstack([X[:12], np.full((548, 48), np.nan)]) for name, X in VIEWS.items()}
    views["image"][12:300], views["text"][300:] = VIEWS["image"][12:300], VIEWS["text"][300:560]
    model = model_of(96, views=views, missing="allow")
    assert model.n_samples_ == 560
    assert np.allclose(model.fitted_.maps["image"].preparation.mean, VIEWS["image"][:300].mean(axis=0))
    few = model_of(96, views=cut(VIEWS, slice(0, 12)))
    new = {name: X[400:] for name, X in joint_embeddings(900).items()}
    recall = [np.mean([s.recall for s in evaluate_embeddings(m, new)]) for m in (model, few)]
    assert recall[0] > recall[1] + 0.02


def test_rank_is_chosen_and_reported():
    model = model_of(96)
    tried = {entry["rank"]: entry["recall"] for entry in model.tuning_["ranks"]}
    assert set(tried) == {12, 24, 48}
    assert model.tuning_["rank"] == max(tried, key=tried.get) == len(model.eigenvalues_)
    assert model_of(96, rank=7).tuning_["rank"] == 7


def test_it_is_saved_cut_and_encoded_from_tensors(tmp_path, optional):
    model = model_of(96)
    model.save(tmp_path / "model.safetensors")
    again = fh.load(tmp_path / "model.safetensors")
    expected = model.encode(NEW["text"], view="text", with_factors=True)
    for one, other in zip(again.encode(NEW["text"], view="text", with_factors=True), expected, strict=True):
        assert np.array_equal(one, other)
    short, factors = again.cut(48).encode(NEW["text"], view="text", with_factors=True)
    assert np.array_equal(short, bits.cut(expected[0], 48))
    P, B = model.project(NEW["text"], view="text"), bits.unpack(expected[0], 96)
    whole, cut = np.sum(P * B, axis=1), np.sum((P * B)[:, :48], axis=1)
    assert np.allclose(factors[:, 0] * cut, expected[1][:, 0] * whole, rtol=1e-5)
    torch = optional("torch")
    there = model.project(torch.asarray(NEW["text"]), view="text")
    assert np.allclose(np.asarray(there), P, atol=1e-6)


def test_pairs_have_a_scale_too():
    model = fh.FuseHash(n_bits=16, random_state=0, feature_map="linear").fit(LEARNED)
    codes, factors = model.encode(NEW["image"], view="image", with_factors=True)
    P = model.project(NEW["image"], view="image")
    products = np.sum(P * bits.unpack(codes, 16), axis=1)
    assert np.allclose(factors[:, 0], np.linalg.norm(P, axis=1) / products, rtol=1e-6)
    assert not factors[:, 1].any()


@pytest.mark.parametrize(
    ("params", "message"), [({"nested": (8,)}, 'None for target="floats"'), ({"target": "both"}, "one of")]
)
def test_wrong_settings_are_named(params, message):
    with pytest.raises(ParameterError, match=message):
        fh.FuseHash(**{"n_bits": 48, "target": "floats", **params}).fit(LEARNED)


def test_views_of_different_widths_are_refused_with_what_to_do():
    with pytest.raises(DataError, match="'text' has 20; target=\"pairs\" takes them"):
        model_of(views={"image": LEARNED["image"], "text": LEARNED["text"][:, :20]})


@pytest.mark.parametrize("method", ["fusehash", "rabitq", "itq", "centered_sign"])
def test_rows_of_zeros_are_refused_by_number(method):
    views = {name: X.copy() for name, X in joint_embeddings(2500, width=16).items()}
    views["text"][2400] = 0.0  # beyond the first block of rows
    params = {"target": "floats"} if method == "fusehash" else {}
    with pytest.raises(DataError, match=r"View 'text' must hold embeddings other than zero. Row 2400 is all zeros."):
        hashers.make(method, n_bits=16, **params).fit(views)
    views["text"][2400] = np.nan
    if method == "fusehash":  # a missing row is no row of zeros
        fh.FuseHash(n_bits=16, target="floats", missing="allow").fit(views)


def test_codes_have_at_most_4096_bits():
    with pytest.raises(ParameterError, match=r"at most 4096\. Got 5000"):
        model_of(5000)


def test_views_of_one_space_are_told_from_views_that_only_have_one_width():
    space = lambda views: share_a_space(passes_over(fh.PairedViews(views)), np.random.default_rng(0))  # noqa: E731
    assert space(LEARNED)
    assert not space({"image": LEARNED["image"], "text": LEARNED["text"][::-1]})
    assert not space({"image": LEARNED["image"]})
    assert not space({"image": LEARNED["image"], "text": LEARNED["text"][:, :40]})
    turned = LEARNED["text"] @ np.linalg.qr(np.random.default_rng(0).standard_normal((48, 48)))[0]
    assert not space({"image": LEARNED["image"], "text": turned})
    cosines = np.random.default_rng(0).integers(0, 4, (30, 30)).astype(float)
    pairs = [(cosines[i, j], cosines[i, i]) for i in range(30) for j in range(30) if i != j]
    expected = np.mean([1.0 if other < own else 0.5 if other == own else 0.0 for other, own in pairs])
    assert partner_share(cosines) == pytest.approx(expected)


@pytest.mark.parametrize(("views", "steps"), [(LEARNED, 0), ({**LEARNED, "text": LEARNED["text"][:, :40]}, 50)])
def test_the_rotation_of_joint_embeddings_stays_random(views, steps):
    model = fh.FuseHash(n_bits=16, random_state=0, **UNTUNED).fit(views)
    assert model.settings_["n_rotation_steps"] == steps
    nested = fh.FuseHash(n_bits=16, nested=(8,), random_state=0, **UNTUNED).fit(views)
    assert nested.settings_["n_rotation_steps"] == 50


def test_learning_on_is_refused():
    with pytest.raises(DataError, match='target="pairs"'):
        fh.FuseHash(n_bits=16, target="floats").partial_fit(LEARNED)
