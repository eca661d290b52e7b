"""Look at your codes.

Even bits, bits that do not repeat each other, and a shared space: one call each.
"""

# %%
import fusehash as fh

data = fh.datasets.make_paired(n_samples=900, n_classes=6, random_state=0)
train = data.views.rows(data.train)
model = fh.FuseHash(n_bits=64, random_state=0).fit(train)
control = fh.RegressionHasher(n_bits=64, random_state=0).fit(train)
new = data.views["text"][data.query]

# %%
# A bit with a mean near 1 is the same for nearly all items and tells nothing apart.
fh.plots.code_balance({"training": model.codes_, "new texts": model.encode(new, view="text")})

# %%
# Bits that repeat each other waste space. The closed form keeps them apart.
fh.plots.bit_correlation(model.codes_)

# %%
fh.plots.bit_correlation(control.codes_)

# %%
# Precision and recall as the Hamming radius grows.
labels = data.labels[data.query], data.labels[data.train]
methods = {"FuseHash": model, "regression": control}
pairs = {name: (m.encode(new, view="text"), m.encode(train["image"], view="image")) for name, m in methods.items()}
fh.plots.precision_recall(pairs, labels)

# %%
# Both views in one plane, colored by class.
projections = {view: model.project(data.views[view][data.query], view=view) for view in ("image", "text")}
fh.plots.shared_space(projections, data.labels[data.query])

# %%
# MAP over code length, with the spread over seeds.
runs = {
    name: {b: fh.evaluation.evaluate(method(n_bits=b), data, protocols=["HN"], seeds=[0, 1, 2]) for b in (16, 64)}
    for name, method in {"FuseHash": fh.FuseHash, "regression": fh.RegressionHasher}.items()
}
fh.plots.map_over_bits(runs, "HN", "text->image")
