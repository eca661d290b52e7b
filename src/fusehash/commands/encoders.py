"""`fusehash encoders`: what can turn pictures and texts into features here, and what could be installed."""

from __future__ import annotations

from typing import Annotated

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, print_table, say

EXAMPLE = """Example: fusehash encoders

then: fusehash index photos --out my.collection --image-encoder efficientnet-lite0 --text-encoder minilm"""


def encoders(
    speed: Annotated[bool, typer.Option(help="Measure what is installed on this machine.")] = True,
    as_json: inputs.Json = False,
) -> None:
    """List the encoders: what is installed, what could be, size, license, dimensions, and speed on one core here."""
    from fusehash import encoders as package
    from fusehash.encoders.offers import OFFERS, measure

    rows = []
    for offer in OFFERS:
        rate = measure(offer) if speed else None
        install = f'pip install "fusehash[{offer.extra}]"' if offer.extra else "-"
        rows.append(
            {
                "name": offer.name,
                "for": f"{offer.modality}s",
                "default": offer.name == package.default(offer.modality),
                "installed": offer.is_installed,
                "install": install,
                "what": offer.what,
                "size": offer.size,
                "license": offer.license,
                "dimensions": offer.dimensions,
                "items_per_second": None if rate is None else round(rate, 1),
            }
        )
    if as_json:
        print_json(rows)
        return
    print_table(
        ("name", "for", "installed", "what it tells apart", "download", "license", "numbers", "per second here"),
        (
            (
                f"{row['name']} (default)" if row["default"] else row["name"],
                row["for"],
                "yes" if row["installed"] else row["install"],
                *(row[column] for column in ("what", "size", "license", "dimensions")),
                row["items_per_second"] or "-",
            )
            for row in rows
        ),
    )
    if package.advice():
        say(package.advice())
