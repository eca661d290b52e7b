"""The leaderboard: one Markdown page from result files, each checked and named with the command that repeats it.

A list of entries, a JSON file, says where the results are:

    [{"file": "results/paper-table1.csv",                 as `bench report --format csv` writes it; next to the list
      "command": "fusehash bench run paper/table1 --data FOLDER",
      "by": "fusehash",                                   who computed it
      "group": "deep",                                    optional, for methods that the catalogue does not know
      "labels": ["MyNet"],                                optional, only these rows of the file
      "note": "What a reader should know."}]              optional
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fusehash import trust
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import PROTOCOLS
from fusehash.experiments.methods import kind_of_method
from fusehash.experiments.tables import CSV_COLUMNS

MAX_BYTES = 1 << 22
GROUPS = ("unsupervised", "supervised", "deep", "quantizers", "control")
TITLES = {
    "unsupervised": "Unsupervised", "supervised": "Learning from labels", "deep": "Deep", "quantizers": "Quantizers",
    "control": "Controls, which a good method must beat",
}  # fmt: skip
KEYS = ("file", "command", "by", "group", "labels", "note")


@dataclass(frozen=True)
class Result:
    """One number of the leaderboard: the MAP of every seed."""

    dataset: str
    data_hash: str
    metric: str
    ties: str
    protocol: str
    direction: str
    bits: int
    label: str
    group: str
    values: tuple[float, ...]
    seeds: str
    sizes: tuple[str, str]  # queries, items searched
    source: int  # the position of its entry

    @property
    def board(self) -> tuple[str, str, str, str]:
        """The results that it can be compared with."""
        return self.dataset, self.data_hash, self.metric, self.ties

    @property
    def text(self) -> str:
        """As in .2881 ± .011."""
        mean = f"{np.mean(self.values):.4f}".removeprefix("0")
        if len(self.values) < 2:
            return f"{mean} (1 seed)"
        return f"{mean} ± {np.std(self.values, ddof=1):.3f}".replace(" 0.", " .")


def read_entries(path: Path) -> list[dict[str, Any]]:
    """The list of entries, checked."""
    subject = f"The list of entries {path.name}"
    with trust.open_file(path, subject) as file:
        content = trust.parse_json(file.read(MAX_BYTES + 1), subject)
    if not isinstance(content, list) or not all(isinstance(entry, dict) for entry in content):
        raise DataError(f"{subject} must be a list of entries. It is something else.")
    for entry in content:
        unknown = [key for key in entry if key not in KEYS]
        missing = [key for key in KEYS[:3] if not isinstance(entry.get(key), str) or not entry[key].strip()]
        if unknown or missing:
            problem = f"Got {unknown[0]!r}" if unknown else f"There is no {missing[0]!r}"
            keys = "file, command, by (group, labels, note)"
            raise DataError(f"An entry of {path.name} must have the keys {keys}. {problem}.")
        if entry.get("group", "deep") not in GROUPS:
            raise DataError(
                f"The group of an entry must be one of {', '.join(GROUPS)}. Got {entry['group']!r} instead."
            )
        if ".." in Path(entry["file"]).parts or Path(entry["file"]).is_absolute():
            raise DataError(f"The file of an entry must be below the folder of {path.name}. Got {entry['file']!r}.")
    return content


def read_results(path: Path, entry: dict[str, Any], source: int) -> list[Result]:
    """The results of one file; raises DataError if a number contradicts its parts or cannot be compared."""
    subject = f"The results {path.name}"
    with trust.open_file(path, subject) as file:
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DataError(f"{subject} must have at most {MAX_BYTES:,} bytes. It has more.")
    try:
        rows = list(csv.DictReader(io.StringIO(raw.decode()), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{subject} must be a CSV file in UTF-8. It cannot be read: {error}.") from error
    if not rows or set(rows[0]) != set(CSV_COLUMNS):
        raise DataError(f"{subject} must have the columns of bench report --format csv. It has others.")
    results = []
    for number, row in enumerate(rows, start=2):
        if row["group"] or not row["method"] or not row["values"]:  # a sweep, or a row that only the paper has
            continue
        if row["label"] in entry.get("labels", [row["label"]]):
            try:
                results.append(_result(row, entry, source))
            except ValueError as error:
                raise DataError(f"{subject} is wrong in line {number}: {error}") from error
    if not results:
        raise DataError(f"{subject} must have results. It has none, or none with the labels of its entry.")
    return results


def _result(row: dict[str, str], entry: dict[str, Any], source: int) -> Result:
    values = tuple(float(value) for value in row["values"].split())
    seeds = row["seeds"].split()
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ValueError("MAP is from 0 to 1.")
    if abs(float(np.mean(values)) - float(row["mean"])) > 2e-6:
        raise ValueError(f"the mean of its values is {np.mean(values):.6f}, and not {row['mean']}.")
    if len(set(seeds)) != len(values):
        raise ValueError(f"it has {len(values)} values and the seeds {row['seeds']!r}.")
    if row["protocol"] not in PROTOCOLS or row["stand_in"] != "0" or len(row["data_hash"]) != 64:
        raise ValueError("it must be of a known protocol, on real data with their hash.")
    if not row["bits"].isdecimal() or int(row["bits"]) % 8:
        raise ValueError(f"bits must be a multiple of 8, and not {row['bits']!r}.")
    if any(sign in row["label"] + row["dataset"] for sign in "|<>[]`\n"):
        raise ValueError("labels and data sets must be plain text.")
    return Result(
        row["dataset"], row["data_hash"], row["metric"], row["ties"], row["protocol"], row["direction"],
        int(row["bits"]), row["label"], _group(row["method"], entry), values, row["seeds"],
        (row["n_query"], row["n_database"]), source,
    )  # fmt: skip


def _group(method: str, entry: dict[str, Any]) -> str:
    try:
        return str(entry.get("group") or kind_of_method(method))
    except ParameterError:
        raise ValueError(f"the entry must name the group of {method!r}, which the catalogue does not know.") from None


def page(path: Path) -> str:
    """The leaderboard as Markdown, from a list of entries."""
    entries = read_entries(path)
    results = [row for i, entry in enumerate(entries) for row in read_results(path.parent / entry["file"], entry, i)]
    seen: dict[tuple[Any, ...], Result] = {}
    for result in results:
        key = (*result.board, result.protocol, result.direction, result.bits, result.label)
        if key in seen:
            where = f"{result.label}, {result.protocol}, {result.direction}, {result.bits} bits on {result.dataset}"
            raise DataError(f"A result must be in one file. Two have {where}: name one of them otherwise.")
        seen[key] = result
    lines = [
        "# Leaderboard",
        "",
        "Every number is the mean and the standard deviation over seeds of a stored file, made by `fusehash bench "
        "leaderboard`; nothing is typed by hand. Groups are apart, because they use different information. What each "
        "protocol searches: [evaluation.md](evaluation.md).",
        "",
        *_contribute(),
    ]
    for board in dict.fromkeys(result.board for result in results):
        lines += _board([result for result in results if result.board == board], entries)
    return "\n".join(lines).rstrip() + "\n"


def _contribute() -> list[str]:
    return [
        "## Add a row",
        "",
        "1. Run your method with at least five seeds ([your-own-method.md](your-own-method.md)), or score your codes",
        "   with `fusehash bench score`, and write `fusehash bench report SPEC --format csv`.",
        "2. Put the CSV file into `benchmarks/results/`, and an entry into `benchmarks/leaderboard.json`: `file`, the",
        "   `command` that makes it again, `by` whom, and, for methods that fusehash does not have, the `group`",
        f"   ({', '.join(GROUPS)}) and the `labels` of your rows.",
        "3. Run `fusehash bench leaderboard benchmarks/leaderboard.json --out docs/leaderboard.md` and open a pull",
        "   request with the three files. A test checks that means, seeds and data hashes agree and that the page is",
        "   the one that the files make.",
        "",
    ]


def _board(results: Sequence[Result], entries: Sequence[dict[str, Any]]) -> list[str]:
    dataset, data_hash, metric, ties = results[0].board
    lines = [f"## {dataset}: {metric}, ties {ties}", "", f"Data `{data_hash[:12]}`.", ""]
    for protocol in PROTOCOLS:
        chosen = [result for result in results if result.protocol == protocol]
        if chosen:
            queries, items = chosen[0].sizes
            lines += [f"### {dataset}, protocol {protocol}", ""]
            lines += [f"{PROTOCOLS[protocol].sentence}. {queries} queries, {items} items.", "", *_table(chosen)]
    sources = sorted({result.source for result in results})
    return [*lines, "Files:", "", *(_source(i + 1, entries[i]) for i in sources), ""]


def _source(number: int, entry: dict[str, Any]) -> str:
    note = f" {entry['note']}" if "note" in entry else ""
    return f"- file {number}: `{entry['file']}`, by {entry['by']}, made again by `{entry['command']}`.{note}"


def _table(results: Sequence[Result]) -> list[str]:
    columns = [(d, b) for d in _ordered(r.direction for r in results) for b in sorted({r.bits for r in results})]
    head = [f"{direction.replace('->', ' → ')}, {bits}" for direction, bits in columns]
    lines = [f"| method | {' | '.join(head)} | seeds | file |", "|" + "---|" * (len(head) + 3)]
    cells = {(result.label, result.direction, result.bits): result for result in results}
    for group in GROUPS:
        labels = _ordered(result.label for result in results if result.group == group)
        if labels:
            lines.append(f"| **{TITLES[group]}** |" + " |" * (len(head) + 2))
        for label in sorted(labels, key=lambda label: -_mean(cells.get((label, *column)) for column in columns)):
            row = [cells.get((label, *column)) for column in columns]
            there = [result for result in row if result is not None]
            texts = [result.text if result is not None else "–" for result in row]
            seeds = max(len(result.values) for result in there)
            files = ", ".join(str(i + 1) for i in sorted({result.source for result in there}))
            lines.append(f"| {label} | {' | '.join(texts)} | {seeds} | {files} |")
    return [*lines, ""]


def _mean(row: Iterable[Result | None]) -> float:
    means = [float(np.mean(result.values)) for result in row if result is not None]
    return float(np.mean(means)) if means else -math.inf


def _ordered(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
