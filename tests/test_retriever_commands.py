"""`fusehash search` and `fusehash inspect` on retrievers, folders of quantize and all else that fusehash wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from typer.testing import CliRunner, Result

import fusehash as fh
from fusehash.cli import app
from joint import joint_embeddings

VIEWS = {name: X.astype(np.float32) for name, X in joint_embeddings(300).items()}
DIM = VIEWS["image"].shape[1]
TEXTS = [f"a {word} on the {other}" for word in ("cat", "dog", "bird", "fish") for other in ("mat", "tree", "sea")]


def call(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"})


def output(*words: object) -> Any:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def model(target: str = "floats") -> Any:
    fixed = {"feature_map": "linear", "ridge": 1.0, "graph_weight": 0.0, "latent_weight": 0.0, "spectral_power": 1.0}
    params = fixed if target == "pairs" else {}
    return fh.FuseHash(n_bits=32, target=target, random_state=0, view_weights=[1, 1], **params).fit(VIEWS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, X in VIEWS.items():
        np.save(f"{name}.npy", X)
    np.save("queries.npy", VIEWS["text"][:3])
    return tmp_path


def quantized(target: str = "floats") -> None:
    words = ("quantize", "image.npy", "text.npy", "--target", target, "--bits", 32, "--held-out", 0)
    fixed = ("feature_map=linear", "ridge=1", "graph_weight=0", "latent_weight=0", "spectral_power=1")
    result = call(*words, *(w for setting in fixed if target == "pairs" for w in ("--param", setting)))
    assert result.exit_code == 0, result.stderr
    assert "Next: fusehash search codes new.npy --view text" in result.stdout


def test_a_folder_of_quantize_is_searched_as_a_retriever_is(here: Path) -> None:
    quantized()
    fitted = fh.load("codes/model.safetensors")
    with fh.Retriever.create("mine", fitted) as retriever:
        retriever.add(VIEWS["image"], view="image")
        ids, scores = retriever.search(VIEWS["text"][:3], k=4, view="text")
    for folder in ("codes", "mine"):
        found = output("search", folder, "queries.npy", "--view", "text", "-k", 4)
        assert [answer["query"] for answer in found] == [0, 1, 2]
        assert_array_equal([answer["ids"] for answer in found], ids)
        assert_allclose([answer["scores"] for answer in found], scores)
    with fh.Retriever.create("texts", fitted) as retriever:
        retriever.add(VIEWS["text"], view="text")
        ids = retriever.search(VIEWS["text"], k=1, view="text")[0]
    among = output("search", "codes", "text.npy", "--items", "text", "-k", 1)  # the file says which view it is
    assert_array_equal([answer["ids"] for answer in among], ids)
    np.save("allowed.npy", np.array([7, 9]))
    np.save("one.npy", VIEWS["text"][5])  # a vector is one row
    [one] = output("search", "codes", "one.npy", "--view", "text", "--allowed", "allowed.npy")
    assert sorted(one["ids"]) == [7, 9]


def test_a_folder_of_quantize_without_factors(here: Path) -> None:
    quantized("pairs")
    index = fh.HammingIndex(32)
    index.add(np.load("codes/image.npy"))
    projections = fh.load("codes/model.safetensors").project(VIEWS["text"][:3], view="text")
    distances, ids = index.search(projections, k=4)
    found = output("search", "codes", "queries.npy", "--view", "text", "-k", 4)
    assert_array_equal([answer["ids"] for answer in found], ids)
    scores = 1 - 2 * distances / np.abs(projections).sum(axis=1, keepdims=True)
    assert_allclose([answer["scores"] for answer in found], scores)


def test_a_retriever_with_vectors_orders_candidates(here: Path) -> None:
    with fh.Retriever.create("mine", model(), vectors="int8", dim=DIM) as retriever:
        retriever.add(VIEWS["image"], view="image", ids=np.arange(300) + 1000)
        ids, scores = retriever.search(VIEWS["text"][:3], k=4, view="text", candidates=50)
    found = output("search", "mine", "queries.npy", "--view", "text", "-k", 4, "--candidates", 50)
    assert_array_equal([answer["ids"] for answer in found], ids)
    assert_allclose([answer["scores"] for answer in found], scores)
    table = call("search", "mine", "queries.npy", "--view", "text", "-k", 1).stdout
    assert "score" in table
    facts = output("inspect", "mine")
    assert facts == {
        "kind": "retriever", "items": 300, "method": "FuseHash", "n_bits": 32,
        "views": f"image ({DIM} columns), text ({DIM} columns)", "vectors": f"int8, {DIM} numbers", "factors": True,
    }  # fmt: skip


def test_a_retriever_with_an_encoder_takes_words(here: Path) -> None:
    encoder = fh.encoders.make("tfidf", n_components=4).fit(TEXTS)
    learned = fh.hashers.make("itq", n_bits=8, random_state=0).fit({"text": encoder.transform(TEXTS)})
    with fh.Retriever.create("texts", learned, encoders={"text": encoder}) as retriever:
        retriever.add(TEXTS, view="text")
        ids, scores = retriever.search("a cat on the mat", k=3, view="text")
    [found] = output("search", "texts", "a cat on the mat", "-k", 3)
    assert_array_equal([found["ids"]], ids)
    assert_allclose([found["scores"]], scores)
    result = call("inspect", "texts")
    assert "text (4 columns, TfidfEncoder)" in result.stdout
    assert 'Next: fusehash search texts "some words" --view text' in result.stdout
    result = call("search", "texts", "--image", "photo.jpg")
    assert result.exit_code == 1
    assert "no view has an encoder for images. Got a picture." in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("codes", "queries.npy"), 2, "say which view the rows of queries.npy are: image or text"),
        (("codes", "narrow.npy"), 1, "Queries must be rows of a view of codes"),
        (("codes", "narrow.npy", "--view", "text"), 1, f"View 'text' must have {DIM} features, as in fit."),
        (("codes", "nan.npy", "--view", "text"), 1, "first in row 1"),
        (("codes", "empty.npy"), 1, "The file empty.npy must be an intact .npy file. It is empty."),
        (("codes", "nothing.npy"), 1, "nothing.npy could not be read: No such file"),
        (("codes", "a red hat"), 1, "no view has an encoder for texts. Got 'a red hat'."),
        (("codes", "a red hat", "--view", "text"), 1, "view 'text' has no encoder for texts. Got 'a red hat'."),
        (("codes", "queries.npy", "--view", "audio"), 1, "--view must be a view of codes: image with"),
        (("codes", "queries.npy", "--view", "text", "--items", "audio"), 1, "--items must be a view of codes"),
        (("codes",), 2, "give a text, a .npy file or --image"),
        (("codes", "queries.npy", "--view", "text", "--candidates", "9"), 2, "is for a retriever or an index"),
        (("codes", "queries.npy", "--rescore", "text.npy"), 2, "is for an index of codes"),
        (("codes", "queries.npy", "--like", "3"), 2, "is for a collection"),
        (("mine", "queries.npy", "--items", "text"), 2, "is for a folder of quantize"),
        (("mine", "queries.npy", "--view", "text", "--candidates", "9"), 1, "this retriever keeps none"),
        (("other", "queries.npy"), 1, "other is not a fusehash collection, nor a retriever"),
        (("nowhere", "queries.npy"), 1, "There is no collection, index or file of codes at nowhere."),
        (("codes/text.npy", "codes/text.npy", "--view", "text"), 2, "is for a retriever or a folder of quantize"),
    ],
)  # fmt: skip
def test_wrong_searches_take_one_sentence(
    here: Path, prepared: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    for name in ("codes", "mine"):
        shutil.copytree(prepared / name, name)
    Path("other").mkdir()
    np.save("narrow.npy", VIEWS["text"][:2, :3])
    nan = VIEWS["text"][:2].copy()
    nan[1, 0] = np.nan
    np.save("nan.npy", nan)
    Path("empty.npy").touch()
    result = call("search", *words)
    assert result.exit_code == code
    assert result.stdout == ""
    assert sentence in result.stderr
    if code == 1:
        assert result.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, X in VIEWS.items():
            np.save(f"{name}.npy", X)
        quantized()
        fh.Retriever.create("mine", model()).close()
    return folder


def test_inspect_says_what_things_are(here: Path, prepared: Path) -> None:
    codes = prepared / "codes"
    facts = output("inspect", codes)
    assert (facts["kind"], facts["n_bits"], facts["factors"]) == ("folder of quantize", 32, True)
    assert facts["codes"] == "image.npy (300 rows), text.npy (300 rows)"
    assert output("inspect", codes / "model.safetensors")["kind"] == "model"
    assert output("inspect", codes / "image.npy") == {"kind": "codes", "shape": "300 x 4", "dtype": "uint8", "bits": 32}
    rows = VIEWS["image"][:5].copy()
    rows[1], rows[2, 3], rows[0] = 0, np.inf, 2 * rows[0] / np.linalg.norm(rows[0])
    np.save("rows.npy", rows)
    facts = output("inspect", "rows.npy")
    assert (facts["kind"], facts["shape"]) == ("rows of a view", f"5 x {DIM}")
    assert (facts["rows_with_NaN_or_infinity"], facts["rows_of_zeros"]) == (1, 1)
    norms = np.linalg.norm(rows[[0, 3, 4]].astype(float), axis=1)
    assert facts["lengths"] == f"{norms.min():.4g} to {norms.max():.4g}"
    np.save("labels.npy", np.arange(3))
    assert output("inspect", "labels.npy")["kind"] == "array"
    with fh.HammingIndex.open("codes.db", 32, warm=False) as index:
        index.add(np.load(codes / "image.npy"))
    assert output("inspect", "codes.db")["kind"] == "index"
    with fh.HammingIndex.open("kept.db", 32, vectors="int8", dim=DIM, warm=False) as index:
        index.add(np.load(codes / "image.npy"), vectors=VIEWS["image"])
    [vectors] = Path().glob("kept.db-vectors-*")
    assert output("inspect", vectors) == {"kind": "vectors of an index", "index": "kept.db"}
    encoder = fh.encoders.make("tfidf", n_components=4).fit(TEXTS)
    fh.encoders.save(encoder, "text.encoder")
    assert output("inspect", "text.encoder") == {"kind": "encoder", "name": "tfidf", "modality": "text", "features": 4}
    for name in ("other", "nothing", "empty.npy", "words.txt"):
        Path("other").mkdir(exist_ok=True)
        Path("empty.npy").touch()
        Path("words.txt").write_text("words")
        result = call("inspect", name)
        assert result.exit_code == 1
        assert result.stderr.count("\n") == 1
    assert "is for two files of embeddings" in call("inspect", "codes.db", "--plot", "bits.svg").stderr


def test_commands_of_collections_say_what_another_folder_is(here: Path, prepared: Path) -> None:
    for name, kind in (("codes", "folder of quantize"), ("mine", "retriever")):
        for words in (("index", "stats"), ("index", "remove"), ("serve",)):
            result = call(*words, prepared / name, *(["3"] if words[-1] == "remove" else []))
            assert result.exit_code == 1
            assert f"must be a collection. It is a {kind}" in result.stderr


def test_encode_writes_projections_and_factors(here: Path, prepared: Path) -> None:
    file = prepared / "codes" / "model.safetensors"
    fitted = fh.load(file)
    facts = output("encode", file, "text.npy", "--view", "text", "--projections", "--out", "p.npy")
    assert facts["projections"]
    assert_array_equal(np.load("p.npy"), fitted.project(VIEWS["text"], view="text"))
    output("encode", file, "image.npy", "--view", "image", "--factors", "f.npy", "--out", "c.npy")
    codes, factors = fitted.encode(VIEWS["image"], view="image", with_factors=True)
    assert_array_equal(np.load("c.npy"), codes)
    assert_array_equal(np.load("f.npy"), factors)
    output("index", "add", "codes.db", "c.npy", "--factors", "f.npy", "--vectors", "image.npy")
    found = output("search", "codes.db", "p.npy", "-k", 3)
    same = output("search", prepared / "codes", "text.npy", "-k", 3)
    assert [answer["ids"] for answer in found] == [answer["ids"] for answer in same]
    for words in (
        ("--fused", "--projections"),
        ("--fused", "--factors", "f.npy"),
        ("--projections", "--factors", "f.npy"),
    ):
        view = () if "--fused" in words else ("--view", "text")
        assert call("encode", file, "image=image.npy", "text=text.npy", *words, *view).exit_code == 2
