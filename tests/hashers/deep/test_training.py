"""Training with PyTorch: gradients, rows from files, limits, and models that need no PyTorch any more."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fusehash as fh
from fusehash import datasets, hashers, streams
from fusehash.errors import DataError, MissingPackageError, ParameterError
from fusehash.hashers.deep import cirh, dbrc, dcmh, ddcmh, dgcpn, djsrh, jdsh, ucch
from fusehash.numerics import memory
from fusehash.views import PairedViews
from untuned import DEEP

DATA = datasets.make_paired(90, views={"image": 12, "text": 9}, n_classes=3, random_state=0)
VIEWS, LABELS = DATA.views, DATA.labels
# These read any number of rows, a batch at a time.
STREAMING = ("ucch", "jdsh", "djsrh", "dcmh", "dbrc", "ddcmh")


@pytest.fixture
def torch(optional):
    return optional("torch")


def build(name, **params):
    return hashers.make(name, **{"n_bits": 16, "random_state": 0, **DEEP[name], "epochs": 3, **params})


def fit(name, views=VIEWS, **params):
    return build(name, **params).fit(views, LABELS)


def drawn_for(x):
    """Each of four rows and two that are drawn, for the memories that it is contrasted with."""
    import torch

    return torch.arange(4, device=x.device), torch.tensor([[1, 2], [0, 3], [3, 3], [2, 0]])


# -- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y, S: djsrh.reconstruction_loss(x, y, S, 0.3),
        lambda x, y, S: djsrh.aligned_loss(x, y, S, S, S, 1.5),
        dgcpn.coherence_loss,
        lambda x, y, S: ucch.ranking_loss(x @ y.T, 0.2, 0.1),
        lambda x, y, S: build("ucch")._contrast(S[:, :1] * S - 0.5, *drawn_for(x), x[:, :4], y[:, :4]),
        lambda x, y, S: build("ucch")._contrast_in_batch(x, y),
        lambda x, y, S: dcmh.likelihood(x, y, (S > 0.5).double())[1],
        jdsh.preserving_loss,
        lambda x, y, S: cirh.graph_loss((x, y, x * y), (x, y), (S[:, :1], S[:, 1:2]), S),
        lambda x, y, S: cirh.heads_loss(x, y, (S[:, :1] - 0.5).sign(), S, 0.3),
        lambda x, y, S: dbrc.joint_loss(
            (x, y), (y * y).sum(0) + 1.0, (lambda h: h**2, lambda h: 2 * h), (x, S[:, :1]), 0.1
        ),
        lambda x, y, S: ddcmh.cross_entropy(x * y, S[:, :1]),
    ],
    ids=[
        *("djsrh", "dsah", "dgcpn", "ucch ranking", "ucch", "ucch first epoch", "dcmh", "jdsh", "cirh graph"),
        *("cirh heads", "dbrc", "ddcmh"),
    ],
)
def test_gradients_agree_with_finite_differences(torch, loss):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, 6, dtype=torch.double, generator=generator).requires_grad_() for _ in range(2))
    S = torch.rand(4, 4, dtype=torch.double, generator=generator)
    assert torch.autograd.gradcheck(lambda x, y: loss(x, y, S), (x, y))


def test_the_closed_gradient_of_dcmh_is_the_one_of_pytorch(torch):
    F, G = (torch.randn(5, 4, dtype=torch.double).requires_grad_() for _ in range(2))
    S = (torch.rand(5, 5) < 0.5).double()
    closed, value = dcmh.likelihood(F, G, S)
    value.backward()
    assert torch.allclose(closed, F.grad)


def test_gradients_of_the_graph_network_of_cirh_agree_with_finite_differences(torch):
    from fusehash.hashers.deep.training import Training

    with Training(VIEWS, lambda X, _: X, 0, None, lambda *_: None) as training:
        network = cirh.GraphNetwork(training, 3, 4)
        x, y = (X.double() for X in training.pair(np.arange(6)))
    S = torch.rand(6, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    for name, layer in network._layers.items():
        network._layers[name] = tuple(weight.detach().double().requires_grad_() for weight in layer)

    def loss(*weights):
        parts = iter(weights)
        network._layers = {name: tuple(next(parts) for _ in layer) for name, layer in network._layers.items()}
        H_I, H_T, H, *rebuilt = network(x, y, S)
        return cirh.graph_loss((H_I, H_T, H), tuple(rebuilt), (x, y), S)

    assert torch.autograd.gradcheck(loss, tuple(network.weights), fast_mode=True)


def test_a_step_of_dcmh_is_its_formula(torch):
    """Linear heads, one epoch, one batch of all rows, plain descent: W <- W - rate X'(dJ/dF) / (n n)."""
    params = {"hidden": 0, "image_hidden": 0, "epochs": 1, "batch_size": 90, "learning_rate": 0.5, "gamma": 0.7}
    start, model = fit("dcmh", **{**params, "learning_rate": 1e-12}), fit("dcmh", **params)
    n, K = 90, 16
    X = VIEWS["image"] / np.linalg.norm(VIEWS["image"], axis=1, keepdims=True)
    W, b = (layer.astype(float) for layer in start.heads_["image"])
    rng = fh.parameters.rng_for(0, "batches")
    F0, G = (rng.standard_normal((n, K)) for _ in range(2))
    B, F = np.sign(F0 + G), X @ W + b
    S = (LABELS[:, None] == LABELS[None]).astype(float)
    eta = DEEP["dcmh"]["eta"]
    gradient = (1 / (1 + np.exp(-F @ G.T / 2)) - S) @ G / 2 + 2 * 0.7 * (F - B) + 2 * eta * F.sum(axis=0)
    scale = X.shape[1]  # inputs are multiplied by the root of their width, and so are stored weights
    assert np.allclose(model.heads_["image"][0], W - 0.5 * scale * X.T @ gradient / n**2, atol=1e-5)
    assert np.allclose(model.heads_["image"][1], b - 0.5 * gradient.sum(axis=0) / n**2, atol=1e-5)


