"""Compiled functions where numba finds no folder to keep them in: a service without a home, a read-only container."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from fusehash.numerics.compiled import compiled, keep_on_disk


def test_everything_works_without_a_cache_folder():
    program = textwrap.dedent("""
        import numba.core.caching as caching
        for kind in (caching.CompileResultCacheImpl, caching.CacheImpl):
            kind._locator_classes = []
        import numpy as np
        import fusehash as fh
        from fusehash.hashers import lssh
        from fusehash.simplex import project_rows
        print(project_rows(np.array([[0.5, 0.0]])).tolist())
        index = fh.HammingIndex(8)
        index.add(np.array([[7], [1]], np.uint8))
        print(index.search(np.array([[3]], np.uint8), 1)[0].tolist())
        print(fh.evaluation.mean_average_precision(np.array([[1]], np.uint8), np.array([[1], [2]], np.uint8),
                                                   ([1], [1, 0])))
    """)
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[[0.75, 0.25]]", "[[1]]", "1.0"]


def test_machine_code_is_kept_where_it_can_be():
    @compiled()
    def double(x: float) -> float:
        return 2.0 * x

    assert double(1.5) == 3.0
    assert keep_on_disk(double)
