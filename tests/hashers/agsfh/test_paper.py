"""AGSFH's loop against a dense, slow transcription of Algorithm 2, and every switch of it."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import fusehash
from fusehash import bits, datasets
from fusehash.errors import ParameterError
from fusehash.hashers.agsfh import paper
from fusehash.parameters import rng_for

N, P, K, C, BITS = 150, 40, 6, 5, 16
VIEWS = datasets.make_paired(N, views={"image": 14, "text": 9}, n_classes=4, n_query=10, random_state=5).views
SIZES = {"n_anchors": P, "n_neighbors": K, "n_clusters": C, "n_bits": BITS}
EXACT = {"inner_tol": 1e-13, "inner_max_iter": 5000, "tol": 0.0}
PUBLISHED = {"approximation_weight": 0.01, "smoothness": 10.0, "affinity_weight": 0.01, "regression_weight": 300.0}
# Here the graph decides a good part of the bits.
GRAPHIC = {"approximation_weight": 1.0, "smoothness": 5.0, "affinity_weight": 0.05, "regression_weight": 0.005}


def agsfh(**params):
    return fusehash.AGSFH(**{"random_state": 0, **SIZES, **params})


# -- the transcription -----------------------------------------------------------------------------------------------


def sgn(X):
    return np.where(X > 0, 1.0, -1.0)


def simplex(Y):
    ordered = -np.sort(-Y, axis=1)
    excess = np.cumsum(ordered, axis=1) - 1
    count = np.sum(ordered * np.arange(1, Y.shape[1] + 1) > excess, axis=1)
    return np.maximum(Y - (excess[np.arange(len(Y)), count - 1] / count)[:, None], 0)


def anchor_graph(X, anchors):
    A = np.zeros((len(X), len(anchors)))
    for i, x in enumerate(X):
        d = ((anchors - x) ** 2).sum(axis=1)
        near = np.argsort(d, kind="stable")
        limit = d[near[K]]
        A[i, near[:K]] = (limit - d[near[:K]]) / (K * limit - d[near[:K]].sum())
    return A


@dataclass
class Reference:
    """Algorithm 2 with whole matrices, in the order of paper.py; `sign` -1 is the printed sign of Eq. 21."""

    g1: float
    g2: float
    g3: float
    lam: float
    ridge: float = 1e-6
    seed: int = 0
    sign: float = 1.0
    terms: list[list[float]] = field(default_factory=list)

    def __post_init__(self):
        self.X = [np.asarray(X) - np.mean(X, axis=0) for X in VIEWS.values()]
        chosen = rng_for(self.seed, "anchors").choice(np.arange(N), P, replace=False)
        self.A = np.prod([anchor_graph(X, X[chosen]) for X in self.X], axis=0)
        self.V = v_step(self.A, l_step(self.A))
        self.L_root = np.ones(P)
        signs = rng_for(self.seed, "B")
        self.B, self.Bs = (bits.unpack(bits.balanced(n, BITS, signs), BITS) for n in (N, P))
        normal = rng_for(self.seed, "W")
        self.W = [normal.standard_normal((X.shape[1], BITS)) for X in self.X]

    def s_step(self):
        """Plain projected gradient until nothing moves: the answer, whatever Algorithm 1 does on its way."""
        Vt = self.L_root[:, None] * self.V
        H = self.g2 * np.eye(P) - self.sign * Vt @ Vt.T
        linear = self.g1 * self.A + self.g3 * self.B @ self.Bs.T
        assert np.linalg.eigvalsh(H)[0] > 0  # one answer
        step = 1 / (2 * np.linalg.eigvalsh(H)[-1])
        S = np.full((N, P), 1 / P)
        for _ in range(20000):
            last, S = S, simplex(S - step * (2 * S @ H - linear))
            if np.abs(S - last).max() < 1e-15:
                return S
        raise AssertionError("the reference did not settle")

    def b_step(self, S):
        return sgn(self.g3 * S @ self.Bs + 2 * self.lam * sum(X @ W for X, W in zip(self.X, self.W, strict=True)))

    def w_step(self, X):
        ridge = self.ridge * np.trace(X.T @ X) / X.shape[1]
        return np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ self.B)

    def objective(self, S):
        laplacian = np.eye(P) - self.L_root[:, None] * (S.T @ S) * self.L_root
        return [
            np.trace(self.V.T @ laplacian @ self.V),
            -self.g1 * np.sum(self.A * S),
            self.g2 * np.sum(S**2),
            -self.g3 * np.trace(self.B.T @ S @ self.Bs),
            self.lam * sum(np.sum((self.B - X @ W) ** 2) for X, W in zip(self.X, self.W, strict=True)),
        ]

    def iterate(self):
        S = self.s_step()
        self.B = self.b_step(S)
        self.L_root = l_step(S)
        self.V = v_step(S, self.L_root)
        self.Bs = sgn(S.T @ self.B)
        self.W = [self.w_step(X) for X in self.X]
        self.terms.append(self.objective(S))


def l_step(S):
    return np.array([mass**-0.5 if mass > 0 else 0.0 for mass in S.sum(axis=0)])


def v_step(S, L_root):
    return np.linalg.eigh(L_root[:, None] * (S.T @ S) * L_root)[1][:, -C:]


@pytest.mark.parametrize("weights", [PUBLISHED, GRAPHIC], ids=["published", "graphic"])
@pytest.mark.parametrize("seed", [0, 1])
def test_codes_and_every_term_of_the_objective_follow_the_transcription(weights, seed):
    reference = Reference(*weights.values(), seed=seed)
    for iterations in range(1, 5):
        reference.iterate()
        model = agsfh(**weights, **EXACT, max_iter=iterations, random_state=seed).fit(VIEWS)
        assert np.array_equal(bits.unpack(model.codes_, BITS), reference.B)
        for name, W in zip(VIEWS, reference.W, strict=True):
            assert np.allclose(model.weights_[name], W, rtol=1e-6, atol=1e-8)
    terms = np.array(reference.terms)
    for name, expected in zip(paper.TERMS, terms.T, strict=True):
        assert np.allclose(model.objective_terms_[name], expected, rtol=1e-6, atol=1e-7), name
    assert np.allclose(model.objective_, terms.sum(axis=1), rtol=1e-8)


def test_the_printed_sign_follows_the_transcription_with_that_sign():
    reference = Reference(*GRAPHIC.values(), sign=-1.0)
    for _ in range(4):
        reference.iterate()
    model = agsfh(**GRAPHIC, **EXACT, max_iter=4, as_printed=True).fit(VIEWS)
    assert np.array_equal(bits.unpack(model.codes_, BITS), reference.B)
    assert np.allclose(model.objective_terms_["structure"], np.array(reference.terms)[:, 0], atol=1e-6)


def test_as_printed_differs_from_the_correction():
    corrected, printed = (agsfh(**GRAPHIC, max_iter=4, as_printed=flag).fit(VIEWS) for flag in (False, True))
    assert np.abs(corrected.objective_ - printed.objective_).max() > 1e-3
    # With the sign as printed S is pushed away from clusters.
    assert printed.objective_terms_["structure"][-1] > corrected.objective_terms_["structure"][-1]


# -- what it learns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [PUBLISHED, GRAPHIC, {**GRAPHIC, "smoothness": 0.05}, {**GRAPHIC, "ablation": "reg"}],
    ids=["published", "graphic", "not convex", "without ridge"],
)
def test_the_objective_of_the_s_step_never_rises(weights, monkeypatch):
    traces: list[list[float]] = []
    real = paper.minimize_rows

    def watched(hessian, linear, **options):
        start = real(hessian, linear, **{**options, "max_iter": 0})
        H = hessian.ridge * np.eye(P) - hessian.sign * hessian.U @ hessian.U.T
        first = np.einsum("ij,jk,ik->", start, H, start) - np.sum(linear * start)
        trace: list[float] = []
        S = real(hessian, linear, **options, trace=trace)
        last = np.einsum("ij,jk,ik->", S, H, S) - np.sum(linear * S)
        assert trace[-1] == pytest.approx(last, rel=1e-9)
        traces.append([first, *trace])
        return S

    monkeypatch.setattr(paper, "minimize_rows", watched)
    model = agsfh(**weights, max_iter=5, tol=0.0, random_state=1).fit(VIEWS)
    assert len(traces) == len(model.objective_) >= 3  # the codes may settle one iteration earlier: rounding decides
    for trace in traces:
        assert np.diff(trace).max() <= 1e-12 * np.abs(trace).max()


def test_hash_functions_are_the_ridge_regression_of_the_codes():
    model = agsfh(ridge=0.01).fit(VIEWS)
    B = bits.unpack(model.codes_, BITS)
    for name, X in VIEWS.items():
        centered = X - X.mean(axis=0)
        G = centered.T @ centered
        W = np.linalg.solve(G + 0.01 * np.trace(G) / len(G) * np.eye(len(G)), centered.T @ B)
        assert np.allclose(model.weights_[name], W)
        assert np.allclose(model.means_[name], X.mean(axis=0))
        assert np.allclose(model.project(X, view=name), centered @ W)


def test_the_objective_is_the_sum_of_its_terms():
    model = agsfh(max_iter=4, tol=0.0).fit(VIEWS)
    assert list(model.objective_terms_) == ["structure", "approximation", "smoothness", "affinity", "regression"]
    assert model.objective_.shape == (4,)
    assert np.allclose(sum(model.objective_terms_.values()), model.objective_)


def test_a_wider_tolerance_stops_earlier():
    lengths = [len(agsfh(tol=tol, max_iter=50).fit(VIEWS).objective_) for tol in (0.5, 1e-3, 1e-8)]
    assert lengths[0] == 2
    assert lengths[0] < lengths[1] < lengths[2]


@pytest.mark.parametrize(("ablation", "term"), [("appro", "approximation"), ("reg", "smoothness")])
def test_an_ablation_removes_its_term(ablation, term):
    whole = agsfh(**GRAPHIC, max_iter=5).fit(VIEWS)
    without = agsfh(**GRAPHIC, max_iter=5, ablation=ablation).fit(VIEWS)
    assert np.all(whole.objective_terms_[term] != 0.0)
    assert np.array_equal(without.objective_terms_[term], np.zeros(len(without.objective_)))
    for other in {"approximation", "smoothness", "affinity", "regression"} - {term}:
        assert np.all(without.objective_terms_[other] != 0.0)
    assert not np.array_equal(without.codes_, whole.codes_)


def test_an_ablation_is_the_same_as_a_weight_of_zero():
    for ablation, weight in (("appro", "approximation_weight"), ("reg", "smoothness")):
        switched = agsfh(**GRAPHIC, max_iter=3, ablation=ablation).fit(VIEWS)
        zeroed = agsfh(**{**GRAPHIC, weight: 0.0}, max_iter=3).fit(VIEWS)
        assert np.array_equal(switched.codes_, zeroed.codes_)


def test_the_graph_decides_bits_where_its_weight_is_large():
    assert agsfh(**PUBLISHED).fit(VIEWS).graph_share_ < 1e-3
    assert agsfh(**GRAPHIC).fit(VIEWS).graph_share_ > 0.01


def test_anchors_without_mass_do_no_harm():
    assert paper.l_step(np.array([4.0, 0.0, 1e-300])).tolist() == [0.5, 0.0, 0.0]
    assert paper.l_step(np.zeros(2)).tolist() == [0.0, 0.0]


# -- sizes and anchors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_rows", "expected"),
    [(2500, (900, 45, 60)), (1800, (900, 45, 60)), (400, (200, 20, 20)), (30, (15, 1, 1)), (2, (1, 1, 1))],
)
def test_sizes_are_the_published_ones_made_to_fit(n_rows, expected):
    rng = np.random.default_rng(0)
    views = {"a": rng.standard_normal((n_rows, 12))}
    model = fusehash.AGSFH(n_bits=8, max_iter=1, random_state=0)
    if n_rows == 2:
        with pytest.warns(fusehash.errors.FusehashWarning):
            model.fit(views)
    else:
        model.fit(views)
    assert tuple(model.settings_[name] for name in ("n_anchors", "n_neighbors", "n_clusters")) == expected


def test_every_row_may_be_an_anchor_and_every_anchor_a_neighbor():
    model = agsfh(n_anchors=N, n_neighbors=N, n_clusters=N, max_iter=2).fit(VIEWS)
    assert np.isfinite(model.objective_).all()


def test_kmeans_anchors_work_and_follow_the_seed():
    first, again, other = (agsfh(anchors="kmeans", **GRAPHIC, random_state=seed).fit(VIEWS) for seed in (0, 0, 1))
    assert np.array_equal(first.codes_, again.codes_)
    assert not np.array_equal(first.codes_, other.codes_)
    assert not np.array_equal(first.codes_, agsfh(**GRAPHIC).fit(VIEWS).codes_)
    assert agsfh(anchors="kmeans").fit(VIEWS).score(VIEWS) > 0.6


def test_kmeans_anchors_do_not_depend_on_the_number_of_threads():
    views = datasets.make_paired(3000, views={"image": 14, "text": 9}, random_state=0).views
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            models.append(agsfh(anchors="kmeans", **GRAPHIC, max_iter=2, n_threads=threads).fit(views))
    assert np.array_equal(models[0].codes_, models[1].codes_)
    assert np.array_equal(models[0].objective_, models[1].objective_)


def test_a_view_that_empties_the_fused_graph_is_no_trouble():
    rng = np.random.default_rng(1)
    views = {"a": rng.standard_normal((80, 10)), "b": rng.standard_normal((80, 10)), "c": rng.standard_normal((80, 10))}
    model = agsfh(n_neighbors=1, max_iter=3).fit(views)
    assert np.isfinite(model.objective_).all()


# -- what is refused -------------------------------------------------------------------------------------------------


ROWS, ANCHORS = f"an integer from 1 to {N} (the number of rows)", f"an integer from 1 to {P} (the number of anchors)"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("n_anchors", N + 1, ROWS),
        ("n_anchors", 0, "'auto' or an integer of at least 1"),
        ("n_anchors", "many", "'auto' or an integer of at least 1"),
        ("n_neighbors", P + 1, ANCHORS),
        ("n_clusters", P + 1, ANCHORS),
        ("anchors", "grid", "one of 'random', 'kmeans'"),
        ("ablation", "all", "one of None, 'appro', 'reg'"),
        ("regression_weight", 0.0, "a finite number greater than 0"),
        ("smoothness", -1.0, "a finite number of at least 0"),
        ("affinity_weight", np.nan, "a finite number of at least 0"),
        ("inner_max_iter", 0, "an integer of at least 1"),
        ("max_iter", 2.5, "an integer of at least 1"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_refused_with_one_sentence(name, value, expected):
    model = agsfh(**{name: value})
    sentence = f"The '{name}' parameter of AGSFH must be {expected}. Got {value!r} instead."
    with pytest.raises(ParameterError, match=f"^{re.escape(sentence)}$"):
        model.fit(VIEWS)
    assert not hasattr(model, "codes_")


@pytest.mark.parametrize("make", [fusehash.AGSFH, fusehash.FuseHash, functools.partial(fusehash.hashers.make, "agsfh")])
def test_the_presets_of_the_first_design_say_what_to_use(make):
    with pytest.raises(ParameterError, match=r"^The 'preset' parameter of .* must be left out: .*AGSFH"):
        make(preset="paper")
