"""Three views: image, text and sound.

Nothing in fusehash stops at two views. Every view gets a hash function of its own into the same codes, so that a sound
finds a text and a text finds an image.
"""

# %%
# Made data with three views of the same hidden classes; replace it with your own matrices, one row per item.
import fusehash as fh

data = fh.datasets.make_paired(n_samples=1200, views={"image": 60, "text": 30, "sound": 20}, random_state=0)
train = data.views.rows(data.train)
model = fh.FuseHash(n_bits=64, random_state=0).fit(train)
print(model.view_names_)

# %%
# All six directions, on items that training did not see.
result = fh.evaluation.evaluate(fh.FuseHash(n_bits=64), data, protocols=["HN"], seeds=[0, 1])
for score in result.scores:
    print(f"{score.direction:<14} {score.mean:.3f}")

# %%
# A query with two views at once: fused codes use what every view knows.
sound_and_text = {view: data.views[view][data.query] for view in ("sound", "text")}
codes = model.encode_fused(sound_and_text)
print(codes.shape, codes.dtype)

# %%
# All three views in one plane: items of one class lie together, whatever the view. Colors are classes, signs are views.
projections = {view: model.project(data.views[view][data.query], view=view) for view in data.views}
fh.plots.shared_space(projections, data.labels[data.query])
