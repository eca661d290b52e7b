"""No method wastes bits: on Wiki, at the shortest and the longest published length, every bit tells items apart."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fusehash as fh
from fusehash import bits, hashers
from fusehash.errors import FusehashWarning

COLLAPSED = 0.95


@pytest.fixture(scope="module")
def wiki(data_file: Callable[[str], Path]) -> fh.datasets.PairedDataset:
    return fh.datasets.load(data_file("wiki.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("n_bits", [16, 128])
# Quantizers copy what they are given and balance nothing.
@pytest.mark.parametrize(
    "name", [entry.name for entry in hashers.catalogue() if not entry.is_deep and entry.kind != "quantizer"]
)
def test_every_bit_varies(wiki: fh.datasets.PairedDataset, name: str, n_bits: int) -> None:
    train = wiki.views.rows(wiki.train)
    model = hashers.make(name, n_bits=n_bits, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?!.*nearly the same)", FusehashWarning)  # padding is allowed
        warnings.filterwarnings("error", ".*nearly the same", FusehashWarning)
        model.fit(train, wiki.labels[wiki.train])
    codes = {"unified": model.codes_, **{view: model.encode(train[view], view=view) for view in train}}
    for source, packed in codes.items():
        mean = np.abs(bits.unpack(packed, n_bits).mean(axis=0)).max()
        # Eigenfunctions of a single view (AGH) can sit on a few items; its authors do not balance them.
        assert mean < COLLAPSED or (name == "agh" and source == "image"), f"{source}: {mean:.3f}"


def test_constant_bits_are_reported(wiki: fh.datasets.PairedDataset) -> None:
    """SCM-orth has at most as many bits as positive eigenvalues, 9 on Wiki; a warning names the others."""
    model = hashers.make("scm", solver="orth", n_bits=16)
    with pytest.warns(FusehashWarning) as caught:
        model.fit(wiki.views.rows(wiki.train), wiki.labels[wiki.train])
    assert any("nearly the same" in str(warning.message) for warning in caught)


def test_more_columns_of_a_deep_view_do_not_make_codes_worse() -> None:
    """A dense view of 3,328 rectified columns, which sees more than its first 400, for 300 rows to learn from."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((600, 12))
    image = np.maximum(latent @ rng.standard_normal((12, 3328)) + 3.0 * rng.standard_normal((600, 3328)), 0.0)
    text = latent @ rng.standard_normal((12, 60)) + rng.standard_normal((600, 60))
    recalls = []
    for width in (400, 3328):
        views = {"image": image[:, :width], "text": text}
        model = fh.FuseHash(n_bits=64, random_state=0).fit({name: X[:300] for name, X in views.items()})
        codes = {name: model.encode(X[300:], view=name) for name, X in views.items()}
        recalls.append(fh.evaluation.pair_recall(codes["text"], codes["image"], k=5))
        assert np.abs(bits.unpack(codes["image"], 64).mean(axis=0)).max() < 0.6
    assert recalls[1] >= recalls[0] > 0.2
