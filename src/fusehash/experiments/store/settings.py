"""What decides a run, and the key by which its result is found, also in files of earlier formats."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from fusehash.evaluation.protocols import StageName
from fusehash.experiments.methods import file_stem, settings_of

# In files of format 1, AGSFH and FuseHash were one method with these defaults; preset "paper" was AGSFH.
FORMAT_1_AGSFH: dict[str, Any] = {
    "ablation": None, "affinity_weight": 0.01, "anchors": "random", "approximation_weight": 0.01, "as_printed": False,
    "device": None, "dtype": None, "exact_clusters": False, "feature_map": "auto", "fusion": "mean",
    "graph_weight": "auto", "hash_ridge": "auto", "inner_max_iter": 50, "inner_tol": 0.0001, "kernel_width": "auto",
    "latent_weight": "auto", "max_iter": 20, "missing": "error", "n_anchors": "auto", "n_clusters": "auto",
    "n_kernel_anchors": "auto", "n_neighbors": "auto", "n_refinements": 0, "n_rotation_steps": 50, "nested": None,
    "preset": None, "rank": "auto", "regression_weight": 300.0, "ridge": "auto", "smoothness": 10.0,
    "spectral_power": "auto", "spectrum_rows": 50000, "tol": 1e-05, "view_weights": "auto",
}  # fmt: skip
# Settings that came later, with what they were before: a run with that value has the key that it had.
ADDED_SETTINGS: dict[str, dict[str, Any]] = {
    "fusehash": {"target": "pairs", "hash_functions": "auto", "word_weights": "auto", "refine_rotation": False}
}
# Defaults that became "auto", with what they were: a run with "auto" has the key of that, and that another one.
ADDED_AUTO: dict[str, dict[str, Any]] = {"fusehash": {"n_rotation_steps": 50}}


@dataclass(frozen=True)
class RunSettings:
    """Everything that decides what a run computes.

    dataset : fingerprint of the data set
    method, params : the method by name and its settings; those that are left out are the method's defaults
    n_bits, seed : length of the codes, random_state of the method
    stage : "train" learns from all training rows, "half" from a seeded half of them (`evaluation.protocols`)
    """

    dataset: str
    method: str
    params: dict[str, Any]
    n_bits: int
    seed: int
    stage: StageName

    @cached_property
    def key(self) -> str:
        """SHA-256 (hex) of the settings, defaults included, so that spelling out a default finds the same run.

        If nothing is random, all seeds are one run; except for "half", whose rows are drawn with the seed.
        """
        defaults, _ = settings_of(self.method)
        return self._digest(self.method, {**defaults, **self.params})

    @property
    def format_1_key(self) -> str:
        """The key of the same run in files of format 1."""
        if self.method not in ("agsfh", "fusehash"):
            return self.key
        settings = {**settings_of(self.method)[0], **self.params}
        if self.method == "agsfh":
            settings["preset"] = "paper"
            settings["ridge"] = self.params.get("ridge", "auto")
        return self._digest("agsfh", {**FORMAT_1_AGSFH, **settings})

    @property
    def file_name(self) -> str:
        """As in fusehash-64bits-seed0-half-0a1b2c3d.safetensors."""
        seed = f"-seed{self.seed}" if self._depends_on_seed else ""
        half = "-half" if self.stage == "half" else ""
        return f"{file_stem(self.method)}-{self.n_bits}bits{seed}{half}-{self.key[:8]}.safetensors"

    @property
    def _depends_on_seed(self) -> bool:
        return self.stage == "half" or settings_of(self.method)[1]

    def _digest(self, method: str, params: dict[str, Any]) -> str:
        added = ADDED_SETTINGS.get(self.method, {})
        params = {name: value for name, value in params.items() if name not in added or value != added[name]}
        for name, value in ADDED_AUTO.get(self.method, {}).items():
            if name in params and params[name] in ("auto", value):
                params[name] = value if params[name] == "auto" else f"{value}, given"
        content = {**asdict(self), "method": method, "params": params}
        if not self._depends_on_seed:
            del content["seed"]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()


def canonical_json(value: Any) -> str:
    """JSON that is the same for equal content: sorted keys, and 10.0 is 10."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
