"""From raw views to a fitted closed form: prepare, tune, choose anchors, fit, encode every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusehash.checks import stream
from fusehash.hashers.closed_form import ClosedForm
from fusehash.hashers.closed_form_maps import Choices, Fitted, GraphMap
from fusehash.hashers.closed_form_source import (
    ViewsSource,
    complete_rows,
    learn_preparations,
    sample_view,
)
from fusehash.hashers.closed_form_tuning import TUNING_ROWS, Tuner
from fusehash.kernels import FeatureMap
from fusehash.prepare import Preparation
from fusehash.views import Floats, PairedViews

Report = Callable[[int, int, str], None]
# Beyond this many rows the spectrum is learned from a seeded sample; every row still gets its code from it.
SPECTRUM_ROWS = 50_000


def usual_anchors(n_rows: int) -> int:
    """Anchors of the graph and of the RBF features: more of them help from some 6,000 rows on (docs/study.md).

    500 below, then a sixth of the rows up to 1,500; 1,000 beyond 20,000 rows, where each costs most.
    """
    if n_rows < 6_000:
        return 500
    return min(n_rows // 6, 1_500) if n_rows <= 20_000 else 1_000


@dataclass(frozen=True)
class Sizes:
    """Sizes of the fit, and what it does with missing rows."""

    n_bits: int
    rank: int
    n_anchors: int  # of the graph
    n_neighbors: int
    n_kernel_anchors: int
    n_rotation_steps: int
    n_refinements: int
    spectrum_rows: int


@dataclass
class Outcome:
    fitted: Fitted
    B: NDArray[np.int8]
    eigenvalues: Floats
    tuning: dict[str, Any]


def fit_closed_form(
    views: PairedViews,
    sizes: Sizes,
    start: Choices,
    free: set[str],
    seed: int,
    n_threads: int | None,
    report: Report,
) -> Outcome:
    """Fit with the settings in `start`, of which those named in `free` are tuned without labels."""
    preparations = learn_preparations(views, stream(seed, "preparation"))
    choices, tuning, fusion_weights = tune(views, preparations, sizes, start, free, seed, n_threads, report)
    rng = stream(seed, "closed form")
    selection = None
    if views.n_rows > sizes.spectrum_rows:
        selection = np.sort(stream(seed, "rows").choice(views.n_rows, sizes.spectrum_rows, replace=False))
    source = ViewsSource(views, preparations, selection)
    maps = {
        name: FeatureMap.learn(
            preparations[name],
            preparations[name](sample_view(views, name, rng)),
            choices.feature_map,
            choices.kernel_width,
            sizes.n_kernel_anchors,
            rng,
        )
        for name in views
    }
    graph = graph_map(views, preparations, sizes, choices, rng) if choices.graph_weight > 0.0 else None
    form = ClosedForm(source, maps, graph, choices, n_threads)
    fitted, B, eigenvalues = form.fit(
        sizes.n_bits,
        sizes.rank,
        rng,
        n_rotation_steps=sizes.n_rotation_steps,
        n_refinements=sizes.n_refinements,
        all_rows=None if selection is None else ViewsSource(views, preparations),
        report=lambda message: report(0, 0, message),
    )
    fitted.fusion_weights = fusion_weights
    return Outcome(fitted, B, eigenvalues, tuning)


def tune(
    views: PairedViews,
    preparations: dict[str, Preparation],
    sizes: Sizes,
    start: Choices,
    free: set[str],
    seed: int,
    n_threads: int | None,
    report: Report,
) -> tuple[Choices, dict[str, Any], dict[str, float]]:
    """The settings, what was tried, and the weight of each view in a fusion."""
    fusion_weights = dict.fromkeys(views.names, 1.0)
    rows = complete_rows(views)
    if len(rows) < 40:
        reason = f"only {len(rows)} rows are present in every view; nothing was tuned"
        return start, {"chosen": _described(start), "trials": [], "note": reason}, fusion_weights
    rng = stream(seed, "tuning")
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, len(rows)), replace=False))
    arrays = {name: preparations[name](views.block(name, rows)) for name in views}
    tuner = Tuner(preparations, arrays, sizes.n_bits, rng, n_threads)
    best = tuner.walk(start, free, report)
    trials = [trial.as_dict() for trial in tuner.trials]
    fusion_weights = tuner.fusion_weights(best)
    tuning = {
        "chosen": _described(best.choices),
        "views": {name: preparation.kind for name, preparation in preparations.items()},
        "fusion_weights": fusion_weights,
        "tuned": sorted(free),
        "rows": len(rows),
        "trials": trials,
    }
    return best.choices, tuning, fusion_weights


def _described(choices: Choices) -> dict[str, Any]:
    return {**asdict(choices), "view_weights": list(choices.view_weights)}


def graph_map(
    views: PairedViews,
    preparations: dict[str, Preparation],
    sizes: Sizes,
    choices: Choices,
    rng: np.random.Generator,
) -> GraphMap:
    """Graph anchors: random items, complete ones where there are enough."""
    rows = complete_rows(views)
    rows = rows if len(rows) >= sizes.n_anchors else np.arange(views.n_rows)
    rows = np.sort(rng.choice(rows, min(sizes.n_anchors, len(rows)), replace=False))
    return GraphMap(
        anchors={name: preparations[name](views.block(name, rows)) for name in views},
        has_anchor={name: views.is_present(name)[rows] for name in views},
        n_neighbors=sizes.n_neighbors,
        fusion=choices.fusion,
        weights=list(choices.view_weights or (1.0,) * len(views.names)),
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
