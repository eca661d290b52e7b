"""Pictures of joint embeddings before anything is learned: what bits would buy, and how the views spread."""

from __future__ import annotations

import numpy as np

from fusehash.evaluation import EmbeddingInspection
from fusehash.plots.drawing import Line, Plot, line_chart, style

SIZE = (470.0, 290.0)  # in points


def recall_over_bits(inspection: EmbeddingInspection) -> Plot:
    """How much of the float ranking codes of several kinds keep, over their length; the mean of both directions.

    Parameters
    ----------
    inspection : EmbeddingInspection
        What `fusehash.evaluation.inspect_embeddings` returned.

    Returns
    -------
    Plot

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, views={"image": 16, "text": 16}, random_state=0)
    >>> found = fh.evaluation.inspect_embeddings(data.views, lengths=(16, 32))
    >>> fh.plots.recall_over_bits(found).title
    'What bits would buy: recall@10 of the floats'
    """
    lengths = inspection.lengths
    kinds, lines = list(dict.fromkeys(entry.codes for entry in inspection.recalls)), []
    for is_rescored, suffix in ((False, ""), (True, ", rescored")):
        for i, kind in enumerate(kinds):
            recalls = [inspection.recall(kind, n_bits, is_rescored=is_rescored) for n_bits in lengths]
            number = i + len(kinds) * is_rescored
            lines.append(Line(f"{kind}{suffix}", lengths, recalls, style(number)))
    metric = f"recall@{inspection.k}"
    title = f"What bits would buy: {metric} of the floats"
    plot = line_chart(lines, title=title, x_label="bits", y_label=metric, x_scale="log2", names="list", size=SIZE)
    words = [f"{line.label} {line.y[-1]:.3f}" for line in lines]
    return Plot(plot.figure, title, f"At {lengths[-1]} bits, {inspection.candidates} rescored: {', '.join(words)}.")


def spectra(inspection: EmbeddingInspection) -> Plot:
    """Share of the variance of every view in its first directions.

    Parameters
    ----------
    inspection : EmbeddingInspection
        What `fusehash.evaluation.inspect_embeddings` returned.

    Returns
    -------
    Plot

    Examples
    --------
    >>> import fusehash as fh
    >>> data = fh.datasets.make_paired(n_samples=200, views={"image": 16, "text": 16}, random_state=0)
    >>> fh.plots.spectra(fh.evaluation.inspect_embeddings(data.views, lengths=(16,))).title
    'Share of the variance in the first directions'
    """
    lines, words = [], []
    for i, (name, eigenvalues) in enumerate(inspection.spectra.items()):
        shares = np.cumsum(eigenvalues) / np.sum(eigenvalues)
        lines.append(Line(name, range(1, len(shares) + 1), shares, style(i)))
        words.append(f"{name}: half of the variance in {int(np.searchsorted(shares, 0.5)) + 1} of {len(shares)}")
    title = "Share of the variance in the first directions"
    plot = line_chart(lines, title=title, x_label="directions", y_label="share", x_scale="log", names="list", size=SIZE)
    return Plot(plot.figure, title, f"{'; '.join(words)}.")
