"""The leaderboard: one Markdown page from result files, each checked and named with the command that repeats it.

A list of entries, a JSON file, says where the results are:

    [{"file": "results/paper-table1.csv",                 as `bench report --format csv` writes it; next to the list
      "command": "fusehash bench run paper/table1 --data FOLDER",
      "by": "fusehash",                                   who computed it
      "group": "deep",                                    optional, for methods that the catalogue does not know
      "labels": ["MyNet"],                                optional, only these rows of the file
      "note": "What a reader should know."}]              optional

A file that ends in .jsonl holds the runs of `bench run embeddings/...`; its numbers are recall, not MAP.
"""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fusehash import hashers, trust
from fusehash.errors import DataError, ParameterError
from fusehash.evaluation import PROTOCOLS
from fusehash.experiments.embeddings import read_rows
from fusehash.experiments.methods import kind_of_method, label_of
from fusehash.experiments.tables import CSV_COLUMNS

T = TypeVar("T")
MAX_BYTES = 1 << 22
TITLES = {
    "unsupervised": "Unsupervised",
    "supervised": "Learning from labels",
    "deep": "Deep",
    "quantizer": "Quantizers of embeddings",
    "control": "Controls, which a good method must beat",
}
GROUPS = tuple(TITLES)
KEYS = ("file", "command", "by", "group", "labels", "note")
MIN_SEEDS = 5  # of a run of embeddings; points with fewer are not finished
FLOAT_QUERIES = "float queries"  # takes the place of the protocol for embeddings
RECALL = "recall@10 of the float ranking"


@dataclass(frozen=True)
class Result:
    """One number of the leaderboard: the MAP of every seed, or the recall."""

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
    marks: tuple[str, ...] = ()  # what a reader must know: "reconstructed", "labels"
    params: str = "{}"
    fit_seconds: str = ""

    @property
    def board(self) -> tuple[str, str, str, str]:
        """The results that it can be compared with."""
        return self.dataset, self.data_hash, self.metric, self.ties

    @property
    def name(self) -> str:
        """The label and its marks."""
        return self.label + (f" ({', '.join(self.marks)})" if self.marks else "")

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


def read(path: Path, entry: dict[str, Any], source: int) -> list[Result]:
    """The results of one file of either kind."""
    return (_read_recall if path.suffix == ".jsonl" else read_results)(path, entry, source)


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
    return _some(results, subject)


def _some(results: list[Result], subject: str) -> list[Result]:
    if not results:
        raise DataError(f"{subject} must have results. It has none, or none with the labels of its entry.")
    return results


def _read_recall(path: Path, entry: dict[str, Any], source: int) -> list[Result]:
    """The runs of `bench run embeddings/...` with at least MIN_SEEDS seeds: recall, queries as floats."""
    subject, points = f"The results {path.name}", {}  # type: str, dict[tuple[Any, ...], list[dict[str, Any]]]
    try:
        for row in read_rows(path):
            if row.get("method") and row["label"] in entry.get("labels", [row["label"]]):
                for score in row["scores"]["floats"]:
                    direction = f"{score['query_view']}->{score['item_view']}"
                    points.setdefault((row["set"], direction, row["n_bits"], row["label"]), []).append({**row, **score})
        results = [_recall(point, rows, entry, source) for point, rows in points.items() if len(rows) >= MIN_SEEDS]
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{subject} must be runs of embeddings. They are not: {error!r}.") from error
    return _some(results, subject)


def _recall(point: tuple[Any, ...], rows: list[dict[str, Any]], entry: dict[str, Any], source: int) -> Result:
    (dataset, direction, bits, label), first = point, rows[0]
    values, seeds = tuple(float(row["recall"]) for row in rows), [str(row["seed"]) for row in rows]
    if not all(0.0 <= value <= 1.0 for value in values) or len(set(seeds)) != len(seeds):
        raise ValueError(f"{label}, {bits} bits: recall is from 0 to 1, with one value for each seed")
    _check_plain(str(label), str(dataset))
    return Result(
        str(dataset), "", RECALL, "", FLOAT_QUERIES, direction, int(bits), str(label), _group(first["method"], entry),
        values, " ".join(seeds), (str(first["n_queries"]), str(first["n_items"])), source,
        _marks(first["method"], _group(first["method"], entry)), json.dumps(first["params"], sort_keys=True),
        f"{np.mean([row['fit_seconds'] for row in rows]):.3g}",
    )  # fmt: skip


def _check_plain(*texts: str) -> None:
    if any(sign in "".join(texts) for sign in "|<>[]`\n"):
        raise ValueError("labels and data sets must be plain text.")


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
    _check_plain(row["label"], row["dataset"])
    group, params = _group(row["method"], entry), trust.parse_json(row["params"] or "{}", "its field params")
    return Result(
        row["dataset"], row["data_hash"], row["metric"], row["ties"], row["protocol"], row["direction"],
        int(row["bits"]), row["label"], group, values, row["seeds"], (row["n_query"], row["n_database"]), source,
        _marks(row["method"], group), json.dumps(params, sort_keys=True),
        row["fit_seconds"],
    )  # fmt: skip


