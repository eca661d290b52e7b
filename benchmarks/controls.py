"""Controls on the features that FuseHash uses: how much of its margin is the feature map.

Regression and CCA-ITQ get centered raw views; FuseHash gets RBF similarities of prepared rows to anchors. `OnFeatures`
gives any method those features, with the constants that the tuner of FuseHash starts from.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

import fusehash as fh
from fusehash.hashers.base import CrossModalHasher
from fusehash.numerics.features import FeatureMap, Preparation
from fusehash.parameters import Rule, choice, rng_for
from fusehash.views import PairedViews


class OnFeatures(CrossModalHasher):
    """Another method on RBF features of every view: 1,000 random anchors, or all rows if there are fewer."""

    method: ClassVar[str] = "on_features"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"inner": choice("regression", "cca_itq")}

    def __init__(self, inner: str = "regression", ridge: float = 0.03, n_bits: int = 64, random_state: Any = None):
        self.inner, self.ridge, self.n_bits, self.random_state = inner, ridge, n_bits, random_state

    def _fit(self, views: PairedViews, labels: Any) -> None:
        rng, features = rng_for(self._seed, "features"), {}
        self.maps_ = {}
        for name in views:
            rows = views.dense(name, slice(None))
            preparation = Preparation.learn(rows, dtype="float64")
            prepared = preparation(rows)
            self.maps_[name] = FeatureMap.learn(preparation, prepared, "rbf", 1.0, 1_000, rng)
            features[name] = self.maps_[name].of_prepared(prepared)
        self.inner_ = fh.hashers.make(self.inner, n_bits=self.n_bits, random_state=self._seed, ridge=self.ridge)
        self.inner_.fit(features)
        self.codes_ = self.inner_.codes_

    def _project_block(self, block: Any, view: str) -> Any:
        return np.asarray(self.inner_._project_block(self.maps_[view](block), view))
