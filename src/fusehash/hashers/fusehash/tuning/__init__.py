"""Choose the settings of the closed form on held-out training rows, without labels.

`trials` fits on part of the tuning rows and scores on the others, by what `measures` finds there. `walk` changes one
setting at a time; in the final round, what it has chosen meets `references`.

The weight of the graph follows from how far the views agree on neighborhoods (`agreement`). Weights of words
(`fusehash.numerics.word_weights`), which help to find partners, grow as the first weight of the graph falls.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fusehash.hashers.fusehash.closed_form import Preparations, Rng
from fusehash.hashers.fusehash.fitted import Choices
from fusehash.hashers.fusehash.tuning.agreement import agreeing_weight, raised_weight, starting_weight
from fusehash.hashers.fusehash.tuning.fusion import fusion_weights
from fusehash.hashers.fusehash.tuning.references import (
    MIN_REFERENCE_GAIN,
    best_reference,
    final_anchors,
    final_trials,
    references_of,
)
from fusehash.hashers.fusehash.tuning.trials import TRIAL_ANCHORS, TUNING_ROWS, HeldOut, run_trial
from fusehash.hashers.fusehash.tuning.walk import HOPELESS, MAX_SPLITS, N_SPLITS, Walk, steps_of
from fusehash.numerics.arrays import is_accelerated, load_linear_algebra
from fusehash.numerics.parallel import map_blocks, n_cores
from fusehash.numerics.word_weights import are_words
from fusehash.parameters import Progress
from fusehash.streams.row_passes import RowPasses

MIN_TUNING_ROWS = 40
# With more rows per feature than this, training rows are as informative as held-out rows.
MIN_ROWS_PER_FEATURE = 20
MANY_CORES = 8  # with this many, all remaining steps are tried at once
DEVICE_TRIALS = 4  # trials at once on a device; the host part of one overlaps with the device part of another


def tune(
    data: RowPasses, preparations: Preparations, start: Choices, free: set[str], n_bits: int, rng: Rng, report: Progress
) -> tuple[Choices, dict[str, Any], dict[str, float]]:
    """Improve one free setting at a time; returns the choices, what was tried, and the weight of each view in a fusion.

    The weights are {} if the training rows themselves can give them (`training_fusion_weights`). Most steps change
    nothing. With enough cores, all remaining steps are tried from the current settings at once, and the steps after a
    change again; the result is the same.
    """
    rows = data.views.complete_rows()
    kinds = {name: preparation.kind for name, preparation in preparations.items()}
    if len(rows) < MIN_TUNING_ROWS:
        note = f"only {len(rows)} rows are present in every view: nothing was tuned, and no held-out rows were checked"
        untuned = {"chosen": start.as_dict(), "views": kinds, "tuned": [], "rows": 0, "trials": [], "note": note}
        return start, untuned, dict.fromkeys(data.names, 1.0)
    width = sum(preparation.width for preparation in preparations.values())
    steps = steps_of(start, free)
    # With so many rows and nothing to choose, one split shows whether new rows collapse, and training rows the weights.
    is_check = not steps and len(rows) >= MIN_ROWS_PER_FEATURE * width
    n_complete = len(rows)
    rows = np.sort(rng.choice(rows, min(TUNING_ROWS, n_complete), replace=False))
    arrays = {name: data.take(name, rows) for name in data.names}
    load_linear_algebra(data.like)
    n_threads = DEVICE_TRIALS if is_accelerated(data.like) else data.n_threads
    dtype = next(iter(preparations.values())).dtype
    streams = rng.spawn(1 if is_check else MAX_SPLITS)
    make_split = partial(HeldOut, kinds, dtype, arrays, n_bits)
    splits = list(map_blocks(make_split, streams[:N_SPLITS], n_threads))
    agreement = float(np.mean([split.agreement for split in splits]))
    if "graph_weight" in free:
        start = replace(start, graph_weight=starting_weight(agreement))
    if "word_weights" in free and len(arrays) > 1 and any(are_words(rows) for rows in splits[0].kept.values()):
        start = replace(start, word_weights=1.0 - agreeing_weight(agreement) ** 2)
    for split in splits:
        split.weigh_words(start.word_weights)
    more_splits: list[HeldOut] = []
    walk = Walk(start, steps, free, len(arrays), ahead=(n_threads or n_cores()) >= MANY_CORES)
    has_final = bool(steps and references_of(start, free, len(arrays)))
    n_steps = len(walk.steps) - 1 + has_final
    while grids := walk.next_grids():
        report(walk.n_done, n_steps, f"tuning {', '.join(grids)}")
        grid = [(name, choices) for name, candidates in grids.items() for choices in candidates]
        firsts = list(map_blocks(run_trial, [(splits[0], choices, TRIAL_ANCHORS) for _, choices in grid], n_threads))
        names = (name for name, _ in grid)
        hopeful = [first.choices for name, first in zip(names, firsts, strict=True) if walk.is_hopeful(name, first)]
        jobs = [(split, choices, TRIAL_ANCHORS) for choices in dict.fromkeys(hopeful) for split in splits[1:]]
        walk.add(firsts, list(map_blocks(run_trial, jobs, n_threads)))
        if close := walk.close(grids):
            if not more_splits:
                more_splits += map_blocks(make_split, streams[N_SPLITS:], n_threads)
                for split in more_splits:
                    split.weigh_words(start.word_weights)
            jobs = [(split, choices, TRIAL_ANCHORS) for choices in close for split in more_splits]
            walk.extend(list(map_blocks(run_trial, jobs, n_threads)))
        walk.decide(grids)
    if more := walk.with_more_graph(raised_weight(agreement, n_complete)):
        report(n_steps - has_final, n_steps, "tuning, more of the graph")
        first, *others = map_blocks(run_trial, [(split, more, TRIAL_ANCHORS) for split in splits], n_threads)
        walk.add([first], others)
    best, trials, reference = walk.best, walk.trials, None
    if has_final:
        report(n_steps, n_steps, "tuning, final round")
        candidates = dict.fromkeys([best.choices, *references_of(best.choices, free, len(arrays))])
        finals = [(splits[0], choices, final_anchors(choices)) for choices in candidates]
        firsts = list(map_blocks(run_trial, finals, n_threads))
        limit = firsts[0].score + MIN_REFERENCE_GAIN - HOPELESS
        likely = [job for job, first in zip(finals, firsts, strict=True) if first.score > limit]
        again = [(split, *job[1:]) for job in [finals[0], *likely] for split in splits[1:]] if likely else []
        tried = final_trials(firsts, list(map_blocks(run_trial, again, n_threads)))
        trials += tried
        reference = best_reference(tried, len(splits))
    best = reference or (walk.raised(more) if more else best)
    tuning = {
        "chosen": best.choices.as_dict(),
        "views": kinds,
        "tuned": sorted(free),
        "rows": len(rows),
        "agreement": agreement,
        "score": best.score,
        "live_bits": best.live_bits,
        "evenness": best.evenness,
        "trials": [trial.as_dict() for trial in trials],
    }
    if is_check:
        return best.choices, {**tuning, "note": "every setting was given"}, {}
    return best.choices, tuning, fusion_weights(best.fitted, splits[-1].held)
