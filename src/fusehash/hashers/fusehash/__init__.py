"""FuseHash: the method of this project and the default, a closed form that tunes itself without labels."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from fusehash.errors import DataError, ParameterError
from fusehash.hashers.fusehash.best_bits import MAX_BITS, nearest_bits
from fusehash.hashers.fusehash.closed_form import (
    learn_graph,
    learn_maps,
    learn_means,
    learn_preparations,
    sample_for_words,
    solve,
    weigh_words,
)
from fusehash.hashers.fusehash.fitted import Choices, Fitted, RowMaps
from fusehash.hashers.fusehash.floats import factors_of, fit_floats, share_a_space
from fusehash.hashers.fusehash.nested import check_nested
from fusehash.hashers.fusehash.own_space import PAIR_BITS, codes_of_rows, with_own_space
from fusehash.hashers.fusehash.partial_fit import Incremental
from fusehash.hashers.fusehash.refinement import MIN_PAIRS
from fusehash.hashers.fusehash.tuning import MIN_TUNING_ROWS, tune
from fusehash.hashers.fusehash.tuning.fusion import training_fusion_weights
from fusehash.hashers.fusehash.tuning.measures import warn_if_uneven
from fusehash.hashers.quantizers.joint import scales_of
from fusehash.numerics.anchors import FUSIONS
from fusehash.numerics.arrays import convert, host, is_foreign, to_dense
from fusehash.numerics.features import MAPS
from fusehash.parameters import Progress, Rule, auto, choice, flag, integer, is_auto, optional, real, rng_for, sequence
from fusehash.streams import passes_over
from fusehash.streams.row_passes import RowPasses
from fusehash.views import Floats, PairedViews

ROTATION_STEPS = 50
TUNED = [f.name for f in fields(Choices) if f.name != "fusion"]


class FuseHash(Incremental):
    """Cross-modal hashing in closed form: one spectrum, one learned rotation, one regression per view.

    Pass features of any kind as they are. Every parameter that is "auto" is chosen on held-out training rows, without
    labels; `tuning_` reports what was chosen and why.

    Parameters
    ----------
    n_bits : int, default 64
        Code length, a multiple of 8.
    target : {"pairs", "floats"}
        What codes are for: to find the partner of an item (learned from pairs), or to keep the cosine ranking of joint
        embeddings, such as those of CLIP, in fewer bytes. "floats" uses no pairs, takes views of one width, and needs
        float queries and the two numbers per item that ``encode(..., with_factors=True)`` returns to be at its best;
        of the parameters below, it uses `rank` (here "auto" tries several), `missing` and the general ones.
    n_anchors : int or "auto"
        Anchors of the graph; "auto" is 500 to 1,500 by the number of rows, and never more than half of the rows.
    n_neighbors : int or "auto"
        Anchors that each item is joined to; "auto" is 45, or a tenth of the anchors where that is less.
    feature_map : {"auto", "linear", "rbf"}
        Features of a view: as they are (products with anchors for views of more than 512 columns), or RBF similarities
        to anchors.
    kernel_width : float or "auto"
        Width of the RBF, relative to the median squared distance.
    ridge : float or "auto"
        Ridge of the spectrum, relative to the mean diagonal of the Gram matrix.
    hash_ridge : float or "auto"
        Ridge of the hash functions.
    graph_weight : float or "auto"
        Weight of the graph relative to the usual one for the number of rows (2 for small data, 1 from 6,000 rows on);
        0 leaves the graph out.
    latent_weight : float or "auto"
        Weight of the graph over the first embedding, likewise relative; 0 leaves that graph out.
    spectral_power : float or "auto"
        Power p of the spectrum; a larger one favors the directions that the views share.
    hash_functions : {"auto", "regression", "canonical"}
        How one view is mapped to bits: by regression on the codes of pairs, or by its canonical variates, rotated
        (CCA-ITQ; of RBF similarities, kernel CCA with ITQ). "canonical" uses no graph and needs two views.
    view_weights : sequence of float or "auto"
        One number per view, in the order of their names: its weight in the spectrum and in the graph of the raw views.
    word_weights : float or "auto"
        How much words (of sparse views of more than 512 columns) count by what they say about the other views; 1 is
        usual where views agree on neighbors, with 0 all words count the same.
    rank : int or "auto"
        Directions kept; "auto" is the number of bits, at most 128. More bits come from further rotations.
    fusion : {"mean", "hadamard"}
        How the graphs of the views are fused: their mean, or their product (Eq. 15 of the paper) with the mean for
        empty rows.
    n_kernel_anchors : int or "auto"
        Anchors of the features; "auto" is 1,000 to 2,000 by the number of rows, or all rows if there are fewer.
    n_rotation_steps : int or "auto"
        Steps of the rotation (ITQ); 0 leaves it random. "auto" is 50; for joint embeddings, in which partners are near
        each other as they are, nothing is rotated and codes keep that space too (docs/embeddings.md); 50 with `nested`.
    refine_rotation : bool, default False
        Refine the rotation on pairs that are held out of folds, so that partners rank first (docs/study.md): for views
        that agree on neighbors, as deep features do. Needs 300 pairs; `tuning_["refined"]` says whether it was done.
        Joint embeddings and canonical hash functions are left as they are.
    nested : sequence of int, optional
        Shorter lengths, as in (16,), at which the first bits are good codes by themselves (see `cut`).
    missing : {"error", "allow"}
        "allow" accepts rows that are all NaN in some views, but not in all. Rows that are present in one view only get
        codes, but for "pairs" nothing is learned from them in `fit` if at least 40 rows link views.
    spectrum_rows : int, default 50,000
        With more rows than this, the spectrum is learned from a sample; all rows are encoded.
    device : str, optional
        Where to compute on data of the host, such as "cuda" (PyTorch) or "cupy". Arrays of PyTorch and CuPy are used
        on the device they are on.
    dtype : {None, "float32", "float64"}
        Precision of features and products; None is "float32". Sums and the spectrum are always double precision.
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
    tuning_ : dict
        What was chosen, what was tried, and how it scored.
    fitted_ : Fitted
        The learned maps.
    eigenvalues_ : ndarray of shape (rank,)
        The spectrum behind the codes.
    sums_, drift_ :
        What `partial_fit` continues from, and how outdated the codes of earlier rows are.

    References
    ----------
    docs/study.md reports what each part contributes. The objective is that of Wang, Yang, Zareapoor and Zheng (2022)
    for a fixed graph, with every regression eliminated and with the constraint that bits are uncorrelated.

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=300, random_state=0)
    >>> model = fh.FuseHash(n_bits=16, random_state=0).fit(data.views.rows(data.train))
    >>> model.encode(data.views["text"][:2], view="text").shape
    (2, 2)
    """

    method: ClassVar[str] = "fusehash"
    summary: ClassVar[str] = "closed form that tunes itself: the default"
    accelerated: ClassVar[bool] = True
    quadratic: ClassVar[bool] = False
    keeps_sparse: ClassVar[bool] = True
    REMOVED: ClassVar[dict[str, str]] = {"preset": "use AGSFH for the method of the paper"}
    PARAMETERS: ClassVar[dict[str, Rule]] = {
        "target": choice("pairs", "floats"),
        "n_anchors": auto(integer(1)),
        "n_neighbors": auto(integer(1)),
        "feature_map": choice("auto", *MAPS),
        "kernel_width": auto(real(strict=True)),
        "ridge": auto(real(strict=True)),
        "hash_ridge": auto(real(strict=True)),
        "graph_weight": auto(real()),
        "latent_weight": auto(real()),
        "spectral_power": auto(real(strict=True)),
        "hash_functions": choice("auto", "regression", "canonical"),
        "view_weights": auto(sequence(real(strict=True), "one number greater than 0 per view")),
        "word_weights": auto(real()),
        "rank": auto(integer(1)),
        "fusion": choice(*FUSIONS),
        "n_kernel_anchors": auto(integer(1)),
        "n_rotation_steps": auto(integer(0)),
        "refine_rotation": flag(),
        "nested": optional(sequence(integer(8), "a sequence of shorter lengths, such as [16]")),
        "missing": choice("error", "allow"),
        "spectrum_rows": integer(2),
    }

    def __init__(
        self,
        *,
        n_bits: int = 64,
        target: str = "pairs",
        n_anchors: int | str = "auto",
        n_neighbors: int | str = "auto",
        feature_map: str = "auto",
        kernel_width: float | str = "auto",
        ridge: float | str = "auto",
        hash_ridge: float | str = "auto",
        graph_weight: float | str = "auto",
        latent_weight: float | str = "auto",
        spectral_power: float | str = "auto",
        hash_functions: str = "auto",
        view_weights: Any = "auto",
        word_weights: float | str = "auto",
        rank: int | str = "auto",
        fusion: str = "mean",
        n_kernel_anchors: int | str = "auto",
        n_rotation_steps: int | str = "auto",
        refine_rotation: bool = False,
        nested: Any = None,
        missing: str = "error",
        spectrum_rows: int = 50_000,
        device: str | None = None,
        dtype: str | None = None,
        random_state: Any = None,
        n_threads: int | None = None,
        callback: Progress | None = None,
    ) -> None:
        self.n_bits = n_bits
        self.target = target
        self.n_anchors = n_anchors
        self.n_neighbors = n_neighbors
        self.feature_map = feature_map
        self.kernel_width = kernel_width
        self.ridge = ridge
        self.hash_ridge = hash_ridge
        self.graph_weight = graph_weight
        self.latent_weight = latent_weight
        self.spectral_power = spectral_power
        self.hash_functions = hash_functions
        self.view_weights = view_weights
        self.word_weights = word_weights
        self.rank = rank
        self.fusion = fusion
        self.n_kernel_anchors = n_kernel_anchors
        self.n_rotation_steps = n_rotation_steps
        self.refine_rotation = refine_rotation
        self.nested = nested
        self.missing = missing
        self.spectrum_rows = spectrum_rows
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.n_threads = n_threads
        self.callback = callback

    def _check_params(self) -> None:
        check_nested(type(self).__name__, self.nested, self.n_bits)
        if self.refine_rotation and (self.nested is not None or self.target == "floats"):
            raise ParameterError(type(self).__name__, "refine_rotation", 'False with `nested` or target="floats"', True)
        if self.target == "floats" and self.nested is not None:
            raise ParameterError(type(self).__name__, "nested", 'None for target="floats"', self.nested)

    @property
    def _allows_missing(self) -> bool:
        return self.missing == "allow"

    def _fit(self, views: PairedViews, labels: Any) -> None:
        if self.target == "floats":
            self._fit_floats(views.on_host())
            return
        linked = views.linked_rows()
        if len(linked) == views.n_rows or len(linked) < MIN_TUNING_ROWS:
            linked = np.arange(views.n_rows)
        every, views = views, views if len(linked) == views.n_rows else views.rows(linked)
        data, seed, dtype = self._passes(views), self._seed, self.dtype or "float32"
        n_anchors, n_neighbors, n_kernel_anchors = self._anchor_numbers(data.n_rows)
        start, free = self._start(len(data.names))
        preparations = learn_preparations(data, dtype, rng_for(seed, "preparation"))
        rng = rng_for(seed, "tuning")
        choices, tuning, weights = tune(data, preparations, start, free, self.n_bits, rng, self._report)
        warn_if_uneven(type(self).__name__, tuning.get("evenness", {}))
        rng = rng_for(seed, "closed form")
        if choices.word_weights:
            some_rows = sample_for_words(data, rng_for(seed, "words"))
            preparations = weigh_words(preparations, some_rows, choices.word_weights)
        feature_maps = learn_maps(data, preparations, choices, n_kernel_anchors, rng)
        graph = learn_graph(data, preparations, choices, n_anchors, n_neighbors, rng)
        sample = data
        if data.n_rows > self.spectrum_rows:
            rows = rng_for(seed, "rows").choice(data.n_rows, self.spectrum_rows, replace=False)
            sample = data.select(np.sort(rows))
        maps = RowMaps(feature_maps, graph, n_rows=sample.n_rows)
        self._report(0, 0, "feature means")
        maps = replace(maps, means=learn_means(sample, maps))
        nested = check_nested(type(self).__name__, self.nested, self.n_bits)
        n_steps = ROTATION_STEPS if is_auto(self.n_rotation_steps) else int(self.n_rotation_steps)
        is_joint = is_auto(self.n_rotation_steps) and not nested
        is_joint = is_joint and share_a_space(data, rng_for(seed, "one space"))
        has_own_space = is_joint and not self._learns_on and len(views.complete_rows()) == views.n_rows
        has_own_space = has_own_space and not any(data.stays_sparse(name) for name in data.names)
        n_steps = 0 if is_joint else n_steps
        n_bits = PAIR_BITS if has_own_space else self.n_bits
        rank = min(n_bits, 128) if is_auto(self.rank) else int(self.rank)
        refines = self.refine_rotation and not is_joint and not choices.is_canonical
        refines = refines and len(data.names) > 1 and len(views.complete_rows()) >= MIN_PAIRS
        fitted, codes, eigenvalues = solve(
            sample, data, maps, choices, n_bits, rank, n_steps, nested, rng, self._report, refines=refines
        )
        fitted.fusion_weights = weights or training_fusion_weights(fitted, data, rng_for(seed, "fusion"))
        fitted = convert(fitted, host)
        if has_own_space:
            self._report(0, 0, "the space of the views")
            fitted = with_own_space(fitted, sample, maps, self.n_bits, rng_for(seed, "own space"))
            codes = codes_of_rows(fitted, data, maps)
        self.codes_, self.fitted_ = host(codes), fitted
        self.tuning_ = {**tuning, "refined": refines, "fusion_weights": fitted.fusion_weights}
        self.eigenvalues_ = host(eigenvalues)
        self.settings_ = {
            "n_anchors": n_anchors,
            "n_neighbors": n_neighbors,
            "rank": len(eigenvalues),
            "n_rotation_steps": n_steps,
        }
        if len(linked) < every.n_rows:
            self._add_lone_codes(every, linked)

    def _add_lone_codes(self, views: PairedViews, linked: Any) -> None:
        """Add the codes of rows that are present in one view, from the hash functions of that view."""
        self.view_names_, self.n_features_ = views.names, views.n_features
        codes = np.empty((views.n_rows, self.codes_.shape[1]), np.uint8)
        codes[linked] = self.codes_
        for name in views:
            alone = np.setdiff1d(np.flatnonzero(views.is_present(name)), linked)
            if len(alone):
                codes[alone] = host(self.encode(views.rows(alone)[name], view=name))
        self.codes_ = codes

    def _fit_floats(self, views: PairedViews) -> None:
        rank = None if is_auto(self.rank) else int(self.rank)
        self._report(0, 2, "directions and their number")
        self.fitted_, self.tuning_, self.eigenvalues_ = fit_floats(
            views, self.n_bits, rank, rng_for(self._seed, "floats")
        )
        self.settings_ = {"n_anchors": 0, "n_neighbors": 0, "rank": len(self.eigenvalues_)}
        self._report(1, 2, "codes")
        self.codes_ = self._codes_of(views)

    def _item_signs(self, projections: Floats) -> Floats:
        """The best bits of the frame for float queries, where there is one (best_bits.py)."""
        rank, n_bits = self.fitted_.frame_rank, projections.shape[1]
        if 0 < rank < n_bits <= MAX_BITS:
            projections = nearest_bits(projections, self.fitted_.frame_projector)
        return projections[:, : self.n_bits]

    def _factors_block(self, block: Any, projections: Floats, signs: Floats, view: str) -> Floats:
        """target="floats": scale and offset; "pairs": the scale that makes the estimate of a cosine unbiased, and 0."""
        P = projections[:, : self.n_bits]
        products = np.einsum("ij,ij->i", P, np.where(signs > 0.0, 1.0, -1.0))
        if self.target == "floats":
            rank = self.settings_["rank"]
            return factors_of(self.fitted_, to_dense(block), projections, products, rank, view)
        lengths = np.sqrt(np.einsum("ij,ij->i", P, P))
        return np.stack([scales_of(lengths, products), np.zeros(len(P))], axis=1)

    def _anchor_numbers(self, n_rows: int) -> tuple[int, int, int]:
        """Anchors and neighbors of the graph, anchors of the features; "auto" is what docs/study.md found best."""
        usual = 500 if n_rows < 6_000 else min(n_rows // 6, 1_500) if n_rows <= 20_000 else 1_000
        of_features = min(max(1_000, n_rows // 3), 2_000) if n_rows <= 20_000 else 1_000
        owner = type(self).__name__
        P: Any = max(min(usual, n_rows // 2), 1) if is_auto(self.n_anchors) else self.n_anchors
        integer(1, n_rows, " (the number of rows)").check(owner, "n_anchors", P)
        k: Any = max(min(45, P // 10), 1) if is_auto(self.n_neighbors) else self.n_neighbors
        integer(1, P, " (the number of anchors)").check(owner, "n_neighbors", k)
        return int(P), int(k), of_features if is_auto(self.n_kernel_anchors) else int(self.n_kernel_anchors)

    def _start(self, n_views: int) -> tuple[Choices, set[str]]:
        """Where tuning starts, and the names of the parameters that are free ("auto")."""
        free = {name for name in TUNED if is_auto(getattr(self, name))}
        fixed = {name: getattr(self, name) for name in TUNED if name not in free}
        if "view_weights" in fixed:
            fixed["view_weights"] = tuple(float(a) for a in self.view_weights)
            if len(fixed["view_weights"]) != n_views:
                expected = f"{n_views} numbers, one per view"
                raise ParameterError(type(self).__name__, "view_weights", expected, list(self.view_weights))
        if "ridge" in fixed and "hash_ridge" in free:
            fixed["hash_ridge"] = fixed["ridge"] / 10
        if self.hash_functions == "canonical" and n_views == 1:
            raise DataError('hash_functions="canonical" needs at least two views. Got one.')
        return Choices(fusion=self.fusion, **fixed), free - ({"view_weights"} if n_views == 1 else set())

    def cut(self, n_bits: int) -> FuseHash:
        """The same model with shorter codes; fitted again, it is nested at the lengths that are left."""
        short = super().cut(n_bits)
        if self.nested is not None:
            short.nested = tuple(length for length in self.nested if length < n_bits) or None
        return short

    @property
    def _encodes_tensors(self) -> bool:
        """Sparse rows of a model are on the host."""
        return not any(feature_map.preparation.sparse_width for feature_map in self.fitted_.maps.values())

    def _passes(self, views: PairedViews) -> RowPasses:
        """As in the base class; what continues a model with sparse rows is on the host too."""
        if hasattr(self, "fitted_") and not self._encodes_tensors:
            return passes_over(views.on_host(), self.n_threads, keep_sparse=True)
        return super()._passes(views)

    def _stays_sparse(self, name: str, learned: dict[str, Any]) -> bool:
        return bool(learned["fitted_"].maps[name].preparation.sparse_width == learned["n_features_"][name])

    def _project_block(self, block: Floats, view: str) -> Floats:
        fitted = self._maps_for(block)
        return fitted.project(fitted.maps[view].preparation(block), view)

    def _project_complete_block(self, blocks: dict[str, Floats]) -> Floats:
        fitted = self._maps_for(next(iter(blocks.values())))
        return fitted.project_complete({name: m.preparation(blocks[name]) for name, m in fitted.maps.items()})

    def _maps_for(self, block: Floats) -> Fitted:
        """The learned maps: in double precision on the host, as they are on a device."""
        return self.fitted_ if is_foreign(block) else self.fitted_.in_double

    def _fusion_weights(self) -> dict[str, float]:
        return self.fitted_.fusion_weights
