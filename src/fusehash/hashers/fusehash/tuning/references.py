"""The final round: what the steps have chosen meets other methods, all with more anchors.

The other methods are CCA-ITQ and kernel CCA-ITQ. One that gains more than `MIN_REFERENCE_GAIN` is taken, so that the
chosen settings never score less than a reference by more than that on the held-out rows on which both were tried.
"""

from __future__ import annotations

from dataclasses import replace

from fusehash.hashers.fusehash.fitted import Choices
from fusehash.hashers.fusehash.tuning.trials import Trial, mean_trial
from fusehash.hashers.fusehash.tuning.walk import Change

FINAL_ANCHORS, CANONICAL_ANCHORS = 400, 1000  # of the final round; more than rows of a split are not needed
# What other methods are. One that scores higher than what the steps have chosen, beyond noise, is taken. CCA-ITQ has
# the ridge of `fusehash.hashers.CCAITQ`, on prepared views. On made data, where neighbors of one class are hard to see,
# CCA-ITQ gains .04 to .07 and finds classes worse.
MIN_REFERENCE_GAIN = 0.1
CANONICAL: Change = {"hash_functions": "canonical", "spectral_power": 2.0}
REFERENCES: dict[str, Change] = {
    "CCA-ITQ": {**CANONICAL, "feature_map": "linear", "ridge": 0.001},
    "CCA-ITQ, ridge 1": {**CANONICAL, "feature_map": "linear", "ridge": 1.0},
    "CCA-ITQ, ridge 10": {**CANONICAL, "feature_map": "linear", "ridge": 10.0},
    "kernel CCA-ITQ": {**CANONICAL, "feature_map": "rbf", "ridge": 1.0},
}


def references_of(chosen: Choices, free: set[str], n_views: int) -> list[Choices]:
    """The references that no fixed setting forbids; the canonical ones need two views."""
    allowed = []
    for change in REFERENCES.values():
        choices = replace(chosen, **change)
        changed = {name for name, value in choices.as_dict().items() if value != chosen.as_dict()[name]}
        if changed <= free and (n_views > 1 or not choices.is_canonical):
            allowed.append(choices)
    return allowed


def final_anchors(choices: Choices) -> int:
    """Anchors of a view in the final round, at most; canonical linear maps see wide views in full."""
    return CANONICAL_ANCHORS if choices.is_canonical and choices.feature_map == "linear" else FINAL_ANCHORS


def final_trials(firsts: list[Trial], others: list[Trial]) -> list[Trial]:
    """One trial of each choice, on as many splits as it was run on."""
    by_choices = {first.choices: [first] for first in firsts}
    for trial in others:
        by_choices[trial.choices].append(trial)
    return [mean_trial(parts) for parts in by_choices.values()]


def best_reference(finals: list[Trial], n_splits: int) -> Trial | None:
    """The best on all splits if it gains enough on the first, which is what the steps have chosen."""
    best = max(
        (trial for trial in finals if trial.splits == n_splits), key=lambda trial: trial.score, default=finals[0]
    )
    return best if best.score > finals[0].score + MIN_REFERENCE_GAIN else None
