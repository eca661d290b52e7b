"""Projection onto the simplex and quadratic programs over it, against solvers that know nothing of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import Bounds, LinearConstraint, minimize

from fusehash.numerics.simplex import LowRankHessian, minimize_rows, project_rows

ROWS = arrays(
    np.float64,
    st.tuples(st.integers(1, 4), st.integers(1, 12)),
    elements=st.floats(-10, 10) | st.floats(-1e-3, 1e-3) | st.sampled_from([0.0, 1.0, -1.0, 0.5]),
)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_without_a_hessian_the_largest_entry_gets_all(precision, optional):
    torch = optional("torch")
    dtype = getattr(torch, precision)
    linear = torch.tensor([[0.1, 0.3, 0.2], [-5.0, -7.0, -5.5]], dtype=dtype)
    S = minimize_rows(LowRankHessian(torch.zeros((3, 2), dtype=dtype), 0.0), linear)
    assert S.tolist() == [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]


def qp(H: np.ndarray, linear: np.ndarray) -> np.ndarray:
    """min s'Hs - l's on the simplex for convex H: the KKT system of every support, the best feasible point of all."""
    P = len(linear)
    best, best_value = None, np.inf
    for support in chain.from_iterable(combinations(range(P), size) for size in range(1, P + 1)):
        index = list(support)
        k = len(index)
        kkt = np.zeros((k + 1, k + 1))
        kkt[:k, :k] = 2 * H[np.ix_(index, index)]
        kkt[:k, k] = kkt[k, :k] = 1.0
        solved = np.linalg.lstsq(kkt, np.append(linear[index], 1.0), rcond=None)[0][:k]
        if solved.min() < -1e-12 or abs(solved.sum() - 1) > 1e-9:
            continue
        point = np.zeros(P)
        point[index] = np.maximum(solved, 0.0)
        value = point @ H @ point - linear @ point
        if value < best_value - 1e-15:
            best, best_value = point, value
    return best


def exact_projection(y: np.ndarray) -> np.ndarray:
    """The sort-based projection in rational arithmetic, rounded once at the end."""
    entries = [Fraction(float(value)) for value in y]
    total, tau = Fraction(0), None
    for rank, value in enumerate(sorted(entries, reverse=True), start=1):
        total += value
        if value - (total - 1) / rank > 0:
            tau = (total - 1) / rank
    return np.array([float(max(value - tau, Fraction(0))) for value in entries])


def random_hessian(rng: np.random.Generator, P: int, C: int, ridge: float, top: float, sign: float = 1.0):
    """A Hessian with the largest eigenvalue of U U' set to `top`."""
    U = rng.standard_normal((P, C))
    return LowRankHessian(U * np.sqrt(top) / np.linalg.norm(U, 2), ridge, sign)


def dense(hessian: LowRankHessian) -> np.ndarray:
    return hessian.ridge * np.eye(len(hessian.U)) - hessian.sign * hessian.U @ hessian.U.T


def objective(hessian: LowRankHessian, S: np.ndarray, linear: np.ndarray) -> np.ndarray:
    return np.einsum("ij,jk,ik->i", S, dense(hessian), S) - np.einsum("ij,ij->i", linear, S)


def on_simplex(S: np.ndarray) -> bool:
    return bool(np.all(S >= 0.0) and np.allclose(S.sum(axis=1), 1.0, atol=1e-12, rtol=0))


# -- projection ------------------------------------------------------------------------------------------------------


@given(ROWS)
@settings(deadline=None)
def test_projection_is_the_exact_one(Y):
    expected = np.array([exact_projection(y) for y in Y])
    assert np.abs(project_rows(Y) - expected).max() <= 1e-14 * Y.shape[1]


@given(arrays(np.float64, st.tuples(st.just(3), st.integers(1, 8)), elements=st.floats(-3, 3)))
@settings(max_examples=30, deadline=None)
def test_projection_solves_the_quadratic_program(Y):
    expected = np.array([qp(np.eye(len(y)), 2 * y) for y in Y])
    assert np.abs(project_rows(Y) - expected).max() <= 1e-10


def test_projection_equals_a_general_solver():
    rng = np.random.default_rng(0)
    for P in (2, 5, 20):
        y = rng.standard_normal(P)
        solved = minimize(
            lambda s, y=y: 0.5 * np.sum((s - y) ** 2),
            np.full(P, 1 / P),
            jac=lambda s, y=y: s - y,
            method="SLSQP",
            bounds=Bounds(0, np.inf),
            constraints=[{"type": "eq", "fun": lambda s: s.sum() - 1, "jac": np.ones_like}],
            options={"ftol": 1e-24, "maxiter": 1000},
        )
        assert np.abs(project_rows(y[None])[0] - solved.x).max() <= 1e-10


