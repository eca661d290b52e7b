"""Exactly C connected components: the structure that the paper promises and its loop does not enforce.

With the sample side of the eigenvectors written out (U = S L^-1/2 V / sigma), the structure term is linear in S,

    Tr(V' Lhat V) = sum_ij s_ij ||u_i - v~_j||^2 + const,     v~_j = v_j / sqrt(L_jj),

which also sees that L depends on S; the paper's step holds L fixed, and with a large weight it then starves anchors
until fewer than C are left. Each row of S is one projection onto the simplex,

    s_i = projection of (l_i - w ||u_i - v~_j||^2) / (2 gamma_2),

and the weight w follows the rule of GSF (Zhan et al. 2019): too few components and it grows, too many and it falls.
The rows of S are kept (sparse) from one iteration to the next, since u_i needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fusehash.numerics.simplex import project_rows
from fusehash.views import Floats


@dataclass
class StructureWeight:
    """The weight w of the structure term, adapted until the graph has exactly C components.

    The weight grows by `factor` while there are too few. When there are too many, the step is undone (S would stay in
    pieces under a smaller weight too) and bisected.
    """

    n_clusters: int
    value: float = 1.0
    factor: float = 1.3
    low: float = 0.0  # gave too few components
    high: float = np.inf  # gave too many

    def adapt(self, n_components: int) -> bool:
        """Choose the next weight; True if the last step is to be undone."""
        too_many = n_components > self.n_clusters
        if too_many:
            self.high = self.value
        else:
            self.low = self.value
        if self.low == 0.0:
            self.value /= 2.0
            return too_many
        if self.high < 1.01 * self.low:  # the interval closed at a jump over C: continue from another S
            self.low, self.high = (self.low / self.factor, self.high) if too_many else (self.low, np.inf)
        self.value = self.low * self.factor if np.isinf(self.high) else float(np.sqrt(self.low * self.high))
        return too_many


@dataclass
class ClusterStep:
    """The S step with the last S: its rows by block, and their spectrum."""

    weight: StructureWeight
    smoothness: float
    graph: sp.csr_matrix  # where the rows of S come from at first
    anchors: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # v~_j, one per row
    sigma: Floats = field(default_factory=lambda: np.zeros(0))
    blocks: dict[int, sp.csr_matrix] = field(default_factory=dict)
    _kept: tuple[Floats, Floats, dict[int, sp.csr_matrix]] | None = None  # the last S with too few components

    def take_spectrum(self, V: Floats, eigenvalues: Floats, scale: Floats) -> None:
        """Continue from the S with this spectrum (eigenvalues are squared singular values)."""
        self.anchors = scale[:, None] * V
        self.sigma = np.sqrt(np.maximum(eigenvalues, 1e-12))

    def distances(self, last: sp.csr_matrix) -> Floats:
        """||u_i - v~_j||^2 up to a constant per row, from the last rows of S."""
        U = (last @ self.anchors) / self.sigma
        return np.einsum("ij,ij->i", self.anchors, self.anchors) - 2.0 * (U @ self.anchors.T)

    def choose_first_weight(self, k: int, sample: int = 4096) -> None:
        """Choose the weight so that rows of S get about k entries, as the graph has.

        A smaller one would let gamma_2 spread the rows evenly and forget the graph before the structure term matters.
        """
        d = np.sort(self.distances(unit_rows(self.graph[:sample])), axis=1)
        spread = float(np.mean(k * d[:, k] - d[:, :k].sum(axis=1)))
        # Where the graph falls apart by itself the k nearest are all at distance 0: look at the others then.
        spread = max(spread, 1e-3 * k * float(np.mean(d[:, -1] - d[:, 0])))
        if spread > 1e-9 * k * float(np.mean(self.anchors**2)):
            self.weight.value = 2.0 * self.smoothness / spread
        self._kept = self.anchors, self.sigma, {}

    def reached(self, SS: Floats, V: Floats, eigenvalues: Floats, scale: Floats) -> bool:
        """Whether S has exactly C components; if not, choose the next weight and the S to continue from."""
        n_components, _ = components(SS)
        if n_components == self.weight.n_clusters:
            return True
        if self.weight.adapt(n_components) and self._kept is not None:
            self.anchors, self.sigma, kept = self._kept
            self.blocks = dict(kept)
        else:
            self.take_spectrum(V, eigenvalues, scale)
            self._kept = self.anchors, self.sigma, dict(self.blocks)
        return False

    def solve(self, rows: slice, linear: Floats) -> Floats:
        """New rows of S from the last ones (at first, the graph)."""
        last = self.blocks.get(rows.start)
        distances = self.distances(unit_rows(self.graph[rows]) if last is None else last)
        S = project_rows((linear - self.weight.value * distances) / (2.0 * self.smoothness))
        self.blocks[rows.start] = sp.csr_matrix(S)
        return S


def unit_rows(graph_rows: sp.csr_matrix) -> sp.csr_matrix:
    """The rows of a graph scaled to sum 1; empty rows stay empty."""
    mass = np.asarray(graph_rows.sum(axis=1)).ravel()
    return sp.csr_matrix(sp.diags(1.0 / np.where(mass > 0.0, mass, 1.0)) @ graph_rows)


def components(SS: Floats) -> tuple[int, NDArray[np.int32]]:
    """Connected components of the learned graph, and the component of every anchor (-1: an anchor without mass).

    Two anchors are joined where some row has weight on both, which is where S'S is not zero.
    """
    alive = np.flatnonzero(np.diagonal(SS) > 0.0)
    count, label = connected_components(sp.csr_matrix(SS[np.ix_(alive, alive)] > 0.0), directed=False)
    of_anchor = np.full(len(SS), -1, np.int32)
    of_anchor[alive] = label
    return int(count), of_anchor
