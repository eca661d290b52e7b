"""The loop of the paper: Algorithm 2 with the corrections of docs/paper.md.

    min  w Tr(V' Lhat V) - g1 <A, S> + g2 ||S||^2 - g3 Tr(B' S Bs) + lam sum_m ||B - X_m W_m||^2          (Eq. 19)
    Lhat = I - L^-1/2 S'S L^-1/2,  V'V = I,  rows of S on the simplex,  B and Bs in {-1, +1},  w = 1 in the paper

Rows are samples: X_m (N x d_m), A and S (N x P), L = diag(S'1), V (P x C), B (N x K), Bs (P x K), W_m (d_m x K).

S depends only on (A, B, Bs, V, L) row by row, and everything later needs only the sums S'1, S'S, S'B and X'B. So one
iteration is one pass over row blocks with O(P^2 + d K) state, and S is never stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fusehash.hashers.agsfh_clusters import ClusterStep, StructureWeight, components
from fusehash.hashers.base import signs
from fusehash.hashers.linear import CentredViews
from fusehash.parallel import map_blocks
from fusehash.simplex import LowRankHessian, minimise_rows
from fusehash.spectrum import top_eigenpairs
from fusehash.views import Floats

TERMS = ("structure", "approximation", "smoothness", "affinity", "regression")
BLOCK = 256


@dataclass(frozen=True)
class Settings:
    """The paper's parameters under names that explain themselves."""

    approximation_weight: float  # gamma_1
    smoothness: float  # gamma_2
    affinity_weight: float  # gamma_3
    regression_weight: float  # lambda
    n_clusters: int  # C
    n_neighbors: int  # k
    max_iter: int
    tol: float
    inner_max_iter: int
    inner_tol: float
    as_printed: bool
    exact_clusters: bool


@dataclass
class Sums:
    """What one pass over the rows leaves behind."""

    SS: Floats  # S'S
    mass: Floats  # S'1
    SB: Floats  # S'B
    XB: dict[str, Floats]  # X_m'B
    AS: float  # <A, S>
    by_graph: int  # bits of B that the graph decided against the regression

    def add(self, other: Sums) -> None:
        self.SS += other.SS
        self.mass += other.mass
        self.SB += other.SB
        for name, product in other.XB.items():
            self.XB[name] += product
        self.AS += other.AS
        self.by_graph += other.by_graph


@dataclass
class State:
    """The variables between iterations."""

    B: NDArray[np.int8]
    Bs: Floats
    W: dict[str, Floats]
    V: Floats
    scale: Floats  # diagonal of L^-1/2
    nearest: NDArray[np.int32]  # the anchor with the largest s_ij of every row
    clusters: ClusterStep | None = None  # only with exact_clusters

    @property
    def structure_weight(self) -> float:
        return 1.0 if self.clusters is None else self.clusters.weight.value


def inverse_root(mass: Floats) -> Floats:
    """Diagonal of L^-1/2; anchors without mass get 0 (print: infinity)."""
    alive = mass > 1e-12 * max(float(mass.max(initial=0.0)), 1e-300)
    return np.where(alive, 1.0 / np.sqrt(np.where(alive, mass, 1.0)), 0.0)


def initial_state(
    data: CentredViews,
    A: sp.csr_matrix,
    n_bits: int,
    settings: Settings,
    streams: dict[str, np.random.Generator],
    start: sp.csr_matrix | None = None,
) -> State:
    """V from the fused graph, L = I, W random, B and Bs random with balanced bits (Algorithm 2, lines 4 to 7).

    With exact_clusters a `start` may take A's place here: the Hadamard product falls into slivers of its own, and
    exactly C of those are no clusters; the mean of the views' graphs holds together.
    """
    N, P = A.shape
    graph = A if start is None else start
    root = inverse_root(np.asarray(graph.sum(axis=0)).ravel())
    E = (graph.T @ graph).toarray() * np.outer(root, root)
    eigenvalues, V = top_eigenpairs(E, settings.n_clusters)
    W = {name: streams["W"].standard_normal((d, n_bits)) for name, d in data.views.n_features.items()}
    clusters = None
    if settings.exact_clusters:
        clusters = ClusterStep(StructureWeight(settings.n_clusters), settings.smoothness, graph)
        clusters.prepare(V, eigenvalues, root)
        clusters.start(min(settings.n_neighbors, P - 1))
    return State(
        B=balanced_signs(N, n_bits, streams["B"]).astype(np.int8),
        Bs=balanced_signs(P, n_bits, streams["B"]),
        W=W,
        V=V,
        scale=np.ones(P),
        nearest=np.zeros(N, np.int32),
        clusters=clusters,
    )