@given(ROWS)
@settings(deadline=None)
def test_projection_meets_the_kkt_conditions(Y):
    S = project_rows(Y)
    assert on_simplex(S)
    for y, s in zip(Y, S, strict=True):
        tau = np.max(y - s)  # y - s = tau on the support and <= tau elsewhere
        assert np.abs((y - s)[s > 0] - tau).max() <= 1e-14 * max(1.0, np.abs(y).max())


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1e-8, 1.0, 1e8, 1e15, 1e17, 1e100, 1e300])
@pytest.mark.parametrize("P", [1, 2, 900])
def test_projection_is_exact_at_every_scale(scale, P):
    Y = np.random.default_rng(0).standard_normal((3, P)) * scale
    expected = np.array([exact_projection(y) for y in Y])
    S = project_rows(Y)
    # The input itself is known to scale * 2^-53 only; beyond that nothing may be lost.
    assert np.abs(S - expected).max() <= 1e-13
    assert on_simplex(S)


@pytest.mark.parametrize("value", [0.0, 1.0, -1.0, 1e-300, 1e17, -1e300, 0.1])
@pytest.mark.parametrize("P", [1, 3, 7, 900])
def test_equal_entries_share_the_mass_equally(value, P):
    assert np.abs(project_rows(np.full((2, P), value)) - 1.0 / P).max() <= 1e-15


@given(st.lists(st.sampled_from([-300, -200, -20, -8, -3, 0, 2, 9, 16, 200]), min_size=2, max_size=9), st.randoms())
@settings(deadline=None)
def test_widely_spread_entries_are_projected_exactly(exponents, random):
    y = np.array([random.choice([-1, 1]) * 10.0**e for e in exponents])
    assert np.abs(project_rows(y[None])[0] - exact_projection(y)).max() <= 1e-14


def test_a_difference_of_one_or_more_is_a_vertex():
    assert project_rows(np.array([[1e16, 1e16 - 2, 0.0], [0.0, 1.0, 0.0]])).tolist() == [[1, 0, 0], [0, 1, 0]]


@given(ROWS)
@settings(deadline=None)
def test_points_of_the_simplex_stay_where_they_are(Y):
    S = project_rows(Y)
    assert np.abs(project_rows(S) - S).max() <= 1e-15


@given(ROWS, st.floats(-1e3, 1e3))
@settings(deadline=None)
def test_a_shift_of_the_whole_row_changes_nothing(Y, shift):
    assert np.abs(project_rows(Y + shift) - project_rows(Y)).max() <= 1e-11


def test_the_input_is_left_alone_and_any_layout_works():
    Y = np.random.default_rng(0).standard_normal((6, 8))
    before = Y.copy()
    S = project_rows(Y)
    assert np.array_equal(Y, before)
    assert np.array_equal(project_rows(np.asfortranarray(Y)), S)
    assert np.array_equal(project_rows(Y[::2]), S[::2])
    assert project_rows(Y.astype(np.float32)).dtype == np.float64
    assert project_rows(np.zeros((0, 5))).shape == (0, 5)


# -- the Hessian -----------------------------------------------------------------------------------------------------


@given(
    st.integers(2, 12), st.integers(0, 12), st.floats(0, 5), st.floats(0, 10), st.sampled_from([1.0, -1.0]),
    st.integers(0, 99),
)  # fmt: skip
@settings(deadline=None)
def test_lipschitz_constant_is_twice_the_largest_eigenvalue(P, C, ridge, top, sign, seed):
    C = min(C, P)
    hessian = LowRankHessian(np.zeros((P, 0)), ridge, sign) if C == 0 else None
    hessian = hessian or random_hessian(np.random.default_rng(seed), P, C, ridge, top, sign)
    largest = np.abs(np.linalg.eigvalsh(dense(hessian))).max()
    assert hessian.lipschitz >= 2 * largest - 1e-9
    if C < P:  # then the bound is attained
        assert hessian.lipschitz == pytest.approx(2 * largest, abs=1e-9)


def test_structure_is_the_largest_eigenvalue_of_the_low_rank_part():
    hessian = random_hessian(np.random.default_rng(0), 9, 3, 1.0, 4.0)
    assert hessian.structure == pytest.approx(4.0)
    assert LowRankHessian(np.zeros((5, 0)), 1.0).structure == 0.0


# -- quadratic programs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("ridge", "top"), [(10.0, 0.5), (1.0, 0.9), (1.0, 0.0)])
def test_small_convex_programs_are_solved(ridge, top, sign):
    rng = np.random.default_rng(1)
    hessian = random_hessian(rng, 8, 3, ridge, top, sign)
    linear = rng.standard_normal((6, 8)) * 3
    expected = np.array([qp(dense(hessian), row) for row in linear])
    solved = minimize_rows(hessian, linear, max_iter=5000, tol=1e-13)
    assert np.abs(solved - expected).max() <= 1e-10


