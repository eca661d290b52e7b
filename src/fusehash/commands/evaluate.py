"""`fusehash evaluate`: compare a method with controls under every protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, progress, say, stdout

if TYPE_CHECKING:
    from rich.table import Table

    from fusehash.datasets import PairedDataset
    from fusehash.evaluation import EvaluationResult
    from fusehash.hashers.base import CrossModalHasher

EXAMPLE = """Example: fusehash evaluate wiki.npz --method fusehash --bits 64 --seeds 5

As in the paper: fusehash evaluate wiki.npz --method agsfh --ties stable

Files of views: fusehash evaluate image=image.npy text=text.parquet --labels labels.npy"""

CONTROLS = ("regression", "random")


class TieRule(StrEnum):
    """How items at equal distance are ordered."""

    expected = "expected"
    stable = "stable"
    best = "best"
    worst = "worst"


def evaluate(
    data: inputs.Data,
    folder: inputs.Folder = None,
    method: inputs.Method = "fusehash",
    bits: inputs.Bits = 64,
    param: inputs.Params = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, 2, ...")] = 5,
    protocols: Annotated[str, typer.Option(help="Which protocols, separated by commas.")] = "U,H,HN,FN",
    k: Annotated[str, typer.Option("--k", help="MAP over the first K items, or all.")] = "50",
    ties: Annotated[TieRule, typer.Option(help="How items at equal distance are ordered.")] = TieRule.expected,
    control: Annotated[bool, typer.Option(help="Also run the controls regression and random.")] = True,
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
    labels: inputs.Labels = None,
    as_json: inputs.Json = False,
) -> None:
    """Print MAP of a method on DATA in every direction, next to controls that a good method must beat."""
    cut = parse_k(k)
    names = tuple(name.strip().upper() for name in protocols.split(",") if name.strip())
    params = inputs.parse_params(param)
    models = {method: inputs.make_hasher(method, bits=bits, seed=None, params=params)}
    for name in CONTROLS if control else ():
        if name not in models:
            models[name] = inputs.make_hasher(name, bits=bits, seed=None, params={})
    dataset = inputs.load_data(data, folder, split_seed, n_train, stack_images, labels)
    results = run_all(models, dataset, k=cut, ties=ties.value, protocols=names, seeds=range(seeds))
    if as_json:
        print_json({"dataset": dataset.name, "results": {name: result.to_dict() for name, result in results.items()}})
        return
    stdout().print(score_table(results, title=f"MAP@{k} on {dataset.name}, {bits} bits"))
    say(*footnotes(next(iter(results.values())), dataset))


def run_all(models: dict[str, CrossModalHasher], dataset: PairedDataset, **options: Any) -> dict[str, EvaluationResult]:
    """Evaluate the methods one by one, each with a progress bar."""
    from fusehash.evaluation import evaluate as run

    results = {}
    for name, model in models.items():
        with progress(name) as report:
            results[name] = run(model, dataset, progress=report, **options)
    return results


def parse_k(text: str) -> int | None:
    """--k: a number, or "all"."""
    if text.lower() == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"must be a positive integer or 'all'. Got {text!r} instead.", param_hint="'--k'")
    return int(text)


def score_table(results: dict[str, EvaluationResult], *, title: str) -> Table:
    """Protocols and directions down, methods across: mean and standard deviation over seeds."""
    from rich.table import Table
    from rich.text import Text

    table = Table("protocol", "query -> database", title=Text(title), title_justify="left")
    for name in results:
        table.add_column(name, justify="right")
    previous = None
    for score in next(iter(results.values())).scores:
        if previous not in (None, score.protocol):
            table.add_section()
        cells = [_cell(result, score.protocol, score.direction) for result in results.values()]
        protocol = score.protocol if score.protocol != previous else ""
        table.add_row(protocol, Text(score.direction.replace("->", " -> ")), *cells)
        previous = score.protocol
    return table


def _cell(result: EvaluationResult, protocol: str, direction: str) -> str:
    score = result[protocol, direction]
    return f"{score.mean:.3f}" if len(score.seeds) < 2 else f"{score.mean:.3f} ({score.std:.3f})"


def footnotes(result: EvaluationResult, dataset: PairedDataset) -> list[str]:
    """What you need to compare the numbers with others."""
    card = result.card
    spread = " (in brackets: standard deviation over seeds)" if len(card["seeds"]) > 1 else ""
    lines = [f"{name}: {rule['database_rule']}" for name, rule in card["protocols"].items()]
    lines += [f"{name} was not run: {reason}" for name, reason in result.skipped.items()]
    lines.append(f"Split: {dataset.split}. Data {card['data_hash'][:12]}.")
    lines.append(f"Ties: {card['ties']}. Seeds: {', '.join(map(str, card['seeds']))}{spread}.")
    return lines
