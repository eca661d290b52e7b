"""The fit on a Dask cluster of processes: the codes of the fit in memory, whatever happens to the workers."""

from __future__ import annotations

import logging
import os
import re
import signal
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash import AGSFH, FuseHash, hashers
from fusehash.datasets import make_paired
from fusehash.errors import DataError
from fusehash.streams import StoredMatrix, cluster, dask_arrays, passes_over
from fusehash.streams.cluster import ClusterPasses
from fusehash.streams.row_passes import RowPasses, cut
from fusehash.streams.stored import RowReader
from fusehash.views import PairedViews
from untuned import UNTUNED

N = 3_000
DATA = make_paired(N, n_classes=5, views={"image": 20, "text": 12}, random_state=0).views
ARRAYS = {name: np.ascontiguousarray(DATA.block(name, slice(None))).astype(np.float32) for name in DATA}
SMALL = {"n_bits": 16, "random_state": 0, "n_anchors": 60}
FIXED: dict[str, Any] = {**UNTUNED, "n_kernel_anchors": 80}
METHODS: dict[str, Callable[..., Any]] = {
    "tuned": lambda **more: FuseHash(**SMALL, **{**FIXED, "spectral_power": "auto"}, **more),
    "untuned": lambda **more: FuseHash(**SMALL, **FIXED, **more),
    "sampled": lambda **more: FuseHash(**SMALL, **FIXED, spectrum_rows=1_000, **more),
    "paper": lambda **more: AGSFH(**SMALL, max_iter=3, **more),
    "regression": lambda **more: hashers.make("regression", n_bits=16, random_state=0, **more),
}


@pytest.fixture(scope="module")
def client(optional):
    """Two workers in processes of their own, and many small partitions."""
    distributed = optional("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with (
        pytest.MonkeyPatch.context() as patch,
        distributed.LocalCluster(**options, silence_logs=logging.CRITICAL) as workers,
        distributed.Client(workers) as client,
    ):
        patch.setattr(cluster, "PARTITION_ROWS", 300)
        yield client


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    for name, matrix in ARRAYS.items():
        np.save(folder / f"{name}.npy", matrix)
    return {name: folder / f"{name}.npy" for name in ARRAYS}


@pytest.fixture(scope="module")
def expected():
    return cache(lambda method: METHODS[method]().fit(ARRAYS))


def kill(client: Any, n_workers: int = 1) -> None:
    for process in list(client.run(os.getpid).values())[:n_workers]:
        os.kill(process, signal.SIGKILL)


def agreement(a: np.ndarray, b: np.ndarray) -> float:
    return 1.0 - float(np.unpackbits(a ^ b).mean())


def stored_in(kind: str, paths: dict[str, Any], optional: Any, tmp_path: Any) -> dict[str, Any]:
    if kind == "npy":
        return paths
    if kind == "dask":
        da = optional("dask.array")
        return {name: da.from_array(matrix, chunks=(430, 7)) for name, matrix in ARRAYS.items()}
    zarr = optional("zarr")
    for name, matrix in ARRAYS.items():
        zarr.create_array(str(tmp_path / f"{name}.zarr"), data=matrix, chunks=(250, 20))
    mixed = optional("dask.array").from_array(ARRAYS["text"], chunks=(900, -1))
    return {"image": tmp_path / "image.zarr", "text": mixed}


