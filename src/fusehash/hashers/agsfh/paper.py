"""The method of the paper: Algorithm 2, with the corrections listed in docs/paper.md.

    min  w Tr(V' Lhat V) - g1 <A, S> + g2 ||S||^2 - g3 Tr(B' S Bs) + lam sum_m ||B - X_m W_m||^2          (Eq. 19)
    s.t. rows of S on the simplex,  V'V = I,  B and Bs in {-1, +1},    Lhat = I - L^-1/2 S'S L^-1/2,  w = 1 in the paper

Rows are samples. N samples, P anchors, M views, C clusters, K bits.

    X_m  (N x d_m)  view m, centered                 A   (N x P)  fused anchor graph (Eq. 15)
    S    (N x P)    learned anchor graph             L   (P x P)  diag(S'1); kept as the diagonal of L^-1/2
    V    (P x C)    leading eigenvectors             B   (N x K)  codes of the samples
    Bs   (P x K)    codes of the anchors             W_m (d_m x K) hash functions

S and B are computed row block by row block, and everything after them needs only the sums S'1, S'S, S'B and X_m'B. So
one iteration is one pass over the rows with O(P^2 + d K) memory, and S is never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fusehash import bits
from fusehash.hashers.agsfh.clusters import ClusterStep
from fusehash.hashers.agsfh.graph import BLOCK, Edges, GraphRows, add_edges, edge_sum
from fusehash.hashers.linear import CenteredViews, products, projected, settled
from fusehash.numerics.arrays import Array, cast, namespace, to_device_of
from fusehash.numerics.linalg import gram_of, top_eigenpairs, trace
from fusehash.numerics.rotation import signs_of
from fusehash.numerics.simplex import LowRankHessian, minimize_rows
from fusehash.streams.row_passes import Block, RowSums
from fusehash.views import Floats

TERMS = ("structure", "approximation", "smoothness", "affinity", "regression")


@dataclass(frozen=True)
class Settings:
    """The parameters of the paper."""

    approximation_weight: float  # gamma_1
    smoothness: float  # gamma_2
    affinity_weight: float  # gamma_3
    regression_weight: float  # lambda
    n_clusters: int  # C
    max_iter: int
    tol: float
    inner_max_iter: int  # T_OGM
    inner_tol: float
    as_printed: bool


@dataclass
class Variables:
    """The unknowns of Eq. 19 between iterations, except S, which is never stored."""

    codes: Array  # B, packed
    Bs: Array
    W: dict[str, Array]
    V: Array
    scale: Array  # diagonal of L^-1/2
    nearest: Array  # argmax_j s_ij of every row


# -- the steps ---------------------------------------------------------------------------------------------------


def s_step(hessian: LowRankHessian, linear: Array, settings: Settings) -> Array:
    """min_s  g2 ||s||^2 - s'V~V~'s - l's  over the simplex, per row (Eq. 21), by Algorithm 1.

    V~ = L^-1/2 V and l = g1 a + g3 Bs b. In print the sign of V~V~' is plus.
    """
    return minimize_rows(
        hessian, linear, max_iter=settings.inner_max_iter, tol=settings.inner_tol, as_printed=settings.as_printed
    )


def b_step(S: Array, Bs: Array, XW: Array, settings: Settings) -> Array:
    """B = sgn(g3 S Bs + 2 lam sum_m X_m W_m)  (Eq. 32)."""
    return signs_of(settings.affinity_weight * (S @ Bs) + 2.0 * settings.regression_weight * XW)


def l_step(mass: Array) -> Array:
    """L = diag(S'1)  (Eq. 28), as the diagonal of L^-1/2; 0 for anchors without mass (infinity in print)."""
    xp = namespace(mass)
    alive = mass > 1e-12 * max(float(xp.max(mass)), 1e-300)
    return xp.where(alive, 1.0 / xp.sqrt(xp.where(alive, mass, xp.ones_like(mass))), xp.zeros_like(mass))


def v_step(SS: Array, scale: Array, n_clusters: int, start: Array | None = None) -> tuple[Array, Array]:
    """V = the C leading eigenvectors of L^-1/2 S'S L^-1/2  (Eq. 29), and their eigenvalues."""
    return top_eigenpairs(SS * (scale[:, None] * scale), n_clusters, start)


def anchor_codes(SB: Array) -> Array:
    """Bs = sgn(S'B)  (Eq. 34)."""
    return signs_of(SB)


def w_step(data: CenteredViews, XB: dict[str, Array]) -> dict[str, Array]:
    """W_m = (X_m'X_m + ridge I)^-1 X_m'B  (Eq. 35, with the ridge that it needs)."""
    return data.regress(XB)


def objective(
    data: CenteredViews, sums: RowSums, now: Variables, eigenvalues: Array, weight: float, settings: Settings
) -> Floats:
    """The five terms of Eq. 19, from the sums alone; `weight` is w."""
    n_entries = data.data.n_rows * now.Bs.shape[1]
    return np.array(
        [
            weight * (len(eigenvalues) - float(eigenvalues.sum())),
            -settings.approximation_weight * float(sums["AS"]),
            settings.smoothness * trace(sums["SS"]),
            -settings.affinity_weight * float((now.Bs * sums["SB"]).sum()),
            settings.regression_weight * data.regression_loss(now.W, sums["XB"], n_entries),
        ]
    )


# -- the loop ----------------------------------------------------------------------------------------------------


def minimize(
    data: CenteredViews,
    A: GraphRows,
    now: Variables,
    settings: Settings,
    clusters: ClusterStep | None,
    report: Callable[[int, int, str], None],
) -> tuple[Floats, RowSums]:
    """Algorithm 2: the terms of Eq. 19 per iteration, and the last sums.

    Stops when the objective settles or, with `clusters`, when the graph has C components.
    """
    history: list[Floats] = []
    eigenvectors: Array | None = None
    for step in range(settings.max_iter):
        sums = s_and_b_steps(data, A, now, settings, clusters)
        now.scale = l_step(sums["mass"])
        eigenvalues, eigenvectors = v_step(sums["SS"], now.scale, settings.n_clusters, eigenvectors)
        now.V = eigenvectors
        now.Bs = anchor_codes(sums["SB"])
        now.W = w_step(data, sums["XB"])
        weight = 1.0 if clusters is None else clusters.weight.value
        history.append(objective(data, sums, now, eigenvalues, weight, settings))
        report(step + 1, settings.max_iter, f"objective {history[-1].sum():.6g}")
        if clusters is None and settled([float(terms.sum()) for terms in history[-2:]], settings.tol):
            break
        if clusters is not None and clusters.reached(sums["SS"], now.V, eigenvalues, now.scale):
            break
    return np.array(history), sums


def s_and_b_steps(
    data: CenteredViews, A: GraphRows, now: Variables, settings: Settings, clusters: ClusterStep | None
) -> RowSums:
    """S, then B, row block by row block in one pass; returns the sums that all other steps need.

    They are S'S, S'1 (mass), S'B, X_m'B, <A, S>, and the bits that the graph decided against the regression.
    """
    # What of_block refers to is sent to the workers of a cluster: small matrices only.
    centered, dtype, W, Bs, n_bits = data.centered, data.dtype, now.W, cast(now.Bs, data.dtype), now.Bs.shape[1]
    U = cast(now.scale[:, None] * now.V, dtype)  # V~
    hessian = LowRankHessian(U, settings.smoothness, sign=-1.0 if settings.as_printed else 1.0)
    hessian.prepare()  # once, not once per block

    def of_block(block: Block, codes: Array) -> tuple[tuple[Array, Array], RowSums]:
        edges: Edges = A(block)
        linear = bits.unpack_as(codes, n_bits, dtype) @ (settings.affinity_weight * Bs.T)
        add_edges(linear, edges, settings.approximation_weight)
        S = s_step(hessian, linear, settings) if clusters is None else clusters.solve(block.rows, linear)
        X = centered(block)
        XW = projected(X, W)
        B = b_step(S, Bs, XW, settings)
        xp = namespace(S)
        return (bits.pack(B), cast(xp.argmax(S, axis=1), "int32")), RowSums(
            SS=gram_of(S),
            mass=cast(xp.sum(S, axis=0), "float64"),
            SB=cast(S.T @ B, "float64"),
            XB=products(X, B),
            AS=edge_sum(S, edges),
            by_graph=xp.count_nonzero(signs_of(XW) != B),
        )

    per_row, sums = data.data.total(of_block, BLOCK, given=(now.codes,))
    assert per_row is not None
    now.codes, now.nearest = per_row
    return RowSums(sums)


def initial_variables(
    data: CenteredViews, gram: Array, mass: Array, n_bits: int, n_clusters: int, rngs: dict[str, np.random.Generator]
) -> tuple[Variables, Array]:
    """V from a graph's A'A and A'1, L = I, W random, B and Bs random and balanced (Algorithm 2, lines 4 to 7)."""
    n_rows, n_anchors, like = data.data.n_rows, len(mass), data.data.like
    eigenvalues, V = v_step(gram, l_step(mass), n_clusters)
    W = {name: to_device_of(rngs["W"].standard_normal((d, n_bits)), like) for name, d in data.data.n_features.items()}
    codes = bits.balanced(n_rows, n_bits, rngs["B"])
    Bs = bits.unpack(bits.balanced(n_anchors, n_bits, rngs["B"]), n_bits).astype(np.float64)
    codes, Bs, scale, nearest = (
        to_device_of(array, like) for array in (codes, Bs, np.ones(n_anchors), np.zeros(n_rows, np.int32))
    )
    return Variables(codes, Bs, W, V, scale, nearest), eigenvalues
