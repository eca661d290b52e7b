"""`fusehash quantize`: embeddings in, codes out: fit, encode every view, and report what new pairs find."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, print_table, progress, say
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher
    from fusehash.parameters import Progress
    from fusehash.views import PairedViews

EXAMPLE = """Example: fusehash quantize image.npy text.npy --bits 256 --out codes

To keep the ranking of CLIP vectors: fusehash quantize image.npy text.npy --target floats --out codes

Few pairs: fusehash quantize image.npy text.npy --pairs 500 --out codes"""
MAX_HELD_OUT, MIN_HELD_OUT = 1000, 20  # pairs that are not learned from, and with how few there is no report
K, CANDIDATES = 10, 100


class Target(StrEnum):
    """What codes are for."""

    pairs = "pairs"
    floats = "floats"


def quantize(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILES...", help="One file per view, FILE or NAME=FILE (.npy, .zarr, .parquet)."),
    ],
    bits: Annotated[
        int, typer.Option(parser=inputs.whole_number, metavar="<int>", help="Length of the codes, a multiple of 8.")
    ] = 256,
    target: Annotated[
        Target, typer.Option(help="pairs: codes that find partners. floats: codes that keep the cosine ranking.")
    ] = Target.pairs,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to make; it must not exist.")] = Path("codes"),
    pairs: Annotated[
        int | None,
        typer.Option(min=1, help="Only the first N rows of all files are pairs; the other rows are alone."),
    ] = None,
    held_out: Annotated[
        int | None,
        typer.Option(
            min=0, help="Pairs to measure with instead of learning from them; default: a tenth, at most 1,000."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the method and of the choice of pairs.")] = 0,
    param: inputs.Params = None,
    as_json: inputs.Json = False,
) -> None:
    """Learn codes from embeddings of two views, write the codes of all rows, and report what new pairs find."""
    params = inputs.parse_params(param)
    for key, option in (("target", "--target"), ("missing", "--pairs")):
        if key in params:
            raise typer.BadParameter(f"{key!r} has its own option: {option}.", param_hint="'--param'")
    model = inputs.make_hasher("fusehash", bits=bits, seed=seed, params={**params, "target": target.value})
    named = inputs.view_files(files, None, False)
    if named is None:
        raise typer.BadParameter("give one file per view, such as image.npy text.npy.", param_hint="'FILES...'")
    if out.exists():
        raise DataError(f"The folder to write must not exist. Got {out}.")
    inputs.check_folder(out, "The folder to write")
    from fusehash.streams import open_view

    stored = {name: open_view(path) for name, path in named.items()}
    _check_rows(stored, need_directions=target is Target.floats)
    views = _paired(stored, pairs)
    if pairs is not None:
        model.set_params(missing="allow")
    learned, new = _divide(views, held_out, seed)
    started = time.perf_counter()
    with progress(f"{bits} bits") as report:
        model.set_params(callback=report)
        model.fit(learned)
        model.set_params(callback=None)
        seconds = time.perf_counter() - started
        facts = {
            "folder": str(out), "target": target.value, "n_bits": bits, "seed": seed,
            "views": {name: {"rows": int(X.shape[0]), "features": int(X.shape[1])} for name, X in stored.items()},
            "n_learned": learned.n_rows, "n_pairs": len(learned.complete_rows()),
            "n_held_out": 0 if new is None else new.n_rows, "fit_seconds": round(seconds, 3),
            "bytes_per_item": bits // 8 + (8 if target is Target.floats else 0), "scores": _measure(model, new),
        }  # fmt: skip
        _write(out, model, stored, facts, with_factors=target is Target.floats, report=report)
    if as_json:
        print_json(facts)
        return
    _show(facts)
    name = model.view_names_[-1]
    say(f"Next: fusehash search {out} new.npy --view {name}")


def _check_rows(stored: dict[str, Any], *, need_directions: bool) -> None:
    """Read all rows once, so that errors name rows of the files and not of the part that is learned from."""
    import numpy as np

    from fusehash.streams.writers import paired_blocks

    for name, matrix in stored.items():
        start = 0
        for block in paired_blocks({name: matrix}, allow_missing=True):
            missing = np.flatnonzero(np.isnan(block[name]).all(axis=1))
            if len(missing):
                expected = f"View '{name}' must hold finite numbers. Row {start + missing[0]} is all NaN"
                raise DataError(f"{expected}; put rows without a partner after the pairs, and pass --pairs.")
            zeros = np.flatnonzero(~block[name].any(axis=1))
            if need_directions and len(zeros):
                expected = f"View '{name}' must hold embeddings other than zero."
                raise DataError(f"{expected} Row {start + zeros[0]} is all zeros.")
            start += len(block[name])


def _paired(stored: dict[str, Any], pairs: int | None) -> PairedViews:
    """The files row by row, or with only the first rows as pairs: every other row gets a row of its own."""
    import numpy as np

    from fusehash.views import PairedViews

    if pairs is None:
        return PairedViews(stored)
    counts = {name: int(X.shape[0]) for name, X in stored.items()}
    if pairs > min(counts.values()):
        listed = ", ".join(f"'{name}' has {n}" for name, n in counts.items())
        raise DataError(f"--pairs must be at most the number of rows of every file. Got {pairs}; {listed}.")
    n_rows, start, views = pairs + sum(n - pairs for n in counts.values()), pairs, {}
    for name, X in stored.items():
        rows = np.full(n_rows, -1)
        rows[:pairs] = np.arange(pairs)
        rows[start : start + counts[name] - pairs] = np.arange(pairs, counts[name])
        views[name] = X.spread(rows)  # read block by block: the files may be larger than memory
        start += counts[name] - pairs
    return PairedViews(views, allow_missing=True)


def _divide(views: PairedViews, held_out: int | None, seed: int) -> tuple[PairedViews, PairedViews | None]:
    """Rows to learn from, and pairs to measure with."""
    import numpy as np

    rows = views.complete_rows()
    count = min(len(rows) // 10, MAX_HELD_OUT) if held_out is None else held_out
    if held_out is not None and count > len(rows) - 2:
        raise DataError(f"--held-out must leave at least 2 of the {len(rows)} pairs to learn from. Got {count}.")
    if len(views.names) < 2 or (held_out is None and count < MIN_HELD_OUT) or count == 0:
        return views, None
    drawn = np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))
    kept = np.setdiff1d(np.arange(views.n_rows), drawn)
    return views.rows(kept), views.rows(drawn)


def _measure(model: CrossModalHasher, new: PairedViews | None) -> list[dict[str, Any]]:
    """Recalls of held-out pairs, next to those of their float vectors if the views are of one space."""
    if new is None:
        return []
    import numpy as np

    from fusehash import evaluation

    views = {name: new.block(name, slice(None)) for name in new}
    k, partners = min(K, new.n_rows), np.arange(new.n_rows)[:, None]
    if len(set(new.n_features.values())) > 1:
        codes = {name: model.encode(X, view=name) for name, X in views.items()}
        return [
            {"query_view": a, "item_view": b, "k": k,
             "pair_recall": float(evaluation.pair_recall(codes[a], codes[b], k=k)[0])}
            for a in views for b in views if a != b
        ]  # fmt: skip
    scores = []
    for score in evaluation.evaluate_embeddings(model, views, k=k, candidates=max(CANDIDATES, k)):
        found = evaluation.nearest_by_cosine(views[score.query_view], views[score.item_view], k)
        scores.append({**score.row(), "k": k, "floats_pair_recall": evaluation.recall_of(found, partners)})
    return scores


def _write(
    out: Path, model: CrossModalHasher, stored: dict[str, Any], facts: dict[str, Any], *, with_factors: bool,
    report: Progress,
) -> None:  # fmt: skip
    """The folder, completely or not at all."""
    from fusehash.files import draft_folder, sync_folder, write_atomically

    try:
        with draft_folder(out.absolute()) as draft:
            model.save(draft / "model.safetensors")
            for name, matrix in stored.items():
                _write_view(draft, model, name, matrix, with_factors=with_factors, report=report)
            text = json.dumps(facts, indent=2, allow_nan=False).encode()
            write_atomically(draft / "report.json", lambda file: file.write(text))
            draft.rename(out.absolute())
            sync_folder(out.absolute().parent)
    except OSError as error:
        reason = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise DataError(f"The folder {out} could not be written: {reason}.") from error


def _write_view(
    folder: Path, model: CrossModalHasher, name: str, matrix: Any, *, with_factors: bool, report: Progress
) -> None:
    from fusehash.streams.writers import encode_rows, encode_with_factors

    if not with_factors:
        encode_rows(model, {name: matrix}, fused=False, out=folder / f"{name}.npy", report=report)
        return
    (folder / "factors").mkdir(exist_ok=True)
    files = {"out": folder / f"{name}.npy", "factors": folder / "factors" / f"{name}.npy"}
    encode_with_factors(model, name, matrix, **files, report=report)


def _show(facts: dict[str, Any]) -> None:
    views = " + ".join(f"{name} ({view['features']:,})" for name, view in facts["views"].items())
    alone = facts["n_learned"] - facts["n_pairs"]
    what = "pairs" if len(facts["views"]) > 1 else "rows"
    rows = f"{facts['n_pairs']:,} {what}" + (f" and {alone:,} rows without a partner" if alone else "")
    say(
        f"Learned {facts['n_bits']}-bit codes for {facts['target']} from {rows}: {views}. "
        f"Took {facts['fit_seconds']:.1f} s."
    )
    if facts["scores"]:
        print_table(*_table(facts["scores"]))
        say(
            f"Measured on {facts['n_held_out']:,} pairs that were not learned from. "
            "They were searched among themselves: among more items, fewer are found."
        )
    else:
        say("Not measured: no pairs were held out; see --held-out.")
    written = ", ".join(("model.safetensors", *(f"{name}.npy" for name in facts["views"])))
    floats = max(4 * view["features"] for view in facts["views"].values())
    say(
        f"Wrote {written}{', factors/' if facts['target'] == 'floats' else ''} and report.json to {facts['folder']}: "
        f"{facts['bytes_per_item']} bytes per item instead of {floats:,} as float32."
    )


def _table(scores: list[dict[str, Any]]) -> tuple[list[str], Iterator[list[str]]]:
    names = {
        "recall": "recall@{k} of floats", "rescored_recall": f"of {CANDIDATES} rescored", "pair_recall": "partner@{k}",
        "rescored_pair_recall": f"of {CANDIDATES} rescored", "floats_pair_recall": "partner@{k}, floats",
    }  # fmt: skip
    shown = [name for name in names if name in scores[0]]
    heads = ["direction", *(names[name].format(k=scores[0]["k"]) for name in shown)]
    rows = ([f"{s['query_view']} -> {s['item_view']}", *(f"{s[name]:.3f}" for name in shown)] for s in scores)
    return heads, rows
