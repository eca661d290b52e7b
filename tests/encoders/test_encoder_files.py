"""Saved encoders: the same features to the last bit, no code, and a sentence for every damaged file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from fusehash import encoders, hashers
from fusehash.datasets import make_paired
from fusehash.errors import DataError, ModelFileError
from sealing import parts, seal

TEXTS = [f"the {a} {b}" for a in ("red", "green", "blue") for b in ("house", "lake", "mountain", "street")]


@pytest.fixture(scope="module")
def made(picture, optional):
    optional("cv2")
    pictures = [picture(seed) for seed in range(4)]
    return [
        (encoders.make("tfidf", n_components=6).fit(TEXTS), TEXTS),
        (encoders.make("lda", n_topics=3).fit(TEXTS), TEXTS),
        (encoders.make("sift", n_words=9, n_jobs=1).fit(pictures), pictures),
        (encoders.make("classical", n_words=9, n_jobs=1).fit(pictures), pictures),
    ]


def test_what_is_loaded_gives_the_same_to_the_last_bit(made, tmp_path):
    for encoder, items in made:
        path = tmp_path / f"{encoder.name}.encoder"
        expected = encoder.transform(items)
        encoders.save(encoder, path)
        again = encoders.load(path)
        assert type(again) is type(encoder)
        assert again.problems_ == {}
        assert np.array_equal(again.transform(items), expected)
        settings = again.get_params()
        assert {name: settings[name] for name in settings if name != "n_jobs"} == {
            name: value for name, value in encoder.get_params().items() if name != "n_jobs"
        }


def test_another_process_gives_the_same(made, tmp_path):
    encoder, texts = made[0]
    encoders.save(encoder, tmp_path / "text.encoder")
    code = (
        "import sys, numpy as np; from fusehash import encoders\n"
        f"rows = encoders.load(sys.argv[1]).transform({texts!r}); np.save(sys.argv[2], rows)\n"
        "assert 'cv2' not in sys.modules and 'PIL' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "text.encoder", tmp_path / "rows.npy"], check=True)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), encoder.transform(texts))


def test_only_fitted_encoders_are_saved(tmp_path):
    with pytest.raises(NotFittedError):
        encoders.save(encoders.make("tfidf"), tmp_path / "x")
    with pytest.raises(DataError, match="folder"):
        encoders.save(encoders.make("tfidf").fit(TEXTS), tmp_path / "none" / "x")
    assert not list(tmp_path.iterdir())


def test_a_seed_of_numpy_can_be_saved(tmp_path):
    for seed in (np.int64(3), np.random.default_rng(0), None):
        encoders.save(encoders.make("tfidf", random_state=seed).fit(TEXTS), tmp_path / "x")
        assert encoders.load(tmp_path / "x").random_state in (3, None)


def test_damaged_files(made, tmp_path):
    path = tmp_path / "x.encoder"
    encoders.save(made[0][0], path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ModelFileError, match=r"x\.encoder"):
            encoders.load(path)
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, 900, 3):
            damaged[place] = rng.integers(256)
        path.write_bytes(bytes(damaged))
        try:
            assert encoders.load(path).n_features_ >= 1
        except ModelFileError:
            continue


def rewritten(path, **changes):
    arrays, entries = parts(path)
    seal(path, arrays, {**entries, **changes})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version": "99"}, "newer fusehash"),
        ({"format": "other"}, "another kind"),
        ({"name": "unheard"}, "does not know"),
        ({"modality": "image"}, "does not know"),
        ({"params": '{"unheard": 1}'}, "damaged"),
        ({"params": '{"n_components": -1}'}, "damaged"),
        ({"state": '{"n_features_": 6}'}, "damaged"),
        ({"state": '{"transform": 6}'}, "damaged"),
        ({"state": "[]"}, "damaged"),
    ],
)
def test_foreign_contents(changes, told, made, tmp_path):
    encoders.save(made[0][0], tmp_path / "x")
    rewritten(tmp_path / "x", **changes)
    with pytest.raises(ModelFileError, match=told):
        encoders.load(tmp_path / "x")


def test_files_of_another_kind(tmp_path):
    with pytest.raises(ModelFileError, match="no such file"):
        encoders.load(tmp_path / "none")
    with pytest.raises(ModelFileError):
        encoders.load(tmp_path)
    hashers.make("random", n_bits=8, random_state=0).fit(make_paired(60, random_state=0).views).save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="another kind"):
        encoders.load(tmp_path / "model")
    encoders.save(encoders.make("tfidf").fit(TEXTS), tmp_path / "encoder")
    with pytest.raises(ModelFileError):
        hashers.load(tmp_path / "encoder")


def test_listing_encoders_loads_none_of_them():
    code = (
        "import sys; from fusehash import encoders\n"
        "assert encoders.names() and not {'numpy', 'sklearn', 'PIL'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_file_that_may_not_be_read_is_not_called_missing(made, tmp_path, monkeypatch):
    encoders.save(made[0][0], tmp_path / "text.encoder")
    with pytest.raises(ModelFileError, match="There is no such file"):
        encoders.load(tmp_path / "missing.encoder")

    def refused(*words, **options):  # root may read all files
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ModelFileError, match="It could not be read: Permission denied"):
        encoders.load(tmp_path / "text.encoder")
