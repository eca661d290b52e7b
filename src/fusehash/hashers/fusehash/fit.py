"""From raw views to a fitted closed form: prepare, tune, choose anchors, fit, encode every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import DataError
from fusehash.hashers.fusehash.closed_form import ClosedForm
from fusehash.hashers.fusehash.fitted import Choices, Fitted, GraphMap
from fusehash.hashers.fusehash.tuning import TUNING_ROWS, Tuner, fusion_weights, tunable
from fusehash.numerics.arrays import Array, host, is_accelerated, load_linear_algebra
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.numerics.rotation import signs_of
from fusehash.parameters import rng_for
from fusehash.streams.row_passes import RowPasses
from fusehash.views import PairedViews

Report = Callable[[int, int, str], None]
# Beyond this many rows the spectrum is learned from a seeded sample; every row still gets its code from it.
SPECTRUM_ROWS = 50_000
# Rows of a sample, and at most so many of its entries.
SAMPLE_ROWS, SAMPLE_ENTRIES = 4096, 2**24
# Rows a feature beyond which the fit tells as much of its own rows as of others.
KNOWN_BY_HEART = 20
# Trials at once on a device: its work is short, and the host's part of one goes on beside that of another.
DEVICE_TRIALS = 4


def usual_anchors(n_rows: int) -> int:
    """Anchors of the graph and of the RBF features: more of them help from some 6,000 rows on (docs/study.md).

    500 below, then a sixth of the rows up to 1,500; 1,000 beyond 20,000 rows, where each costs most.
    """
    if n_rows < 6_000:
        return 500
    return min(n_rows // 6, 1_500) if n_rows <= 20_000 else 1_000


@dataclass(frozen=True)
class Sizes:
    """Sizes of the fit."""

    n_bits: int
    rank: int
    n_anchors: int  # of the graph
    n_neighbors: int
    n_kernel_anchors: int
    n_rotation_steps: int
    nested: tuple[int, ...]  # shorter lengths at which the codes can be cut
    spectrum_rows: int
    dtype: str = "float32"  # of features and graph rows


@dataclass
class Outcome:
    fitted: Fitted
    codes: Array  # packed
    eigenvalues: Array
    tuning: dict[str, Any]


def fit_closed_form(
    data: RowPasses, sizes: Sizes, start: Choices, free: set[str], seed: int, report: Report
) -> Outcome:
    """Fit with the settings in `start`, of which those named in `free` are tuned without labels."""
    preparations = learn_preparations(data, sizes.dtype, rng_for(seed, "preparation"))
    choices, tuning, weights = tune(data, preparations, sizes, start, free, seed, report)
    rng = rng_for(seed, "closed form")
    sample = None
    if data.n_rows > sizes.spectrum_rows:
        sample = data.select(np.sort(rng_for(seed, "rows").choice(data.n_rows, sizes.spectrum_rows, replace=False)))
    maps = {
        name: FeatureMap.learn(
            preparations[name],
            preparations[name](sample_view(data, name, rng)),
            choices.feature_map,
            choices.kernel_width,
            sizes.n_kernel_anchors,
            rng,
        )
        for name in data.names
    }
    graph = graph_map(data, preparations, sizes, choices, rng) if choices.graph_weight > 0.0 else None
    fitted, codes, eigenvalues = ClosedForm(data if sample is None else sample, maps, graph, choices).fit(
        sizes.n_bits,
        sizes.rank,
        rng,
        n_rotation_steps=sizes.n_rotation_steps,
        nested=sizes.nested,
        all_rows=None if sample is None else data,
        report=lambda message: report(0, 0, message),
    )
    fitted.fusion_weights = weights or weights_in_a_fusion(fitted, data, rng_for(seed, "fusion"))
    tuning["fusion_weights"] = fitted.fusion_weights
    return Outcome(fitted, codes, eigenvalues, tuning)


def sample_view(data: RowPasses, name: str, rng: np.random.Generator, n_rows: int = SAMPLE_ROWS) -> Array:
    """Some rows of a view in which it is present, dense."""
    rows = np.flatnonzero(data.views.is_present(name))
    n_rows = min(n_rows, len(rows), max(SAMPLE_ENTRIES // data.n_features[name], 256))
    return data.take(name, np.sort(rng.choice(rows, n_rows, replace=False)))


def learn_preparations(data: RowPasses, dtype: str, rng: np.random.Generator) -> dict[str, Preparation]:
    """How each view is made comparable, from a sample of its rows; refuses views that do not vary."""
    preparations = {}
    for name in data.names:
        sample = sample_view(data, name, rng)
        if bool((sample == sample[0]).all()) and _is_constant(data.views, name):
            raise DataError(f"View '{name}' must vary between rows. Every feature is constant.")
        preparations[name] = Preparation.learn(sample, dtype=dtype)
    return preparations


def _is_constant(views: PairedViews, name: str) -> bool:
    first = None
    for rows in views.blocks():
        block = views.block(name, rows)[views.is_present(name)[rows]]
        if len(block) == 0:
            continue
        first = block[0] if first is None else first
        if np.any(block != first):
            return False
    return True


def complete_rows(views: PairedViews) -> NDArray[np.intp]:
    """Rows that are present in every view."""
    return np.flatnonzero(np.all([views.is_present(name) for name in views], axis=0))


def tune(
    data: RowPasses,
    preparations: dict[str, Preparation],
    sizes: Sizes,
    start: Choices,
    free: set[str],
    seed: int,
    report: Report,
) -> tuple[Choices, dict[str, Any], dict[str, float]]:
    """The settings, what was tried, and the weight of each view in a fusion ({}: to be learned from the fit)."""
    rows = complete_rows(data.views)
    untuned = {
        "chosen": _described(start),
        "views": {name: preparation.kind for name, preparation in preparations.items()},
        "tuned": [],
        "rows": 0,
        "trials": [],
    }
    if len(rows) < 40:
        note = f"only {len(rows)} rows are present in every view; nothing was tuned"
        return start, {**untuned, "note": note}, dict.fromkeys(data.names, 1.0)
    width = sum(preparation.width for preparation in preparations.values())
    if not tunable(start, free) and len(rows) >= KNOWN_BY_HEART * width:
        return start, {**untuned, "note": "every setting was given"}, {}
    rng = rng_for(seed, "tuning")
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    arrays = {name: preparations[name](data.take(name, rows)) for name in data.names}
    load_linear_algebra(data.like)
    n_threads = DEVICE_TRIALS if is_accelerated(data.like) else data.n_threads
    tuner = Tuner(preparations, arrays, sizes.n_bits, rng, n_threads)
    best = tuner.walk(start, free, report)
    trials = [trial.as_dict() for trial in tuner.trials]
    tuning = {**untuned, "chosen": _described(best.choices), "tuned": sorted(free), "rows": len(rows), "trials": trials}
    return best.choices, tuning, tuner.fusion_weights(best)


def weights_in_a_fusion(fitted: Fitted, data: RowPasses, rng: np.random.Generator) -> dict[str, float]:
    """How much each view counts in a fusion, on training rows: for fits with too many rows to know them by heart."""
    rows = complete_rows(data.views)
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    raw = {name: data.take(name, rows) for name in data.names}
    B = signs_of(fitted.project_complete({name: fitted.maps[name].preparation(X) for name, X in raw.items()}))
    return fusion_weights({name: host(fitted.project(X, name)) for name, X in raw.items()}, host(B))


def _described(choices: Choices) -> dict[str, Any]:
    return {**asdict(choices), "view_weights": list(choices.view_weights)}


def graph_map(
    data: RowPasses, preparations: dict[str, Preparation], sizes: Sizes, choices: Choices, rng: np.random.Generator
) -> GraphMap:
    """Graph anchors: random items, complete ones where there are enough."""
    rows = complete_rows(data.views)
    rows = rows if len(rows) >= sizes.n_anchors else np.arange(data.n_rows)
    rows = np.sort(rng.choice(rows, min(sizes.n_anchors, len(rows)), replace=False))
    return GraphMap(
        anchors={name: preparations[name](data.take(name, rows)) for name in data.names},
        has_anchor={name: data.views.is_present(name)[rows] for name in data.names},
        n_neighbors=sizes.n_neighbors,
        fusion=choices.fusion,
        weights=list(choices.view_weights or (1.0,) * len(data.names)),
    )


def fix(start: Choices, given: dict[str, Any], n_views: int) -> tuple[Choices, set[str]]:
    """Split parameters into fixed values (put into `start`) and free ones (given as "auto")."""
    free = {name for name, value in given.items() if isinstance(value, str) and value == "auto"}
    fixed = {name: value for name, value in given.items() if name not in free}
    if "view_weights" in fixed:
        fixed["view_weights"] = tuple(float(a) for a in fixed["view_weights"])
    if "ridge" in fixed and "hash_ridge" in free:
        fixed["hash_ridge"] = fixed["ridge"] / 10
    if n_views == 1:
        free.discard("view_weights")
    return replace(start, **fixed), free
