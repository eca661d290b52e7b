"""The search by matrix products equals the NumPy engine, to the position, in every installed array library."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fusehash.errors import MissingPackageError, ParameterError
from fusehash.search import HammingIndex
from fusehash.search.engines import make
from fusehash.search.engines import torch as gpu
from fusehash.search.engines.torch import select
from fusehash.search.rows import CodeRows

reference = make("numpy")


@pytest.fixture(params=["torch", "numpy", "array_api_strict"])
def to_library(request: pytest.FixtureRequest, optional: Any) -> Any:
    """`to_library(array)`: a NumPy array as an array of PyTorch, of NumPy, or of a library with the bare standard."""
    optional("array_api_compat")
    return optional(request.param).asarray


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows are cut into groups, and few codes are too many to be kept unpacked: a few hundred see every step."""
    monkeypatch.setattr(select, "LEAF", 24)
    monkeypatch.setattr(gpu, "_BITS", {True: 1 << 14, False: 1 << 14})


def codes_of(rng: np.random.Generator, n: int, n_bytes: int, values: int) -> np.ndarray:
    """Random codes; few values mean many ties."""
    return rng.integers(0, values, (n, n_bytes)).astype(np.uint8)


def assert_found(found: Any, expected: Any, dtypes: tuple[str, ...] = ("int32", "int64")) -> None:
    for one, other, dtype in zip(found, expected, dtypes, strict=True):
        assert str(one.dtype).endswith(dtype)
        assert_array_equal(np.asarray(one), other)


problems = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "n": st.integers(1, 700),
        "m": st.integers(0, 9),
        "n_bytes": st.sampled_from([1, 2, 3, 8, 16, 128]),
        "values": st.sampled_from([1, 2, 5, 256]),
        "k": st.sampled_from([0, 1, 2, 7, 50, 700]),
        "share": st.sampled_from([0.02, 0.5, 1.0]),
        "filtered": st.booleans(),
        "cells": st.sampled_from([1, 300, 5000, 1 << 20]),
    }
)
quick = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@quick
@given(problem=problems)
def test_top_k_equals_comparing_everything(to_library: Any, small_limits: None, problem: dict[str, Any]) -> None:
    rng = np.random.default_rng(problem["seed"])
    codes = codes_of(rng, problem["n"], problem["n_bytes"], problem["values"])
    queries = codes_of(rng, problem["m"], problem["n_bytes"], problem["values"])
    rows = np.flatnonzero(rng.random(len(codes)) < problem["share"]) if problem["filtered"] else None
    k = min(problem["k"], len(codes) if rows is None else len(rows))
    found = gpu.top_k(
        to_library(codes), to_library(queries), k, allowed=None if rows is None else to_library(rows),
        cells=problem["cells"],
    )  # fmt: skip
    assert_found(found, reference.search(CodeRows.numbered(codes), queries, k, rows, None))


@quick
@given(problem=problems, radius=st.integers(0, 1100))
def test_within_equals_comparing_everything(
    to_library: Any, small_limits: None, problem: dict[str, Any], radius: int
) -> None:
    rng = np.random.default_rng(problem["seed"])
    codes = codes_of(rng, problem["n"], problem["n_bytes"], problem["values"])
    queries = codes_of(rng, problem["m"], problem["n_bytes"], problem["values"])
    rows = np.flatnonzero(rng.random(len(codes)) < problem["share"]) if problem["filtered"] else None
    radius = radius % (8 * problem["n_bytes"] + 2)
    found = gpu.within(
        to_library(codes), to_library(queries), radius, allowed=None if rows is None else to_library(rows),
        cells=max(100, problem["cells"]),
    )  # fmt: skip
    assert_found(
        found,
        reference.range_search(CodeRows.numbered(codes), queries, radius, rows, None),
        ("int64", "int32", "int64"),
    )