FITS = [
    ("regression", "npy"),
    ("regression", "mixed"),
    *(
        pytest.param(method, kind, marks=pytest.mark.slow)
        for method, kind in (
            ("tuned", "npy"), ("untuned", "npy"), ("sampled", "npy"), ("paper", "npy"), ("sampled", "dask"),
            ("paper", "dask"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "kind"), FITS)
def test_the_codes_are_those_of_the_fit_in_memory(client, paths, optional, tmp_path, expected, method, kind):
    views = stored_in(kind, paths, optional, tmp_path)
    assert isinstance(passes_over(PairedViews(views)), ClusterPasses)
    model, known = METHODS[method]().fit(views), expected(method)
    assert agreement(model.codes_, known.codes_) >= 0.9999
    assert agreement(model.encode(ARRAYS["text"], view="text"), known.encode(ARRAYS["text"], view="text")) >= 0.9999
    assert model.view_names_ == ["image", "text"]


@pytest.mark.slow
def test_workers_know_which_rows_are_missing(client, tmp_path):
    holes = {name: matrix.copy() for name, matrix in ARRAYS.items()}
    holes["text"][5::4] = np.nan
    holes["image"][100:180] = np.nan
    holes["text"][100:180] = ARRAYS["text"][100:180]
    for name, matrix in holes.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    codes = [
        METHODS["sampled"](missing="allow").fit(views).codes_
        for views in (holes, {name: tmp_path / f"{name}.npy" for name in holes})
    ]
    assert agreement(*codes) >= 0.9999


@pytest.mark.slow
@pytest.mark.parametrize(("n_killed", "n_passes"), [(1, 0), (2, 1)])
def test_workers_that_die_cost_their_blocks_only(client, paths, expected, monkeypatch, n_killed, n_passes):
    """If one of two dies, the other does its tasks. If both die, the pass begins again. The codes are the same."""
    client.wait_for_workers(2)
    gathered, sent = [], []
    gather, broadcast = client.gather, ClusterPasses._broadcast

    def gather_after_a_death(futures):
        gathered.append(len(futures))
        if len(gathered) == 5:  # in the first iteration
            kill(client, n_killed)
        return gather(futures)

    def counted(self, things):
        sent.append(things)
        return broadcast(self, things)

    monkeypatch.setattr(client, "gather", gather_after_a_death)
    monkeypatch.setattr(ClusterPasses, "_broadcast", counted)
    codes = METHODS["paper"](tol=0.0).fit(paths).codes_
    assert agreement(codes, METHODS["paper"](tol=0.0).fit(ARRAYS).codes_) >= 0.9999
    assert len(gathered) >= 7 + n_passes
    # Means and Gram matrices, anchors of two views, the graph, three iterations.
    assert len(sent) - 7 in range(n_passes + 1)


@pytest.mark.slow
def test_what_is_sent_does_not_grow_with_the_rows(client, tmp_path, monkeypatch, optional):
    pickler = optional("cloudpickle")
    sizes: list[list[int]] = []
    broadcast = ClusterPasses._broadcast

    def measured(self, things):
        sizes[-1].append(len(pickler.dumps(things)))
        return broadcast(self, things)

    monkeypatch.setattr(ClusterPasses, "_broadcast", measured)
    for method in ("sampled", "paper", "regression"):
        for n_rows in (1_500, N):
            sizes.append([])
            for name, matrix in ARRAYS.items():
                np.save(tmp_path / f"{name}{n_rows}.npy", matrix[:n_rows])
            METHODS[method](callback=lambda *_: None).fit({name: tmp_path / f"{name}{n_rows}.npy" for name in ARRAYS})
        few, many = sizes[-2:]
        assert max(many) < 1.02 * max(few) + 200
        assert max(many) < 2**20


def test_an_error_of_a_worker_is_one_sentence(client, tmp_path, optional):
    broken = {name: matrix.copy() for name, matrix in ARRAYS.items()}
    broken["text"][2_345, 3] = np.nan
    for name, matrix in broken.items():
        np.save(tmp_path / f"{name}.npy", matrix)
    da = optional("dask.array")
    for views in (
        {name: tmp_path / f"{name}.npy" for name in broken},
        {name: da.from_array(matrix, chunks=(430, -1)) for name, matrix in broken.items()},
    ):
        model = METHODS["regression"]()
        with pytest.raises(DataError, match=r"^View 'text' must hold finite numbers\. Got NaN .* first in row 2345\.$"):
            model.fit(views)
        assert not hasattr(model, "codes_")
        assert dask_arrays.active_client().status == "running"  # the connection is as good as before
    METHODS["regression"]().fit(dict.fromkeys(("image", "again"), tmp_path / "image.npy"))


def test_a_file_that_is_gone_is_one_sentence(client, paths, tmp_path):
    moved = {name: tmp_path / path.name for name, path in paths.items()}
    for name, path in moved.items():
        path.write_bytes(paths[name].read_bytes())
    data = passes_over(PairedViews(moved))
    assert isinstance(data, ClusterPasses)
    moved["text"].unlink()
    with pytest.raises(DataError, match="there is no file"):
        data.take("text", np.arange(3))


def test_an_interruption_leaves_no_tasks_behind(client, paths, monkeypatch):
    def interrupted(futures):
        futures[0].result()  # in the middle of a pass
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client, "gather", interrupted)
        with pytest.raises(KeyboardInterrupt):
            METHODS["regression"]().fit(paths)
    done = threading.Event()
    for _ in range(600):
        left = client.run_on_scheduler(lambda dask_scheduler: [str(t) for t in dask_scheduler.tasks.values()])
        if not left:
            break
        done.wait(0.05)
    else:
        pytest.fail(f"tasks were left on the cluster: {left}")


def test_rows_come_in_the_order_asked_for(client, paths):
    data = passes_over(PairedViews(paths))
    rows = np.array([2_999, 5, 1_700, 5, 0])
    np.testing.assert_array_equal(data.take("image", rows), ARRAYS["image"][rows])
    sample = data.select(rows)
    assert type(sample) is RowPasses
    assert sample.is_local
    assert sample.views["image"].dtype == np.float32
    np.testing.assert_array_equal(sample.views["text"], ARRAYS["text"][rows])
    blocks = data.blocks(2048)
    for wanted in (blocks[::-1], [slice(100, 450), slice(10, 20)], []):
        found = list(data.each(lambda block: block.arrays["image"].sum(), wanted))
        np.testing.assert_allclose(found, [ARRAYS["image"][rows].astype(float).sum() for rows in wanted])


def test_what_the_workers_cannot_reach_stays_here(client, paths, tmp_path):
    here: dict[str, Any] = {
        "arrays": ARRAYS,
        "one array": {"image": paths["image"], "text": ARRAYS["text"]},
        "stream": [{name: matrix[:50] for name, matrix in ARRAYS.items()}],
        "once": iter([{name: matrix[:50] for name, matrix in ARRAYS.items()}]),
        "cut": PairedViews(paths)[10:200],
    }
    for what, views in here.items():
        assert type(passes_over(PairedViews(views))) is RowPasses, what


def test_a_fit_on_a_device_stays_here(client, paths, monkeypatch):
    monkeypatch.setattr("fusehash.streams.row_passes.to_device", lambda array, device: array)  # needs no PyTorch
    assert type(passes_over(PairedViews(paths), device="cpu")) is RowPasses


@given(
    n_rows=st.integers(1, 10**9),
    width=st.sampled_from([1, 128, 1_024, 3_000, 10**6]),
    size=st.sampled_from([256, 2048]),
)
@settings(max_examples=30, deadline=None)
def test_partitions_cover_the_rows_and_end_between_blocks(n_rows, width, size):
    never_read = StoredMatrix("A file", (n_rows, width), np.float32, RowReader(lambda *_: pytest.fail("read")))
    data = ClusterPasses(None, PairedViews({"a": never_read}))
    rows = data.rows_per_block(size)
    spans = [span for _, span in data.partitions(rows)]
    assert [span.start for span in spans] == [0, *(span.stop for span in spans[:-1])]
    assert spans[-1].stop == n_rows
    assert all(span.start % rows == 0 for span in spans)
    assert len(spans) <= cluster.MAX_PARTITIONS
    blocks = [block for span in spans[:2] for block in cut(span.start, span.stop, span.size)]
    assert [block.start for block in blocks] == list(range(0, spans[:2][-1].stop, rows))


def test_a_cluster_without_workers_is_one_sentence(optional, paths, monkeypatch):
    distributed = optional("distributed")
    monkeypatch.setattr(cluster, "WAIT_SECONDS", 0.2)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as workers,
        distributed.Client(workers, set_as_default=False) as client,
        pytest.raises(DataError, match=re.escape("must have at least one worker. None came within 0.2 seconds.")),
    ):
        ClusterPasses(client, PairedViews(paths)).take("text", np.arange(3))
