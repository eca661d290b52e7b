"""Bring your own method.

Any class with `fit`, `encode`, `encode_fused`, `codes_` and `get_params` can be evaluated next to ours, under the same
four protocols, tie rules and seeds.
"""

# %%
# A method from scratch: random signs of standardized views. It cannot work across views, which the table shows.
import numpy as np
from sklearn.base import BaseEstimator

import fusehash as fh


class RandomSigns(BaseEstimator):
    """Signs of random projections, drawn for each view."""

    def __init__(self, n_bits=64, random_state=None):
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, views, labels=None):
        rng = np.random.default_rng(self.random_state)
        self.means_ = {name: np.asarray(views[name]).mean(axis=0) for name in views}
        self.W_ = {name: rng.normal(size=(len(mean), self.n_bits)) for name, mean in self.means_.items()}
        self.codes_ = self.encode_fused(views)
        return self

    def project(self, X, view):
        return (X - self.means_[view]) @ self.W_[view]

    def encode(self, X, view):
        return fh.bits.pack(self.project(X, view))

    def encode_fused(self, views):
        return fh.bits.pack(sum(self.project(np.asarray(views[name]), name) for name in views))


# %%
data = fh.datasets.make_paired(n_samples=1000, random_state=0)
for method in (RandomSigns(n_bits=64), fh.RegressionHasher(n_bits=64), fh.FuseHash(n_bits=64)):
    result = fh.evaluation.evaluate(method, data, protocols=["HN"], seeds=[0, 1])
    print(f"{type(method).__name__:<18}", *(f"{s.direction} {s.mean:.3f}  " for s in result.scores))

# %%
# The same over the code length. The band is one standard deviation over seeds.
methods = {"FuseHash": fh.FuseHash, "regression": fh.RegressionHasher, "random signs": RandomSigns}
runs = {
    name: {b: fh.evaluation.evaluate(method(n_bits=b), data, protocols=["HN"], seeds=[0, 1]) for b in (16, 32, 64)}
    for name, method in methods.items()
}
fh.plots.map_over_bits(runs, "HN", "text->image")
