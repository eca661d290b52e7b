"""After a loss of power at any moment, every file opens and holds what was acknowledged; nothing is half done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hostile.scale import cases, report

HERE = Path(__file__).parent
STATES = {
    "index": (100, 20_000),
    "vectors": (100, 20_000),
    "collection": (120, 10_000),
    "model": (60, 2_000),
    "encoder": (60, 2_000),
    "results": (90, 4_000),
}
Lose = Callable[..., dict[str, Any]]


@pytest.fixture
def lose_power(tmp_path: Path) -> Lose:
    """`lose_power("index", 100)`: what losses.py reports; a skip where no system calls can be recorded."""

    def run(program: str, states: int, fault: str = "") -> dict[str, Any]:
        command = [sys.executable, "-W", "ignore", str(HERE / "losses.py"), str(tmp_path), program, str(states), "4"]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        work = subprocess.run([*command, fault], capture_output=True, text=True, check=False, env=one_thread)
        assert work.returncode == 0, work.stderr
        outcome: dict[str, Any] = json.loads(work.stdout)
        if reason := outcome.get("obstacle"):  # of the machine: nothing that could be installed
            pytest.skip(reason)
        return outcome

    return run


@pytest.mark.slow
@pytest.mark.parametrize("program", STATES)
def test_what_was_acknowledged_survives_a_loss_of_power(program: str, lose_power: Lose) -> None:
    states = cases(*STATES[program])
    outcome = lose_power(program, states)
    report("power", program, outcome)
    assert outcome["failed"] == 0, "\n".join(outcome["failures"])
    assert outcome["states"] == states
    assert outcome["calls"] > 2 * outcome["steps"] > 0


def test_a_saved_model_survives_a_loss_of_power(lose_power: Lose) -> None:
    outcome = lose_power("model", 30)
    assert outcome["failed"] == 0, "\n".join(outcome["failures"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ("index", "no sync in SQLite"),
        ("model", "no sync of folders"),
        ("encoder", "no sync of files"),
        ("vectors", "no sync of files"),
        ("vectors", "no sync of folders"),
    ],
)
def test_a_missing_sync_is_noticed(program: str, fault: str, lose_power: Lose) -> None:
    assert lose_power(program, 60, fault)["failed"] > 0
