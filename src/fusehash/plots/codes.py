"""Pictures of codes: how even their bits are, how much the bits repeat each other, the shared space, and drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fusehash import bits
from fusehash.errors import DataError
from fusehash.plots.drawing import (
    COLORS,
    FONT,
    INK,
    QUIET,
    Line,
    Plot,
    Scale,
    label_axes,
    line_chart,
    make_axes,
    style,
    text_as_text,
)
from fusehash.views import Floats

MAX_POINTS = 2000  # of one view in the picture of the shared space
MAP_SIZE = (330.0, 300.0)
BOUND = 0.8  # beyond this mean a bit hardly separates anything; `FuseHash.fit` warns


def code_balance(codes: ArrayLike | Mapping[str, ArrayLike], n_bits: int | None = None) -> Plot:
    """The mean of every bit, most uneven first: 0 is a bit that splits the items in halves, 1 a constant bit.

    Parameters
    ----------
    codes : array of uint8 (n, n_bytes) or mapping of str to such arrays
        Packed codes; several sets become one line each, such as training items and new items.
    n_bits : int, optional
        Length of the codes; all bits of their bytes by default.

    Returns
    -------
    Plot

    Raises
    ------
    DataError
        If there are no codes, or they are not packed codes of this length.

    Examples
    --------
    >>> import fusehash as fh
    >>> codes = fh.bits.pack([[1, -1, 1, 1, 1, 1, 1, 1], [1, 1, -1, 1, -1, 1, -1, 1]])
    >>> fh.plots.code_balance(codes).description
    'Largest |mean| of a bit: codes 1.00.'
    """
    sets = codes if isinstance(codes, Mapping) else {"codes": codes}
    evenness = {name: np.sort(np.abs(_signs(part, n_bits, name).mean(axis=0)))[::-1] for name, part in sets.items()}
    _check_any(evenness, "set of codes")
    lines = [Line(name, range(1, len(v) + 1), v, style(i)) for i, (name, v) in enumerate(evenness.items())]
    plot = line_chart(lines, title="Balance of the bits", x_label="bit, most uneven first", y_label="|mean| of the bit")
    axes = plot.figure.axes[0]
    axes.axhline(BOUND, color=QUIET, linewidth=0.9, linestyle=":")
    axes.set_ylim(0.0, 1.02)
    largest = ", ".join(f"{name} {values[0]:.2f}" for name, values in evenness.items())
    return Plot(plot.figure, plot.title, f"Largest |mean| of a bit: {largest}.")


def bit_correlation(codes: ArrayLike, n_bits: int | None = None) -> Plot:
    """The correlation of every pair of bits: dark squares are bits that repeat each other.

    Parameters
    ----------
    codes : array of uint8 (n, n_bytes)
        Packed codes.
    n_bits : int, optional
        Length of the codes; all bits of their bytes by default.

    Returns
    -------
    Plot

    Raises
    ------
    DataError
        If there are no codes, or they are not packed codes of this length.

    Examples
    --------
    >>> import fusehash as fh
    >>> codes = fh.bits.pack([[1, 1, 1, 1, -1, 1, 1, 1], [1, 1, -1, 1, -1, 1, -1, 1], [-1, -1, 1, 1, 1, 1, -1, 1]])
    >>> fh.plots.bit_correlation(codes).description
    'Root mean square correlation of two bits that vary: 0.69.'
    """
    R = correlations(_signs(codes, n_bits, "codes"))
    off = R[~np.eye(len(R), dtype=bool)]
    off = off[np.isfinite(off)]
    rms = float(np.sqrt(np.mean(off**2))) if off.size else 0.0
    return _heat_map(np.abs(np.nan_to_num(R)), rms)


def correlations(B: Floats) -> Floats:
    """Correlations of the columns of signs; NaN for columns that are constant."""
    centered = B - B.mean(axis=0)
    lengths = np.sqrt((centered**2).sum(axis=0))
    varies = lengths > 0
    unit = np.divide(centered, lengths, out=np.full_like(centered, np.nan), where=varies)
    return np.asarray(unit.T @ unit)


@text_as_text()
def _heat_map(R: Floats, rms: float) -> Plot:
    figure, axes = make_axes(*MAP_SIZE, left=40, right=48, bottom=36)
    axes.grid(visible=False)
    image = axes.imshow(R, vmin=0.0, vmax=1.0, cmap="Greys", interpolation="nearest", aspect="auto")
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.03)
    bar.ax.tick_params(labelsize=FONT - 1, colors=INK)
    bar.outline.set_visible(False)
    label_axes(axes, "Correlation of the bits", "bit", "bit")
    sentence = f"Root mean square correlation of two bits that vary: {rms:.2f}."
    return Plot(figure, "Correlation of the bits", sentence)


def shared_space(projections: Mapping[str, ArrayLike], labels: ArrayLike | None = None) -> Plot:
    """All views in one plane: the two directions in which their projections vary most (PCA, no random layout).

    Parameters
    ----------
    projections : mapping of str to array of float (n, n_bits)
        `model.project(X, view=name)` of every view; rows that belong together have equal numbers.
    labels : array of int or str (n,), optional
        Colors; without labels, a view is a color.

    Returns
    -------
    Plot

    Raises
    ------
    DataError
        If the views do not have equal shapes or hold NaN, or labels are not one per row.

    Examples
    --------
    >>> import numpy as np
    >>> import fusehash as fh
    >>> P = np.random.default_rng(0).normal(size=(30, 8))
    >>> fh.plots.shared_space({"image": P, "text": P + 0.1}).title
    'Shared space of image and text'
    """
    arrays = {name: np.asarray(P, dtype=np.float64) for name, P in projections.items()}
    _check_any(arrays, "view")
    shapes = {name: P.shape for name, P in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) != 2 or 0 in shape for shape in shapes.values()):
        raise DataError(f"Projections must be matrices (n, n_bits) of equal shape. Got {shapes} instead.")
    if not all(np.isfinite(P).all() for P in arrays.values()):
        raise DataError("Projections must be finite numbers. Got NaN or infinity.")
    n = next(iter(shapes.values()))[0]
    colors = None if labels is None else np.asarray(labels)
    if colors is not None and colors.shape != (n,):
        raise DataError(f"Labels must be one per row ({n}). Got an array of shape {colors.shape} instead.")
    rows = np.unique(np.linspace(0, n - 1, min(n, MAX_POINTS)).astype(int))
    stacked = np.concatenate([P[rows] for P in arrays.values()])
    plane, share = principal_plane(stacked)
    points = dict(zip(arrays, np.split(plane, len(arrays)), strict=True))
    return _scatter(points, None if colors is None else colors[rows], share)


def principal_plane(X: Floats) -> tuple[Floats, float]:
    """Coordinates in the two leading principal directions, with fixed signs, and their share of the variance."""
    centered = X - X.mean(axis=0)
    _, s, Vt = np.linalg.svd(centered, full_matrices=False)
    V = Vt[:2]
    V = V * np.sign(V[np.arange(len(V)), np.abs(V).argmax(axis=1)])[:, None]
    plane = centered @ V.T
    total = float((s**2).sum())
    share = float((s[:2] ** 2).sum()) / total if total else 1.0
    return np.pad(plane, ((0, 0), (0, 2 - plane.shape[1]))), share


@text_as_text()
def _scatter(points: Mapping[str, Floats], labels: Any, share: float) -> Plot:
    groups = [None] if labels is None else list(np.unique(labels))
    longest = max(len(str(name)) for name in (points if labels is None else groups))
    figure, axes = make_axes(400.0, 300.0, left=40, right=28 + 0.55 * FONT * longest, bottom=36)
    for i, (name, plane) in enumerate(points.items()):
        for j, group in enumerate(groups):
            chosen = slice(None) if group is None else labels == group
            color = COLORS[(i if group is None else j) % len(COLORS)]
            label = name if group is None else str(group) if i == 0 else None
            axes.plot(
                *plane[chosen].T, linestyle="none", marker="osD^v"[i % 5], markersize=3.2, color=color, alpha=0.55,
                markeredgewidth=0, label=label,
            )  # fmt: skip
    axes.legend(
        loc="upper left", bbox_to_anchor=(1.0, 1.03), frameon=False, fontsize=FONT - 1.2, labelcolor=INK,
        borderaxespad=0.4, handletextpad=0.1,
    )  # fmt: skip
    axes.set_aspect("equal", adjustable="datalim")
    title = f"Shared space of {' and '.join(points)}"
    label_axes(axes, title, "first principal direction", "second")
    return Plot(figure, title, f"The plane holds {share:.0%} of the variance of the projections.")


def drift(reference: ArrayLike, batches: Sequence[ArrayLike], n_bits: int | None = None) -> Plot:
    """How far the bits of later batches move away from those the model was fitted on.

    Parameters
    ----------
    reference : array of uint8 (n, n_bytes)
        Codes of training items, or of the first items.
    batches : sequence of arrays of uint8 (n_i, n_bytes)
        Codes of later items, in the order in which they came.
    n_bits : int, optional
        Length of the codes; all bits of their bytes by default.

    Returns
    -------
    Plot
        Two lines over the batches: the mean and the largest change of the mean of a bit.

    Raises
    ------
    DataError
        If there are no batches, or they are not packed codes of this length.

    Examples
    --------
    >>> import numpy as np
    >>> import fusehash as fh
    >>> codes = np.random.default_rng(0).integers(0, 256, (400, 4), dtype=np.uint8)
    >>> fh.plots.drift(codes, [codes[:200], codes[200:] | 1]).title
    'Drift of the bits'
    """
    if len(batches) == 0:
        raise DataError("Drift needs at least one batch of codes. Got none.")
    start = _signs(reference, n_bits, "reference").mean(axis=0)
    moved = [np.abs(_signs(batch, n_bits, f"batch {i}").mean(axis=0) - start) for i, batch in enumerate(batches, 1)]
    x = range(1, len(moved) + 1)
    lines = [
        Line("largest", x, [float(values.max()) for values in moved], style(0, strong=True)),
        Line("mean", x, [float(values.mean()) for values in moved], style(1)),
    ]
    scale: Scale = "ordinal" if len(x) <= 12 else "linear"
    y_label = "change of a bit's mean"
    return line_chart(lines, title="Drift of the bits", x_label="batch", y_label=y_label, x_scale=scale)


def _signs(codes: ArrayLike, n_bits: int | None, what: str) -> Floats:
    """The -1 and +1 behind packed codes."""
    packed = bits.check_codes(codes, what=what.capitalize())
    if not len(packed):
        raise DataError(f"A picture needs codes. Got none in {what!r}.")
    return bits.unpack(packed, n_bits or 8 * packed.shape[1]).astype(np.float64)


def _check_any(parts: Mapping[str, Any], what: str) -> None:
    if not parts:
        raise DataError(f"A picture needs at least one {what}. Got none.")