@pytest.mark.parametrize(
    ("n_bits", "n", "k"), [(8, 9001, 500), (64, 20_000, 50), (128, 70_001, 1), (1024, 5000, 4999), (4096, 5000, 30)]
)
def test_real_widths_of_groups(optional: Any, n_bits: int, n: int, k: int) -> None:
    torch = optional("torch")
    rng = np.random.default_rng(n)
    codes, queries = codes_of(rng, n, n_bits // 8, 256), codes_of(rng, 5, n_bits // 8, 256)
    found = gpu.top_k(torch.asarray(codes), torch.asarray(queries), k)
    assert_found(found, reference.search(CodeRows.numbered(codes), queries, k, None, None))


@pytest.mark.parametrize("n_bits", [8, 128, 1024, 4096])
def test_half_precision_as_on_a_gpu_is_exact(optional: Any, monkeypatch: pytest.MonkeyPatch, n_bits: int) -> None:
    torch = optional("torch")
    monkeypatch.setattr(gpu, "is_accelerated", lambda _: True)
    rng = np.random.default_rng(n_bits)
    codes = codes_of(rng, 4999, n_bits // 8, 256)
    queries = np.concatenate([codes[:2], ~codes[2:4], codes_of(rng, 2, n_bits // 8, 256)])
    resident = gpu.Resident(torch.asarray(codes))
    assert resident.signs(0, 4999).dtype == (torch.float16 if n_bits <= 1024 else torch.float32)
    for k in (3, 4999):
        found = gpu.top_k(resident, torch.asarray(queries), k, method="product")
        assert_found(found, reference.search(CodeRows.numbered(codes), queries, k, None, None))
    ranges = gpu.within(resident, torch.asarray(queries), n_bits // 2)
    assert_found(
        ranges,
        reference.range_search(CodeRows.numbered(codes), queries, n_bits // 2, None, None),
        ("int64", "int32", "int64"),
    )


def test_equal_codes_are_in_order_of_position(to_library: Any, small_limits: None) -> None:
    codes = np.full((999, 4), 7, np.uint8)
    distances, positions = gpu.top_k(to_library(codes), to_library(codes[:2]), 60)
    assert not np.asarray(distances).any()
    assert_array_equal(np.asarray(positions), np.tile(np.arange(60), (2, 1)))


@pytest.mark.parametrize("k", [7, 30])
def test_ties_between_groups(to_library: Any, small_limits: None, k: int) -> None:
    """A later group with the nearest code, an earlier one with codes that tie: position decides, not the group."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        codes, queries = codes_of(rng, 600, 2, 256), codes_of(rng, 9, 2, 256)
        assert_found(
            gpu.top_k(to_library(codes), to_library(queries), k),
            reference.search(CodeRows.numbered(codes), queries, k, None, None),
        )


def test_opposite_codes_have_the_largest_distance(to_library: Any) -> None:
    for n_bits in (1024, 4096):
        codes = np.zeros((3, n_bits // 8), np.uint8)
        distances, _ = gpu.top_k(to_library(codes), to_library(~codes[:1]), 3)
        assert_array_equal(np.asarray(distances), [[n_bits] * 3])


class TestEngine:
    """ "torch" behind an index."""

    @pytest.fixture(autouse=True)
    def _torch(self, optional: Any) -> None:
        optional("torch")

    def test_codes_stay_until_the_index_changes(self) -> None:
        engine = make("torch:cpu")
        index = HammingIndex(64, engine=engine)
        index.add(np.random.default_rng(0).integers(0, 256, (500, 8), dtype=np.uint8))
        assert index.stats()["device_bytes"] == 0
        index.search(index.get([0]), 3)
        kept = engine._resident
        index.search(index.get([1]), 3, allowed=[1, 2, 3])
        index.range_search(index.get([1]), 30)
        assert engine._resident is kept
        assert index.stats()["device"] == "cpu"
        assert index.stats()["device_bytes"] >= 4000
        index.add(np.zeros((1, 8), np.uint8))
        assert index.search(np.zeros((1, 8), np.uint8), 1)[1].tolist() == [[500]]
        assert engine._resident is not kept

    def test_codes_go_when_the_index_goes(self) -> None:
        engine = make("torch")
        index = HammingIndex(16, engine=engine)
        index.add(np.zeros((9, 2), np.uint8))
        index.search(np.zeros((1, 2), np.uint8), 1)
        assert engine._resident is not None
        del index
        gc.collect()
        assert engine._resident is None

    @pytest.mark.parametrize("name", ["torch:nowhere", "torch:cuda:99"])
    def test_an_unknown_device_raises(self, name: str) -> None:
        with pytest.raises(ParameterError, match="a device that PyTorch has here"):
            HammingIndex(64, engine=name)


def test_torch_is_imported_only_by_its_engine() -> None:
    """Importing the library, or searching with another engine, loads no array library."""
    program = (
        "import sys, numpy as np; from fusehash.search import HammingIndex; import fusehash.search.engines.torch;"
        "i, c = HammingIndex(8, engine='numpy'), np.zeros((1, 1), np.uint8); i.add(c); i.search(c, 1);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'cupy', 'triton', 'array_api_compat')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_missing_torch_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    index = HammingIndex(8, engine="torch")
    index.add(np.zeros((1, 1), np.uint8))
    with pytest.raises(MissingPackageError, match=r'pip install "fusehash\[gpu\]"'):
        index.search(np.zeros((1, 1), np.uint8), 1)


def test_fused_without_torch_raises() -> None:
    codes = np.zeros((3, 2), np.uint8)
    with pytest.raises(ParameterError, match="the kernels take PyTorch tensors"):
        gpu.top_k(codes, codes, 1, method="fused")


FUSED = """
import numpy as np, torch
from fusehash.search.engines import make
from fusehash.search.engines.torch import cascade
from fusehash.search.projections import quantized
from fusehash.search.rows import CodeRows
rng = np.random.default_rng(0)
cascade._TILE = 64
for n_bits, n, m, k, values in ((128, 300, 3, 5, 256), (64, 1099, 2, 7, 256), (8, 701, 2, 30, 4), (24, 300, 2, 7, 2),
                                (264, 161, 2, 5, 256), (64, 2000, 1, 140, 256)):
    codes, queries = (rng.integers(0, values, (rows, n_bits // 8)).astype(np.uint8) for rows in (n, m))
    words, asked = (cascade.to_words(torch.tensor(each)) for each in (codes, queries))
    rows = CodeRows.numbered(codes)
    expected = make("numpy").search(rows, queries, k, None, None)
    real = quantized(rng.standard_normal((m, n_bits)) if values > 4 else rng.integers(-2, 3, (m, n_bits)) + 0.0)
    scored = make("numpy").weighted.search(rows, real, k, None, None)
    weights = np.zeros((m, 32 * words.shape[1]), np.int64)
    weights[:, :n_bits] = real.weights
    for width, size, tensor_cores in ((8192, 64, True), (300, 256, False), (600, 256, True)):
        cascade.WIDTH = width
        found = cascade.top_k(words, asked, k, 1 << 15, size=size, tensor_cores=tensor_cores)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), other)
        if tensor_cores:
            scores, positions, certain = cascade.weighted_top_k(words, torch.tensor(weights), k, 1 << 15, size=size)
            certain = certain.numpy()
            assert values == 4 or certain.all()
            np.testing.assert_array_equal((scores.numpy() * real.steps[:, None])[certain], scored[0][certain])
            np.testing.assert_array_equal(positions.numpy()[certain], scored[1][certain])
# Codes that all have the same score: nothing is certain, unless every group was looked at.
codes, weights = torch.zeros((2000, 2), dtype=torch.int32), torch.ones((1, 64), dtype=torch.int64) << 40
assert not cascade.weighted_top_k(codes, weights, 3, 1 << 15, size=32)[2].any()
"""


@pytest.mark.slow
def test_fused_kernels_interpreted() -> None:
    """Triton interprets its kernels on the processor; no GPU is needed."""
    if find_spec("triton") is None or find_spec("torch") is None:
        pytest.skip("Triton, which comes with PyTorch for CUDA alone, is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", FUSED], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("method", ["product", "fused"])
def test_on_a_gpu(optional: Any, method: str) -> None:
    torch = optional("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device on this machine")
    rng = np.random.default_rng(0)
    for n_bits, n, m, k, values in (
        (128, 100_003, 300, 50, 256), (64, 200_000, 3, 10, 256), (8, 50_001, 40, 300, 4), (1024, 20_000, 33, 9, 256),
        (4096, 9_000, 33, 9, 256),
    ):  # fmt: skip
        codes, queries = codes_of(rng, n, n_bits // 8, values), codes_of(rng, m, n_bits // 8, values)
        sent = torch.tensor(codes, device="cuda"), torch.tensor(queries, device="cuda")
        found = gpu.top_k(*sent, k, method=method)
        assert all(each.is_cuda for each in found)
        assert_found([each.cpu() for each in found], reference.search(CodeRows.numbered(codes), queries, k, None, None))
        index, exact = (HammingIndex(n_bits, engine=engine) for engine in ("torch:cuda", "numpy"))
        projections = rng.standard_normal((m, n_bits))
        for each in (index, exact):
            each.add(codes)
        assert_found(index.search(projections, k), exact.search(projections, k), ("float64", "int64"))
        ranges = [each.cpu() for each in gpu.within(*sent, n_bits // 3)]
        assert_found(
            ranges,
            reference.range_search(CodeRows.numbered(codes), queries, n_bits // 3, None, None),
            ("int64", "int32", "int64"),
        )
