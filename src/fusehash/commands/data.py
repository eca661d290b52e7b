"""`fusehash data`: what a file of a public benchmark is, and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import FusehashGroup, print_json, say

data_app = typer.Typer(
    cls=FusehashGroup,
    no_args_is_help=True,
    help="Look at files of public benchmarks.",
    epilog="Example: fusehash data verify ~/data/wiki.mat",
)


@data_app.callback()
def _group() -> None:
    """Make `verify` a command of its own."""


@data_app.command(epilog="Example: fusehash data verify ~/data/wiki.mat --json")
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .npz or .mat file.")], as_json: inputs.Json = False
) -> None:
    """Say which variant of a benchmark FILE is, and what is wrong with it; exit code 1 if anything is."""
    from fusehash.datasets.verification import verify as look_at

    found = look_at(file)
    if as_json:
        print_json({**asdict(found), "good": found.good})
    else:
        views = " + ".join(f"{name} ({width:,})" for name, width in found.widths.items())
        unit = "pairs" if len(found.widths) > 1 else "rows"
        shapes = f"{found.rows:,} {unit}, {views}, {found.labels or 'no'} classes"
        say(f"{found.file}: {shapes}. SHA-256 {found.sha256}")
        if found.variant is not None:
            variant = found.variant
            say(f"{'This is' if found.exact else 'Closest to'}: {variant.title}.", f"Split of papers: {variant.split}.")
            say(f"Original: {variant.origin}.")
        say(*(f"{'ok   ' if remark.good else 'wrong'} {remark.sentence}" for remark in found.remarks))
    if not found.good:
        raise typer.Exit(1)
