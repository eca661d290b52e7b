"""Every kind of stored matrix gives the rows of the array it came from, to threads and other processes too."""

from __future__ import annotations

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusehash.streams import StoredMatrix, chunked, open_blocks, open_view
from fusehash.streams.stored import PieceReader, RowReader

from .conftest import KINDS, X, pieces

N = len(X)
bound = st.one_of(st.none(), st.integers(-N - 5, N + 5))
slices = st.builds(slice, bound, bound, st.one_of(st.none(), st.integers(1, 90), st.integers(-90, -1)))
numbers = st.lists(st.integers(-N, N - 1), max_size=40)


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_matrix(stored, kind):
    matrix = stored(kind)
    assert isinstance(matrix, StoredMatrix)
    assert (matrix.shape, matrix.dtype, matrix.ndim, len(matrix)) == (X.shape, X.dtype, 2, N)
    assert 1 <= matrix.chunk_rows <= N
    np.testing.assert_array_equal(matrix[:], X)
    np.testing.assert_array_equal(np.asarray(matrix), X)
    np.testing.assert_array_equal(np.vstack([block for _, block in matrix.blocks(64)]), X)
    assert matrix[5:9].dtype == X.dtype


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_are_those_of_the_array(stored, kind):
    matrix = stored(kind)

    @settings(max_examples=10, deadline=None)
    @given(rows=slices, index=numbers, seed=st.integers(0, 9))
    def same(rows, index, seed):
        np.testing.assert_array_equal(matrix[rows], X[rows])
        np.testing.assert_array_equal(matrix[index], X[np.array(index, int)])
        np.testing.assert_array_equal(matrix[np.sort(np.array(index, int))], X[np.sort(np.array(index, int))])
        mask = np.random.default_rng(seed).random(N) < 0.1
        np.testing.assert_array_equal(matrix[mask], X[mask])

    same()
    np.testing.assert_array_equal(matrix[-1], X[-1])
    cut = matrix[3:6]
    cut[:] = 0  # what was read is a copy
    np.testing.assert_array_equal(matrix[3:6], X[3:6])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [[N], [-N - 1], [0.5], [[1]], (1, 2), np.zeros(N - 1, bool)])
def test_rows_that_do_not_exist_are_refused(stored, kind, index):
    with pytest.raises(IndexError, match=r"\.$"):
        stored(kind)[index]


@pytest.mark.parametrize("kind", KINDS)
def test_a_selection_reads_nothing_until_it_is_cut(stored, kind):
    rows = np.random.default_rng(1).permutation(N)[:200]
    some = stored(kind).select(rows)
    assert some.shape == (200, 7)
    np.testing.assert_array_equal(some[10:90], X[rows][10:90])
    np.testing.assert_array_equal(some.select(slice(5, 50, 3))[[2, 1]], X[rows][5:50:3][[2, 1]])
    np.testing.assert_array_equal(some.select(rows < 9)[:], X[rows][rows < 9])


@pytest.mark.parametrize("kind", KINDS)
def test_several_threads_read_at_once(stored, kind):
    matrix = stored(kind)

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for start in range(0, N, 40):
            np.testing.assert_array_equal(matrix[start : start + 40], X[start : start + 40])
            rows = rng.integers(0, N, 5)
            np.testing.assert_array_equal(matrix[rows], X[rows])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(read, range(4)))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("zarr object",)])
def test_it_can_be_pickled_by_its_path(stored, kind):
    matrix = stored(kind)
    content = pickle.dumps(matrix)
    if not kind.startswith(("dask", "selected")):
        assert len(content) < 2000
    np.testing.assert_array_equal(pickle.loads(content)[100:200], X[100:200])


