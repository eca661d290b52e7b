"""Compiled functions keep their machine code on disk, notice changed sources, and work without a cache folder."""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import numba
import pytest
from numba.core.caching import NullCache

from fusehash.numerics.compiled import compiled
from hostile.scale import ATTACK


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


def test_what_is_compiled_is_logged_and_what_is_kept_is_not(tmp_path: Path):
    (tmp_path / "doubles.py").write_text(
        "import logging\nlogging.basicConfig(level=logging.INFO, format='%(message)s')\n"
        "from fusehash.numerics.compiled import compiled\n@compiled()\ndef double(x): return 2 * x\n"
        "assert double(2) == 4\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def told() -> str:
        command = [sys.executable, str(tmp_path / "doubles.py")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr

    assert "double is compiled" in told()
    assert told() == ""


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


# Every kernel of a fit, an evaluation and a search; what it prints is the result.
WORK = """
import numpy as np
import fusehash as fh
data = fh.datasets.make_paired(120, views={"image": 12, "text": 9}, n_classes=3, random_state=0)
model = fh.hashers.make("agsfh", n_bits=16, random_state=0, max_iter=2).fit(data.views.rows(data.train))
result = fh.evaluation.evaluate(model, data, protocols=["H"], refit=False)
index = fh.HammingIndex(16)
index.add(model.codes_)
print(result["H", "image->text"], index.search(model.codes_[:5], 3)[1].tolist())
"""
MARK = "print('EXECUTED')"


class Foreign:
    """A pickle that runs code when it is loaded."""

    def __reduce__(self) -> tuple[object, ...]:
        return exec, (MARK,)


DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "flipped": lambda content: content[: len(content) // 2] + bytes([content[len(content) // 2] ^ 4])
    + content[len(content) // 2 + 1 :],
    "flipped at the end": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "foreign": lambda content: pickle.dumps(Foreign()),
    "foreign after the version": lambda content: pickle.dumps(numba.__version__) + pickle.dumps(Foreign()),
    "another value": lambda content: pickle.dumps(7) + bytes(32),
}  # fmt: skip


def cached_run(folder: Path, program: str = WORK) -> tuple[str, str]:
    """Output and messages of a new process with a cache folder of its own."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout, run.stderr


@pytest.mark.slow
def test_a_damaged_cache_costs_time_only(tmp_path: Path):
    """In `make attack` each damage comes to every file; otherwise each file gets another one."""
    expected, _ = cached_run(tmp_path)
    files = sorted(tmp_path.rglob("*.nb?"))
    assert {file.suffix for file in files} == {".nbi", ".nbc"}
    kinds = list(DAMAGE.values())
    for kind in kinds if ATTACK else [None]:
        for i, file in enumerate(files):
            file.write_bytes((kind or kinds[i % len(kinds)])(file.read_bytes()))
        output, messages = cached_run(tmp_path)
        assert output == expected
        assert "is damaged" in messages
    assert cached_run(tmp_path) == (expected, "")


@pytest.mark.slow
def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path):
    source = tmp_path / "program.py"
    source.write_text(
        "from fusehash.numerics.compiled import compiled\n@compiled()\ndef twice(x): return 2 * x\nprint(twice(4))"
    )
    run = f"import runpy; runpy.run_path({str(source)!r})"
    assert cached_run(tmp_path / "cache", run) == ("8\n", "")
    files = sorted((tmp_path / "cache").rglob("*.nb?"))
    for file in files:  # a foreign content with a right digest
        content = DAMAGE["foreign" if file.suffix == ".nbc" else "foreign after the version"](b"")
        file.write_bytes(content + hashlib.sha256(content).digest())
    files[0].parent.chmod(0o777)
    assert cached_run(tmp_path / "cache", run) == ("8\n", "")
    files[0].parent.chmod(stat.S_IRWXU)
    assert "EXECUTED" in cached_run(tmp_path / "cache", run)[0]  # the content would have been run
