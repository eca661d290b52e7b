"""Bridges: the text features that a picture without a caption would probably have.

A bridge maps image features x to text features. With unit(x) = x / ||x||, its means m_x and m_t, and its matrix W,

    caption(x) = unit(m_t + g (unit(x) - m_x) W),

where g brings what it predicts to the spread of real captions. With it, pictures without a caption are encoded like
pairs, so that words find them. There are two kinds to begin with:

- The package has one between efficientnet-lite0 and minilm, made by benchmarks/make_bridge.py.
- Two towers of one model share a space: W is the identity, and the means remove the gap between the towers.

The pairs (X, T) of a collection improve it (`refined`): ridge regression on what the bridge leaves of their captions,

    W + (X'X + l I)^-1 X' (T - X W),   both centered, l = trace(X'X) / n,

so that many captions take over and a few add what is special.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusehash.collection.encoding import Encoders
from fusehash.collection.features import Floats32
from fusehash.errors import DataError
from fusehash.files import FileFormat

if TYPE_CHECKING:
    from fusehash.collection.store import CollectionSettings

BRIDGE_FILE = FileFormat("fusehash-bridge", 1, "bridge", checked_since=1)
SHIPPED = {("efficientnet-lite0", "minilm"): "efficientnet-lite0-minilm.safetensors"}
TWO_TOWERS = ("clip", "sentence-transformers")
MAX_PAIRS = 20_000  # of a collection that a bridge is refined on
MIN_PAIRS = 5
# Captions whose mean stands for that of all captions while a collection has none.
COMMON_CAPTIONS = tuple(
    f"a photo of {what}"
    for what in [
        "a person",
        "a group of people",
        "a child",
        "a dog",
        "a cat",
        "a bird",
        "a horse",
        "a car",
        "a bicycle",
        "a boat",
        "a train",
        "an airplane",
        "a house",
        "a street in a city",
        "a church",
        "a bridge",
        "a mountain",
        "a beach",
        "the sea",
        "a lake",
        "a river",
        "a forest",
        "a flower",
        "a tree",
        "the sky",
        "snow",
        "a garden",
        "a field",
        "food on a table",
        "fruit",
        "a room with furniture",
        "a bed",
        "a chair",
        "a computer",
        "a book",
        "a toy",
        "clothes",
        "a sign with letters",
        "a sports game",
        "a concert",
        "a wedding",
        "a sunset",
        "the night",
        "a statue",
        "a machine",
        "a drawing",
    ]
)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Bridge:
    """From image features to text features; see the module.

    Attributes
    ----------
    image_mean, text_mean : ndarray of shape (n_image_features,) and (n_text_features,)
        m_x and m_t.
    weights : ndarray of shape (n_image_features, n_text_features)
        W.
    spread : float
        Root mean square distance of captions from their mean, which g brings predictions to.
    scale : float
        The same of predictions before g.
    """

    image_mean: Floats32
    text_mean: Floats32
    weights: Floats32
    spread: float
    scale: float

    def captions(self, images: Floats32) -> Floats32:
        """Text features of pictures, rows of length 1; NaN where the picture has no features."""
        deviations = self._predict(images) * (self.spread / max(self.scale, 1e-12))
        return _unit(self.text_mean + deviations).astype(np.float32)

    def refined(self, images: Floats32, texts: Floats32) -> Bridge:
        """The bridge with what the pairs of a collection add."""
        if len(images) < MIN_PAIRS:
            return self
        X, T, before = _unit(images[:MAX_PAIRS]), _unit(texts[:MAX_PAIRS]), self._predict(images[:MAX_PAIRS])
        image_mean, text_mean = X.mean(axis=0), T.mean(axis=0)
        X, rest = X - image_mean, T - text_mean - (before - before.mean(axis=0))
        penalty = max(float(np.einsum("ij,ij->", X, X)) / len(X), 1e-12)
        if len(X) <= X.shape[1]:
            more = X.T @ np.linalg.solve(X @ X.T + penalty * np.eye(len(X)), rest)
        else:
            more = np.linalg.solve(X.T @ X + penalty * np.eye(X.shape[1]), X.T @ rest)
        weights = self.weights.astype(np.float64) + more
        changed = Bridge(
            image_mean.astype(np.float32), text_mean.astype(np.float32), weights.astype(np.float32),
            _spread(T - text_mean), 1.0,
        )  # fmt: skip
        return replace(changed, scale=_spread(changed._predict(images[:MAX_PAIRS])))

    def save(self, path: Path) -> None:
        half = self.weights.astype(np.float16)
        BRIDGE_FILE.write(path, {"weights": half, **{name: getattr(self, name) for name in _OTHERS}})

    @classmethod
    def load(cls, path: Path) -> Bridge:
        with BRIDGE_FILE.reading(path, follow_links=False) as (_, content):
            arrays = {name: _matrix(content[name]) for name in ("image_mean", "text_mean", "weights")}
            bridge = cls(**arrays, spread=float(content["spread"]), scale=float(content["scale"]))
            if bridge.weights.shape != (*bridge.image_mean.shape, *bridge.text_mean.shape):
                raise ValueError("the arrays do not fit together")
            if not (np.isfinite([bridge.spread, bridge.scale]).all() and bridge.spread > 0 and bridge.scale > 0):
                raise ValueError("not numbers of a bridge")
        return bridge

    def rounded(self) -> Bridge:
        """As it is after `save` and `load`."""
        return replace(self, weights=self.weights.astype(np.float16).astype(np.float32))

    def _predict(self, images: Floats32) -> Floats:
        """(unit(x) - m_x) W."""
        return (_unit(images) - self.image_mean) @ self.weights.astype(np.float64)


_OTHERS = ("image_mean", "text_mean", "spread", "scale")


def exists(settings: CollectionSettings) -> bool:
    """Whether there is a bridge between the encoders of a collection, by their names."""
    return (settings.image.name, settings.text.name) in SHIPPED or _share_a_space(settings)


def first_bridge(settings: CollectionSettings, encoders: Encoders, images: Floats32) -> Bridge | None:
    """The bridge between two fitted encoders before a caption is known; None if there is none.

    `images` are features of pictures, of which some may be NaN.
    """
    name = SHIPPED.get((settings.image.name, settings.text.name))
    widths = [encoders[view].encoder.n_features_ for view in ("image", "text")]
    if name is not None:
        bridge = shipped(name)
        return bridge if list(bridge.weights.shape) == widths else None
    if not _share_a_space(settings) or widths[0] != widths[1]:
        return None
    rows = _unit(images[~np.isnan(images[:, 0])])
    captions = _unit(encoders["text"].encoder.transform(list(COMMON_CAPTIONS)))
    if not len(rows):
        return None
    spread, scale = _spread(captions - captions.mean(axis=0)), _spread(rows - rows.mean(axis=0))
    image_mean, text_mean = (each.mean(axis=0).astype(np.float32) for each in (rows, captions))
    return Bridge(image_mean, text_mean, np.eye(widths[0], dtype=np.float32), spread, max(scale, 1e-12))


def shipped_file(name: str) -> Path:
    return Path(str(files("fusehash.collection").joinpath("bridges", name)))


def shipped(name: str) -> Bridge:
    """A bridge of the package, which stores W as the product of two narrow matrices."""
    with BRIDGE_FILE.reading(shipped_file(name)) as (_, content):
        left, right = (content[side].astype(np.float32) for side in ("left", "right"))
        return Bridge(
            content["image_mean"].astype(np.float32), content["text_mean"].astype(np.float32), left @ right,
            content["spread"], content["scale"],
        )  # fmt: skip


def learn(
    images: Any, texts: Any, weights: Any, *, width: int, image_penalty: float, text_penalty: float
) -> dict[str, Any]:
    """What the file of a bridge holds: regularized CCA between pairs, and regression from it to the texts.

    `weights` says how much each pair counts. Canonical directions are weighted by their correlation.
    """
    X, T = _unit(images), _unit(texts)
    share = np.asarray(weights, dtype=np.float64) / np.sum(weights)
    image_mean, text_mean = share @ X, share @ T
    X, T = X - image_mean, T - text_mean
    XX, TT, XT = X.T @ (X * share[:, None]), T.T @ (T * share[:, None]), X.T @ (T * share[:, None])
    factors = [
        np.linalg.cholesky(C + penalty * np.trace(C) / len(C) * np.eye(len(C)))
        for C, penalty in ((XX, image_penalty), (TT, text_penalty))
    ]
    U, S, Vt = np.linalg.svd(np.linalg.solve(factors[0], np.linalg.solve(factors[1], XT.T).T), full_matrices=False)
    left = np.linalg.solve(factors[0].T, U[:, :width]) * S[:width]
    Z = np.linalg.solve(factors[1].T, Vt[:width].T) * S[:width]
    ZZ = Z.T @ TT @ Z
    right = np.linalg.solve(ZZ + 1e-6 * np.trace(ZZ) / width * np.eye(width), Z.T @ TT)
    return {
        "image_mean": image_mean.astype(np.float32), "text_mean": text_mean.astype(np.float32),
        "left": left.astype(np.float16), "right": right.astype(np.float16),
        "spread": float(np.sqrt(share @ (T * T).sum(axis=1))),
        "scale": float(np.sqrt(share @ ((X @ left @ right) ** 2).sum(axis=1))),
    }  # fmt: skip


def _share_a_space(settings: CollectionSettings) -> bool:
    """Whether the encoders are the towers of one model; of ONNX files, those in one folder count as towers."""
    image, text = settings.image, settings.text
    if image.name != text.name:
        return False
    if image.name == "onnx":
        folders = [Path(str(each.params.get("path"))).parent for each in (image, text)]
        return folders[0] == folders[1] and all(each.params.get("normalize", True) for each in (image, text))
    names = [[each.params.get(name) for name in ("model", "pretrained")] for each in (image, text)]
    return image.name in TWO_TOWERS and names[0] == names[1]


def _unit(rows: Any) -> Floats:
    values = np.asarray(rows, dtype=np.float64)
    return values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), 1e-12)


def _spread(deviations: Floats) -> float:
    """Root mean square length."""
    return float(np.sqrt(np.mean((deviations**2).sum(axis=1))))


def _matrix(values: Any) -> Floats32:
    array = np.asarray(values)
    if array.dtype.kind != "f" or not np.isfinite(array).all():
        raise DataError("The arrays of a bridge must be finite numbers.")
    return array.astype(np.float32)