def _group(method: str, entry: dict[str, Any]) -> str:
    """The section that a method belongs to; the entry decides for methods that the catalogue does not know."""
    try:
        group = entry.get("group") or ("deep" if _is_deep(method) else kind_of_method(method))
    except ParameterError:
        raise ValueError(f"the entry must name the group of {method!r}, which the catalogue does not know.") from None
    if group not in TITLES:  # a kind of methods that came later than this page
        raise ValueError(f"the group of {method!r} must be one of {', '.join(GROUPS)}. It is {group!r}.")
    return str(group)


def _is_deep(method: str) -> bool:
    return not label_of(method) and hashers.info(method).is_deep


def _marks(method: str, group: str) -> tuple[str, ...]:
    """What the name of a method alone does not say."""
    known = hashers.info(method) if method in hashers.names() else None
    marks = ["reconstructed"] if known is not None and known.basis == "reconstructed from text" else []
    learns = kind_of_method(method) == "supervised" if known is not None or label_of(method) else False
    return (*marks, *(["labels"] if group == "deep" and learns else []))


def page(path: Path) -> str:
    """The leaderboard as Markdown, from a list of entries."""
    entries = read_entries(path)
    results = [row for i, entry in enumerate(entries) for row in read(path.parent / entry["file"], entry, i)]
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
        "protocol searches: [evaluation.md](evaluation.md). *Reconstructed* methods were written from their papers "
        "without author code ([methods.md](methods.md)). Below every table, *Cards* has for each number the seeds, "
        "their values, the settings, the seconds and the command that computes it again.",
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
    lines = [f"## {dataset}: {metric}" + f", ties {ties}" * bool(ties), ""]
    lines += [f"Data `{data_hash[:12]}`.", ""] if data_hash else []
    for protocol in (*PROTOCOLS, FLOAT_QUERIES):
        chosen = [result for result in results if result.protocol == protocol]
        if chosen:
            queries, items = chosen[0].sizes
            known = protocol in PROTOCOLS
            title = f"protocol {protocol}" if known else protocol
            sentence = PROTOCOLS[protocol].sentence if known else "Queries as floats, items as codes"
            lines += [f"### {dataset}, {title}", "", f"{sentence}. {queries} queries, {items} items.", ""]
            for group in GROUPS:
                rows = [result for result in chosen if result.group == group]
                lines += [f"**{TITLES[group]}**", "", *_table(rows)] if rows else []
            lines += _cards(chosen, entries)
    sources = sorted({result.source for result in results})
    return [*lines, "Files:", "", *(_source(i + 1, entries[i]) for i in sources), ""]


def _source(number: int, entry: dict[str, Any]) -> str:
    note = f" {entry['note']}" if "note" in entry else ""
    return f"- file {number}: `{entry['file']}`, by {entry['by']}, made again by `{entry['command']}`.{note}"


def _columns(results: Sequence[Result]) -> list[tuple[str, int]]:
    return [(d, b) for d in _ordered(r.direction for r in results) for b in sorted({r.bits for r in results})]


def _table(results: Sequence[Result]) -> list[str]:
    columns = _columns(results)
    head = [f"{direction.replace('->', ' → ')}, {bits}" for direction, bits in columns]
    lines = [f"| method | {' | '.join(head)} | seeds | file |", "|" + "---|" * (len(head) + 3)]
    cells = {(result.name, result.direction, result.bits): result for result in results}
    names = _ordered(result.name for result in results)
    for name in sorted(names, key=lambda name: -_mean(cells.get((name, *column)) for column in columns)):
        row = [cells.get((name, *column)) for column in columns]
        there = [result for result in row if result is not None]
        texts = [result.text if result is not None else "–" for result in row]
        seeds = max(len(result.values) for result in there)
        files = ", ".join(str(i + 1) for i in sorted({result.source for result in there}))
        lines.append(f"| {name} | {' | '.join(texts)} | {seeds} | {files} |")
    return [*lines, ""]


def _cards(results: Sequence[Result], entries: Sequence[dict[str, Any]]) -> list[str]:
    """One line per method and length: what its numbers rest on."""
    directions = _ordered(result.direction for result in results)
    head = [f"{direction.replace('->', ' → ')}, by seed" for direction in directions]
    lines = ["<details markdown>", "<summary>Cards</summary>", ""]
    lines += [f"| method | bits | {' | '.join(head)} | seeds | settings | fit s | command |"]
    lines += ["|" + "---|" * (len(head) + 6)]
    for key in _ordered((result.name, result.bits) for result in results):
        row = {result.direction: result for result in results if (result.name, result.bits) == key}
        first = next(iter(row.values()))
        values = [" ".join(f"{value:.4f}"[1:] if value < 1 else "1" for value in row[d].values) if d in row else "–"
                  for d in directions]  # fmt: skip
        settings = "defaults" if first.params == "{}" else f"`{first.params}`"
        command = f"`{_command(first, entries[first.source]['command'])}`"
        lines.append(
            f"| {first.name} | {first.bits} | {' | '.join(values)} | {first.seeds} | {settings} | "
            f"{first.fit_seconds or '–'} | {command} |"
        )
    return [*lines, "", "</details>", ""]


def _command(result: Result, command: str) -> str:
    """What computes this number again: the command of the file, narrowed where it can be."""
    if not command.startswith("fusehash bench run "):
        return command
    return f"{command} --only {shlex.quote(result.label)} --bits {result.bits}"


def _mean(row: Iterable[Result | None]) -> float:
    means = [float(np.mean(result.values)) for result in row if result is not None]
    return float(np.mean(means)) if means else -math.inf


def _ordered(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
