"""Items that lack a view.

Some items have no text, others no image. `missing="allow"` learns from what is there; a row that lacks a view is all
NaN in it.
"""

# %%
import numpy as np

import fusehash as fh

data = fh.datasets.make_paired(n_samples=1500, random_state=0)
train = data.views.rows(data.train)
rng = np.random.default_rng(0)


def with_gaps(share):
    views = {name: np.array(train[name], dtype=float) for name in train}
    gone = rng.random((len(data.train), 2)) < share
    gone[gone.all(axis=1), 0] = False  # every item keeps one view
    for column, X in enumerate(views.values()):
        X[gone[:, column]] = np.nan
    return views


# %%
# MAP@50 of text to image on new items, for a growing share of gaps. Complete pairs teach most; lone rows still help.
labels = data.labels[data.query], data.labels[data.train]
pairs = {}
for share in (0.0, 0.3, 0.5):
    model = fh.FuseHash(n_bits=32, missing="allow", random_state=0).fit(with_gaps(share))
    codes = model.encode(data.views["text"][data.query], view="text")
    found = model.encode(train["image"], view="image")
    pairs[f"{share:.0%} missing"] = codes, found
    print(f"{share:.0%} missing: {fh.evaluation.mean_average_precision(codes, found, labels):.3f}")

# %%
# The same as curves: precision and recall as the Hamming radius grows.
fh.plots.precision_recall(pairs, labels)
