"""Anchor Graph Structure Fusion Hashing."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fusehash import bits, graph
from fusehash.errors import FusehashWarning
from fusehash.hashers import agsfh_paper as paper
from fusehash.hashers.base import Progress
from fusehash.hashers.checks import check_choice, check_integer, check_real, stream
from fusehash.hashers.linear import CentredViews, LinearHasher
from fusehash.views import Floats, PairedViews


class AGSFH(LinearHasher):
    """Anchor Graph Structure Fusion Hashing (Wang, Yang, Zareapoor, Zheng 2022), corrected where the print is wrong.

    min  Tr(V' Lhat V) - g1 <A, S> + g2 ||S||^2 - g3 Tr(B' S Bs) + lam sum_m ||B - X_m W_m||^2        (Eq. 19)

    See `fusehash.hashers.agsfh_paper` for the loop and docs/paper.md for every departure from the print.

    Parameters
    ----------
    n_bits : code length K, a multiple of 8.
    preset : "paper", the paper's loop with its published settings.
    n_anchors : P; "auto" is 900, or half of the rows where there are fewer than 1,800.
    n_neighbors : k, anchors each item is joined to; "auto" is 45, or a tenth of the anchors where that is less.
    n_clusters : C, components the structure term asks for; "auto" is 60, or a tenth of the anchors where that is less.
    approximation_weight : gamma_1, pull of the learned graph S towards the fused graph A.
    smoothness : gamma_2, spreads the rows of S.
    affinity_weight : gamma_3, pull of the codes towards the learned graph.
    regression_weight : lambda, how closely hash functions must predict the codes.
    ridge : relative to the mean diagonal of X'X, which is singular on real data (Eq. 35 has no ridge).
    max_iter, tol : outer iterations; stops when the objective changes by no more than tol (relative).
    inner_max_iter, inner_tol : T_OGM and tolerance of Algorithm 1 (the paper: 1e-4).
    anchors : "random" pairs, or "kmeans" centres over the joint features.
    as_printed : use the printed sign in Eq. 21 and the printed momentum in Eq. 24.
    ablation : None, "appro" (without term 2) or "reg" (without term 3), as in Table 7.
    exact_clusters : adapt the weight of the structure term until the learned graph has exactly C connected
        components, which the paper promises but does not enforce.
    random_state : seed; equal seed and data give equal codes, whatever the number of threads.
    n_threads : None for all cores.
    callback : called as callback(step, total, message) while fitting; may raise to interrupt.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8, codes of the training pairs.
    objective_ : value of Eq. 19 after every iteration; objective_terms_ holds each of its terms by name.
    n_components_ : connected components of the learned graph.
    labels_ : (n,) the component (cluster) of every training pair.
    graph_share_ : share of the bits that the graph decided against the regression, in the last iteration.
    means_, weights_ : per view, the training mean and W_m.
    """

    method: ClassVar[str] = "agsfh"
    summary: ClassVar[str] = "anchor graph structure fusion hashing (2022)"

    objective_: Floats
    objective_terms_: dict[str, Floats]
    n_components_: int
    labels_: NDArray[np.int32]
    graph_share_: float
    settings_: dict[str, Any]

    def __init__(
        self,
        *,
        n_bits: int = 64,
        preset: str | None = None,
        n_anchors: int | str = "auto",
        n_neighbors: int | str = "auto",
        n_clusters: int | str = "auto",
        approximation_weight: float = 0.01,
        smoothness: float = 10.0,
        affinity_weight: float = 0.01,
        regression_weight: float = 300.0,
        ridge: float = 1e-6,
        max_iter: int = 20,
        tol: float = 1e-5,
        inner_max_iter: int = 50,
        inner_tol: float = 1e-4,
        anchors: str = "random",
        as_printed: bool = False,
        ablation: str | None = None,
        exact_clusters: bool = False,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.preset = preset
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.n_clusters = n_clusters
        self.approximation_weight = approximation_weight
        self.smoothness = smoothness
        self.affinity_weight = affinity_weight
        self.regression_weight = regression_weight
        self.ridge = ridge
        self.max_iter = max_iter
        self.tol = tol
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.anchors = anchors
        self.as_printed = as_printed
        self.ablation = ablation
        self.exact_clusters = exact_clusters
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _check_params(self) -> None:
        owner = type(self).__name__
        check_choice(owner, "preset", self.preset, (None, "paper"))
        check_choice(owner, "anchors", self.anchors, ("random", "kmeans"))
        check_choice(owner, "ablation", self.ablation, (None, "appro", "reg"))
        for name in ("approximation_weight", "smoothness", "affinity_weight", "tol", "inner_tol", "ridge"):
            check_real(owner, name, getattr(self, name))
        check_real(owner, "regression_weight", self.regression_weight, strict=True)
        check_integer(owner, "max_iter", self.max_iter, low=1)
        check_integer(owner, "inner_max_iter", self.inner_max_iter, low=1)
        if self.n_threads is not None:
            check_integer(owner, "n_threads", self.n_threads, low=1)

    def _fit(self, views: PairedViews, y: Any) -> None:
        P, k, C = self._sizes(views.n_rows)
        data = CentredViews.of(views, self.ridge, self.n_threads)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        anchors = graph.choose_anchors(views, P, self.anchors, stream(self._seed, "anchors"))
        A = graph.fused_anchor_graph(views, anchors, k)
        streams = {"W": stream(self._seed, "W"), "B": stream(self._seed, "B")}
        settings = paper.Settings(
            approximation_weight=0.0 if self.ablation == "appro" else self.approximation_weight,
            smoothness=0.0 if self.ablation == "reg" else self.smoothness,
            affinity_weight=self.affinity_weight,
            regression_weight=self.regression_weight,
            n_clusters=C,
            n_neighbors=k,
            max_iter=self.max_iter,
            tol=self.tol,
            inner_max_iter=self.inner_max_iter,
            inner_tol=self.inner_tol,
            as_printed=self.as_printed,
            exact_clusters=self.exact_clusters,
        )
        state = paper.initial_state(data, A, self.n_bits, settings, streams)
        outcome = paper.run(data, A, state, settings, self._report)
        if self.exact_clusters and outcome.n_components != C:
            warnings.warn(
                f"AGSFH was asked for exactly {C} clusters and has {outcome.n_components} after "
                f"{len(outcome.terms)} iterations; a larger 'max_iter' may reach them.",
                FusehashWarning,
                stacklevel=3,
            )
        self.codes_ = bits.pack(outcome.state.B)
        self.means_ = data.means
        self.weights_ = outcome.state.W
        self.objective_ = outcome.terms.sum(axis=1)
        self.objective_terms_ = dict(zip(paper.TERMS, outcome.terms.T.copy(), strict=True))
        self.n_components_ = outcome.n_components
        self.labels_ = outcome.labels
        self.graph_share_ = outcome.by_graph
        self.settings_ = {"n_anchors": P, "n_neighbors": k, "n_clusters": C, "structure_weight": state.structure_weight}

    def _sizes(self, n_rows: int) -> tuple[int, int, int]:
        """P, k and C: as given, or the published ones made to fit the data."""
        owner = type(self).__name__
        P = self.n_anchors if self.n_anchors != "auto" else max(min(900, n_rows // 2), 1)
        P = check_integer(owner, "n_anchors", P, low=1, high=n_rows, why=" (the number of rows)")
        k = self.n_neighbors if self.n_neighbors != "auto" else max(min(45, P // 10), 1)
        k = check_integer(owner, "n_neighbors", k, low=1, high=P, why=" (the number of anchors)")
        C = self.n_clusters if self.n_clusters != "auto" else max(min(60, P // 10), 1)
        C = check_integer(owner, "n_clusters", C, low=1, high=P, why=" (the number of anchors)")
        return P, k, C
