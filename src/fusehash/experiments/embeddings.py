"""The table of docs/embeddings.md for any paired embeddings: recall of the float ranking, partners, time and bytes.

A set of embeddings is a folder with one .npy file per view. A random part of the pairs is learned from, the others are
searched, with the same split for all seeds. Every run is one line of a .jsonl file; what is there is not run again.
"""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusehash import hashers, trust
from fusehash.errors import DataError, FusehashWarning
from fusehash.evaluation import evaluate_embeddings, nearest_by_cosine, recall_of
from fusehash.experiments.spec import Series, Spec
from fusehash.experiments.store import now, slug, versions
from fusehash.files import make_folder, write_atomically
from fusehash.parameters import Progress
from fusehash.streams import open_view
from fusehash.views import PairedViews

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]
QUERIES = ("floats", "codes")
COLUMNS = ("recall", "rescored_recall", "pair_recall")
MAX_LINES_BYTES = 64 << 20
SPLIT_SEED = 0


@dataclass(frozen=True)
class EmbeddingSet:
    """Paired embeddings: rows to learn from, and rows to search."""

    name: str
    digest: str
    learned: PairedViews
    new: PairedViews


def find_sets(folder: str | Path) -> list[Path]:
    """The folder itself if it holds at least two .npy files, else all folders in it that do."""
    root = Path(folder)
    if not root.is_dir():
        raise DataError(f"Embeddings must be in a folder with one .npy file per view. '{root}' is no folder.")
    found = [path for path in (root, *sorted(root.iterdir())) if path.is_dir() and len(list(path.glob("*.npy"))) > 1]
    if not found:
        raise DataError(
            f"'{root}', or folders in it, must hold one .npy file per view, such as image.npy and text.npy."
        )
    return found[:1] if found[0] == root else found


def open_set(folder: Path, share: float) -> EmbeddingSet:
    """Read the views, and split their rows at random."""
    views = PairedViews({path.stem: open_view(path) for path in sorted(folder.glob("*.npy"))})
    arrays = {name: np.asarray(views.block(name, slice(None)), np.float32) for name in views}
    if len({X.shape[1] for X in arrays.values()}) > 1:
        raise DataError(f"Embeddings of one set must have one width. '{folder.name}' has {views.n_features}.")
    digest = hashlib.sha256()
    for name, X in arrays.items():
        digest.update(f"{name} {X.shape}\n".encode())
        digest.update(np.ascontiguousarray(X).data)
    order = np.random.default_rng(SPLIT_SEED).permutation(views.n_rows)
    cut = round(share * views.n_rows)
    if not 2 <= cut <= views.n_rows - 2:
        raise DataError(
            f"Both parts of '{folder.name}' must have at least 2 pairs. It has {views.n_rows} pairs in all."
        )
    parts = (PairedViews({name: X[np.sort(rows)] for name, X in arrays.items()}) for rows in (order[:cut], order[cut:]))
    return EmbeddingSet(folder.resolve().name, digest.hexdigest()[:16], *parts)


def run(
    spec: Spec, folder: str | Path, results: str | Path, *, again: bool = False, progress: Progress | None = None
) -> tuple[list[Path], int, int]:
    """Compute the runs that are not stored, one after the other. Returns files, and how many were run and reused."""
    assert spec.embeddings is not None
    files, computed, reused = [], 0, 0
    for path in find_sets(folder):
        data = open_set(path, spec.embeddings.learn)
        file = Path(results) / "embeddings" / f"{slug(data.name)}.jsonl"
        make_folder(file.parent)
        rows = read_rows(file) if file.exists() else []
        done = {row["key"] for row in rows}
        points: list[tuple[Series | None, int, int]] = [(None, 0, 0), *spec.points()]
        for step, (series, n_bits, seed) in enumerate(points):
            key = _key(spec, data, series, n_bits, seed)
            if key in done and not again:
                reused += 1
                continue
            label = "floats" if series is None else f"{series.label}, {n_bits} bits, seed {seed}"
            if progress is not None:
                progress(step, len(points), f"{data.name}: {label}")
            row = _floats(spec, data) if series is None else _measure(spec, data, series, n_bits, seed)
            rows = [old for old in rows if old["key"] != key] + [{"key": key, "set": data.name, **row}]
            _write_rows(file, rows)
            computed += 1
        files.append(file)
    return files, computed, reused


