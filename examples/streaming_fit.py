"""Data larger than memory.

Views can be files. A fit reads them in blocks of about 2,000 rows, and codes go back to disk.
"""

# %%
import numpy as np

import fusehash as fh

data = fh.datasets.make_paired(n_samples=6000, views={"image": 64, "text": 32}, random_state=0)
for view in ("image", "text"):
    np.save(f"{view}.npy", np.asarray(data.views[view], dtype=np.float32))

# %%
# Paths instead of arrays, nothing else changes.
model = fh.FuseHash(n_bits=64, random_state=0).fit({"image": "image.npy", "text": "text.npy"})
model.encode("image.npy", view="image", out="codes.npy")
codes = np.load("codes.npy", mmap_mode="r")
print(codes.shape, codes.dtype)

# %%
# The codes of blocks that come later: does the model still fit them? Here the last blocks are shifted on purpose.
images = np.load("image.npy")
batches = [images[start : start + 1000] for start in range(0, 6000, 1000)]
batches[4:] = [batch + 0.7 * images.std(axis=0) for batch in batches[4:]]
fh.plots.drift(codes, [model.encode(batch, view="image") for batch in batches])
