"""`fusehash bench`: run the experiments of a specification, and turn their raw results into tables and figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import FusehashGroup, complain, print_json, print_table, progress, say, stdout

if TYPE_CHECKING:
    from fusehash.experiments.runner import RunState
    from fusehash.experiments.spec import DatasetSpec, Spec
    from fusehash.experiments.store import DatasetRecord

bench_app = typer.Typer(
    cls=FusehashGroup,
    no_args_is_help=True,
    help="Run the experiments of a specification, and make tables and figures of the results.",
    epilog="Example: fusehash bench run paper/table1 --data ~/data",
)

RUN_EXAMPLE = """Example: fusehash bench run paper/table1 --data ~/data

A first look: fusehash bench run paper/table1 --data ~/data --only fusehash --only regression --bits 32 --seeds 1"""
REPORT_EXAMPLE = "Example: fusehash bench report paper/table1 --out report --format html --format csv"

DEFAULT_RESULTS = Path("fusehash-results")

SpecName = Annotated[
    str, typer.Argument(metavar="SPEC", help="A specification: a built-in one (paper/table1), or a YAML file.")
]
Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="METHOD", help="Only this method or label; repeat for more.")
]
SomeBits = Annotated[str | None, typer.Option("--bits", metavar="BITS", help="Only these lengths, such as 16,32.")]
SomeSeeds = Annotated[int | None, typer.Option("--seeds", min=1, help="Only this many seeds.")]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Other epochs for deep methods; such runs are stored as others.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="PACKAGE", help="A package that SPEC may name, as in my_package:MyHasher; repeat."),
]


class Format(StrEnum):
    """What a report is written as."""

    html = "html"
    csv = "csv"
    latex = "latex"


@bench_app.command(epilog=RUN_EXAMPLE)
def run(
    spec: SpecName,
    folder: Annotated[Path | None, typer.Option("--data", help="The folder of the datasets.")] = None,
    results: Annotated[Path, typer.Option("--out", "-o", help="The folder of the results.")] = DEFAULT_RESULTS,
    only: Only = None,
    bits: SomeBits = None,
    seeds: SomeSeeds = None,
    epochs: Epochs = None,
    device: Annotated[str | None, typer.Option(help="Where deep methods learn, such as cuda.")] = None,
    allow: Allow = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Parallel runs; default: one per core.")] = None,
    stand_in: Annotated[bool, typer.Option("--stand-in", help="Generate data in place of missing files.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Compute also what is already stored.")] = False,
    as_json: inputs.Json = False,
) -> None:
    """Compute the runs of SPEC that are not stored yet. After Ctrl-C, the same command continues."""
    from fusehash.experiments import runner
    from fusehash.experiments.report import report_command
    from fusehash.experiments.store import ResultStore

    chosen_spec = _spec(spec, only, bits, seeds, allow, epochs)
    if chosen_spec.embeddings is not None:
        _run_embeddings(chosen_spec, folder, results, again=again, as_json=as_json)
        return
    finished = 0

    def watch(state: RunState) -> None:
        nonlocal finished
        finished = state.done
        if state.failure is not None:
            complain(f"failed: {state.failure}")
        report_step(state.done, state.total, f"{_left(state)}: {'; '.join(state.running[:2])}")

    try:
        with progress(chosen_spec.name) as report_step:
            store, how_far = ResultStore(results), {"stand_in": stand_in, "again": again}
            summary = runner.run(chosen_spec, folder, store, workers, progress=watch, device=device, **how_far)
    except KeyboardInterrupt:
        complain(f"interrupted; the {finished} finished runs are kept in {results}, the same command continues.")
        raise typer.Exit(130) from None
    if as_json:
        print_json({"spec": chosen_spec.name, "results": str(results), **asdict(summary)})
    else:
        counts = (
            f"{summary.computed:,} runs computed, {summary.reused:,} found in {results}, {len(summary.failed):,} failed"
        )
        say(f"{chosen_spec.name}: {counts}. Took {summary.seconds:.0f} s.")
        if not summary.failed:
            say(f"Next: {report_command(chosen_spec, str(results), spec)}")
    if summary.failed:
        raise typer.Exit(1)


@bench_app.command(epilog=REPORT_EXAMPLE)
def report(
    spec: SpecName,
    results: Annotated[Path, typer.Option(help="The folder of the results.")] = DEFAULT_RESULTS,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write to.")] = Path("fusehash-report"),
    formats: Annotated[list[Format] | None, typer.Option("--format", help="Repeat for more; default: all.")] = None,
    only: Only = None,
    bits: SomeBits = None,
    seeds: SomeSeeds = None,
    epochs: Epochs = None,
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="LABEL", help="Codes that bench score has stored; repeat.")
    ] = None,
    allow: Allow = None,
) -> None:
    """Print the table of SPEC from stored results, and write it with its figures to files."""
    from fusehash.experiments.examples import retrieval_examples
    from fusehash.experiments.metrics import collect
    from fusehash.experiments.report import terminal_table, write_report
    from fusehash.experiments.store import ResultStore

    store, named_spec = ResultStore(results), _spec(spec, only, bits, seeds, allow, epochs)
    if named_spec.embeddings is not None:
        _show_embeddings(named_spec, sorted((results / "embeddings").glob("*.jsonl")))
        return
    chosen_spec = named_spec.with_codes(add or (), store)
    kinds = [kind.value for kind in formats or list(Format)]
    with progress(chosen_spec.name) as step:
        collected = collect(chosen_spec, store, step)
        shown = retrieval_examples(collected, store)
        written = write_report(chosen_spec, store, out, formats=kinds, progress=step, results=collected, examples=shown)
    stdout().print(terminal_table(chosen_spec, store, results=collected))
    say(*(f"Wrote {file}." for file in written))


@bench_app.command(epilog="Example: fusehash bench methods --json")
def methods(as_json: inputs.Json = False) -> None:
    """List every method with its reference and the basis of its implementation."""
    from fusehash import hashers

    columns = ("name", "title", "kind", "year", "reference", "basis")
    entries = [{name: getattr(entry, name) for name in columns} for entry in hashers.catalogue()]
    for entry, listed in zip(hashers.catalogue(), entries, strict=True):
        listed["kind"] = f"{entry.kind}, deep" if entry.is_deep else entry.kind
    if as_json:
        print_json(entries)
    else:
        print_table(columns, [entry.values() for entry in entries])


SCORE_EXAMPLE = """Example: fusehash bench score codes-0.npz codes-1.npz --label DCMH --dataset wiki --data ~/data

