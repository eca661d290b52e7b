"""`fusehash dedupe`: near-duplicates among the pictures of a folder, or among codes."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.locations import Location, locate
from fusehash.commands.terminal import print_json, print_table, progress, say
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.dedupe import PictureGroups, RemovalPlan

EXAMPLE = """Example: fusehash dedupe photos --html duplicates.html

Then: fusehash dedupe photos --move-to duplicates

Codes: fusehash dedupe codes.db --radius 4 --csv groups.csv"""
_SHOWN = 20  # groups in the terminal


def dedupe(
    source: Annotated[
        Location,
        typer.Argument(
            metavar="SOURCE", help="A folder of pictures, a .npy file of codes, or an index of codes.", parser=locate
        ),
    ],
    radius: Annotated[int, typer.Option(help="Bits in which two codes may differ.", min=0)] = 4,
    method: Annotated[str, typer.Option(help="Pictures: phash or dhash.")] = "phash",
    csv_path: Annotated[Path | None, typer.Option("--csv", help="Write all groups to a CSV file.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with the groups side by side.")] = None,
    move_to: Annotated[Path | None, typer.Option(help="Pictures: move the duplicates to this folder.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Pictures: delete the duplicates.")] = False,
    yes: Annotated[
        str | None, typer.Option(metavar="CODE", help="The code of the dry run, to really move or delete.")
    ] = None,
    as_json: inputs.Json = False,
) -> None:
    """Find near-duplicates. Nothing is moved or deleted without a dry run, whose code you pass as --yes."""
    for path in (csv_path, html):
        if path is not None:
            inputs.check_target(path)
    if delete and move_to is not None:
        raise typer.BadParameter("give --move-to or --delete, not both")
    if yes is not None and not delete and move_to is None:
        raise typer.BadParameter("confirms --move-to or --delete; give one of them.", param_hint="'--yes'")
    if not source.is_server and source.path.is_dir():
        _pictures(source.path, radius, method, csv_path, html, move_to, delete, yes, as_json)
        return
    if delete or move_to is not None:
        raise DataError("Only pictures can be moved or deleted. Remove codes with: fusehash index remove.")
    _codes(source, radius, csv_path, html, as_json)


def _pictures(
    folder: Path, radius: int, method: str, csv_path: Path | None, html: Path | None, move_to: Path | None,
    delete: bool, yes: str | None, as_json: bool,
) -> None:  # fmt: skip
    from fusehash.dedupe import RemovalPlan, carry_out, find, picture_page

    if (folder / "collection.json").exists():
        raise DataError(f"Duplicates are looked for in a folder of pictures. {folder} is a collection.")
    with progress("hashing") as report:
        found = find(folder, radius, method=method, progress=report)
        plan = RemovalPlan.of(found, move_to) if delete or move_to is not None else None
        rows = found.rows()
        if csv_path is not None:
            _write_csv(csv_path, list(rows[0]) if rows else ["group", "path"], (row.values() for row in rows))
        if html is not None:
            _write_text(html, picture_page(found, report))
    facts: dict[str, Any] = {
        "pictures": found.n_pictures, "groups": len(found.groups), "duplicates": len(found.duplicates),
        "plain": len(found.plain), "unreadable": len(found.unreadable),
    }  # fmt: skip
    if plan is not None and yes is not None:
        facts["moved" if plan.target else "deleted"] = carry_out(plan, yes)
    if as_json:
        code = {} if plan is None or yes is not None else {"code": plan.code}
        print_json({**facts, **code, "members": rows})
        return
    _show(found, facts)
    if plan is not None and yes is None:
        _show_plan(plan)


def _show(found: PictureGroups, facts: dict[str, Any]) -> None:
    rows = []
    for number, group in enumerate(found.groups[:_SHOWN], start=1):
        for member in group:
            picture, kind = member.picture, member.kind
            size = f"{picture.width} x {picture.height}"
            rows.append((number, kind, picture.path, member.distance, size, f"{picture.size:,}"))
    if rows:
        print_table(("group", "", "picture", "bits", "size", "bytes"), rows)
    if len(found.groups) > _SHOWN:
        say(f"and {len(found.groups) - _SHOWN:,} more groups; --csv or --html shows all.")
    for sentence in found.unreadable[:5]:
        say(f"not read: {sentence}")
    say(", ".join(f"{name} {value:,}" for name, value in facts.items()))


def _show_plan(plan: RemovalPlan) -> None:
    what = "would be deleted" if plan.target is None else f"would be moved to {plan.target}"
    for picture, kept in plan.steps:
        say(f"{picture.path}  (kept: {kept.path})")
    say(f"Dry run: {len(plan.steps):,} pictures, {plan.n_bytes:,} bytes, {what}. Nothing was changed.")
    if plan.steps:
        say(f"To do exactly this, run the same command with --yes {plan.code}")


def _codes(source: Location, radius: int, csv_path: Path | None, html: Path | None, as_json: bool) -> None:
    from fusehash.bits import check_codes
    from fusehash.dedupe import code_page
    from fusehash.search import HammingIndex

    if not source.exists():
        raise DataError(f"There is no folder of pictures, index or file of codes at {source}.")
    if not source.is_server and source.path.suffix == ".npy":
        codes = check_codes(inputs.load_npy(source.path), what=f"Codes in {source}")
        index = HammingIndex(codes.shape[1] * 8)
        index.add(codes)
    else:
        index = source.open()
    with index:
        groups = index.groups(radius)
    if csv_path is not None:
        rows = ((number, id) for number, ids in enumerate(groups, start=1) for id in ids.tolist())
        _write_csv(csv_path, ["group", "id"], rows)
    if html is not None:
        _write_text(html, code_page(str(source), radius, groups))
    if as_json:
        print_json({"groups": [ids.tolist() for ids in groups]})
        return
    listed = [
        (number, len(ids), ", ".join(map(str, ids[:10].tolist())) + (", ..." if len(ids) > 10 else ""))
        for number, ids in enumerate(groups[:_SHOWN], start=1)
    ]
    if listed:
        print_table(("group", "codes", "ids"), listed)
    say(f"{len(groups):,} groups, {sum(map(len, groups)):,} codes in them")


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    from io import TextIOWrapper

    from fusehash.files import replacing

    with replacing(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        writer.writerows([_harmless(cell) for cell in row] for row in rows)
        text.flush()
        text.detach()


def _harmless(cell: Any) -> Any:
    """A cell that a spreadsheet does not take for a formula."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


def _write_text(path: Path, text: str) -> None:
    from fusehash.files import write_atomically

    write_atomically(path, lambda file: file.write(text.encode("utf-8", "replace")))
