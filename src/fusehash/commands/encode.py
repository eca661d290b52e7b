"""`fusehash encode`: codes of items seen in one view, or fused from several."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusehash.commands import inputs
from fusehash.commands.terminal import print_json, progress, stdout
from fusehash.errors import DataError

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

EXAMPLE = """Example: fusehash encode wiki.safetensors wiki.npz --view text --rows query

A plain matrix: fusehash encode wiki.safetensors pictures.npy --view image"""

ENCODE_ROWS = 8192


class RowSet(str, Enum):
    """Which rows of a dataset."""

    train = "train"
    query = "query"
    database = "database"
    all = "all"


def encode(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fusehash fit wrote.")],
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A dataset (file, or name with --data), or a .npy matrix.")
    ],
    view: Annotated[str | None, typer.Option(help="Encode from this view alone.")] = None,
    fused: Annotated[bool, typer.Option("--fused", help="Encode from all views together.")] = False,
    rows: Annotated[RowSet, typer.Option(help="Which rows of a dataset.")] = RowSet.all,
    out: Annotated[Path, typer.Option("--out", "-o", help="The .npy file to write.")] = Path("codes.npy"),
    folder: inputs.Folder = None,
    split_seed: inputs.SplitSeed = 0,
    n_train: inputs.NTrain = None,
    stack_images: inputs.StackImages = False,
    as_json: inputs.Json = False,
) -> None:
    """Write the packed codes (rows, bits / 8) of DATA as a .npy file."""
    if fused == (view is not None):
        raise typer.BadParameter("give either --view NAME or --fused.", param_hint="'--view' / '--fused'")
    matrix_file = data.lower().endswith(".npy")
    if matrix_file and fused:
        raise typer.BadParameter("a .npy matrix is one view; name it with --view.", param_hint="'--fused'")
    if matrix_file and rows is not RowSet.all:
        raise typer.BadParameter("a .npy matrix has no split; only 'all' works.", param_hint="'--rows'")
    from fusehash import hashers

    inputs.check_target(out)
    hasher = hashers.load(model)
    views: Any
    if matrix_file:
        views = {view: read_matrix(Path(data))}
    else:
        dataset = inputs.load_data(data, folder, split_seed, n_train, stack_images)
        known = dataset.views.names
        if view is not None and view not in known:
            raise DataError(f"The view must be one of {', '.join(map(repr, known))} in {data}. Got {view!r} instead.")
        chosen = dataset.views if rows is RowSet.all else dataset.views.rows(getattr(dataset, rows.value))
        views = {name: chosen[name] for name in (known if view is None else [view])}
    codes = _encode(hasher, views, view)
    inputs.write_npy(out, codes)
    result = {
        "codes": str(out), "n": int(codes.shape[0]), "n_bits": int(hasher.n_bits), "view": view,
        "fused": fused, "rows": rows.value, "model": str(model), "data": data,
    }  # fmt: skip
    if as_json:
        print_json(result)
    else:
        seen = "all views together" if view is None else f"view '{view}'"
        stdout().print(
            f"Wrote {codes.shape[0]:,} codes of {hasher.n_bits} bits, from {seen}, to {out}.",
            soft_wrap=True,
            markup=False,
        )


def _encode(hasher: CrossModalHasher, views: dict[Any, Any], view: str | None) -> Any:
    import numpy as np

    n_rows = next(iter(views.values())).shape[0]
    parts = []
    with progress("encode") as report:
        for start in range(0, n_rows, ENCODE_ROWS):
            report(start, n_rows, f"row {start:,} of {n_rows:,}")
            block = {name: matrix[start : start + ENCODE_ROWS] for name, matrix in views.items()}
            parts.append(hasher.encode_fused(block) if view is None else hasher.encode(block[view], view=view))
    return np.concatenate(parts)


def read_matrix(path: Path) -> Any:
    """A plain .npy matrix, never unpickled."""
    import numpy as np

    try:
        matrix = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"The matrix was looked for at {path}, where there is no file.") from None
    except (ValueError, EOFError) as error:
        raise DataError(
            f"The file {path.name} must be an intact .npy file. It could not be read: {str(error).rstrip('.')}."
        ) from error
    if not isinstance(matrix, np.ndarray) or matrix.ndim != 2 or 0 in matrix.shape:
        raise DataError(
            f"The file {path.name} must hold a matrix (rows, features). Got shape {np.shape(matrix)} instead."
        )
    return matrix
