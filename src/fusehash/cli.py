"""The command line: `fusehash demo | fit | encode | evaluate | inspect | quantize | index | search | ...`, all thin."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from typing import Annotated

import typer

from fusehash.commands import (
    bench,
    data,
    dedupe,
    demo,
    encoders,
    evaluate,
    index,
    inspect,
    models,
    quantize,
    search,
    serve,
)
from fusehash.commands.terminal import FusehashGroup, complain

app = typer.Typer(
    name="fusehash",
    cls=FusehashGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Example: fusehash demo",
)


def _version(requested: bool) -> None:
    if requested:
        from fusehash.version import __version__

        typer.echo(f"fusehash {__version__}")
        raise typer.Exit


@app.callback()
def fusehash(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Short binary codes from paired data, to search across modalities by Hamming distance."""


app.command(epilog=demo.EXAMPLE)(demo.demo)
app.command(epilog=models.FIT_EXAMPLE)(models.fit)
app.command(epilog=models.ENCODE_EXAMPLE)(models.encode)
app.command(epilog=evaluate.EXAMPLE)(evaluate.evaluate)
app.command(epilog=inspect.EXAMPLE)(inspect.inspect)
app.command(epilog=quantize.EXAMPLE)(quantize.quantize)
app.add_typer(index.index_app, name="index")
app.command(epilog=search.EXAMPLE)(search.search)
app.command(epilog=dedupe.EXAMPLE)(dedupe.dedupe)
app.command(epilog=encoders.EXAMPLE)(encoders.encoders)
app.command(epilog=serve.EXAMPLE)(serve.serve)
app.add_typer(bench.bench_app, name="bench")
app.add_typer(data.data_app, name="data")


def main() -> None:
    """Entry point of the `fusehash` script."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that knows only ASCII gets question marks, not a traceback
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except KeyboardInterrupt:  # outside a command, while modules are imported
        complain("interrupted; no file is left half-written.")
        sys.exit(130)


if __name__ == "__main__":
    main()
