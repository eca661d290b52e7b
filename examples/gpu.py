"""Fit and search on a GPU.

Give PyTorch or CuPy arrays instead of NumPy arrays: there is one code path, and results agree up to rounding.
"""

# %%
# Without PyTorch this page was built with NumPy, without a GPU on the CPU; the lines are the same.
import time
from importlib.util import find_spec

import numpy as np

import fusehash as fh

data = fh.datasets.make_paired(n_samples=1500, random_state=0)
views = {name: np.asarray(data.views[name], dtype=np.float32) for name in ("image", "text")}
device = None
if find_spec("torch"):
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    views = {name: torch.as_tensor(X, device=device) for name, X in views.items()}
print("arrays of", type(views["image"]).__module__.partition(".")[0], "on", device or "cpu")

# %%
# Fit, encode and search where the data is.
model = fh.FuseHash(n_bits=64, random_state=0).fit(views)
codes = model.encode(views["image"], view="image")
index = fh.HammingIndex(n_bits=64, engine="torch" if device else "scan")
index.add(np.asarray(codes.cpu()) if device else codes)
queries = model.encode(views["text"][:3], view="text")
distances, ids = index.search(np.asarray(queries.cpu()) if device else queries, k=5)
print(ids)

# %%
# Seconds to fit and to encode as the data grows, on the machine that built this page.
seconds = {"fit": {}, "encode": {}}
for n in (375, 750, 1500):
    part = {name: X[:n] for name, X in views.items()}
    started = time.perf_counter()
    fitted = fh.FuseHash(n_bits=64, random_state=0).fit(part)
    trained = time.perf_counter()
    fitted.encode(part["image"], view="image")
    seconds["fit"][n], seconds["encode"][n] = trained - started, time.perf_counter() - trained
fh.plots.cost(seconds)

# %%
# The same codes as from NumPy, up to bits whose projection is near zero.
same = fh.FuseHash(n_bits=64, random_state=0).fit({name: np.asarray(X) for name, X in views.items()})
differ = fh.bits.unpack(np.asarray(codes), 64) != fh.bits.unpack(
    same.encode(np.asarray(views["image"]), view="image"), 64
)
print(f"{differ.mean():.4%} of the bits differ")
