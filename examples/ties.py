"""Why one MAP is not another: ties.

Short codes put dozens of items at the same distance. The order inside such a tie is not defined, but it decides MAP.
fusehash reports the exact expectation over all orders.
"""

# %%
import fusehash as fh

data = fh.datasets.make_paired(n_samples=900, n_classes=6, random_state=0)
train = data.views.rows(data.train)
labels = data.labels[data.query], data.labels[data.train]

codes = {}
for bits in (8, 16, 32, 64):
    model = fh.FuseHash(n_bits=bits, random_state=0).fit(train)
    query = model.encode(data.views["text"][data.query], view="text")
    codes[bits] = query, model.encode(train["image"], view="image")

# %%
# The band is what an implementation may print for the same codes, by the order of its database alone.
fh.plots.ties(codes, labels)

# %%
for bits, (query, database) in codes.items():
    orders = ("worst", "expected", "best")
    values = [fh.evaluation.mean_average_precision(query, database, labels, ties=order) for order in orders]
    print(f"{bits:>4} bits:", *(f"{value:.3f}" for value in values))
