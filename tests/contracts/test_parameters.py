"""Every parameter of every method has a rule, which its default obeys, and stands in the documentation of its class."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest

from fusehash import hashers
from fusehash.errors import ParameterError

PARAMETERS = [(name, parameter) for name in hashers.names() for parameter in hashers.get(name)._get_param_names()]
CANDIDATES = [object(), None, True, -1, 0, 1.5, -0.5, 8.0, 12, 10**6, np.nan, np.inf, "much", "", [], [16], (0.0, -1.0)]
every_parameter = pytest.mark.parametrize(("method", "name"), PARAMETERS, ids=lambda word: word)


@every_parameter
def test_a_wrong_value_is_refused_with_what_was_expected(method, name):
    cls = hashers.get(method)
    rule = cls.parameter_rules()[name]
    wrong = [value for value in CANDIDATES if not rule.accepts(value)]
    assert wrong
    for value in wrong:
        sentence = f"The '{name}' parameter of {cls.__name__} must be {rule.expected}. Got {value!r} instead."
        with pytest.raises(ParameterError, match=f"^{re.escape(sentence)}$"):
            cls(**{name: value}).fit({})


@every_parameter
def test_the_default_obeys_the_rule(method, name):
    cls = hashers.get(method)
    assert cls.parameter_rules()[name].accepts(inspect.signature(cls).parameters[name].default)


def documented(cls: type) -> list[str]:
    """The names in the Parameters section of a class."""
    section = re.split(r"\n\n(?=[A-Z]\w+\n-+\n)", inspect.getdoc(cls).partition("Parameters\n----------\n")[2])[0]
    return [name for entry in re.findall(r"^(\w[\w, ]*) : \S", section, re.MULTILINE) for name in entry.split(", ")]


@pytest.mark.parametrize("method", hashers.names())
def test_every_parameter_is_documented_once_and_nothing_else_is(method):
    cls = hashers.get(method)
    assert sorted(documented(cls)) == sorted(cls._get_param_names())


@pytest.mark.parametrize("method", hashers.names())
def test_a_class_is_documented_with_example_and_reference(method):
    doc = inspect.getdoc(hashers.get(method))
    sections = re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE)
    assert "Parameters" in sections
    assert "Examples" in sections
    assert "References" in sections or hashers.info(method).basis == "this project"


@pytest.mark.parametrize("method", hashers.names())
def test_the_html_of_a_notebook_comes_without_warnings(method):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hashers.make(method)._repr_html_()


def test_classes_can_be_imported_and_listed_by_name():
    from fusehash.hashers import CMFH

    assert CMFH is hashers.get("cmfh")
    for entry in hashers.catalogue():
        assert entry.class_name in dir(hashers)
        assert getattr(hashers, entry.class_name) is entry.load()
    with pytest.raises(AttributeError, match=r"module 'fusehash\.hashers' has no attribute 'Nothing'"):
        hashers.Nothing  # noqa: B018