def read_rows(file: Path) -> list[Row]:
    """The stored runs of one set."""
    with trust.open_file(file, f"The file {file}") as stream:
        text = stream.read(MAX_LINES_BYTES)
    try:
        rows = [trust.parse_json(line, f"The file {file}") for line in text.decode().splitlines()]
        if not all(
            isinstance(row, dict) and {"key", "label", "n_bits", "seed", "scores"} <= row.keys() for row in rows
        ):
            raise ValueError("not runs")
    except ValueError as error:
        raise DataError(f"'{file}' must hold one run per line, as bench run writes them. It does not.") from error
    return rows


def _write_rows(file: Path, rows: Sequence[Row]) -> None:
    text = "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)
    write_atomically(file, lambda stream: stream.write(text.encode()))


def _key(spec: Spec, data: EmbeddingSet, series: Series | None, n_bits: int, seed: int) -> str:
    what = [] if series is None else [series.method, series.params, n_bits, seed]
    options = spec.embeddings.__dict__ if spec.embeddings else {}
    return hashlib.sha256(json.dumps([data.digest, options, what], sort_keys=True).encode()).hexdigest()[:16]


def _floats(spec: Spec, data: EmbeddingSet) -> Row:
    """What the vectors themselves find."""
    options = spec.embeddings
    assert options is not None
    asked = _asked(options.queries, data.new.n_rows)
    scores, names = [], data.new.names
    for a in names:
        for b in names:
            if a != b:
                found = nearest_by_cosine(data.new[a][asked], data.new[b], min(options.k, data.new.n_rows))
                pairs = recall_of(found, asked[:, None])
                scores.append({"query_view": a, "item_view": b, "recall": 1.0, "rescored_recall": 1.0,
                               "pair_recall": pairs, "rescored_pair_recall": pairs})  # fmt: skip
    width = next(iter(data.new.n_features.values()))
    return {
        "label": "floats", "n_bits": 32 * width, "seed": 0, "bytes": 4 * width, "scores": {"floats": scores},
        "gap": _gap(data), "n_learned": data.learned.n_rows, "n_items": data.new.n_rows, "created": now(),
        "versions": versions(),
    }  # fmt: skip


def _asked(n_queries: int | None, n_rows: int) -> Any:
    """The queries that `evaluate_embeddings` asks."""
    if n_queries is None or n_queries >= n_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, n_queries, replace=False))


def _gap(data: EmbeddingSet) -> float:
    """Distance between the means of the first two views, of unit rows."""
    means = [np.mean(X / np.linalg.norm(X, axis=1, keepdims=True), axis=0) for X in list(data.new.values())[:2]]
    return float(np.linalg.norm(means[0] - means[-1]))