def balanced_signs(n: int, n_bits: int, rng: np.random.Generator) -> Floats:
    """Random signs with as many +1 as -1 in every column."""
    column = np.where(np.arange(n) < n // 2, 1.0, -1.0)
    return np.stack([rng.permutation(column) for _ in range(n_bits)], axis=1)


def iterate(data: CentredViews, A: sp.csr_matrix, state: State, settings: Settings) -> Sums:
    """S, B and the sums behind all other steps, in one pass over row blocks (Algorithm 1; Eq. 32)."""
    s = settings
    U = state.scale[:, None] * state.V  # V~ = L^-1/2 V
    hessian = LowRankHessian(U, s.smoothness, sign=-1.0 if s.as_printed else 1.0)
    hessian.lipschitz  # computed once, not once a block  # noqa: B018

    def of_block(rows: slice) -> Sums:
        B_old = state.B[rows].astype(np.float64)
        a = A[rows]
        near = (np.repeat(np.arange(a.shape[0]), np.diff(a.indptr)), a.indices)
        linear = B_old @ (s.affinity_weight * state.Bs.T)
        linear[near] += s.approximation_weight * a.data
        if state.clusters is not None:
            S = state.clusters.solve(rows, linear)
        else:
            S = minimise_rows(hessian, linear, max_iter=s.inner_max_iter, tol=s.inner_tol, as_printed=s.as_printed)
        X = {name: data.block(name, rows) for name in data.views}
        projected = np.sum([X[name] @ weights for name, weights in state.W.items()], axis=0)
        B = signs(s.affinity_weight * (S @ state.Bs) + 2.0 * s.regression_weight * projected)  # Eq. 32
        state.B[rows] = B
        state.nearest[rows] = S.argmax(axis=1)
        return Sums(
            SS=S.T @ S,
            mass=S.sum(axis=0),
            SB=S.T @ B,
            XB={name: block.T @ B for name, block in X.items()},
            AS=float(S[near] @ a.data),
            by_graph=int(np.count_nonzero(signs(projected) != B)),
        )

    parts = map_blocks(of_block, data.views.blocks(BLOCK), data.n_threads)
    total = next(parts)
    for part in parts:
        total.add(part)
    return total


def objective_terms(data: CentredViews, sums: Sums, state: State, eigenvalues: Floats, settings: Settings) -> Floats:
    """The five terms of Eq. 19 after an iteration, from the sums alone."""
    regression = data.regression_loss(state.W, sums.XB, state.B.size)
    return np.array(
        [
            state.structure_weight * (len(eigenvalues) - eigenvalues.sum()),
            -settings.approximation_weight * sums.AS,
            settings.smoothness * np.trace(sums.SS),
            -settings.affinity_weight * np.sum(state.Bs * sums.SB),
            settings.regression_weight * regression,
        ]
    )


@dataclass
class Outcome:
    state: State
    terms: Floats  # (iterations, 5)
    n_components: int
    labels: NDArray[np.int32]
    by_graph: float  # share of the bits that the graph decided against the regression


def run(
    data: CentredViews,
    A: sp.csr_matrix,
    state: State,
    settings: Settings,
    report: Callable[[int, int, str], None],
) -> Outcome:
    """Algorithm 2. Stops when the objective settles (and, with exact_clusters, the graph has C components)."""
    history: list[Floats] = []
    eigenvectors: Floats | None = None
    for step in range(settings.max_iter):
        sums = iterate(data, A, state, settings)
        state.scale = inverse_root(sums.mass)  # Eq. 28
        E = sums.SS * np.outer(state.scale, state.scale)
        eigenvalues, eigenvectors = top_eigenpairs(E, settings.n_clusters, eigenvectors)  # Eq. 29
        state.V = eigenvectors
        state.Bs = signs(sums.SB)  # Eq. 34
        state.W = data.regress(sums.XB)  # Eq. 35
        history.append(objective_terms(data, sums, state, eigenvalues, settings))
        value = history[-1].sum()
        report(step + 1, settings.max_iter, f"objective {value:.6g}")
        if state.clusters is not None:
            n_components, _ = components(sums.SS)
            if n_components == settings.n_clusters:
                break
            state.clusters.adapt(n_components, state.V, eigenvalues, state.scale)
        elif settled(history, settings.tol):
            break
    n_components, of_anchor = components(sums.SS)
    by_graph = sums.by_graph / state.B.size
    return Outcome(state, np.array(history), n_components, of_anchor[state.nearest], by_graph)


def settled(history: list[Floats], tol: float) -> bool:
    """Whether the objective changed by at most tol (relative) in the last iteration."""
    if len(history) < 2:
        return False
    last, value = float(history[-2].sum()), float(history[-1].sum())
    return abs(value - last) <= tol * abs(value)
