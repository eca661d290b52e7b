"""`import fusehash` is cheap, and the public names are what they claim to be."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType

import pytest

import fusehash

HEAVY = {
    "faiss", "h5py", "joblib", "llvmlite", "matplotlib", "numba", "numpy", "pandas", "rich", "safetensors", "scipy",
    "sklearn", "threadpoolctl", "torch", "typer",
}  # fmt: skip


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after some code."""
    ask = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_nothing_heavy():
    loaded = {name.partition(".")[0] for name in modules_after("import fusehash")}
    assert "fusehash" in loaded
    assert not loaded & HEAVY


def test_import_loads_no_room_of_the_package():
    assert {name for name in modules_after("import fusehash") if name.startswith("fusehash")} == {
        "fusehash",
        "fusehash.version",
    }


def test_listing_methods_loads_none_of_them():
    loaded = modules_after("import fusehash; assert 'agsfh' in fusehash.hashers.names()")
    assert "fusehash.hashers" in loaded
    assert not {name.partition(".")[0] for name in loaded} & HEAVY


def test_optional_packages_stay_out_of_a_fit():
    code = (
        "import fusehash as fh\n"
        "views = fh.datasets.make_paired(60, random_state=0).views\n"
        "fh.hashers.make('random', n_bits=8, random_state=0).fit(views)\n"
    )
    loaded = {name.partition(".")[0] for name in modules_after(code)}
    # pandas is not ours: scikit-learn looks for it where it is installed.
    assert not loaded & {"faiss", "h5py", "matplotlib", "torch", "typer", "rich", "dask", "zarr", "pymilvus", "psycopg"}


@pytest.mark.parametrize("name", fusehash.__all__)
def test_every_public_name_resolves(name):
    value = getattr(fusehash, name)
    if isinstance(value, ModuleType):
        assert value.__name__ == f"fusehash.{name}"
    elif name != "__version__":
        assert callable(value)
        assert value.__doc__


def test_dir_lists_exactly_the_public_names():
    assert dir(fusehash) == sorted(fusehash.__all__)
    assert len(set(fusehash.__all__)) == len(fusehash.__all__)


@pytest.mark.parametrize(
    "name",
    ["AGSFH", "FuseHash", "HammingIndex", "RegressionHasher", "load", "bits", "hashers", "evaluation", "datasets"],
)
def test_the_promised_names_are_public(name):
    assert name in fusehash.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fusehash' has no attribute 'nothing'"):
        fusehash.nothing  # noqa: B018


def test_star_import_gives_the_public_names():
    scope: dict[str, object] = {}
    exec("from fusehash import *", scope)
    assert set(fusehash.__all__) <= set(scope)


def test_every_module_with_a_list_of_names_can_keep_it():
    for module in (fusehash.hashers, fusehash.evaluation, fusehash.datasets, fusehash.search):
        for name in module.__all__:
            assert getattr(module, name) is not None
