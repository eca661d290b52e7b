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
DATA = Path(os.environ.get("FUSEHASH_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


def pytest_sessionfinish() -> None:
    """Servers that tests have started end here: processes of pytest-xdist end without looking back."""
    if "servers" in sys.modules:
        sys.modules["servers"].remove_all()


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
