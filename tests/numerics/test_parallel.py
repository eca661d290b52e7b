"""Row blocks on threads: order, errors, and results that do not depend on the number of threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fusehash.numerics.parallel import map_blocks, n_cores, one_blas_thread

THREADS = (1, 2, 3, 8)


def blas_threads() -> list[int]:
    """Of NumPy and SciPy. Others may come with packages, and those that use OpenMP have one number for each thread."""
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and pool["threading_layer"] != "openmp"]
    return [pool["num_threads"] for pool in blas]


@pytest.mark.parametrize("n_threads", THREADS)
def test_results_come_in_the_order_of_the_blocks(n_threads):
    def work(i: int) -> int:
        time.sleep(0.002 * (5 - i % 5))  # later blocks are often ready first
        return i * i

    assert list(map_blocks(work, range(25), n_threads)) == [i * i for i in range(25)]


@pytest.mark.parametrize("n_threads", THREADS)
def test_no_blocks_give_no_results(n_threads):
    assert list(map_blocks(str, [], n_threads)) == []


def test_sums_over_blocks_are_the_same_bits_on_any_number_of_threads():
    X = np.random.default_rng(0).standard_normal((1000, 40))

    def total(n_threads: int) -> np.ndarray:
        parts = map_blocks(lambda rows: X[rows].T @ X[rows], [slice(i, i + 64) for i in range(0, 1000, 64)], n_threads)
        return sum(parts, np.zeros((40, 40)))

    expected = total(1)
    for n_threads in THREADS[1:]:
        assert np.array_equal(total(n_threads), expected)


@pytest.mark.parametrize("n_threads", THREADS)
def test_an_error_in_a_block_reaches_the_caller_and_stops_the_rest(n_threads):
    begun = []

    def work(i: int) -> int:
        begun.append(i)
        if i == 3:
            raise RuntimeError("block 3 is bad")
        return i

    got = []
    with pytest.raises(RuntimeError, match="block 3 is bad"):
        got.extend(iter(map_blocks(work, range(1000), n_threads)))
    assert len(begun) < 100


@pytest.mark.parametrize("n_threads", THREADS)
def test_at_most_two_results_per_thread_are_waiting(n_threads):
    begun = []

    def work(i: int) -> int:
        begun.append(i)
        return i

    for done, _ in enumerate(map_blocks(work, range(100), n_threads)):
        assert len(begun) <= done + 1 + 2 * n_threads


def test_stopping_early_leaves_no_thread_and_no_limit_behind():
    before, blas = threading.active_count(), blas_threads()
    results = map_blocks(lambda i: i, range(1000), 2)
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before
    assert blas_threads() == blas


def test_blas_is_held_to_one_thread_inside_and_released_after():
    before = blas_threads()
    assert before, "no BLAS that threadpoolctl knows"
    seen = list(map_blocks(lambda _: blas_threads(), range(4), 2))
    assert all(n == 1 for threads in seen for n in threads)
    assert blas_threads() == before
    with one_blas_thread():
        assert set(blas_threads()) == {1}
    assert blas_threads() == before


def test_blas_is_released_when_the_last_of_several_threads_leaves():
    """Threads that enter and leave one after the other, so that none is inside of another."""
    barrier, inside = threading.Barrier(2), []

    def stay(*, is_first: bool) -> None:
        if not is_first:
            barrier.wait()
        with one_blas_thread():
            if is_first:
                barrier.wait()
            barrier.wait()
            if not is_first:
                barrier.wait()
                inside.extend(blas_threads())
        if is_first:
            barrier.wait()

    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        threads = [threading.Thread(target=stay, kwargs={"is_first": is_first}) for is_first in (True, False)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(inside) == {1}
        assert blas_threads() == before


def test_fits_on_several_threads_leave_blas_as_it_was():
    X = np.random.default_rng(0).standard_normal((60, 5))
    with threadpool_limits(3, user_api="blas"):
        before = blas_threads()
        with ThreadPoolExecutor(4) as pool:
            sums = [pool.submit(lambda: sum(map_blocks(lambda i: X[i:].T @ X[i:], range(20), 2))) for _ in range(40)]
        assert all(np.array_equal(total.result(), sums[0].result()) for total in sums)
        assert blas_threads() == before


def test_there_is_at_least_one_core():
    assert n_cores() >= 1