Which rows to encode: fusehash bench rows --dataset wiki --data ~/data --out rows.npz"""
ROWS_EXAMPLE = "Example: fusehash bench rows --dataset wiki --data ~/data --seed 0 --out rows.npz"

DatasetName = Annotated[str, typer.Option("--dataset", help="A dataset by name, or a file.")]
DataFolder = Annotated[Path | None, typer.Option("--data", help="The folder (or file) of a dataset given by name.")]


@bench_app.command(epilog=SCORE_EXAMPLE)
def score(
    codes: Annotated[list[Path], typer.Argument(metavar="CODES...", help="Files .npz, one per code length and seed.")],
    dataset: DatasetName,
    label: Annotated[str, typer.Option(help="What tables call the method.")],
    folder: DataFolder = None,
    results: Annotated[Path, typer.Option("--out", "-o", help="The folder of the results.")] = DEFAULT_RESULTS,
    supervised: Annotated[bool, typer.Option("--supervised", help="The method has learned from labels.")] = False,
    k: Annotated[str, typer.Option("-k", help="MAP of the first k, or all.")] = "50",
    ties: Annotated[str, typer.Option(help="expected, stable, best or worst.")] = "expected",
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
) -> None:
    """Score codes that were made elsewhere, by any framework, as the methods here are scored, and store them."""
    from fusehash.evaluation.ranking import TIES
    from fusehash.experiments.metrics import collect
    from fusehash.experiments.report import terminal_table
    from fusehash.experiments.scoring import store_codes
    from fusehash.experiments.store import ResultStore

    if ties not in TIES:
        raise typer.BadParameter(f"must be one of {', '.join(TIES)}. Got {ties!r} instead.", param_hint="'--ties'")
    if k != "all" and not (k.isdecimal() and int(k) > 0):
        raise typer.BadParameter(f"must be a number of at least 1, or all. Got {k!r} instead.", param_hint="'-k'")
    requested, record = _dataset(dataset, folder, split_seed, n_train, stack_images)
    store = ResultStore(results)
    scored = store_codes(
        codes, record, store, label, supervised=supervised, k=None if k == "all" else int(k), ties=ties,
        requested=requested,
    )  # fmt: skip
    stdout().print(terminal_table(scored.spec, store, results=collect(scored.spec, store)))
    say(*scored.skipped.values())
    say(f"Stored in {results}. Next to other methods: fusehash bench report SPEC --results {results} --add {label!r}")


@bench_app.command(epilog="Example: fusehash bench leaderboard benchmarks/leaderboard.json --out docs/leaderboard.md")
def leaderboard(
    entries: Annotated[Path, typer.Argument(metavar="ENTRIES", help="A JSON file that lists files of results.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The Markdown file to write.")] = Path("leaderboard.md"),
) -> None:
    """Check files of results and write them as one page."""
    from fusehash.experiments.leaderboard import page
    from fusehash.files import write_atomically

    inputs.check_target(out)
    text = page(entries)
    write_atomically(out, lambda file: file.write(text.encode()))
    say(f"Wrote {out}.")


@bench_app.command(epilog=ROWS_EXAMPLE)
def rows(
    dataset: DatasetName,
    folder: DataFolder = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the halves, if the dataset needs them.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npz file to write.")] = Path("rows.npz"),
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
) -> None:
    """Write which rows of a dataset are queries and training rows, and list the arrays that bench score reads."""
    import numpy as np

    from fusehash.experiments.scoring import array_names, rows_of
    from fusehash.files import write_atomically

    inputs.check_target(out)
    _, record = _dataset(dataset, folder, split_seed, n_train, stack_images)
    written = rows_of(record, seed)
    write_atomically(out, lambda file: np.savez(file, allow_pickle=False, **written))
    counts = ", ".join(f"{name} ({len(rows):,})" for name, rows in written.items())
    say(f"Wrote {out}: {counts}.", f"bench score reads the arrays {', '.join(array_names(record))}, and seed.")


def _dataset(
    name: str, folder: Path | None, split_seed: int, n_train: int | None, stack_images: bool
) -> tuple[DatasetSpec, DatasetRecord]:
    """A data set as a specification names it, and its rows and labels."""
    from fusehash.experiments import runner
    from fusehash.experiments.spec import DatasetSpec

    given = {"split_seed": split_seed, "n_train": n_train, "stack_images": stack_images}
    defaults = {"split_seed": 0, "n_train": None, "stack_images": False}
    options = {option: value for option, value in given.items() if value != defaults[option]}
    requested = DatasetSpec(name, options)
    return requested, runner.describe(runner.find_source(requested, folder, stand_in=False))


def _run_embeddings(spec: Spec, folder: Path | None, results: Path, *, again: bool, as_json: bool) -> None:
    """Runs of `embeddings/...`, one after the other, and their tables."""
    from fusehash.experiments import embeddings

    if folder is None:
        raise typer.BadParameter("embeddings need a folder with one .npy file per view.", param_hint="'--data'")
    try:
        with progress(spec.name) as step:
            files, computed, reused = embeddings.run(spec, folder, results, again=again, progress=step)
    except KeyboardInterrupt:
        complain(f"interrupted; the finished runs are kept in {results}, the same command continues.")
        raise typer.Exit(130) from None
    if as_json:
        print_json({"spec": spec.name, "files": [str(file) for file in files], "computed": computed, "reused": reused})
        return
    _show_embeddings(spec, files)
    say(f"{spec.name}: {computed:,} runs computed, {reused:,} found in {results}.")


def _show_embeddings(spec: Spec, files: Sequence[Path]) -> None:
    from fusehash.errors import DataError
    from fusehash.experiments import embeddings

    if not files:
        raise DataError(f"There must be stored runs of {spec.name}. Run it first: fusehash bench run {spec.name}")
    for file in files:
        stdout().print(embeddings.table(spec, file.stem, embeddings.read_rows(file)))
        say(f"Stored in {file}.")


def _spec(
    name: str,
    only: list[str] | None,
    bits: str | None,
    seeds: int | None,
    allow: list[str] | None = None,
    epochs: int | None = None,
) -> Spec:
    from fusehash.experiments.spec import load_spec

    if allow:  # as `python -m` does, after everything that is installed
        sys.path.append(str(Path.cwd()))

    lengths = []
    for text in bits.split(",") if bits else ():
        if not text.strip().isdecimal():
            raise typer.BadParameter(f"{bits!r} is not a list of numbers such as 16,32.", param_hint="'--bits'")
        lengths.append(int(text))
    return load_spec(name, allow=allow or ()).narrowed(only or (), lengths, seeds, epochs)


def _left(state: RunState) -> str:
    if state.seconds_left is None:
        return ""
    minutes, seconds = divmod(round(state.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return f"about {hours}:{minutes:02}:{seconds:02} left" if hours else f"about {minutes}:{seconds:02} left"
