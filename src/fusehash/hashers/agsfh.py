"""Anchor Graph Structure Fusion Hashing: the shipped default, and the paper's loop as a preset."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fusehash import graph
from fusehash.arrays import beside, convert, host
from fusehash.checks import check_choice, check_integer, check_real, stream
from fusehash.errors import ParameterError, warn
from fusehash.hashers import agsfh_paper as paper
from fusehash.hashers.agsfh_graph import ComputedGraph, GraphRows, StoredGraph
from fusehash.hashers.base import Progress
from fusehash.hashers.closed_form_fit import SPECTRUM_ROWS, Sizes, fit_closed_form, fix, usual_anchors
from fusehash.hashers.closed_form_maps import Choices, Fitted
from fusehash.hashers.incremental import Incremental
from fusehash.hashers.linear import CentredViews, LinearHasher
from fusehash.hashers.nested import check_nested
from fusehash.kernels import MAPS
from fusehash.views import Floats, PairedViews

# Parameters of the closed form that are tuned where they are "auto".
TUNED = (
    "feature_map",
    "kernel_width",
    "ridge",
    "hash_ridge",
    "graph_weight",
    "latent_weight",
    "spectral_power",
    "view_weights",
)
PAPER_RIDGE = 1e-6
# At most so many edges of the paper's graph are held.
STORED_EDGES = 2**26


class AGSFH(Incremental, LinearHasher):
    """Anchor Graph Structure Fusion Hashing (Wang, Yang, Zareapoor, Zheng 2022) and the default that beats it.

    Without a preset, the closed form of `fusehash.hashers.closed_form`: features of any kind are passed as they are,
    and every setting that is "auto" is chosen on held-out training rows without labels (`tuning_` tells which and why).
    With preset="paper", the paper's loop (`fusehash.hashers.agsfh_paper`),

    min  Tr(V' Lhat V) - g1 <A, S> + g2 ||S||^2 - g3 Tr(B' S Bs) + lam sum_m ||B - X_m W_m||^2        (Eq. 19)

    corrected where the print is wrong (docs/paper.md) and with its published settings.

    Parameters of both
    ------------------
    n_bits : code length K, a multiple of 8.
    preset : None for the closed form, "paper" for the paper's loop.
    n_anchors : P, anchors of the graph; "auto" is 500 to 1,500 by the number of rows (paper: 900), and never more than
        half of the rows.
    n_neighbors : k, anchors each item is joined to; "auto" is 45, or a tenth of the anchors where that is less.
    ridge : relative to the mean diagonal of the Gram matrix; "auto" is tuned (paper: 1e-6, Eq. 35 has none).
    device : where to compute on data of the host, such as "cuda" (PyTorch) or "cupy"; arrays of PyTorch and CuPy are
        worked on where they are.
    dtype : "float32" or "float64", precision of features and products; by default what suits the place (single for the
        closed form and on a GPU, double for the paper's loop on a CPU). Sums and the spectrum are always double.
    random_state : seed; equal seed and data give equal codes, whatever the number of threads.
    n_threads : None for all cores.
    callback : called as callback(step, total, message) while fitting; may raise to interrupt.

    Parameters of the closed form ("auto" is tuned)
    -----------------------------------------------
    feature_map : "linear", "rbf" (similarities to anchors) or "stacked" (linear and three widths).
    kernel_width : of the RBF, relative to the median squared distance.
    hash_ridge : ridge of the hash functions.
    graph_weight : weight of the graph beside the views, relative to what is usual for the number of rows (mu = 2 for
        small data, 1 from 6,000 rows on); 0 leaves the graph out.
    latent_weight : weight of the graph over the first embedding, likewise relative; 0 leaves that part out.
    spectral_power : p; larger favours the directions that the views share.
    view_weights : one number a view; weight in the spectrum and in the raw graph.
    rank : directions kept; "auto" is the number of bits, at most 128; more bits come from further rotations.
    fusion : "mean", "hadamard" (Eq. 15, with the mean for empty rows) or "geometric".
    n_kernel_anchors : anchors of the RBF features; "auto" is 500 to 1,500 by the number of rows.
    n_rotation_steps : ITQ steps of the rotation; 0 leaves it random.
    n_refinements : discrete AGSFH steps after the rotation, 0 to 3.
    nested : shorter lengths, as in (16,), at which the first bits shall be good codes by themselves (see `cut`).
    missing : "allow" accepts rows that are all NaN in some (not all) views.
    spectrum_rows : with more rows than this the spectrum is learned from a sample; all rows are encoded.

    Parameters of the paper
    -----------------------
    n_clusters : C, components the structure term asks for; "auto" is 60, or a tenth of the anchors where that is less.
    approximation_weight : gamma_1, pull of the learned graph S towards the fused graph A.
    smoothness : gamma_2, spreads the rows of S.
    affinity_weight : gamma_3, pull of the codes towards the learned graph.
    regression_weight : lambda, how closely hash functions must predict the codes.
    max_iter, tol : outer iterations; stops when the objective changes by no more than tol (relative).
    inner_max_iter, inner_tol : T_OGM and tolerance of Algorithm 1 (the paper: 1e-4).
    anchors : "random" pairs, or "kmeans" centres over the joint features.
    as_printed : use the printed sign in Eq. 21 and the printed momentum in Eq. 24.
    ablation : None, "appro" (without term 2) or "reg" (without term 3), as in Table 7.
    exact_clusters : adapt the weight of the structure term until the learned graph has exactly C connected
        components, which the paper promises but does not enforce.

    Attributes
    ----------
    codes_ : (n, n_bits / 8) uint8, codes of the training pairs.
    tuning_ : what was chosen, what was tried, and how it scored (closed form).
    fitted_ : the learned maps (closed form).
    objective_ : value of Eq. 19 after every iteration; objective_terms_ holds each of its terms by name (paper).
    n_components_ : connected components of the learned graph (paper).
    labels_ : (n,) the component (cluster) of every training pair (paper).
    graph_share_ : share of the bits that the graph decided against the regression, in the last iteration (paper).
    means_, weights_ : per view, the training mean and W_m (paper).
    sums_, drift_ : what `partial_fit` goes on from, and how stale the codes of earlier rows are (closed form).
    """

    method: ClassVar[str] = "agsfh"
    summary: ClassVar[str] = "anchor graph structure fusion hashing: closed-form default, paper as a preset"
    accelerated: ClassVar[bool] = True

    tuning_: dict[str, Any]
    fitted_: Fitted
    eigenvalues_: Floats
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
        ridge: float | str = "auto",
        feature_map: str = "auto",
        kernel_width: float | str = "auto",
        hash_ridge: float | str = "auto",
        graph_weight: float | str = "auto",
        latent_weight: float | str = "auto",
        spectral_power: float | str = "auto",
        view_weights: Any = "auto",
        rank: int | str = "auto",
        fusion: str = "mean",
        n_kernel_anchors: int | str = "auto",
        n_rotation_steps: int = 50,
        n_refinements: int = 0,
        nested: Any = None,
        missing: str = "error",
        spectrum_rows: int = SPECTRUM_ROWS,
        n_clusters: int | str = "auto",
        approximation_weight: float = 0.01,
        smoothness: float = 10.0,
        affinity_weight: float = 0.01,
        regression_weight: float = 300.0,
        max_iter: int = 20,
        tol: float = 1e-5,
        inner_max_iter: int = 50,
        inner_tol: float = 1e-4,
        anchors: str = "random",
        as_printed: bool = False,
        ablation: str | None = None,
        exact_clusters: bool = False,
        device: str | None = None,
        dtype: str | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.preset = preset
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.ridge = ridge
        self.feature_map = feature_map
        self.kernel_width = kernel_width
        self.hash_ridge = hash_ridge
        self.graph_weight = graph_weight
        self.latent_weight = latent_weight
        self.spectral_power = spectral_power
        self.view_weights = view_weights
        self.rank = rank
        self.fusion = fusion
        self.n_kernel_anchors = n_kernel_anchors
        self.n_rotation_steps = n_rotation_steps
        self.n_refinements = n_refinements
        self.nested = nested
        self.missing = missing
        self.spectrum_rows = spectrum_rows
        self.n_clusters = n_clusters
        self.approximation_weight = approximation_weight
        self.smoothness = smoothness
        self.affinity_weight = affinity_weight
        self.regression_weight = regression_weight
        self.max_iter = max_iter
        self.tol = tol
        self.inner_max_iter = inner_max_iter
        self.inner_tol = inner_tol
        self.anchors = anchors
        self.as_printed = as_printed
        self.ablation = ablation
        self.exact_clusters = exact_clusters
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _check_params(self) -> None:
        owner = type(self).__name__
        check_choice(owner, "preset", self.preset, (None, "paper"))
        self._check_place()
        if self.preset == "paper":
            self._check_paper_params(owner)
        else:
            self._check_closed_form_params(owner)

    def _check_paper_params(self, owner: str) -> None:
        check_choice(owner, "anchors", self.anchors, ("random", "kmeans"))
        check_choice(owner, "ablation", self.ablation, (None, "appro", "reg"))
        check_choice(owner, "missing", self.missing, ("error",))
        check_choice(owner, "nested", self.nested, (None,))
        for name in ("approximation_weight", "smoothness", "affinity_weight", "tol", "inner_tol"):
            check_real(owner, name, getattr(self, name))
        if self.exact_clusters:
            check_real(owner, "smoothness", self.smoothness, strict=True)
            check_choice(owner, "ablation", self.ablation, (None, "appro"))
        check_real(owner, "regression_weight", self.regression_weight, strict=True)
        check_integer(owner, "max_iter", self.max_iter, low=1)
        check_integer(owner, "inner_max_iter", self.inner_max_iter, low=1)
        if self.ridge != "auto":
            check_real(owner, "ridge", self.ridge)

    def _check_closed_form_params(self, owner: str) -> None:
        check_choice(owner, "feature_map", self.feature_map, ("auto", *MAPS))
        check_choice(owner, "fusion", self.fusion, graph.FUSIONS)
        check_choice(owner, "missing", self.missing, ("error", "allow"))
        for name in ("kernel_width", "ridge", "hash_ridge", "spectral_power"):
            if getattr(self, name) != "auto":
                check_real(owner, name, getattr(self, name), strict=True)
        for name in ("graph_weight", "latent_weight"):
            if getattr(self, name) != "auto":
                check_real(owner, name, getattr(self, name))
        if self.rank != "auto":
            check_integer(owner, "rank", self.rank, low=1)
        if self.n_kernel_anchors != "auto":
            check_integer(owner, "n_kernel_anchors", self.n_kernel_anchors, low=1)
        check_integer(owner, "n_rotation_steps", self.n_rotation_steps, low=0)
        check_integer(owner, "n_refinements", self.n_refinements, low=0, high=3)
        check_integer(owner, "spectrum_rows", self.spectrum_rows, low=2)
        check_nested(owner, self.nested, self.n_bits)

    @property
    def _allows_missing(self) -> bool:
        return self.preset is None and self.missing == "allow"

    def _fit(self, views: PairedViews, labels: Any) -> None:
        if self.preset == "paper":
            self._fit_paper(views)
        else:
            self._fit_closed_form(views)

    # -- the closed form -----------------------------------------------------------------------------------------

    def _fit_closed_form(self, views: PairedViews) -> None:
        owner = type(self).__name__
        P, k = self._graph_sizes(views.n_rows)
        if not isinstance(self.view_weights, str):
            weights = [check_real(owner, "view_weights", a, strict=True) for a in self.view_weights]
            if len(weights) != len(views.names):
                raise ParameterError(owner, "view_weights", f"{len(views.names)} numbers, one a view", weights)
        elif self.view_weights != "auto":
            raise ParameterError(owner, "view_weights", "'auto' or one number a view", self.view_weights)
        kernel_anchors: Any = self.n_kernel_anchors
        sizes = Sizes(
            n_bits=self.n_bits,
            rank=min(self.n_bits, 128) if self.rank == "auto" else int(self.rank),
            n_anchors=P,
            n_neighbors=k,
            n_kernel_anchors=usual_anchors(views.n_rows) if kernel_anchors == "auto" else kernel_anchors,
            n_rotation_steps=self.n_rotation_steps,
            n_refinements=self.n_refinements,
            nested=check_nested(owner, self.nested, self.n_bits),
            spectrum_rows=self.spectrum_rows,
            dtype=self.dtype or "float32",
        )
        given = {name: getattr(self, name) for name in TUNED}
        start, free = fix(Choices(fusion=self.fusion), given, len(views.names))
        outcome = fit_closed_form(self._passes(views), sizes, start, free, self._seed, self._report)
        self.codes_ = host(outcome.codes)
        self.fitted_ = convert(outcome.fitted, host)
        self.tuning_ = outcome.tuning
        self.eigenvalues_ = host(outcome.eigenvalues)
        self.settings_ = {"n_anchors": P, "n_neighbors": k, "rank": len(outcome.eigenvalues)}

    def cut(self, n_bits: int) -> AGSFH:
        """As of every method; fitted again, the shorter model is nested at the lengths that are left."""
        short = super().cut(n_bits)
        if self.nested is not None:
            short.nested = tuple(length for length in self.nested if length < n_bits) or None
        return short

    def _project_block(self, block: Floats, view: str) -> Floats:
        if self.preset == "paper":
            return super()._project_block(block, view)
        return self.fitted_.project(block, view)

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats | None:
        if self.preset == "paper":
            return None
        prepared = {name: self.fitted_.maps[name].preparation(blocks[name]) for name in self.fitted_.maps}
        return self.fitted_.project_complete(prepared)

    def _fusion_weights(self) -> dict[str, float]:
        return super()._fusion_weights() if self.preset == "paper" else self.fitted_.fusion_weights

    # -- the paper -----------------------------------------------------------------------------------------------

    def _fit_paper(self, views: PairedViews) -> None:
        P, k = self._graph_sizes(views.n_rows)
        C = self.n_clusters if self.n_clusters != "auto" else max(min(60, P // 10), 1)
        C = check_integer(type(self).__name__, "n_clusters", C, low=1, high=P, why=" (the number of anchors)")
        ridge = PAPER_RIDGE if isinstance(self.ridge, str) else self.ridge
        rows = self._passes(views)
        data = CentredViews.over(rows, ridge, self.dtype)
        data.warn_if_rank_below(self.n_bits, type(self).__name__)
        anchors = graph.choose_anchors(
            views, P, self.anchors, stream(self._seed, "anchors"), take=lambda name, some: host(rows.take(name, some))
        )
        A = self._graph_rows(data, anchors, k)
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
        )
        # The Hadamard graph falls apart into slivers by itself; clusters are looked for from the mean graph.
        start = None
        if self.exact_clusters:
            if not rows.is_local:
                expected = "False for data that is not in NumPy arrays in memory"
                raise ParameterError("AGSFH", "exact_clusters", expected, True)
            start = graph.fused_anchor_graph(views, anchors, k, combine=graph.mean_graph)
        state = paper.initial_state(data, A, self.n_bits, settings, streams, start=start)
        outcome = paper.run(data, A, state, settings, self._report)
        if self.exact_clusters and outcome.n_components != C:
            warn(
                f"AGSFH was asked for exactly {C} clusters and has {outcome.n_components} after "
                f"{len(outcome.terms)} iterations; a larger 'max_iter' may reach them."
            )
        self.codes_ = host(outcome.state.codes)
        self.means_ = convert(data.means, host)
        self.weights_ = convert(outcome.state.W, host)
        self.objective_ = outcome.terms.sum(axis=1)
        self.objective_terms_ = dict(zip(paper.TERMS, outcome.terms.T.copy(), strict=True))
        self.n_components_ = outcome.n_components
        self.labels_ = outcome.labels
        self.graph_share_ = outcome.by_graph
        self.settings_ = {"n_anchors": P, "n_neighbors": k, "n_clusters": C, "structure_weight": state.structure_weight}

    @staticmethod
    def _graph_rows(data: CentredViews, anchors: dict[str, Floats], k: int) -> GraphRows:
        """The fused graph: held whole for data in memory (it is sparse), else computed where the rows are."""
        if data.data.is_local and data.data.n_rows * k <= STORED_EDGES:
            return StoredGraph(graph.fused_anchor_graph(data.views, anchors, k))
        return ComputedGraph({name: beside(T, data.data.like) for name, T in anchors.items()}, k, data.dtype)

    def _graph_sizes(self, n_rows: int) -> tuple[int, int]:
        """P and k: as given, or the published ones made to fit the data."""
        owner = type(self).__name__
        wanted = 900 if self.preset == "paper" else usual_anchors(n_rows)
        P = self.n_anchors if self.n_anchors != "auto" else max(min(wanted, n_rows // 2), 1)
        P = check_integer(owner, "n_anchors", P, low=1, high=n_rows, why=" (the number of rows)")
        k = self.n_neighbors if self.n_neighbors != "auto" else max(min(45, P // 10), 1)
        k = check_integer(owner, "n_neighbors", k, low=1, high=P, why=" (the number of anchors)")
        return P, k
