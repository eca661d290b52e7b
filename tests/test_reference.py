"""Every public name is on a page of the API reference, and every entry of the reference is there and explained."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fusehash as fh
from fusehash.encoders import ENCODERS
from fusehash.hashers.catalogue import METHODS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fusehash"
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
NOT_DOCUMENTED = {"__version__"}
INSIDE = ("views",)  # only PairedViews is for users, who have it as fh.PairedViews; the rest is shared by modules
ROOMS = [fh, *(v for name in fh.__all__ if isinstance(v := getattr(fh, name), ModuleType) and name not in INSIDE)]
ROOMS += [import_module(f"fusehash.{name}") for name in ("dedupe", "search.exchange", "testing")]


def load_reference():
    """tools/site/reference.py, as the site loads it."""
    spec = importlib.util.spec_from_file_location("site_reference", ROOT / "tools" / "site" / "reference.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = load_reference()
PAGES = REFERENCE.names_by_page()
NAMES = {name for names in PAGES.values() for name in names}


def resolved(name):
    room, _, last = name.rpartition(".")
    return getattr(import_module(room), last)


DOCUMENTED = [resolved(name) for name in NAMES if not name.startswith("fusehash.integrations.")]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_every_public_name_is_on_a_page(room):
    names = set(getattr(room, "__all__", ())) - NOT_DOCUMENTED
    values = {name: getattr(room, name) for name in names}
    missing = [
        name
        for name, value in values.items()
        if not isinstance(value, ModuleType) and not any(value is entry for entry in DOCUMENTED)
    ]
    assert missing == []


def test_classes_of_methods_and_encoders_are_on_pages():
    classes = [info.load() for info in METHODS.values()]
    assert len(classes) > 30
    assert [cls for cls in classes if cls not in DOCUMENTED] == []
    for module, name in ENCODERS.values():
        assert f"fusehash.encoders.{module}.{name}" in NAMES


def test_adapters_are_on_a_page():
    """Every public class and function of the integrations that is for users."""
    for file in (SOURCE / "integrations").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        if file.stem in ("rows", "documents", "vector_codes", "__init__"):  # what adapters share
            continue
        module = f"fusehash.integrations.{file.stem}"
        classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
        for name in classes:
            assert f"{module}.{name}" in NAMES or module in NAMES, name
        shown = re.findall(rf"from {re.escape(module)} import ([\w, ]+)", PAGE)
        for name in (name.strip() for names in shown for name in names.split(",")):
            assert f"{module}.{name}" in NAMES or module in NAMES, name


def test_every_entry_is_explained():
    for entry in DOCUMENTED:
        if inspect.isclass(entry) or inspect.isfunction(entry):
            assert entry.__doc__, entry


def test_a_name_is_on_one_page():
    listed = [name for names in PAGES.values() for name in names]
    assert len(listed) == len(set(listed))
    text = REFERENCE.index(PAGES)
    assert all(f"][{name}]" in text for name in listed)
