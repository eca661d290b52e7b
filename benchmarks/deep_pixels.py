"""DCMH from pixels to codes, with its small convolutional network, next to DCMH on frozen features.

    python benchmarks/deep_pixels.py make photos FOLDER photos.npz photos_pixels.npz
    python benchmarks/deep_pixels.py make emoji emoji_pixels.npz
    python benchmarks/deep_pixels.py run FILE_pixels.npz [FILE.npz] --device cuda --out FILE.json

make: images as 32 x 32 RGB pixels, a row each. photos: texts, labels and split are those of photos.npz
(deep_features.py), whose rows come from the same folder. emoji: the split by concepts, labels and text features of
`fusehash demo`; the image features of `fusehash demo` are written along, to emoji.npz next to it.

run: rates and weights of balance are tried with seed 0 on 70 % of the training rows; those with the best MAP@50 of
the other 30 % among each other then learn from all training rows, with five seeds, 64 bits, and are scored on the
queries. The same is done on frozen features if their file is given.
"""

from __future__ import annotations

import argparse
import io
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import fusehash as fh
from fusehash.evaluation import average_precision, evaluate
from runs import described, store

SIDE, BITS, SEEDS, HELD_OUT = 32, 64, 5, 0.3
GRID = [{"learning_rate": rate, "eta": eta} for rate, eta in ((0.03, 1.0), (0.03, 0.01), (0.1, 0.01), (0.3, 0.01))]
HEADS: dict[str, Any] = {"hidden": 1024, "image_hidden": 1024}


def pixels(content: bytes) -> np.ndarray[Any, Any]:
    """An image on white, scaled to a square, as a row."""
    with Image.open(io.BytesIO(content)) as opened:
        rgba = opened.convert("RGBA").resize((SIDE, SIDE), Image.Resampling.BOX)
    white = Image.new("RGBA", rgba.size, "white")
    return np.asarray(Image.alpha_composite(white, rgba).convert("RGB"), dtype=np.uint8).ravel()


def make_photos(folder: Path, features: Path, out: Path) -> None:
    from fusehash.datasets.folders import read_folder

    items = [item for item in read_folder(folder) if isinstance(item.image, Path) and item.text and item.labels]
    with np.load(features) as file:
        rest = {name: file[name] for name in ("text", "labels", "train_idx", "test_idx")}
    if len(items) != len(rest["text"]):
        raise SystemExit(f"{features} has {len(rest['text'])} rows and {folder} {len(items)} photos.")
    images = [item.image.read_bytes() for item in items if isinstance(item.image, Path)]
    np.savez_compressed(out, image=np.array([pixels(image) for image in images]), **rest)


def make_emoji(out: Path) -> None:
    from fusehash.commands.demo import learn_features

    items, split, data = learn_features()
    rows = {"train_idx": split.train, "test_idx": split.query, "database_idx": split.database}
    rest = {"text": np.asarray(data.views["text"], dtype=np.float16), "labels": data.labels, **rows}
    np.savez_compressed(out, image=np.array([pixels(item.image) for item in items]), **rest)
    features = np.asarray(data.views["image"], dtype=np.float16)
    np.savez_compressed(out.with_name("emoji.npz"), image=features, **rest)


def fit(data: Any, rows: Any, seed: int, params: dict[str, Any]) -> Any:
    return fh.hashers.DCMH(n_bits=BITS, random_state=seed, **params).fit(data.views.rows(rows), data.labels[rows])


def run_file(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    data = fh.datasets.load(path, n_train=1200 if "photos" in path.stem else None)
    shape = (SIDE, SIDE, 3)
    fixed = {**HEADS, "epochs": options.epochs, "device": options.device}
    if data.views.n_features["image"] == np.prod(shape):
        fixed["image_shape"] = shape
    order = np.random.default_rng(0).permutation(data.train)
    held, rows = (np.sort(part) for part in np.split(order, [int(HELD_OUT * len(order))]))
    trials = []
    for params in GRID:
        try:
            model = fit(data, rows, 0, {**fixed, **params})
        except fh.errors.DataError as error:
            trials.append({"params": params, "error": str(error)})
            continue
        codes = {view: model.encode(data.views[view][held], view=view) for view in ("image", "text")}
        labels = data.labels[held], data.labels[held]
        maps = [average_precision(codes[a], codes[b], labels, 50).mean() for a, b in (tuple(codes), tuple(codes)[::-1])]
        trials.append({"params": params, "held-out MAP@50": round(float(np.mean(maps)), 4)})
        print(path.stem, trials[-1], flush=True)
    best = max(trials, key=lambda trial: trial.get("held-out MAP@50", -1.0))["params"]
    runs = []
    for seed in range(options.seeds):
        started = time.perf_counter()
        model = fit(data, data.train, seed, {**fixed, **best})
        seconds = time.perf_counter() - started
        scores = {f"{s.protocol} {s.direction}": float(s.mean) for s in evaluate(model, data, k=50, refit=False).scores}
        runs.append({"seed": seed, "seconds": round(seconds, 2), "scores": scores})
        print(path.stem, best, seed, f"{seconds:.1f} s", {name: round(v, 3) for name, v in scores.items()}, flush=True)
    return {"data": path.stem, "settings": {**fixed, **best}, "trials": trials, "runs": runs}


def run(options: argparse.Namespace) -> None:
    warnings.simplefilter("ignore", fh.errors.FusehashWarning)
    results: dict[str, Any] = {**described("torch"), "bits": BITS, "files": []}
    for path in options.files:
        results["files"].append(run_file(path, options))
        store(options.out, results)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    making = parts.add_parser("make", help="pixels of images as a file")
    making.add_argument("data", choices=["photos", "emoji"])
    making.add_argument("paths", nargs="+", type=Path)
    running = parts.add_parser("run", help="choose settings, learn, score")
    running.add_argument("files", nargs="+", type=Path)
    running.add_argument("--device", default="cpu")
    running.add_argument("--epochs", type=int, default=200)
    running.add_argument("--seeds", type=int, default=SEEDS)
    running.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    if chosen.part == "run":
        run(chosen)
    else:
        {"photos": make_photos, "emoji": make_emoji}[chosen.data](*chosen.paths)
