"""Two small ONNX files in one folder: pictures without captions are found by words, from end to end."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fusehash.collection import Collection, NewItem

COLORS = {
    "red": ((200, 40, 40), ("sunset", "fruit", "concert", "clothes", "wedding", "food", "toy")),
    "green": ((40, 180, 50), ("forest", "tree", "field", "garden", "mountain", "boat", "horse")),
    "blue": ((40, 60, 200), ("sea", "lake", "sky", "river", "night", "car", "bridge")),
}
KINDS, WIDTH = list(COLORS), 24
MEAN, DEVIATION = np.array([0.481, 0.458, 0.408]), np.array([0.269, 0.261, 0.276])  # as ONNX encoders use them
RNG = np.random.default_rng(5)
WEIGHTS, OFFSETS = RNG.normal(size=(3, WIDTH)).astype(np.float32), RNG.normal(size=WIDTH).astype(np.float32)


def shade(color: str, seed: int) -> Any:
    """A shade of a color."""
    rng = np.random.default_rng([seed, *color.encode()])
    return np.clip(np.array(COLORS[color][0]) + rng.normal(0, 30, 3), 0, 255).astype(np.uint8)


def picture(color: str, seed: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), tuple(shade(color, seed).tolist())).save(file, "PNG")
    return file.getvalue()


def pictures(count: int) -> list[NewItem]:
    return [NewItem(f"{KINDS[i % 3]}{i}", picture(KINDS[i % 3], i)) for i in range(count)]


@pytest.fixture(scope="module")
def towers(optional: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both towers: of the mean color of a picture, and of the colors that words stand for."""
    onnx = optional("onnx")
    optional("onnxruntime")
    tokenizers = optional("tokenizers")
    folder = tmp_path_factory.mktemp("towers")
    words = ["[PAD]", "[UNK]"]
    rows = [np.zeros(WIDTH), np.full(WIDTH, 1e-4)]
    for color, (_, group) in COLORS.items():
        for seed, word in enumerate((color, *group)):
            words.append(word)
            normal = (shade(color, 1000 + seed) / 255 - MEAN) / DEVIATION
            rows.append(np.maximum(normal @ WEIGHTS + OFFSETS, 0.0))
    table = np.array(rows, np.float32)
    model = tokenizers.models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    node, info, constant = onnx.helper.make_node, onnx.helper.make_tensor_value_info, onnx.numpy_helper.from_array
    floats, integers = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64

    def write(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[Any]) -> None:
        graph = onnx.helper.make_graph(nodes, "tiny", inputs, outputs, constants)
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        (folder / name).write_bytes(made.SerializeToString())

    write(
        "image.onnx",
        [
            node("GlobalAveragePool", ["pixels"], ["pooled"]), node("Flatten", ["pooled"], ["color"]),
            node("Gemm", ["color", "weights", "offsets"], ["mapped"]), node("Relu", ["mapped"], ["features"]),
        ],
        [info("pixels", floats, ["rows", 3, "height", "width"])], [info("features", floats, ["rows", WIDTH])],
        [constant(WEIGHTS, "weights"), constant(OFFSETS, "offsets")],
    )  # fmt: skip
    ids = [info(name, integers, ["rows", "length"]) for name in ("input_ids", "attention_mask")]
    write(
        "text.onnx",
        [node("Gather", ["table", "input_ids"], ["tokens"]), node("Identity", ["attention_mask"], ["mask"])],
        ids, [info("tokens", floats, ["rows", "length", WIDTH]), info("mask", integers, ["rows", "length"])],
        [constant(table, "table")],
    )  # fmt: skip
    return folder


def create(path: Path, towers: Path) -> Collection:
    names = {f"{view}_encoder": str(towers / f"{view}.onnx") for view in ("image", "text")}
    return Collection.create(path, n_bits=32, **names)


def kinds(collection: Collection, query: str, k: int = 8) -> list[str]:
    return [hit.item.key.rstrip("0123456789") for hit in collection.search(query, k=k)]


def test_words_find_pictures_in_a_folder_without_captions(towers: Path, tmp_path: Path) -> None:
    with create(tmp_path / "c", towers) as collection:
        report = collection.build(pictures(60))
        assert (report.added, report.skipped) == (60, {})
        for color, (_, group) in COLORS.items():
            assert kinds(collection, color).count(color) >= 6  # 2.7 by chance
            found = [kinds(collection, f"the {word}").count(color) / 8 for word in group]
            assert np.mean(found) > 0.6  # a third by chance
        collection.add(pictures(75)[60:])
        assert kinds(collection, "blue", 20).count("blue") >= 16
    with Collection.open(tmp_path / "c") as collection:
        assert kinds(collection, "green").count("green") >= 7
        assert collection.search(image=picture("red", 0), k=1)[0].item.key == "red0"
