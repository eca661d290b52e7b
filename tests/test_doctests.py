"""The examples in docstrings run, and every public class has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import warnings

import pytest

import fusehash
from house import modules

WITH_EXAMPLES = [name for name, path in modules().items() if ">>> " in path.read_text(encoding="utf-8")]
METHODS = [fusehash.hashers.get(name) for name in fusehash.hashers.names()]
PUBLIC = [*METHODS, fusehash.Collection, fusehash.HammingIndex, fusehash.PairedViews]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name, tmp_path, monkeypatch, optional):
    if name.startswith("hashers.deep."):
        optional("torch")
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("fusehash" if name == "fusehash" else f"fusehash.{name}")
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("cls", PUBLIC, ids=lambda cls: cls.__name__)
def test_a_public_class_is_documented(cls):
    text = inspect.getdoc(cls) or ""
    for section in ("Parameters", "Examples"):
        assert f"\n{section}\n{'-' * len(section)}\n" in text, section
    documented = text.partition("\nParameters\n")[2].partition("\n\n")[0]
    for name in inspect.signature(cls).parameters:
        assert name in documented, name


@pytest.mark.parametrize("cls", METHODS, ids=lambda cls: cls.__name__)
def test_a_method_names_its_source_and_draws_itself_without_warnings(cls):
    assert "\nReferences\n----------\n" in (inspect.getdoc(cls) or "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cls.__name__ in cls()._repr_html_()
    assert len(repr(cls())) < 80
