"""Train small two-tower models and write their joint embeddings, with a large and with a small gap between the views.

    python benchmarks/two_tower.py ~/data --out embeddings

Each tower is a linear map, a ReLU and a linear map to 256 unit-length dimensions, trained with the symmetric
contrastive loss of CLIP. The temperature decides about the gap: a low one leaves the cone of each view where the random
start has put it (Liang et al. 2022), a high one pulls the two together. Four sets, each a folder with `image.npy` and
`text.npy` of the pairs that the towers have not seen, which is what users have:

    iapr-gap, iapr-near         IAPR TC-12, 887 image features and 2,823 words; 10,000 pairs learned, 9,626 written
    flickr8k-gap, flickr8k-near EfficientNet-Lite0 and the mean MiniLM of two captions; 5,000 learned, 3,091 written

Numbers are rounded to multiples of 1/4,096, so that the files compress well. With `--learned N` the towers learn from
N pairs, and more are left. Needs PyTorch; on one core of a processor each set takes about a minute. The data are those
of docs/reproducing.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

# Temperature of the loss, and the length of the random offset that separates the views at the start.
SETTINGS = {"gap": (0.01, 4.0), "near": (0.1, 0.0)}
SETS = {"iapr": 10_000, "flickr8k": 5_000}
STEPS = 4096  # per unit in what is written
WIDTH, HIDDEN, BATCH, EPOCHS, SEED = 256, 512, 256, 12, 0


def features_of(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Image and text features of one set."""
    if name == "iapr":
        data = np.load(folder / "iaprtc12.npz")
        image = np.hstack([data[key].astype(np.float32) for key in ("image", "image_ehd", "image_cm")])
        return image, data["text"].astype(np.float32)
    data = np.load(folder / "flickr8k" / "flickr8k_effl0_minilm.npz")
    return data["image"].astype(np.float32), data["text"][:, :2].astype(np.float32).mean(axis=1)


def standardized(features: np.ndarray, learned: np.ndarray) -> torch.Tensor:
    """Columns of mean 0 and variance 1 over the learned rows, rows scaled to a common length."""
    mean, spread = features[learned].mean(axis=0), features[learned].std(axis=0)
    scaled = np.clip((features - mean) / np.where(spread > 1e-6, spread, 1.0), -5.0, 5.0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return torch.from_numpy((scaled / np.maximum(lengths, 1e-6) * features.shape[1] ** 0.5).astype(np.float32))


class Tower(nn.Module):
    """Features -> unit vectors; `offset` moves the outputs before they are scaled."""

    def __init__(self, n_features: int, offset: torch.Tensor) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(0.3), nn.Linear(n_features, HIDDEN), nn.ReLU(), nn.Dropout(0.3), nn.Linear(HIDDEN, WIDTH)
        )
        self.offset = nn.Parameter(offset)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.layers(rows) + self.offset, dim=1)


def train(views: list[torch.Tensor], n_learned: int, temperature: float, offset: float) -> list[np.ndarray]:
    """The embeddings of both views after training on the first rows."""
    torch.manual_seed(SEED)
    starts = [offset * nn.functional.normalize(torch.randn(WIDTH), dim=0) for _ in views]
    towers = [Tower(view.shape[1], start) for view, start in zip(views, starts, strict=True)]
    optimizer = torch.optim.AdamW([p for tower in towers for p in tower.parameters()], lr=1e-3, weight_decay=0.05)
    for _ in range(EPOCHS):
        order = torch.randperm(n_learned)
        for start in range(0, n_learned - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            image, text = (tower(view[rows]) for tower, view in zip(towers, views, strict=True))
            scores, partner = image @ text.T / temperature, torch.arange(BATCH)
            loss = (nn.functional.cross_entropy(scores, partner) + nn.functional.cross_entropy(scores.T, partner)) / 2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    for tower in towers:
        tower.eval()
    with torch.no_grad():
        return [tower(view).numpy() for tower, view in zip(towers, views, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, default=Path("embeddings"))
    parser.add_argument("--only", help="one of the four sets")
    parser.add_argument("--learned", type=int, help="pairs that the towers learn from, instead of the usual number")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name, n_usual in SETS.items():
        for kind, (temperature, offset) in SETTINGS.items():
            label = f"{name}-{kind}"
            if args.only not in (None, label):
                continue
            started, n_learned = time.process_time(), args.learned or n_usual
            features = features_of(name, args.data)
            order = np.random.default_rng(SEED).permutation(len(features[0]))
            views = [standardized(X[order], np.arange(n_learned)) for X in features]
            image, text = train(views, n_learned, temperature, offset)
            folder = args.out / label
            folder.mkdir(parents=True, exist_ok=True)
            image, text = (np.round(X[n_learned:] * STEPS) / STEPS for X in (image, text))
            np.save(folder / "image.npy", image)
            np.save(folder / "text.npy", text)
            gap = float(np.linalg.norm(image.mean(axis=0) - text.mean(axis=0)))
            seconds = time.process_time() - started
            print(json.dumps({"set": label, "pairs": len(image), "gap": round(gap, 3), "cpu_seconds": round(seconds)}))


if __name__ == "__main__":
    main()
