"""Small pictures and texts that belong together, and collections of them with encoders that cost nothing."""

from __future__ import annotations

import importlib.util
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fusehash
from fusehash import hashers
from fusehash.collection import Collection, NewItem
from fusehash.collection import bridge as bridges
from fusehash.collection.bridge import Bridge
from fusehash.collection.queries import calibration

COLORS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200), "yellow": (200, 200, 30)}
Draw = Callable[[str, int], bytes]
Items = Callable[[int], list[NewItem]]


@contextmanager
def installed() -> Iterator[ModuleType]:
    """fake_encoders.py in place of the real encoders."""
    spec = importlib.util.spec_from_file_location("fake_encoders", Path(__file__).with_name("fake_encoders.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = [name for name in sys.modules if name.split(".")[:2] == ["fusehash", "encoders"]]
    before = {name: sys.modules[name] for name in names}
    held, make_hasher = fusehash.__dict__.get("encoders"), hashers.make
    module.install()
    try:
        yield module
    finally:
        for name in ("fusehash.encoders", "fusehash.encoders.reading"):
            sys.modules.pop(name, None)
        sys.modules.update(before)
        fusehash.__dict__.pop("encoders", None)
        if held is not None:
            fusehash.__dict__["encoders"] = held
        hashers.make = make_hasher


@pytest.fixture
def fakes() -> Iterator[ModuleType]:
    """The encoders of fake_encoders.py in place of the real ones."""
    with installed() as module:
        yield module


@pytest.fixture(scope="session")
def draw() -> Draw:
    """`draw("red", 3)`: the third red picture, as PNG bytes."""

    def picture(color: str, number: int) -> bytes:
        rng = np.random.default_rng([number, *color.encode()])
        pixels = np.clip(np.array(COLORS[color]) + rng.normal(0, 25, (16, 16, 3)), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        return file.getvalue()

    return picture


@pytest.fixture(scope="session")
def items(draw: Draw) -> Items:
    """`items(40)`: colored pictures with a text and a label each."""

    def some(count: int) -> list[NewItem]:
        colors = [list(COLORS)[i % 4] for i in range(count)]
        return [
            NewItem(f"{color}{i}", draw(color, i), f"a {color} thing number{i % 5}", (color, f"mod{i % 2}"))
            for i, color in enumerate(colors)
        ]

    return some


@pytest.fixture
def photos(tmp_path: Path, items: Items) -> Path:
    """A folder of 24 pictures with a text next to each, changed long ago."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for item in items(24):
        assert isinstance(item.image, bytes)
        assert item.text
        (folder / f"{item.key}.png").write_bytes(item.image)
        (folder / f"{item.key}.txt").write_text(item.text)
        os.utime(folder / f"{item.key}.png", (1_700_000_000, 1_700_000_000))
    return folder


@pytest.fixture(scope="session")
def small_folder(tmp_path_factory: pytest.TempPathFactory, items: Items) -> Path:
    """The folder of a collection of 40 items, built once; nobody writes to it."""
    folder = tmp_path_factory.mktemp("built") / "small.collection"
    with installed(), Collection.create(folder, n_bits=32) as collection:
        collection.build(items(40))
    return folder


@pytest.fixture
def small(tmp_path: Path, fakes: ModuleType, small_folder: Path) -> Iterator[Collection]:
    """A copy of that collection, open."""
    shutil.copytree(small_folder, tmp_path / "small.collection")
    with Collection.open(tmp_path / "small.collection") as collection:
        yield collection


def learn_bridge(images: Any, texts: Any, width: int = 4, image_penalty: float = 0.1) -> Bridge:
    """A bridge of pairs."""
    content = bridges.learn(
        images, texts, np.ones(len(images)), width=width, image_penalty=image_penalty, text_penalty=0.1
    )
    product = content["left"].astype(np.float32) @ content["right"].astype(np.float32)
    return Bridge(content["image_mean"], content["text_mean"], product, content["spread"], content["scale"])


def _unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def bridged(fakes: ModuleType, items: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Fake encoders that learn nothing, and a bridge between them from other pictures."""
    for cls, width in ((fakes.Pixels, 48), (fakes.Words, 32)):

        def fit(self: Any, items: Any, y: Any = None, *, progress: Any = None, width: int = width) -> Any:
            self.mean_, self.n_features_, self.problems_ = np.full(width, 0.1, np.float32), width, {}
            return self

        monkeypatch.setattr(cls, "fit", fit)
        monkeypatch.setattr(cls, "learns", False, raising=False)
        monkeypatch.setattr(cls, "identity", lambda self: "", raising=False)
    plain = fakes.Words._rows
    monkeypatch.setattr(fakes.Words, "_rows", lambda self, items: _unit(plain(self, items)) + 0.1)  # as real ones
    others = items(240)[120:]
    images = fakes.Pixels("classical").fit([]).transform([item.image for item in others])
    texts = fakes.Words("tfidf").fit([]).transform([item.text for item in others])
    bridge = learn_bridge(images, texts)
    monkeypatch.setattr(bridges, "SHIPPED", {("classical", "tfidf"): "x"})
    monkeypatch.setattr(bridges, "shipped", lambda name: bridge)
    weights = (-1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0)
    monkeypatch.setattr(calibration, "shipped", lambda name: calibration.Calibration(weights, 0.3, pairs=0))
    return fakes


@pytest.fixture(scope="session")
def learned_bridge() -> Callable[..., Bridge]:
    """`learned_bridge(images, texts)`: a bridge of pairs."""
    return learn_bridge