def test_a_program_of_ordinary_size_is_solved():
    rng = np.random.default_rng(2)
    P = 30
    hessian = random_hessian(rng, P, 5, 2.0, 1.5)
    linear = rng.standard_normal(P)
    H = dense(hessian)
    solved = minimize(
        lambda s: s @ H @ s - linear @ s,
        np.full(P, 1 / P),
        jac=lambda s: 2 * H @ s - linear,
        method="SLSQP",
        bounds=Bounds(0, np.inf),
        constraints=[LinearConstraint(np.ones((1, P)), 1, 1)],
        options={"ftol": 1e-20, "maxiter": 1000},
    )
    assert np.abs(minimize_rows(hessian, linear[None], max_iter=5000, tol=1e-13)[0] - solved.x).max() <= 1e-7


PROBLEMS = {
    "convex": (10.0, 2.0),
    "barely convex": (1.0, 1.0),
    "indefinite": (1.0, 1.7),
    "very indefinite": (1.0, 50.0),
    "without ridge": (0.0, 3.0),
    "without anything": (0.0, 0.0),
}


@pytest.mark.parametrize(("ridge", "top"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_objective_never_rises(ridge, top):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        hessian = random_hessian(rng, 40, 6, ridge, top)
        linear = rng.standard_normal((50, 40))
        start = project_rows(rng.standard_normal((50, 40)))
        trace: list[float] = []
        S = minimize_rows(hessian, linear, max_iter=60, tol=0.0, trace=trace, start=start)
        values = np.array([objective(hessian, start, linear).sum(), *trace])
        assert np.diff(values).max() <= 1e-12 * np.abs(values).max()
        assert on_simplex(S)
        assert trace[-1] == pytest.approx(objective(hessian, S, linear).sum(), rel=1e-10, abs=1e-10)


@pytest.mark.parametrize(("ridge", "top"), PROBLEMS.values(), ids=PROBLEMS)
def test_no_single_row_rises(ridge, top):
    rng = np.random.default_rng(0)
    hessian = random_hessian(rng, 25, 4, ridge, top)
    linear = rng.standard_normal((30, 25))
    start = project_rows(rng.standard_normal((30, 25)))
    last = objective(hessian, start, linear)
    for steps in range(1, 30):
        value = objective(hessian, minimize_rows(hessian, linear, max_iter=steps, tol=0.0, start=start), linear)
        assert np.all(value <= last + 1e-12 * np.abs(last).max())
        last = value


@pytest.mark.parametrize(("ridge", "top"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_end_is_a_stationary_point(ridge, top):
    rng = np.random.default_rng(3)
    hessian = random_hessian(rng, 20, 4, ridge, top)
    linear = rng.standard_normal((15, 20))
    S = minimize_rows(hessian, linear, max_iter=20000, tol=1e-13)
    gradient = 2 * S @ dense(hessian) - linear
    step = project_rows(S - gradient / max(hessian.lipschitz, 1.0))
    assert np.abs(step - S).max() <= 1e-7


def test_a_gradient_step_follows_finite_differences_of_the_row_objective():
    rng = np.random.default_rng(4)
    hessian = random_hessian(rng, 7, 3, 1.0, 1.6)
    linear = rng.standard_normal((4, 7)) * 0.05
    start = np.full((4, 7), 1 / 7) + project_rows(rng.standard_normal((4, 7))) * 0.01
    start /= start.sum(axis=1, keepdims=True)
    slope = np.empty_like(start)
    for j in range(7):
        step = np.zeros(7)
        step[j] = 1e-5
        rise = objective(hessian, start + step, linear) - objective(hessian, start - step, linear)
        slope[:, j] = rise / 2e-5
    expected = project_rows(start - slope / hessian.lipschitz)
    first = minimize_rows(hessian, linear, max_iter=1, start=start)
    assert np.abs(first - expected).max() <= 1e-9
    assert np.abs(first - start).max() > 1e-3


def test_the_default_start_is_feasible_and_may_be_the_answer():
    rng = np.random.default_rng(5)
    for ridge, top in PROBLEMS.values():
        hessian = random_hessian(rng, 30, 5, ridge, top)
        assert on_simplex(minimize_rows(hessian, rng.standard_normal((20, 30)), max_iter=0))


def test_the_default_start_is_the_projection_of_the_unconstrained_minimum():
    rng = np.random.default_rng(6)
    hessian = random_hessian(rng, 12, 4, 2.0, 1.0)
    linear = rng.standard_normal((5, 12))
    expected = project_rows(np.linalg.solve(2 * dense(hessian), linear.T).T)
    assert np.abs(minimize_rows(hessian, linear, max_iter=0) - expected).max() <= 1e-13


def test_a_given_start_is_left_alone():
    rng = np.random.default_rng(7)
    hessian = random_hessian(rng, 9, 2, 1.0, 0.5)
    start = project_rows(rng.standard_normal((4, 9)))
    before = start.copy()
    S = minimize_rows(hessian, rng.standard_normal((4, 9)), start=start)
    assert np.array_equal(start, before)
    assert not np.shares_memory(S, start)


def test_each_row_is_solved_for_itself():
    rng = np.random.default_rng(8)
    hessian = random_hessian(rng, 15, 3, 1.0, 0.9)
    linear = rng.standard_normal((10, 15))
    together = minimize_rows(hessian, linear, max_iter=3000, tol=1e-12)
    for i in (0, 4, 9):
        alone = minimize_rows(hessian, linear[i : i + 1], max_iter=3000, tol=1e-12)
        assert np.abs(alone[0] - together[i]).max() <= 1e-9


def test_a_wider_tolerance_stops_earlier():
    rng = np.random.default_rng(9)
    hessian = random_hessian(rng, 30, 5, 1.0, 0.99)
    linear = rng.standard_normal((10, 30))
    start = project_rows(rng.standard_normal((10, 30)))
    steps = []
    for tol in (1e-1, 1e-4, 1e-10):
        trace: list[float] = []
        minimize_rows(hessian, linear, max_iter=5000, tol=tol, trace=trace, start=start)
        steps.append(len(trace))
    assert steps[0] < steps[1] < steps[2] < 5000


def test_the_published_settings_need_few_steps():
    rng = np.random.default_rng(10)
    hessian = random_hessian(rng, 300, 20, 10.0, 0.05)
    trace: list[float] = []
    minimize_rows(hessian, 0.01 * rng.standard_normal((50, 300)), tol=1e-4, trace=trace)
    assert len(trace) <= 4


def test_the_printed_rules_run_and_differ():
    rng = np.random.default_rng(11)
    linear = rng.standard_normal((20, 30))
    start = project_rows(rng.standard_normal((20, 30)))
    corrected = random_hessian(rng, 30, 5, 1.0, 0.99)
    printed_sign = LowRankHessian(corrected.U, 1.0, sign=-1.0)
    a = minimize_rows(corrected, linear, max_iter=12, tol=0.0, start=start)
    b = minimize_rows(corrected, linear, max_iter=12, tol=0.0, start=start, as_printed=True)
    c = minimize_rows(printed_sign, linear, max_iter=12, tol=0.0, start=start, as_printed=True)
    assert all(on_simplex(S) for S in (a, b, c))
    assert np.abs(a - b).max() > 1e-6  # the momentum
    assert np.abs(a - c).max() > 1e-3  # the sign
    printed = minimize_rows(corrected, linear, max_iter=5000, tol=1e-13, start=start, as_printed=True)
    right = minimize_rows(corrected, linear, max_iter=5000, tol=1e-13, start=start)
    assert np.abs(printed - right).max() <= 1e-8  # on a convex problem the momentum changes the way, not the end


def test_the_printed_momentum_stalls_at_one_half():
    c = 1.0
    for _ in range(60):
        c, last = (1 + np.sqrt(1 + 4 * c)) / 2, c
    assert (last - 1) / c == pytest.approx(0.5)


@pytest.mark.parametrize("scale", [1e-12, 1e6, 1e12, 1e17])
def test_linear_terms_of_any_size_leave_rows_on_the_simplex(scale):
    rng = np.random.default_rng(12)
    hessian = random_hessian(rng, 20, 3, 1.0, 0.5)
    linear = rng.standard_normal((10, 20)) * scale
    S = minimize_rows(hessian, linear, max_iter=200)
    assert on_simplex(S)
    if scale > 1e3:  # the linear term decides alone
        assert np.array_equal(S.argmax(axis=1), linear.argmax(axis=1))
        assert np.allclose(S.max(axis=1), 1.0)


def test_a_common_shift_of_the_linear_term_changes_nothing():
    rng = np.random.default_rng(13)
    hessian = random_hessian(rng, 20, 3, 1.0, 0.5)
    linear = rng.standard_normal((10, 20))
    S = minimize_rows(hessian, linear, max_iter=500, tol=1e-12)
    shifted = minimize_rows(hessian, linear + 1e6, max_iter=500, tol=1e-12)
    assert np.abs(S - shifted).max() <= 1e-8
