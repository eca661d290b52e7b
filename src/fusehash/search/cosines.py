"""Cosines of pairs of a query and a stored vector, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusehash.numerics.compiled import compiled


@compiled(boundscheck=False, error_model="numpy", fastmath={"reassoc", "contract"})
def cosines(vectors: Any, queries: Any, query_of: Any, vector_of: Any) -> Any:
    """cos(queries[query_of[i]], vectors[vector_of[i]]) for all i; queries are in double precision."""
    lengths = np.empty(len(queries))
    for q in range(len(queries)):
        total = 0.0
        for j in range(queries.shape[1]):
            total += queries[q, j] * queries[q, j]
        lengths[q] = np.sqrt(total)
    result = np.empty(len(query_of))
    for i in range(len(query_of)):
        query, vector = queries[query_of[i]], vectors[vector_of[i]]
        product, square = 0.0, 0.0
        for j in range(len(query)):
            value = np.float64(vector[j])
            product += query[j] * value
            square += value * value
        result[i] = product / (lengths[query_of[i]] * np.sqrt(square))
    return result
