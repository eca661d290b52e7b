"""Write one set of golden files with the code as it is: `python tests/golden/write.py NAME`, or some of its parts:
`python tests/golden/write.py NAME floats retriever`.

A set is never changed once it is committed. test_golden.py opens every set with the current code: files that an older
version wrote must open, and must give the codes and answers that the older version gave.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import fusehash as fh
from fusehash import hashers

HERE = Path(__file__).parent
N_TRAIN, N_NEW, N_BITS = 160, 24, 16
EXPERIMENT: dict[str, Any] = {
    "title": "Golden", "dataset": "small.npz", "bits": [N_BITS], "seeds": 1, "k": 10, "ties": "stable",
    "methods": [
        {"label": "FuseHash", "method": "fusehash"},
        {"label": "AGSFH", "method": "agsfh", "params": {"n_anchors": 20, "max_iter": 3}},
        {"label": "REG", "method": "regression", "params": {"max_iter": 3}},
    ],
}  # fmt: skip


def paired_data(seed: int = 7) -> dict[str, np.ndarray]:
    """Two views that share three directions, four classes, and new rows."""
    rng = np.random.default_rng(seed)
    n = N_TRAIN + N_NEW
    labels = rng.integers(0, 4, n)
    latent = rng.standard_normal((4, 3))[labels] * 2.0 + 0.6 * rng.standard_normal((n, 3))
    image = latent @ rng.standard_normal((3, 20)) + 0.5 * rng.standard_normal((n, 20))
    text = np.abs(latent @ rng.standard_normal((3, 14)) + 0.5 * rng.standard_normal((n, 14)))
    return {"image": image.round(4), "text": text.round(4), "labels": labels}


def variants() -> dict[str, tuple[str, dict[str, Any]]]:
    """Every method with its defaults, and the switches of AGSFH and FuseHash."""
    every: dict[str, tuple[str, dict[str, Any]]] = {
        entry.name: (entry.name, {}) for entry in hashers.catalogue() if not entry.is_deep
    }
    small = {"max_iter": 5}
    paper = {
        "agsfh": {},
        "agsfh-printed": {"as_printed": True, **small},
        "agsfh-appro": {"ablation": "appro", **small},
        "agsfh-reg": {"ablation": "reg", **small},
        "agsfh-kmeans": {"anchors": "kmeans", **small},
        "agsfh-clusters": {"exact_clusters": True, "n_clusters": 4, "max_iter": 30},
    }
    ours: dict[str, dict[str, Any]] = {
        "fusehash": {},
        "fusehash-nested": {"nested": (8,)},
        "fusehash-linear": {"feature_map": "linear"},
        "fusehash-hadamard": {"fusion": "hadamard"},
        "fusehash-sampled": {"spectrum_rows": 100},
        "fusehash-canonical": {"hash_functions": "canonical"},
    }
    every |= {name: ("agsfh", params) for name, params in paper.items()}
    every |= {name: ("fusehash", params) for name, params in ours.items()}
    return every


def build(method: str, params: dict[str, Any]) -> Any:
    return hashers.make(method, n_bits=N_BITS, random_state=0, **params)


def write_models(folder: Path) -> None:
    data = paired_data()
    np.savez_compressed(folder / "data.npz", **data)
    train = {name: data[name][:N_TRAIN] for name in ("image", "text")}
    new = {name: data[name][N_TRAIN:] for name in ("image", "text")}
    codes = {}
    for name, (method, params) in variants().items():
        model = build(method, params)
        model.fit(train, data["labels"][:N_TRAIN] if model.supervised else None)
        model.save(folder / f"{name}.safetensors")
        codes[f"{name}/train"] = model.codes_
        codes[f"{name}/fused"] = model.encode_fused(new)
        for view in new:
            codes[f"{name}/{view}"] = model.encode(new[view], view=view)
    model = build("fusehash", {})
    for rows in (slice(0, 100), slice(100, N_TRAIN)):
        model.partial_fit({name: X[rows] for name, X in train.items()})
    model.save(folder / "fusehash-partial.safetensors")
    codes["fusehash-partial/image"] = model.encode(new["image"], view="image")
    codes["fusehash-partial/text"] = model.encode(new["text"], view="text")
    np.savez_compressed(folder / "codes.npz", **codes)


def write_index(folder: Path) -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (500, 4), dtype=np.uint8)
    ids = rng.choice(10_000, 500, replace=False)
    with fh.HammingIndex.open(folder / "index.fhi", 32, warm=False) as index:
        index.add(codes, ids=ids)
        index.remove(ids[::7])
        index.replace(codes[1:2], ids=ids[2:3])
        index.add(codes[:3])
        distances, found = index.search(codes[:20], k=5)
        content = list(index)
    np.savez_compressed(
        folder / "index.npz", distances=distances, found=found, queries=codes[:20],
        ids=np.concatenate([part for part, _ in content]), codes=np.vstack([part for _, part in content]),
    )  # fmt: skip


def write_vectors(folder: Path) -> None:
    """A file that keeps vectors and two numbers next to each code."""
    rng = np.random.default_rng(4)
    codes = rng.integers(0, 256, (300, 4), dtype=np.uint8)
    vectors, factors = rng.standard_normal((300, 6)).astype(np.float32), rng.random((300, 2), dtype=np.float32)
    queries, scores = vectors[:10] + 0.1, rng.standard_normal((10, 32)).astype(np.float32)
    path = folder / "vectors.fhi"
    with fh.HammingIndex.open(path, 32, vectors="int8", dim=6, factors=True, warm=False) as index:
        index.add(codes, vectors=vectors, factors=factors)
        index.remove(range(0, 300, 7))
        index.replace(codes[1:2], ids=[2], vectors=vectors[1:2], factors=factors[1:2])
        distances, found = index.search(scores, k=5)
        rescored, nearest = index.search(scores, k=5, rescore=queries, candidates=50)
        ids = np.array(index.ids)
        kept = {"vectors": index.get_vectors(ids), "factors": index.get_factors(ids), "codes": index.get(ids)}
    np.savez_compressed(
        folder / "vectors.npz", ids=ids, **kept, scores=scores, queries=queries,
        distances=distances, found=found, rescored=rescored, nearest=nearest,
    )  # fmt: skip


def write_collection(folder: Path) -> None:
    """A collection of made pictures, with a second generation and one item added later."""
    import io

    from PIL import Image

    from fusehash.collection import Collection, NewItem

    colors = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "yellow": (200, 200, 30)}
    items = []
    for i in range(48):
        color = list(colors)[i % 4]
        rng = np.random.default_rng([i, 5])
        pixels = np.clip(np.array(colors[color]) + rng.normal(0, 25, (24, 24, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        items.append(NewItem(f"{color}{i}", file.getvalue(), f"a {color} thing number{i % 5}", (color,)))
    expected: dict[str, Any] = {}
    with Collection.create(
        folder / "small.collection", n_bits=32, image_encoder="classical", text_encoder="tfidf"
    ) as collection:
        collection.build(items[:44])
        collection.add(items[44:])
        collection.remove([3])
        for query in ("a red thing", "green number2", "blue"):
            expected[query] = [[hit.item.key, hit.distance] for hit in collection.search(text=query, k=6)]
        expected["like"] = [[hit.item.key, hit.distance] for hit in collection.search(image=items[0].image, k=6)]
        expected["items"] = len(collection)
    (folder / "collection.json").write_text(json.dumps(expected, indent=1))


def write_encoders(folder: Path) -> None:
    from fusehash import encoders

    texts = [f"a {word} on the {other}" for word in ("cat", "dog", "bird", "fish") for other in ("mat", "tree", "sea")]
    arrays = {}
    for name, params in (("tfidf", {"n_components": 4}), ("lda", {"n_topics": 3})):
        encoder = encoders.make(name, **params).fit(texts)
        encoders.save(encoder, folder / f"{name}.encoder.safetensors")
        arrays[name] = encoder.transform(texts)
    np.savez_compressed(folder / "encoders.npz", texts=np.array(texts), **arrays)


def write_results(folder: Path) -> None:
    """Stored runs of a small experiment, and their scores."""
    import tempfile

    from fusehash.experiments import runner
    from fusehash.experiments.metrics import collect
    from fusehash.experiments.spec import parse_spec
    from fusehash.experiments.store import ResultStore

    spec, store = parse_spec(EXPERIMENT, "golden"), ResultStore(folder / "results")
    with tempfile.TemporaryDirectory() as data_folder:
        rows = {"train_idx": np.arange(N_TRAIN), "test_idx": np.arange(N_TRAIN, N_TRAIN + N_NEW)}
        np.savez(Path(data_folder) / "small.npz", **paired_data(), **rows)
        runner.run(spec, data_folder, store, workers=1)
    [results] = collect(spec, store)
    points = [(line, name, views) for line in spec.lines for name in spec.protocols for views in results.directions]
    scores = {}
    for line, name, views in points:
        score = results.score(line, N_BITS, name, views)
        scores[f"{line.label} {name} {'->'.join(views)}"] = score and score.mean
    (folder / "results.json").write_text(json.dumps(scores, indent=1))


def embeddings() -> dict[str, np.ndarray]:
    """Two views of one space, with a gap between them."""
    rng = np.random.default_rng(11)
    latent = rng.standard_normal((N_TRAIN + N_NEW, 12)) * np.linspace(2.0, 0.3, 12)
    views = {name: latent + 0.3 * rng.standard_normal(latent.shape) for name in ("image", "text")}
    views["text"] += rng.standard_normal(12)
    return {name: X.round(4).astype(np.float32) for name, X in views.items()}


def learn_floats(train: dict[str, np.ndarray]) -> Any:
    return fh.FuseHash(n_bits=32, target="floats", random_state=0).fit(train)


def write_floats(folder: Path) -> None:
    """Codes that keep the cosine ranking, with the two numbers of each."""
    rows, arrays = embeddings(), {}
    model = learn_floats({name: X[:N_TRAIN] for name, X in rows.items()})
    (folder / "floats").mkdir()
    model.save(folder / "floats" / "model.safetensors")
    for name, X in rows.items():
        arrays[name], new = X, X[N_TRAIN:]
        arrays[f"{name}/codes"], arrays[f"{name}/factors"] = model.encode(new, view=name, with_factors=True)
        arrays[f"{name}/projections"] = model.project(new, view=name)
    np.savez_compressed(folder / "floats" / "rows.npz", **arrays)


def write_retriever(folder: Path) -> None:
    """A folder that keeps a model, codes with factors, and vectors; and one that encodes texts."""
    from fusehash import encoders

    rows = embeddings()
    model = learn_floats({name: X[:N_TRAIN] for name, X in rows.items()})
    with fh.Retriever.create(folder / "joint.retriever", model, vectors="int8", dim=12) as retriever:
        retriever.add(rows["image"][:N_TRAIN], view="image")
        answers = {"joint": retriever.search(rows["text"][N_TRAIN:], k=5, view="text")}
        answers["rescored"] = retriever.search(rows["text"][N_TRAIN:], k=5, view="text", candidates=50)
    texts = [f"a {word} on the {other}" for word in ("cat", "dog", "bird", "fish") for other in ("mat", "tree", "sea")]
    encoder = encoders.make("tfidf", n_components=4).fit(texts)
    learned = hashers.make("itq", n_bits=8, random_state=0).fit({"text": encoder.transform(texts)})
    with fh.Retriever.create(folder / "texts.retriever", learned, encoders={"text": encoder}) as retriever:
        retriever.add(texts, view="text", ids=range(100, 112))
        answers["texts"] = retriever.search(texts[:3], k=4, view="text")
    arrays = {
        f"{name}/{part}": values[i] for name, values in answers.items() for i, part in enumerate(("ids", "scores"))
    }
    np.savez_compressed(folder / "retriever.npz", **arrays)


def linear_algebra() -> str:
    """The BLAS that NumPy and SciPy use here; with another one, single bits of a new fit may differ."""
    import scipy.linalg  # loads the BLAS of SciPy
    from threadpoolctl import threadpool_info

    loaded = [part for part in threadpool_info() if Path(part["filepath"]).parent.name in ("numpy.libs", "scipy.libs")]
    assert scipy.linalg is not None
    return "; ".join(sorted(f"{part['internal_api']} {part['architecture']} {part['version']}" for part in loaded))


PARTS = {
    "models": write_models, "index": write_index, "vectors": write_vectors, "collection": write_collection,
    "encoders": write_encoders, "results": write_results, "floats": write_floats, "retriever": write_retriever,
}  # fmt: skip


def main(name: str, *parts: str) -> None:
    folder = HERE / name
    folder.mkdir()
    for part in parts or PARTS:
        PARTS[part](folder)
    (folder / "linear_algebra.txt").write_text(linear_algebra() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
