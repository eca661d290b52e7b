"""Wide sparse views: bags of words about topics."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def wide_words(n_rows: int, n_words: int = 2000, seed: int = 0) -> tuple[dict[str, Any], Any]:
    """Two views of words about one of ten topics, sparse, and the topics."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 10, n_rows)
    views = {}
    for name in ("abstract", "title"):
        words = rng.dirichlet(np.full(n_words, 0.02), 10)
        views[name] = sp.csr_array(np.array([rng.multinomial(30, words[topic]) > 0 for topic in topics], float))
    return views, topics
