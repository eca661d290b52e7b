"""ONNX encoders on models of a few numbers, written here, saved and loaded as a user would."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from sklearn.base import clone

from fusehash import encoders
from fusehash.encoders.onnx import normalized_pixels
from fusehash.errors import DataError, MissingPackageError, ModelFileError, ParameterError

PIL = pytest.importorskip("PIL.Image")
WORDS = ["[PAD]", "[UNK]", "red", "green", "house", "lake", "tree"]
TABLE = np.random.default_rng(1).normal(size=(len(WORDS), 5)).astype(np.float32)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
TEXTS = ["red house", "green lake tree", "a red", "tree " * 40, "house"]


def write(onnx, path, nodes, inputs, outputs, constants):
    graph = onnx.helper.make_graph(nodes, "tiny", inputs, outputs, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def image_model(optional, tmp_path_factory):
    """Mean color times a matrix; a second output gives the places themselves."""
    onnx = optional("onnx")
    optional("onnxruntime")

    def build(rows="rows", name="image.onnx"):
        floats, info = onnx.TensorProto.FLOAT, onnx.helper.make_tensor_value_info
        nodes = [
            onnx.helper.make_node("GlobalAveragePool", ["pixels"], ["pooled"]),
            onnx.helper.make_node("Flatten", ["pooled"], ["flat"]),
            onnx.helper.make_node("MatMul", ["flat", "weights"], ["features"]),
            onnx.helper.make_node("Identity", ["pixels"], ["places"]),
        ]
        return write(
            onnx, tmp_path_factory.mktemp("onnx") / name, nodes, [info("pixels", floats, [rows, 3, 16, 16])],
            [info("features", floats, [rows, 6]), info("places", floats, [rows, 3, 16, 16])],
            [onnx.numpy_helper.from_array(WEIGHTS, "weights")],
        )  # fmt: skip

    return build


@pytest.fixture(scope="module")
def text_model(optional, tmp_path_factory):
    """One vector a token, from a table; masked tokens are given a large one, to be found where they leak."""
    onnx = optional("onnx")
    optional("onnxruntime")
    tokenizers = optional("tokenizers")
    folder = tmp_path_factory.mktemp("text")
    words = tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    table = TABLE.copy()
    table[0] = 1e6
    integers, info = onnx.TensorProto.INT64, onnx.helper.make_tensor_value_info
    nodes = [
        onnx.helper.make_node("Gather", ["table", "input_ids"], ["tokens"]),
        onnx.helper.make_node("Identity", ["attention_mask"], ["mask"]),
    ]
    write(
        onnx, folder / "text.onnx", nodes,
        [info("input_ids", integers, ["rows", "length"]), info("attention_mask", integers, ["rows", "length"])],
        [info("tokens", onnx.TensorProto.FLOAT, ["rows", "length", 5]), info("mask", integers, ["rows", "length"])],
        [onnx.numpy_helper.from_array(table, "table")],
    )  # fmt: skip
    return {"path": folder / "text.onnx", "tokenizer": folder / "tokenizer.json"}


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


# -- images ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["rows", 1, 3])
def test_images_go_through_the_model(rows, image_model, picture):
    pictures = [picture(seed, 40, 30) for seed in range(7)]
    params = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), "batch_size": 4, "n_jobs": 1}
    encoder = encoders.make("onnx", modality="image", path=image_model(rows), size=16, **params).fit([])
    assert encoder.n_features_ == 6
    found = encoder.transform(pictures)
    expected = []
    for image in pictures:
        square = np.asarray(image.resize((16, 16), PIL.Resampling.BICUBIC, box=(5, 0, 35, 30)), dtype=float) / 255
        expected.append(((square - params["mean"]) / params["std"]).mean(axis=(0, 1)) @ WEIGHTS)
    assert np.allclose(found, unit(np.array(expected)), atol=1e-5)
    for n_jobs in (2, 4):
        encoder.n_jobs = n_jobs
        assert np.array_equal(encoder.transform(pictures), found)
    assert np.array_equal(encoder.transform(pictures[4:5])[0], found[4])


def test_broken_images_are_told(image_model, picture):
    encoder = encoders.make("onnx", modality="image", path=str(image_model()), size=16).fit([])
    rows = encoder.transform([b"", picture(0), None])
    assert list(np.isnan(rows).all(axis=1)) == [True, False, True]
    assert sorted(encoder.problems_) == [0, 2]
    assert np.isnan(encoder.transform([None])).all()


def test_another_output_and_no_scaling(image_model, picture):
    encoder = encoders.make("onnx", modality="image", path=image_model(), size=16, output="places", normalize=False)
    pixels = normalized_pixels(picture(1), 16, encoder.mean, encoder.std)
    assert np.allclose(encoder.fit([]).transform([picture(1)])[0], pixels.mean(axis=(1, 2)), atol=1e-5)
    with pytest.raises(ParameterError, match="one of 'features', 'places'"):
        clone(encoder).set_params(output="none").fit([])


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (9, 16)])
def test_pixels_of_odd_images(size):
    assert normalized_pixels(PIL.new("RGB", size, (255, 0, 0)), 8, (0, 0, 0), (1, 1, 1))[0].min() == 1.0


# -- texts -----------------------------------------------------------------------------------------------------------


def test_texts_go_through_the_model(text_model):
    encoder = encoders.make("onnx", modality="text", max_length=6, batch_size=2, n_jobs=1, **text_model).fit([])
    found = encoder.transform(TEXTS)
    ids = [[WORDS.index(word) if word in WORDS else 1 for word in text.split()][:6] for text in TEXTS]
    assert np.allclose(found, unit(np.array([TABLE[each].mean(axis=0) for each in ids])), atol=1e-5)
    for size in (1, 3, 16):
        again = clone(encoder).set_params(batch_size=size, n_jobs=2).fit([])
        assert np.allclose(again.transform(TEXTS), found, atol=1e-6)
    assert np.array_equal(encoder.transform(TEXTS[3:4])[0], found[3])
    assert np.isnan(encoder.transform(["", 3])).all()
    assert np.isfinite(encoder.transform(["\ud800 red"])).all()


# -- files -----------------------------------------------------------------------------------------------------------


def test_saved_and_loaded(image_model, text_model, picture, tmp_path):
    for encoder, items in (
        (encoders.make("onnx", modality="image", path=image_model(), size=16), [picture(0), picture(1)]),
        (encoders.make("onnx", modality="text", **text_model), TEXTS),
    ):
        expected = encoder.fit([]).transform(items)
        encoders.save(encoder, tmp_path / "x")
        again = encoders.load(tmp_path / "x")
        assert type(again) is type(encoder)
        assert np.array_equal(again.transform(items), expected)
        assert np.array_equal(pickle.loads(pickle.dumps(encoder)).transform(items), expected)


def test_a_model_that_has_changed_is_not_used(image_model, picture, tmp_path):
    path = image_model()
    encoder = encoders.make("onnx", modality="image", path=path, size=16).fit([])
    encoders.save(encoder, tmp_path / "x")
    whole = path.read_bytes()
    path.write_bytes(whole + b"\0")
    with pytest.raises(DataError, match="has changed"):
        encoders.load(tmp_path / "x").transform([picture(0)])
    path.unlink()
    with pytest.raises(DataError, match="no such file"):
        encoders.load(tmp_path / "x").transform([picture(0)])


def test_what_is_no_model(text_model, image_model, tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"nothing")
    for path, told in ((tmp_path / "x.onnx", "must be an ONNX model"), ("no/such.onnx", "no such file")):
        with pytest.raises(DataError, match=told) as caught:
            encoders.make("onnx", modality="image", path=path).fit([])
        assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="one input of floats"):
        encoders.make("onnx", modality="image", path=text_model["path"]).fit([])
    with pytest.raises(DataError, match="inputs among"):
        encoders.make("onnx", modality="text", path=image_model(), tokenizer=text_model["tokenizer"]).fit([])
    with pytest.raises(DataError, match="must accept"):
        encoders.make("onnx", modality="image", path=image_model(), size=17).fit([])
    for tokenizer, told in ((tmp_path / "x.onnx", "tokenizer.json"), ("none.json", "no such file")):
        with pytest.raises(DataError, match=told):
            encoders.make("onnx", modality="text", path=text_model["path"], tokenizer=tokenizer).fit([])
    with pytest.raises(ModelFileError):
        encoders.load(text_model["path"])


@pytest.mark.parametrize(
    ("param", "value"),
    [("path", None), ("size", 0), ("mean", (1, 2)), ("std", (1, 0, 1)), ("std", 3), ("batch_size", 0)],
)
def test_wrong_parameters(param, value):
    with pytest.raises(ParameterError, match=param):
        encoders.make("onnx", modality="image", **{"path": "x", param: value}).fit([])
    if param == "path":
        with pytest.raises(ParameterError, match="tokenizer"):
            encoders.make("onnx", modality="text", path="x").fit([])


@pytest.mark.parametrize("package", ["onnxruntime", "tokenizers"])
def test_without_the_package_the_sentence_says_what_to_install(package, text_model, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf'{package}.*pip install "fusehash\[onnx\]"'):
        encoders.make("onnx", modality="text", **text_model).fit([])
