"""CLIP: a tiny model with random weights in a local folder where open_clip is installed; the sentences everywhere."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from fusehash import encoders
from fusehash.errors import DataError, MissingPackageError, ParameterError

TEXTS = ["a red house", "a green lake", "trees"]


@pytest.mark.parametrize("modality", ["image", "text"])
def test_without_the_package_the_sentence_says_what_to_install(modality, monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingPackageError, match=r'open_clip.*pip install "fusehash\[clip\]"'):
        encoders.make("clip", modality=modality).fit([])


@pytest.mark.parametrize(("param", "value"), [("model", None), ("model", ""), ("batch_size", 0)])
@pytest.mark.parametrize("modality", ["image", "text"])
def test_wrong_parameters(modality, param, value):
    with pytest.raises(ParameterError, match=param):
        encoders.make("clip", modality=modality, **{param: value}).fit([])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    # Not `optional`: a package of gigabytes is not asked for even where all of the others are.
    open_clip = pytest.importorskip("open_clip")
    torch = pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("clip")
    config = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {"context_length": 12, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
    }
    torch.manual_seed(0)
    model = open_clip.model.CLIP(**config)
    torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")
    content = {"model_cfg": config, "preprocess_cfg": {"size": [32, 32]}}
    (path / "open_clip_config.json").write_text(json.dumps(content))
    return path


def test_both_towers(folder, picture, tmp_path):
    pictures = [picture(seed) for seed in range(5)]
    for modality, items in (("image", pictures), ("text", TEXTS)):
        encoder = encoders.make("clip", modality=modality, model=folder, device="cpu", batch_size=2).fit([])
        rows = encoder.transform(items)
        assert rows.shape == (len(items), 16)
        assert np.allclose((rows**2).sum(axis=1), 1.0, atol=1e-5)
        assert len(np.unique(rows, axis=0)) == len(items)
        assert np.array_equal(encoder.transform(items[1:2])[0], rows[1])
        assert np.array_equal(encoder.transform(items[::-1])[::-1], rows)
        assert np.isnan(encoder.transform([None, items[0]])).all(axis=1).tolist() == [True, False]
        encoders.save(encoder, tmp_path / modality)
        assert np.array_equal(encoders.load(tmp_path / modality).transform(items), rows)


def test_the_model_is_open_clips_own(folder, picture):
    import open_clip
    import torch

    model, preprocess = open_clip.create_model_from_pretrained(f"local-dir:{folder}", device="cpu")
    with torch.inference_mode():
        image = model.encode_image(preprocess(picture(0))[None], normalize=True).numpy()
        text = model.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(TEXTS), normalize=True).numpy()
    make = encoders.make
    assert np.allclose(make("clip", modality="image", model=folder).fit([]).transform([picture(0)]), image, atol=1e-5)
    assert np.allclose(make("clip", modality="text", model=folder).fit([]).transform(TEXTS), text, atol=1e-5)


def test_models_that_are_not_there(folder, tmp_path):
    for params in ({"model": "unheard-of"}, {"model": "ViT-B-32", "pretrained": None}):
        with pytest.raises(ParameterError):
            encoders.make("clip", modality="text", **params).fit([])
    (tmp_path / "open_clip_config.json").write_text((folder / "open_clip_config.json").read_text())
    for params in ({"model": tmp_path}, {"model": "ViT-B-32", "pretrained": "no/such/file.pt"}):
        with pytest.raises(DataError, match="must be on this machine") as caught:  # never random weights
            encoders.make("clip", modality="text", **params).fit([])
        assert "\n" not in str(caught.value)
