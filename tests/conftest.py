"""What every test may need: the real data (skipped with a reason where absent) and optional packages."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

REQUIRE_ALL = os.environ.get("FUSEHASH_REQUIRE") == "all"
# gRPC of the Milvus tests would start threads in every forked child, which then write to its stderr.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# .ci/run names a file here: tests that passed in its first run, without PyTorch, are not run again in the second.
PASSED = Path(os.environ["FUSEHASH_PASSED"]) if os.environ.get("FUSEHASH_PASSED") else None
DATA = Path(os.environ.get("FUSEHASH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that passed earlier."""
    if PASSED is not None and PASSED.exists():
        passed = set(PASSED.read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]


_outcomes: dict[str, set[str]] = {}  # test -> outcomes of its set-up, call and tear-down


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note how a test went."""
    if PASSED is not None:
        _outcomes.setdefault(report.nodeid, set()).add(report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Servers that tests have started end here: processes of pytest-xdist end without looking back."""
    if "servers" in sys.modules:
        sys.modules["servers"].remove_all()
    if PASSED is not None and not hasattr(session.config, "workerinput"):  # once, not in every process of pytest-xdist
        PASSED.parent.mkdir(parents=True, exist_ok=True)
        with PASSED.open("a", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test, outcomes in sorted(_outcomes.items()) if outcomes == {"passed"})


@pytest.fixture(scope="session")
def data_file() -> Callable[[str], Path]:
    """`data_file("wiki.npz")`: the path of a real data file, or a skip that says what is missing."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            if REQUIRE_ALL:
                pytest.fail(f"{name} is required (FUSEHASH_REQUIRE=all) and was not found")
            pytest.skip(f"real data file {name} is not on this machine; set FUSEHASH_DATA to its folder")
        return path

    return find


@pytest.fixture(scope="session")
def optional() -> Callable[[str], ModuleType]:
    """`optional("h5py")`: an optional package, or a skip (a failure where FUSEHASH_REQUIRE=all)."""

    def load(name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ImportError:
            if REQUIRE_ALL:
                pytest.fail(f"{name} is required (FUSEHASH_REQUIRE=all) and is not installed")
            pytest.skip(f"{name} is not installed")

    return load


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What tests make fusehash remember about its user stays in a folder of theirs."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("settings"))