def test_memories_are_contrasted_alike_from_all_scores_and_from_gathered_codes(torch, monkeypatch):
    model = build("ucch")
    memory_bank, own = torch.randn(30, 16), torch.arange(5)
    drawn = torch.randint(0, 30, (5, 7))
    u, v = torch.randn(5, 16), torch.randn(5, 16)
    scores = [model._contrast(memory_bank, own, drawn, u, v)]
    monkeypatch.setattr(ucch, "SCORE_ALL_ROWS", 0)
    scores.append(model._contrast(memory_bank, own, drawn, u, v))
    expected = 0.0
    for w in (u, v):
        for i in range(5):
            z = np.array([float(memory_bank[j].sign() @ w[i]) for j in [i, *drawn[i].tolist()]]) / (0.9 * 4)
            expected += (np.log(np.exp(z).sum()) - z[0]) / 5
    assert np.allclose(scores, expected, rtol=1e-5)


def test_normalized_columns_have_mean_zero_and_variance_one(torch):
    from fusehash.hashers.deep.training import Training

    with Training(VIEWS, lambda X, _: X, 0, None, lambda *_: None) as training:
        network = cirh.GraphNetwork(training, 8, 16)
        x, y = training.pair(np.arange(40))
        H_I, H_T, H, rebuilt_x, rebuilt_y = network(x, y, torch.eye(40))
    for Z in (H_I, H_T, rebuilt_x, rebuilt_y):
        assert torch.allclose(Z.mean(0), torch.zeros(Z.shape[1]), atol=1e-5)
        assert torch.allclose(Z.var(0, unbiased=False), torch.ones(Z.shape[1]), atol=1e-2)
    assert H.abs().max() <= 1


# -- switches --------------------------------------------------------------------------------------------------------


