"""`cut`: a shorter model is the same model seen through its first bits, whatever the method."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import fusehash
from fusehash import bits, datasets
from fusehash.errors import DataError, ParameterError

DATA = datasets.make_paired(90, views={"image": 24, "text": 19}, n_classes=3, random_state=2)
TRAIN, NEW = DATA.views.rows(DATA.train), DATA.views.rows(DATA.query)


@pytest.fixture
def fitted(trained):
    return trained(TRAIN, n_bits=32)


@pytest.mark.parametrize("n_bits", [8, 24])
def test_the_first_bits_of_everything(fitted, n_bits):
    short = fitted.cut(n_bits)
    assert type(short) is type(fitted)
    assert (short.n_bits, fitted.n_bits) == (n_bits, 32)
    assert np.array_equal(short.codes_, fitted.codes_[:, : n_bits // 8])
    for view in NEW:
        assert np.array_equal(short.project(NEW[view], view=view), fitted.project(NEW[view], view=view)[:, :n_bits])
        whole = fitted.encode(NEW[view], view=view)
        assert np.array_equal(short.encode(NEW[view], view=view), whole[:, : n_bits // 8])
    assert np.array_equal(short.project_fused(NEW), fitted.project_fused(NEW)[:, :n_bits])
    some = {"text": NEW["text"]}
    assert np.array_equal(short.encode_fused(some), fitted.encode_fused(some)[:, : n_bits // 8])
    assert 0.0 <= short.score(NEW) <= 1.0


@pytest.mark.base_class
def test_files(fitted, tmp_path, same, learned):
    short = fitted.cut(16)
    short.save(tmp_path / "short")
    loaded = fusehash.load(tmp_path / "short")
    assert loaded.n_bits == 16
    assert same(learned(loaded), learned(short))
    for view in NEW:
        assert np.array_equal(loaded.project(NEW[view], view=view), short.project(NEW[view], view=view))
    assert np.array_equal(loaded.encode_fused(NEW), fitted.encode_fused(NEW)[:, :2])
    again = loaded.cut(8)
    assert np.array_equal(again.encode_fused(NEW), fitted.encode_fused(NEW)[:, :1])


@pytest.mark.base_class
def test_a_cut_of_a_cut(fitted, same, learned):
    assert same(learned(fitted.cut(24).cut(8)), learned(fitted.cut(8)))
    assert fitted.cut(24).cut(8).get_params() == fitted.cut(8).get_params()
    with pytest.raises(ParameterError, match="at most 8"):
        fitted.cut(8).cut(16)


@pytest.mark.base_class
def test_nothing_is_copied_and_nothing_changes(fitted, same, learned):
    before = {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in learned(fitted).items()}
    short = fitted.cut(8)
    assert np.shares_memory(short.codes_, fitted.codes_)
    assert same(learned(fitted), before)
    assert fitted.n_bits == 32


@pytest.mark.base_class
def test_a_cut_model_can_be_fitted_again(fitted, trained, same, learned, fit):
    short = fit(fitted.cut(16), TRAIN)
    assert same(learned(short), learned(trained(TRAIN)))
    assert not hasattr(clone(fitted.cut(16)), "codes_")


@pytest.mark.base_class
@pytest.mark.parametrize("n_bits", [0, -8, 12, 40, 8.0, "8", None, True])
def test_other_lengths_are_refused(fitted, n_bits):
    with pytest.raises(ParameterError, match="n_bits"):
        fitted.cut(n_bits)


@pytest.mark.base_class
def test_what_is_not_fitted_cannot_be_cut(build):
    with pytest.raises(NotFittedError):
        build().cut(8)


@pytest.mark.base_class
def test_tensors_are_cut_too(fitted, optional):
    torch = optional("torch")
    short = fitted.cut(8)
    for view in NEW:
        X = torch.from_numpy(np.ascontiguousarray(NEW[view]))
        projections = short.project(X, view=view)
        assert tuple(projections.shape) == (len(X), 8)
        assert np.allclose(projections.numpy(), fitted.project(NEW[view], view=view)[:, :8], atol=1e-4)


def test_packed_codes_are_cut_without_a_copy(tmp_path):
    rng = np.random.default_rng(0)
    signs = np.where(rng.random((50, 64)) < 0.5, -1, 1)
    codes = bits.pack(signs)
    for n_bits in (8, 24, 64):
        short = bits.cut(codes, n_bits)
        assert np.array_equal(bits.unpack(short, n_bits), signs[:, :n_bits])
        assert np.shares_memory(short, codes)
    np.save(tmp_path / "codes.npy", codes)
    mapped = np.load(tmp_path / "codes.npy", mmap_mode="r")
    assert isinstance(bits.cut(mapped, 16), np.memmap)
    assert np.array_equal(bits.cut(mapped, 16), codes[:, :2])
    for wrong in (0, 12, 72, -8, 16.0, "16"):
        with pytest.raises(DataError, match="multiple of 8 bits, at most 64"):
            bits.cut(codes, wrong)
    with pytest.raises(DataError, match="uint8 matrix"):
        bits.cut(signs, 8)
