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

from fusehash import bits
from fusehash.arrays import Array, beside, cast, host, namespace
from fusehash.hashers.agsfh_clusters import ClusterStep, StructureWeight, components
from fusehash.hashers.agsfh_graph import BLOCK, GraphRows, add_edges, edge_sum
from fusehash.hashers.linear import CentredViews, Products, projected
from fusehash.passes import Block
from fusehash.rotation import signs_of
from fusehash.simplex import LowRankHessian, minimise_rows
from fusehash.spectrum import gram_of, top_eigenpairs, trace
from fusehash.views import Floats

TERMS = ("structure", "approximation", "smoothness", "affinity", "regression")


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


@dataclass
class Sums:
    """What one pass over the rows leaves behind."""

    SS: Array  # S'S
    mass: Array  # S'1
    SB: Array  # S'B
    products: Products  # X_m'B
    AS: Array  # <A, S>
    by_graph: Array  # bits of B that the graph decided against the regression

    def add(self, other: Sums) -> None:
        self.SS += other.SS
        self.mass += other.mass
        self.SB += other.SB
        self.products.add(other.products)
        self.AS = self.AS + other.AS
        self.by_graph = self.by_graph + other.by_graph


@dataclass
class State:
    """The variables between iterations."""

    codes: Array  # B, packed
    Bs: Array
    W: dict[str, Array]
    V: Array
    scale: Array  # diagonal of L^-1/2
    nearest: Array  # the anchor with the largest s_ij of every row
    clusters: ClusterStep | None = None  # only with exact_clusters

    @property
    def structure_weight(self) -> float:
        return 1.0 if self.clusters is None else self.clusters.weight.value


def inverse_root(mass: Array) -> Array:
    """Diagonal of L^-1/2; anchors without mass get 0 (print: infinity)."""
    xp = namespace(mass)
    alive = mass > 1e-12 * max(float(xp.max(mass)), 1e-300)
    return xp.where(alive, 1.0 / xp.sqrt(xp.where(alive, mass, xp.ones_like(mass))), xp.zeros_like(mass))


def initial_state(
    data: CentredViews,
    A: GraphRows,
    n_bits: int,
    settings: Settings,
    streams: dict[str, np.random.Generator],
    start: sp.csr_matrix | None = None,
) -> State:
    """V from the fused graph, L = I, W random, B and Bs random with balanced bits (Algorithm 2, lines 4 to 7).

    With exact_clusters a `start` may take A's place here: the Hadamard product falls into slivers of its own, and
    exactly C of those are no clusters; the mean of the views' graphs holds together.
    """
    N, P, like = data.data.n_rows, A.n_anchors, data.data.like
    gram, mass = A.gram(data.data) if start is None else ((start.T @ start).toarray(), np.asarray(start.sum(0)).ravel())
    root = inverse_root(mass)
    eigenvalues, V = top_eigenpairs(gram * (root[:, None] * root), settings.n_clusters)
    W = {name: beside(streams["W"].standard_normal((d, n_bits)), like) for name, d in data.data.n_features.items()}
    clusters = None
    if start is not None:
        clusters = ClusterStep(StructureWeight(settings.n_clusters), settings.smoothness, start)
        clusters.prepare(V, eigenvalues, root)
        clusters.start(min(settings.n_neighbors, P - 1))
    codes = balanced_codes(N, n_bits, streams["B"])
    Bs = bits.unpack(balanced_codes(P, n_bits, streams["B"]), n_bits).astype(np.float64)
    return State(
        codes=beside(codes, like),
        Bs=beside(Bs, like),
        W=W,
        V=V,
        scale=beside(np.ones(P), like),
        nearest=beside(np.zeros(N, np.int32), like),
        clusters=clusters,
    )