def test_decoders_that_see_signs_cannot_change_a_code(torch):
    plain = fit("djsrh", alignment=True)
    released = fit("djsrh", alignment=True, decoders=True, as_released=True)
    assert np.array_equal(released.codes_, plain.codes_)
    assert np.array_equal(released.heads_["image"][0], plain.heads_["image"][0])
    assert not np.array_equal(fit("djsrh", alignment=True, decoders=True).heads_["image"][0], plain.heads_["image"][0])


def test_as_released_changes_nothing_of_plain_djsrh(torch):
    assert np.array_equal(fit("djsrh", as_released=True).heads_["image"][0], fit("djsrh").heads_["image"][0])


@pytest.mark.parametrize("name", ["jdsh", "cirh"])
def test_as_released_changes_what_is_learned(torch, name):
    assert not np.array_equal(fit(name, as_released=True).heads_["image"][0], fit(name).heads_["image"][0])


def test_the_joint_layer_of_dbrc_has_its_bias_once(torch):
    model = fit("dbrc")
    both = model.project_fused(VIEWS)
    single = {name: model.project(VIEWS[name], view=name) for name in VIEWS}
    bias = model.heads_["image"][-1]
    assert np.array_equal(bias, model.heads_["text"][-1])
    assert np.allclose(both, single["image"] + single["text"] - bias)


@pytest.mark.parametrize("name", DEEP)
def test_linear_heads_and_centered_rows_work(torch, name):
    assert fit(name, hidden=0, center=True, epochs=1).codes_.shape == (90, 2)


# -- rows, memory and limits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STREAMING)
def test_rows_of_files_are_read_in_batches_and_give_the_same_model(torch, name, tmp_path, monkeypatch):
    paths = {}
    for view, X in VIEWS.items():
        with streams.NpyWriter(tmp_path / f"{view}.npy", None, X.shape[1], X.dtype) as out:
            out.write(X)
        paths[view] = tmp_path / f"{view}.npy"
    from fusehash.hashers.deep import training

    read, block = [], PairedViews.block

    def spy(self, name, rows):
        read.append(len(block(self, name, rows)))
        return block(self, name, rows)

    monkeypatch.setattr(training, "SAMPLE_ROWS", 30)
    monkeypatch.setattr(PairedViews, "block", spy)
    monkeypatch.setattr(PairedViews, "blocks", lambda self: [slice(i, min(i + 32, 90)) for i in range(0, 90, 32)])
    from_files = fit(name, paths)
    assert max(read) <= 32
    assert np.array_equal(from_files.codes_, fit(name).codes_)


@pytest.mark.parametrize("name", ["dgcpn", "cirh"])
def test_methods_of_all_pairs_take_a_limited_number_of_rows(torch, name):
    with pytest.raises(DataError, match=r"takes at most 50 of them \(max_rows\)\. Got 90; subsample=True learns"):
        fit(name, max_rows=50)
    assert fit(name, max_rows=50, subsample=True).codes_.shape == (90, 2)


