"""The house is as house.py draws it: one order of modules, one home per idea."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest

from house import ORDER, PAGE, imports_of, modules, page_with_tree, summary_of

MODULES = modules()


def test_every_module_is_in_the_order_once():
    assert sorted(ORDER) == sorted(MODULES)


@pytest.mark.parametrize("name", ORDER)
def test_a_module_imports_only_from_modules_above_it(name):
    above = set(ORDER[: ORDER.index(name)])
    assert {other for other in imports_of(MODULES[name], MODULES) if other not in above} == set()


def test_the_page_shows_the_tree():
    assert PAGE.read_text(encoding="utf-8") == page_with_tree(), "run python tests/house.py"


def test_every_module_says_what_it_is_for():
    assert [name for name, path in MODULES.items() if len(summary_of(path)) < 10] == []


def test_no_class_name_is_defined_twice():
    names = Counter(
        name
        for path in MODULES.values()
        for name in re.findall(r"^\s*class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_files_that_share_a_prefix_are_a_folder():
    groups = defaultdict(set)
    for path in MODULES.values():
        if path.stem != "__init__":
            groups[path.parent, path.stem.partition("_")[0]].add(path.stem)
    assert [sorted(stems) for (_, prefix), stems in groups.items() if len(stems) > 1] == []


@pytest.mark.parametrize(
    ("pattern", "homes"),
    [
        (r"packbits|unpackbits|bitorder", {"bits"}),
        (r"^\s*(import|from) safetensors", {"files.tensors"}),
        (r'mkstemp|NamedTemporaryFile|\.draft"', {"files.atomic"}),
        (r"^\s*(import|from) sqlite3", {"sqlite.kinds", "sqlite.connections", "sqlite.database", "sqlite.creation"}),
        (r"raise MissingPackageError", {"extras"}),
    ],
)
def test_an_idea_has_one_home(pattern, homes):
    found = {
        name for name, path in MODULES.items() if re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == homes