@pytest.mark.parametrize("kind", ["npy", "parquet lists", "zarr", "hdf5"])
def test_another_process_reads_the_same_file(stored, kind, tmp_path):
    (tmp_path / "m.pickle").write_bytes(pickle.dumps(stored(kind)))
    program = (
        "import pickle, sys; from pathlib import Path; "
        "print(float(pickle.loads(Path(sys.argv[1]).read_bytes())[[500, 3]].astype('f8').sum()))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "m.pickle")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert float(done.stdout) == float(X[[500, 3]].astype("f8").sum())


def test_what_is_no_stored_view_is_returned_as_it_is():
    for source in (X, [[1.0]], None, 3):
        assert open_view(source) is source


def test_a_chunk_is_computed_once_in_a_pass(optional):
    da = optional("dask.array")
    computed: list[int] = []

    def count(block):
        computed.append(len(block))
        return block

    matrix = open_view(da.from_array(X, chunks=(100, 7)).map_blocks(count, dtype=X.dtype, meta=X[:0]))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda start: matrix[start : start + 10], range(0, N, 10)))
    assert computed.count(100) == 5
    assert computed.count(37) == 1


@given(chunks=st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(any), most=st.integers(1, 20))
@settings(max_examples=50, deadline=None)
def test_small_chunks_are_joined_and_none_is_cut(chunks, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "PIECE_BYTES", 4 * most)
        edges = chunked.joined_edges(chunks, 4)
    sizes = np.diff(edges)
    assert (edges[0], edges[-1]) == (0, sum(chunks))
    assert (sizes > 0).all()
    assert set(edges.tolist()) <= {0, *np.cumsum(chunks).tolist()}
    assert all(size <= most or size in chunks for size in sizes)
    assert all(a + b > most for a, b in pairwise(sizes))


def test_an_error_while_a_chunk_is_made_reaches_everybody_and_is_not_kept():
    calls: list[int] = []

    def fail_once(start: int, stop: int) -> np.ndarray:
        calls.append(start)
        if len(calls) == 1:
            raise OSError("gone")
        return X[start:stop]

    reader = PieceReader([0, 100, N], fail_once, 2)
    with pytest.raises(OSError, match="gone"):
        reader.read(0, 9)
    for _ in range(2):
        np.testing.assert_array_equal(reader.read(50, 60), X[50:60])
    assert len(calls) == 2


def test_one_pass_over_a_stream_feeds_all_views():
    begun: list[int] = []

    def stream():
        begun.append(1)
        yield from pieces()

    views = open_blocks(stream)
    for start in range(0, N, 64):
        for name, whole in (("a", X), ("b", -X[:, :3])):
            np.testing.assert_array_equal(views[name][start : start + 64], whole[start : start + 64])
    np.testing.assert_array_equal(views["b"][[500, 3, 77]], -X[[500, 3, 77], :3])
    assert len(begun) == 1


def test_single_machine_streaming_imports_no_other_package(stored, tmp_path):
    np.save(tmp_path / "x.npy", X)
    program = (
        "import sys; from fusehash.streams import open_view; open_view(sys.argv[1])[3:5]; "
        "print(*sorted({name.partition('.')[0] for name in sys.modules} & {'dask', 'zarr', 'pyarrow', 'h5py'}))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "x.npy")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == ""


@given(rows=st.lists(st.integers(-1, 9), min_size=1, max_size=40), start=st.integers(0, 40), stop=st.integers(0, 40))
def test_rows_can_be_spread_over_others_with_gaps(rows, start, stop):
    matrix = np.arange(20, dtype=np.int16).reshape(10, 2)
    stored = StoredMatrix("it", matrix.shape, matrix.dtype, RowReader(lambda a, b: matrix[a:b].copy()))
    spread = stored.spread(np.array(rows))
    expected = np.array([matrix[row] if row >= 0 else [np.nan, np.nan] for row in rows], np.float32)
    np.testing.assert_array_equal(spread[start:stop], expected[start:stop])
    np.testing.assert_array_equal(spread[::-1], expected[::-1])
    np.testing.assert_array_equal(spread.present_rows(), np.array(rows) >= 0)
