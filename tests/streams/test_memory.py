"""A pass over a file of 400 MB needs little memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fusehash.streams.writers import npy_header

ROWS, COLUMNS = 400_000, 256
MEGABYTES = 100
START = """
import resource, sys
import numpy as np
from fusehash.streams import NpyWriter, open_view
from fusehash.numerics.parallel import map_blocks

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform != "darwin" else 1024)

matrix = open_view(sys.argv[1])
matrix[:64].sum()
next(iter(map_blocks(lambda rows: 0, [0], 2)))
before = peak()
"""
PROGRAMS = {
    "blocks": "for rows, block in matrix.blocks(2048): block.sum()",
    "threads": """
starts = range(0, len(matrix), 2048)
sum(map_blocks(lambda start: matrix[start : start + 2048].sum(), starts, 4))
""",
    "some rows": """
rows = np.arange(0, len(matrix), 7)
for start in range(0, len(rows), 2048): matrix[rows[start : start + 2048]].sum()
""",
    "copy": """
with NpyWriter(sys.argv[1] + ".npy", *matrix.shape, matrix.dtype) as out:
    for rows, block in matrix.blocks(2048): out.write(block)
""",
}


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A sparse file of 400 MB of zeros."""
    path = tmp_path_factory.mktemp("large") / "x.npy"
    header = npy_header((ROWS, COLUMNS), np.dtype(np.float32))
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + ROWS * COLUMNS * 4)
    yield path
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.skipif(sys.platform == "win32", reason="the peak is asked for with resource")
@pytest.mark.parametrize("what", PROGRAMS)
def test_a_pass_needs_little_memory(large, what):
    program = f"{START}{PROGRAMS[what]}\nprint(peak() - before)"
    command = [sys.executable, "-c", program, str(large)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < MEGABYTES * 1024