def balanced_codes(n: int, n_bits: int, rng: np.random.Generator) -> bits.Codes:
    """Random packed codes in which every bit is set in half of the rows (n // 2).

    Coins for all, then the surplus of every bit is turned, in rows drawn from those that have it: no balanced column
    is likelier than another, as if it had been shuffled, which takes ten times as long.
    """
    codes = rng.integers(256, size=(n, n_bits // 8), dtype=np.uint8)
    for bit in range(n_bits):
        column, place = codes[:, bit // 8], np.uint8(1 << bit % 8)
        is_set = column & place != 0
        surplus = np.count_nonzero(is_set) - n // 2
        rows = np.flatnonzero(is_set if surplus > 0 else ~is_set)
        column[rng.choice(rows, abs(surplus), replace=False, shuffle=False)] ^= place
    return codes


def iterate(data: CentredViews, A: GraphRows, state: State, settings: Settings) -> Sums:
    """S, B and the sums behind all other steps, in one pass over row blocks (Algorithm 1; Eq. 32)."""
    s, dtype, centred, clusters, W = settings, data.dtype, data.centred, state.clusters, state.W
    U = cast(state.scale[:, None] * state.V, dtype)  # V~ = L^-1/2 V
    Bs, n_bits = cast(state.Bs, dtype), state.Bs.shape[1]
    hessian = LowRankHessian(U, s.smoothness, sign=-1.0 if s.as_printed else 1.0)
    hessian.prepare()  # once, not once a block

    def of_block(block: Block, codes: Array) -> tuple[tuple[Array, Array], Sums]:
        edges = A(block)
        linear = bits.unpack_beside(codes, n_bits, dtype) @ (s.affinity_weight * Bs.T)
        add_edges(linear, edges, s.approximation_weight)
        if clusters is not None:
            S = clusters.solve(block.rows, linear)
        else:
            S = minimise_rows(hessian, linear, max_iter=s.inner_max_iter, tol=s.inner_tol, as_printed=s.as_printed)
        X = centred(block)
        regressed = projected(X, W)
        B = signs_of(s.affinity_weight * (S @ Bs) + 2.0 * s.regression_weight * regressed)  # Eq. 32
        xp = namespace(S)
        return (bits.pack(B), cast(xp.argmax(S, axis=1), "int32")), Sums(
            SS=gram_of(S),
            mass=cast(xp.sum(S, axis=0), "float64"),
            SB=cast(S.T @ B, "float64"),
            products=Products.of(X, B),
            AS=edge_sum(S, edges),
            by_graph=xp.count_nonzero(signs_of(regressed) != B),
        )

    lines, sums = data.data.total(of_block, BLOCK, given=(state.codes,))
    assert lines is not None
    state.codes, state.nearest = lines
    total: Sums = sums
    return total


def objective_terms(data: CentredViews, sums: Sums, state: State, eigenvalues: Array, settings: Settings) -> Floats:
    """The five terms of Eq. 19 after an iteration, from the sums alone."""
    n_entries = data.data.n_rows * state.Bs.shape[1]
    return np.array(
        [
            state.structure_weight * (len(eigenvalues) - float(eigenvalues.sum())),
            -settings.approximation_weight * float(sums.AS),
            settings.smoothness * trace(sums.SS),
            -settings.affinity_weight * float((state.Bs * sums.SB).sum()),
            settings.regression_weight * data.regression_loss(state.W, sums.products.XB, n_entries),
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
    A: GraphRows,
    state: State,
    settings: Settings,
    report: Callable[[int, int, str], None],
) -> Outcome:
    """Algorithm 2. Stops when the objective settles (and, with exact_clusters, the graph has C components)."""
    history: list[Floats] = []
    eigenvectors: Array | None = None
    for step in range(settings.max_iter):
        sums = iterate(data, A, state, settings)
        state.scale = inverse_root(sums.mass)  # Eq. 28
        E = sums.SS * (state.scale[:, None] * state.scale)
        eigenvalues, eigenvectors = top_eigenpairs(E, settings.n_clusters, eigenvectors)  # Eq. 29
        state.V = eigenvectors
        state.Bs = signs_of(sums.SB)  # Eq. 34
        state.W = data.regress(sums.products.XB)  # Eq. 35
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
    n_components, of_anchor = components(host(sums.SS))
    by_graph = float(sums.by_graph) / (data.data.n_rows * state.Bs.shape[1])
    return Outcome(state, np.array(history), n_components, of_anchor[host(state.nearest)], by_graph)


def settled(history: list[Floats], tol: float) -> bool:
    """Whether the objective changed by at most tol (relative) in the last iteration."""
    if len(history) < 2:
        return False
    last, value = float(history[-2].sum()), float(history[-1].sum())
    return abs(value - last) <= tol * abs(value)
