"""Words find emoji.

Learn codes of 1,200 emoji from their pictures and their words, then let words find pictures that training never saw.
"""

# %%
# The extra `demo` brings the pictures (Twemoji, CC-BY 4.0) and their words. Variants of one concept stay together, so
# that no query finds a twin of a training item.
import numpy as np

import fusehash as fh
from fusehash.datasets.emoji import load_emoji, paired, split_concepts

items = load_emoji()
split = split_concepts(items)
print(f"{len(items)} emoji, {len(split.train)} to learn from, {len(split.query)} as queries")

# %%
# Encoders turn raw pictures and words into features. They see training items only.
makers = {"image": fh.encoders.make("classical", modality="image", side=72), "text": fh.encoders.make("tfidf")}
views = {}
for view, encoder in makers.items():
    contents = [getattr(item, view) for item in items]
    encoder.fit([contents[row] for row in split.train])
    views[view] = encoder.transform(contents)
data = paired(items, views, split)

# %%
# One fit; the index holds 8 bytes per picture.
model = fh.FuseHash(n_bits=64, random_state=0).fit(data.views.rows(data.train))
index = fh.HammingIndex(n_bits=64)
index.add(model.encode(data.views["image"], view="image"))

for row in data.query[[3, 60, 120]]:
    distances, ids = index.search(model.encode(data.views["text"][[row]], view="text"), k=6)
    print(f"{items[row].name:<28}", *(items[i].character for i in ids[0]))

# %%
# Both views in one plane. Colors are groups of the Unicode standard.
groups = np.array([item.labels[0] for item in items])[data.query]
projections = {view: model.project(data.views[view][data.query], view=view) for view in ("image", "text")}
fh.plots.shared_space(projections, groups)
