"""After kill -9, what was acknowledged is there and what was interrupted left nothing; nothing leaks."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

from fusehash.search import HammingIndex
from hostile.scale import cases

HERE = Path(__file__).parent

posix = pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")


@posix
@pytest.mark.parametrize("extras", [False, True])
@pytest.mark.parametrize("rounds", [25, pytest.param(150, marks=pytest.mark.slow)])
def test_nothing_is_lost_or_mixed_by_kill_9(tmp_path: Path, rounds: int, extras: bool) -> None:
    rounds = rounds if rounds == 25 else cases(rounds, 1200)
    command = [sys.executable, str(HERE / "crash_rounds.py"), str(tmp_path), str(rounds), "4"]
    command += ["all"] if extras else []
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["rounds"] == rounds
    assert outcome["acknowledged"] > (rounds if rounds > 1000 else rounds // 2)  # the rounds did something
    assert rounds // 5 <= outcome["unopened"] < rounds  # every fifth was killed while opening, most of the others later
    assert not run.stderr


def test_two_writers_lose_no_update(tmp_path: Path) -> None:
    path = tmp_path / "codes.db"
    HammingIndex.open(path, 32, warm=False).close()
    command = [sys.executable, str(HERE / "writers.py"), str(path), "100"]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    reader = HammingIndex.open(path, warm=False)
    sizes = []
    while any(writer.poll() is None for writer in writers):
        sizes.append(len(reader))
    kept = [json.loads(writer.communicate()[0]) for writer in writers]
    assert all(writer.returncode == 0 for writer in writers)
    assert sorted(kept[0] + kept[1]) == reader.ids.tolist()
    assert len(set(sizes)) > 2  # the reader has seen it grow
    with HammingIndex.open(path, warm=False) as again:
        assert sorted(kept[0] + kept[1]) == again.ids.tolist()
        for ids, codes in again:
            np.testing.assert_array_equal(codes, reader.get(ids))
    reader.close()


def test_opening_and_closing_leaks_nothing(tmp_path: Path) -> None:
    process, path = psutil.Process(), tmp_path / "codes.db"
    codes = np.random.default_rng(0).integers(0, 256, (2000, 8), dtype=np.uint8)
    HammingIndex.open(path, 64, warm=False).add(codes)

    def cycles(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            with HammingIndex.open(path) as index:
                index.search(codes[:2], 5, threads=2)
        gc.collect()
        return process.num_fds(), process.num_threads(), process.memory_info().rss

    cycles(40)
    for thread in threading.enumerate():
        if thread.name == "fusehash-warm-up":  # compiles, for this or an earlier test, and so takes memory meanwhile
            thread.join()
    before = cycles(40)
    after = cycles(200)
    assert after[0] <= before[0]
    assert after[1] <= before[1]
    assert after[2] - before[2] < 4 << 20
    assert sorted(file.name for file in tmp_path.iterdir()) == ["codes.db"]
