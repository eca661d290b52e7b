"""What this process can still take, and work that needs more."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from fusehash import hashers
from fusehash.errors import DataError
from fusehash.numerics import memory


def test_little_is_taken_without_a_look(monkeypatch):
    monkeypatch.setattr(memory, "available_memory", lambda: 0)
    memory.check_memory("X", "rows", memory.UNCHECKED_BYTES)
    with pytest.raises(DataError, match=r"^X must fit into the 0\.0 GiB of memory that are available\. Got rows,"):
        memory.check_memory("X", "rows", memory.UNCHECKED_BYTES + 1)


def test_a_container_limits_the_memory(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(memory, "CGROUPS", (tmp_path / "max", tmp_path / "absent"))
    (tmp_path / "max").write_text("max\n")
    assert memory.available_memory() > 2**20
    (tmp_path / "max").write_text("1048576\n")
    assert memory.available_memory() == 2**20


WIDE = """
    import resource, sys, warnings
    import numpy as np, scipy.sparse as sp
    from fusehash import hashers
    from fusehash.errors import DataError
    warnings.simplefilter("ignore", UserWarning)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    closed = [entry.name for entry in hashers.catalogue() if not entry.is_deep]
    for n, names in ((200, closed), (20, ["fusehash", "fdch"])):
        views = {"image": np.random.default_rng(0).standard_normal((n, 20)),
                 "text": sp.random(n, 10**6, density=1e-5, format="csr", random_state=0)}
        for name in names:
            model = hashers.make(name, n_bits=8, random_state=0)
            try:
                model.fit(views, np.arange(n) % 4)
                print(n, name, "fitted", model.encode(views["text"][:3], view="text").shape)
            except DataError as error:
                print(n, name, error)
"""


@pytest.mark.slow
def test_a_million_sparse_columns_are_learned_or_refused_with_the_memory_they_need():
    """Under a limit of 4 GiB; the methods that form no matrix (features, features) learn from fewer rows."""
    command = [sys.executable, "-c", textwrap.dedent(WIDE)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == sum(not entry.is_deep for entry in hashers.catalogue()) + 2
    assert all("fitted (3, 1)" in line for line in lines[-2:])
    for line in lines[:-2]:
        assert "fitted (3, 1)" in line or "GiB. Reduce the features first" in line, line
