"""The tests that LangChain, Haystack and LlamaIndex have for what plugs into them, each in a process of its own.

A process of its own, because langchain-tests brings half a dozen plugins of pytest, which other tests do without.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITES = Path(__file__).parent / "upstream"
SOURCE = Path(__file__).parents[2] / "src"
OPTIONS = ("addopts=", "asyncio_mode=auto", "asyncio_default_fixture_loop_scope=function", "filterwarnings=")
PACKAGES = {"langchain": "langchain_tests", "haystack": "haystack", "llama_index": "llama_index.core"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_the_suite_passes(name, optional, tmp_path):
    optional(PACKAGES[name])
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-p", "no:cacheprovider", "-rs"]
    command += [word for option in OPTIONS for word in ("-o", option)]
    command += ["--basetemp", str(tmp_path / "temporary"), str(SUITES / f"{name}_suite.py")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment |= {
        "PYTHONPATH": str(SOURCE),
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "TIKTOKEN_CACHE_DIR": str(tmp_path),
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