def test_what_does_not_fit_is_refused_before_any_work(torch, monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 2**30)
    with pytest.raises(DataError, match=r"^UCCH must fit into the 1\.0 GiB .* weights, which take at least"):
        build("ucch", hidden=30_000).fit(VIEWS)
    monkeypatch.setattr(memory, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr(memory, "available_memory", lambda: 90_000)
    with pytest.raises(DataError, match=r"^DGCPN must fit into .* Got 90 x 90 pairs"):
        build("dgcpn", hidden=8).fit(VIEWS)


@pytest.mark.parametrize(
    ("name", "content"), [("ucch", "a memory of 90 rows"), ("dcmh", "outputs and codes of 90 rows")]
)
def test_what_does_not_fit_on_a_device_is_refused(monkeypatch, name, content):
    monkeypatch.setattr(memory, "UNCHECKED_BYTES", 0)
    monkeypatch.setattr(memory, "device_memory", {"cuda:0": 10**9, "cuda:1": 4_000}.__getitem__)
    model = build(name, hidden=1, **({"image_hidden": 1} if name == "dcmh" else {}))
    model.set_params(device="cuda:0")._check_memory(VIEWS)
    with pytest.raises(DataError, match=rf"available on cuda:1\. Got {content}"):
        model.set_params(device="cuda:1")._check_memory(VIEWS)


def test_a_device_of_another_library_is_refused():
    with pytest.raises(ParameterError, match="a device of PyTorch"):
        build("ucch", device="cupy")._check_params()


def test_training_that_diverges_says_so(torch):
    with pytest.raises(DataError, match=r"^Training must converge\. .* try a smaller learning_rate\.$"):
        fit("ddcmh", learning_rate=1e30)


def test_the_threads_of_pytorch_are_what_they_were(torch):
    before = torch.get_num_threads()
    state = torch.random.get_rng_state()
    fit("dgcpn")
    assert torch.get_num_threads() == before
    assert torch.equal(torch.random.get_rng_state(), state)


# -- on a device ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEEP)
def test_codes_that_a_device_computes_are_those_of_the_host(torch, name):
    model = fit(name, center=True)
    assert np.array_equal(model._codes_there(VIEWS, "cpu"), model.codes_)
    assert isinstance(model._double("image")[0], np.ndarray)


def test_rows_that_a_device_prepares_are_those_of_the_host(torch):
    from fusehash.hashers.deep.training import Training

    model = fit("ucch", center=True)
    with Training(VIEWS, model._prepare, 0, None, lambda *_: None) as training:
        for name in VIEWS:
            there = training._read_there(name, slice(5, 40))
            assert there.dtype == torch.float32
            assert torch.allclose(there, training.rows(name, np.arange(5, 40)), atol=1e-7)


def test_mixed_precision_learns_the_same_up_to_rounding(torch):
    exact, mixed = fit("ucch", epochs=1), fit("ucch", epochs=1, mixed_precision=True)
    assert not np.array_equal(exact.heads_["image"][0], mixed.heads_["image"][0])
    assert np.allclose(exact.objective_, mixed.objective_, rtol=0.02)
    for view in VIEWS:
        near = fh.bits.unpack(exact.encode(VIEWS[view], view=view), 16) == fh.bits.unpack(
            mixed.encode(VIEWS[view], view=view), 16
        )
        assert near.mean() > 0.95


# -- without PyTorch -------------------------------------------------------------------------------------------------

WITHOUT = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ImportError("there is no torch here", name="torch")

sys.meta_path.insert(0, Blocked())
import numpy as np, fusehash as fh
for name in sys.argv[2:]:
    model = fh.load(f"{sys.argv[1]}/{name}")
    with np.load(f"{sys.argv[1]}/views.npz") as views:
        codes = {view: model.encode(views[view], view=view) for view in views}
        codes["fused"] = model.encode_fused(dict(views))
    np.savez(f"{sys.argv[1]}/{name}.npz", **codes)
"""


def test_models_are_loaded_and_used_without_pytorch(torch, tmp_path):
    np.savez(tmp_path / "views.npz", **dict(VIEWS.items()))
    models = {name: fit(name) for name in DEEP}
    for name, model in models.items():
        model.save(tmp_path / name)
    subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path), *models], check=True)
    for name, model in models.items():
        with np.load(tmp_path / f"{name}.npz") as codes:
            for view in VIEWS:
                assert np.array_equal(codes[view], model.encode(VIEWS[view], view=view))
            assert np.array_equal(codes["fused"], model.encode_fused(VIEWS))


def test_a_missing_pytorch_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    sentence = r'^JDSH\.fit needs the package torch, which is not installed: pip install "fusehash\[deep\]"\.$'
    with pytest.raises(MissingPackageError, match=sentence):
        build("jdsh").fit(VIEWS)
