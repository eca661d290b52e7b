"""What a call has acknowledged survives kill -9; an interrupted call leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostile.scale import cases

HERE = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="fork and SIGKILL")
def test_nothing_is_lost_or_mixed_by_kill_9(tmp_path: Path) -> None:
    rounds = cases(20, 300)
    command = [sys.executable, "-W", "ignore", str(HERE / "crash_rounds.py"), str(tmp_path), str(rounds), "4"]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert run.returncode == 0, run.stderr
    outcome = json.loads(run.stdout)
    assert outcome["rounds"] == rounds
    assert outcome["acknowledged"] > rounds // 4  # the rounds did something
    assert not run.stderr
