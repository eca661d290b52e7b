"""Compiled functions keep their machine code on disk, notice changed sources, and work without a cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from numba.core.caching import NullCache

from fusehash.numerics.compiled import compiled


@pytest.mark.slow
def test_everything_works_without_a_cache_folder():
    program = textwrap.dedent("""
        import numba.core.caching as caching
        for kind in (caching.CompileResultCacheImpl, caching.CacheImpl):
            kind._locator_classes = []
        import numpy as np
        import fusehash as fh
        index = fh.HammingIndex(8)
        index.add(np.array([[7], [1]], np.uint8))
        print(index.search(np.array([[3]], np.uint8), 1)[0].tolist())
    """)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[[1]]"]


def test_machine_code_is_kept_where_it_can_be():
    @compiled()
    def double(x: float) -> float:
        return 2.0 * x

    @compiled(keep=False)
    def triple(x: float) -> float:
        return 3.0 * x

    assert (double(1.5), triple(1.5)) == (3.0, 4.5)
    assert not isinstance(double._cache, NullCache)
    assert isinstance(triple._cache, NullCache)


@pytest.mark.slow
def test_machine_code_is_compiled_again_when_an_imported_file_changes(tmp_path: Path):
    """numba itself looks only at the file of the function."""
    package = tmp_path / "fusehash_copy"
    package.mkdir()
    (package / "part.py").write_text("import numba\n@numba.njit\ndef part(x): return x + 1\n")
    (package / "whole.py").write_text(
        "from part import part\nfrom fusehash.numerics.compiled import compiled\n"
        "part.__module__ = 'fusehash.part'\nimport sys\nsys.modules['fusehash.part'] = sys.modules['part']\n"
        "@compiled()\ndef whole(x): return part(x)\n"
        "print(whole(1), sum(whole.stats.cache_hits.values()))\n"
    )

    def run() -> list[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(package / "whole.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    assert run() == ["2", "0"]
    assert run() == ["2", "1"]
    (package / "part.py").write_text("import numba\n@numba.njit\ndef part(x): return x + 2\n")
    assert run() == ["3", "0"]
