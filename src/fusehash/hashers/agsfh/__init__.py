"""AGSFH: the method of the paper, with its published settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

from fusehash.errors import ParameterError, warn
from fusehash.hashers.agsfh import paper
from fusehash.hashers.agsfh.clusters import ClusterStep, StructureWeight, components
from fusehash.hashers.agsfh.graph import ComputedGraph, GraphRows, StoredGraph, gram_and_mass
from fusehash.hashers.linear import CenteredViews, LinearHasher
from fusehash.numerics import anchors as anchor_graphs
from fusehash.numerics.arrays import convert, host, to_device_of
from fusehash.parameters import Progress, Rule, auto, choice, flag, integer, is_auto, real, rng_for
from fusehash.views import Floats, PairedViews

# A graph with more edges than this is computed again in every iteration.
MAX_STORED_EDGES = 2**26


class AGSFH(LinearHasher):
    """Anchor Graph Structure Fusion Hashing, the method of the paper.

    Minimizes Eq. 19,

        Tr(V' Lhat V) - g1 <A, S> + g2 ||S||^2 - g3 Tr(B' S Bs) + lam sum_m ||B - X_m W_m||^2,

    by Algorithm 2, corrected where the print is wrong (docs/paper.md). `FuseHash` gives better codes.

    Parameters
    ----------
    n_bits : int, default 64
        K, the code length, a multiple of 8.
    n_anchors : int or "auto"
        P, the anchors of the graph; "auto" is 900, and never more than half of the rows.
    n_neighbors : int or "auto"
        k, the anchors that each item is joined to; "auto" is 45, or a tenth of the anchors where that is less.
    n_clusters : int or "auto"
        C, the components that the structure term asks for; "auto" is 60, or a tenth of the anchors where that is less.
    approximation_weight : float, default 0.01
        gamma_1, pull of the learned graph S towards the fused graph A.
    smoothness : float, default 10
        gamma_2, spreads the rows of S.
    affinity_weight : float, default 0.01
        gamma_3, pull of the codes towards the learned graph.
    regression_weight : float, default 300
        lambda, how closely the hash functions must predict the codes.
    ridge : float, default 1e-6
        Ridge of Eq. 35, relative to the mean diagonal of the Gram matrix; the print has none.
    max_iter, tol : int, float
        Outer iterations; they stop when the objective changes by no more than `tol` (relative).
    inner_max_iter, inner_tol : int, float
        T_OGM and the tolerance of Algorithm 1.
    anchors : {"random", "kmeans"}
        Anchors are random pairs, or k-means centers over the joint features.
    as_printed : bool
        Use the printed sign in Eq. 21 and the printed momentum in Eq. 24.
    ablation : {None, "appro", "reg"}
        Leave out term 2 ("appro") or term 3 ("reg"), as in Table 7.
    exact_clusters : bool
        Adapt the weight of the structure term until S has exactly C components, as the paper promises.
    device : str, optional
        Where to compute on NumPy data, such as "cuda" or "cupy"; tensors are used on the device they are on.
    dtype : {None, "float32", "float64"}
        Precision of the products; None is single on a GPU and double elsewhere. Sums are always double precision.
    random_state : int, numpy Generator or None
        Equal seeds and data give equal codes, whatever the number of threads.
    n_threads : int, optional
        Threads of `fit`; all cores by default.
    callback : callable, optional
        Called as callback(step, total, message) while fitting; may raise to interrupt.

    Attributes
    ----------
    codes_ : ndarray of uint8, shape (n, n_bits / 8)
        Codes of the training pairs.
    objective_ : ndarray of shape (n_iterations,)
        Value of Eq. 19 after every iteration.
    objective_terms_ : dict of str to ndarray
        Each term of Eq. 19 after every iteration, by name.
    n_components_ : int
        Connected components of the learned graph.
    labels_ : ndarray of shape (n,)
        The component (cluster) of every training pair.
    graph_share_ : float
        Share of the bits that the graph decided against the regression, in the last iteration.
    means_, weights_ : dict of str to ndarray
        The training mean and W_m of every view.

    References
    ----------
    L. Wang, J. Yang, M. Zareapoor, Z. Zheng, "Anchor Graph Structure Fusion Hashing for Cross-Modal Similarity Search".

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=300, random_state=0)
    >>> model = fh.AGSFH(n_bits=16, max_iter=5, random_state=0).fit(data.views.rows(data.train))
    >>> model.encode(data.views["image"][:2], view="image").shape
    (2, 2)
    """

    method: ClassVar[str] = "agsfh"
    summary: ClassVar[str] = "anchor graph structure fusion hashing, the method of the paper"
    accelerated: ClassVar[bool] = True
    REMOVED: ClassVar[dict[str, str]] = {
        "preset": "AGSFH is the method of the paper, and FuseHash is the closed form that was its default",
    }
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "n_anchors": auto(integer(1)),
        "n_neighbors": auto(integer(1)),
        "n_clusters": auto(integer(1)),
        "approximation_weight": real(),
        "smoothness": real(),
        "affinity_weight": real(),
        "regression_weight": real(strict=True),
        "ridge": real(),
        "max_iter": integer(1),
        "tol": real(),
        "inner_max_iter": integer(1),
        "inner_tol": real(),
        "anchors": choice("random", "kmeans"),
        "as_printed": flag(),
        "ablation": choice(None, "appro", "reg"),
        "exact_clusters": flag(),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
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
        device: str | None = None,
        dtype: str | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
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
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _check_params(self) -> None:
        if self.exact_clusters:
            real(strict=True).check("AGSFH", "smoothness", self.smoothness)
            choice(None, "appro").check("AGSFH", "ablation", self.ablation)

    def _fit(self, views: PairedViews, labels: Any) -> None:
        P, k, C = self._graph_sizes(views.n_rows)
        rows = self._passes(views)
        data = CenteredViews(rows, self.ridge, self.dtype)
        data.warn_if_rank_below(self.n_bits, "AGSFH")
        anchors = anchor_graphs.choose_anchors(
            views, P, self.anchors, rng_for(self._seed, "anchors"), take=lambda name, some: host(rows.take(name, some))
        )
        A = _graph_rows(data, anchors, k)
        # The Hadamard graph falls into slivers of its own, and exactly C of those are no clusters; the mean graph
        # holds together, so clusters start from it.
        start = None
        if self.exact_clusters:
            if not rows.is_local:
                raise ParameterError("AGSFH", "exact_clusters", "False for data that is not in NumPy arrays", True)
            start = anchor_graphs.fused_anchor_graph(views, anchors, k, combine=anchor_graphs.mean_graph)
        gram, mass = A.gram(rows) if start is None else gram_and_mass(start)
        rngs = {purpose: rng_for(self._seed, purpose) for purpose in ("W", "B")}
        now, eigenvalues = paper.initial_variables(data, gram, mass, self.n_bits, C, rngs)
        clusters = None
        if start is not None:
            clusters = ClusterStep(StructureWeight(C), self.smoothness, start)
            clusters.take_spectrum(now.V, eigenvalues, paper.l_step(mass))
            clusters.choose_first_weight(min(k, P - 1))
        terms, sums = paper.minimize(data, A, now, self._settings(C), clusters, self._report)
        self.n_components_, of_anchor = components(host(sums["SS"]))
        if self.exact_clusters and self.n_components_ != C:
            warn(
                f"AGSFH was asked for exactly {C} clusters and has {self.n_components_} after "
                f"{len(terms)} iterations; a larger 'max_iter' may reach them."
            )
        self.codes_ = host(now.codes)
        self.means_, self.weights_ = convert((data.means, now.W), host)
        self.objective_ = terms.sum(axis=1)
        self.objective_terms_ = dict(zip(paper.TERMS, terms.T.copy(), strict=True))
        self.labels_ = of_anchor[host(now.nearest)]
        self.graph_share_ = float(sums["by_graph"]) / (views.n_rows * self.n_bits)
        weight = 1.0 if clusters is None else clusters.weight.value
        self.settings_ = {"n_anchors": P, "n_neighbors": k, "n_clusters": C, "structure_weight": weight}

    def _graph_sizes(self, n_rows: int) -> tuple[int, int, int]:
        """P, k and C: as given, or the published ones made to fit the data."""
        P: Any = max(min(900, n_rows // 2), 1) if is_auto(self.n_anchors) else self.n_anchors
        integer(1, n_rows, " (the number of rows)").check("AGSFH", "n_anchors", P)
        k: Any = max(min(45, P // 10), 1) if is_auto(self.n_neighbors) else self.n_neighbors
        integer(1, P, " (the number of anchors)").check("AGSFH", "n_neighbors", k)
        C: Any = max(min(60, P // 10), 1) if is_auto(self.n_clusters) else self.n_clusters
        integer(1, P, " (the number of anchors)").check("AGSFH", "n_clusters", C)
        return int(P), int(k), int(C)

    def _settings(self, n_clusters: int) -> paper.Settings:
        values = {setting.name: getattr(self, setting.name) for setting in fields(paper.Settings)}
        left_out = {"appro": "approximation_weight", "reg": "smoothness"}.get(str(self.ablation))
        return paper.Settings(**values | {"n_clusters": n_clusters} | ({left_out: 0.0} if left_out else {}))


def _graph_rows(data: CenteredViews, anchors: dict[str, Floats], k: int) -> GraphRows:
    """The fused graph: stored for data in memory (it is sparse), else computed where the rows are."""
    if data.data.is_local and data.data.n_rows * k <= MAX_STORED_EDGES:
        return StoredGraph(anchor_graphs.fused_anchor_graph(data.views, anchors, k))
    return ComputedGraph({name: to_device_of(T, data.data.like) for name, T in anchors.items()}, k, data.dtype)