def _measure(spec: Spec, data: EmbeddingSet, series: Series, n_bits: int, seed: int) -> Row:
    options = spec.embeddings
    assert options is not None
    model = hashers.make(series.method, n_bits=n_bits, **series.params)
    fixed = {"random_state": seed, "n_threads": 1}
    model.set_params(**{name: value for name, value in fixed.items() if name in model.get_params(deep=False)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FusehashWarning)
        started = time.process_time()
        model.fit(data.learned)
        fit_seconds = time.process_time() - started
    view = data.new.names[0]
    started = time.process_time()
    model.encode(data.new[view], view=view)
    encode_seconds = time.process_time() - started
    scores = {}
    for queries in QUERIES:
        if queries == "codes" and series.method == "pq":
            continue  # Hamming distances between such codes mean nothing
        found = evaluate_embeddings(
            model, data.new, k=options.k, candidates=options.candidates, queries=queries, n_queries=options.queries
        )
        scores[queries] = [score.row() for score in found]
    has_factors = series.method in ("fusehash", "rabitq")
    return {
        "label": series.label, "method": series.method, "params": series.params, "n_bits": n_bits, "seed": seed,
        "bytes": n_bits // 8 + 8 * has_factors, "scores": scores, "fit_seconds": round(fit_seconds, 3),
        "encode_us": round(1e6 * encode_seconds / data.new.n_rows, 2), "created": now(),
    }  # fmt: skip


def table(spec: Spec, name: str, rows: Sequence[Row]) -> Table:
    """Methods and bits down, directions across: recall@k / after rescoring / partner among the first k."""
    from rich.table import Table
    from rich.text import Text

    options = spec.embeddings
    assert options is not None
    caption = (
        f"recall@{options.k} of the floats / after rescoring {options.candidates} / partner in the first {options.k}; "
        "mean over seeds, in brackets the largest standard deviation of the three"
    )
    title = Text(f"{spec.title}: {name}")
    out = Table("codes", "queries", "bits", "bytes", title=title, title_justify="left", caption=caption)
    lines = summary(spec, rows)
    for direction in lines[0].directions if lines else ():
        out.add_column(direction, justify="right")
    out.add_column("fit CPU s", justify="right")
    for line in lines:
        scores = [
            " ".join(f"{x:.3f}" for x in mean) + ("" if np.isnan(spread) else f" ({spread:.3f})")
            for mean, spread in zip(line.means, line.spreads, strict=True)
        ]
        fit = "" if np.isnan(line.fit_seconds) else f"{line.fit_seconds:.1f}"
        out.add_row(Text(line.label), line.queries, f"{line.n_bits:,}", f"{line.n_bytes:,}", *scores, fit)
    return out


@dataclass(frozen=True)
class RecallLine:
    """One line of the table: `means` and `spreads` per direction, over the seeds that are there."""

    label: str
    queries: str
    n_bits: int
    n_bytes: int
    n_seeds: int
    directions: list[str]
    means: list[list[float]]
    spreads: list[float]
    fit_seconds: float


def summary(spec: Spec, rows: Sequence[Row]) -> list[RecallLine]:
    """The lines of the table, by bits, then in the order of the specification."""
    labels = ["floats", *(series.label for series in spec.lines)]
    points = {("floats", row["n_bits"], 0) for row in rows if row["label"] == "floats"}
    points |= {(series.label, n_bits, seed) for series, n_bits, seed in spec.points()}
    groups: dict[tuple[int, int, int], list[Row]] = {}
    for row in rows:
        if (row["label"], row["n_bits"], row["seed"]) in points:
            for number, queries in enumerate(QUERIES):
                if queries in row["scores"]:
                    groups.setdefault((row["n_bits"], labels.index(row["label"]), number), []).append(row)
    return [_line(labels[place[1]], QUERIES[place[2]], groups[place]) for place in sorted(groups)]


def _line(label: str, queries: str, rows: list[Row]) -> RecallLine:
    first, scores = rows[0], [row["scores"][queries] for row in rows]
    values = np.array([[[score[name] for name in COLUMNS] for score in directions] for directions in scores])
    spreads = values.std(axis=0, ddof=1).max(axis=1) if len(rows) > 1 else np.full(values.shape[1], np.nan)
    seconds = [row["fit_seconds"] for row in rows if "fit_seconds" in row]
    n_bytes = first["bytes"] if queries == "floats" else first["n_bits"] // 8  # codes alone need no factors
    directions = [f"{score['query_view']} -> {score['item_view']}" for score in scores[0]]
    return RecallLine(
        label, queries, first["n_bits"], n_bytes, len(rows), directions, values.mean(axis=0).tolist(), spreads.tolist(),
        float(np.mean(seconds)) if seconds else float("nan"),
    )  # fmt: skip
