"""Errors in the words of the command line: options for parameters, and no words of Python or of other packages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import typer

from fusehash.errors import ParameterError

# Parameters whose option has another name.
OPTIONS = {"n_bits": "bits", "random_state": "seed", "vectors": "vector_kind"}

# What typer passes on from pydantic, which checks the values of options.
PLAIN = {
    r"Input should be a valid integer.*": "must be a whole number",
    r"Input should be a valid number.*": "must be a number",
    r"Input should be greater than or equal to (\S+)": r"must be at least \1",
    r"Input should be less than or equal to (\S+)": r"must be at most \1",
}


def option_of(name: str) -> str:
    """The option that sets a parameter."""
    return f"--{OPTIONS.get(name, name).replace('_', '-')}"


def of_parameter(error: ParameterError, options: Mapping[str, str]) -> str:
    """The sentence of an error, about the option that sets the parameter; `options` are those of the command."""
    option = options.get(OPTIONS.get(error.name, error.name))
    if option is None:
        return str(error)
    got = "none" if error.got is None else repr(error.got)
    return f"{option} must be {error.expected.removeprefix('None or ')}. Got {got} instead."


def of_value(error: typer.BadParameter) -> str:
    """What is wrong with the value of an option, and the value."""
    for pattern, plain in PLAIN.items():
        match = re.fullmatch(pattern, error.message)
        if match:
            return f"{match.expand(plain)}.{_got(error.__cause__)}"
    return error.message


def _got(cause: Any) -> str:
    """The value that pydantic did not accept."""
    errors = getattr(cause, "errors", None)
    return f" Got {errors()[0]['input']!r} instead." if errors else ""


def options_of(command: Any) -> dict[str, str]:
    """The parameters of a command, and the options that set them."""
    named = ((param.name, max(param.opts, key=len)) for param in getattr(command, "params", ()))
    return {name: option for name, option in named if option.startswith("-")}
