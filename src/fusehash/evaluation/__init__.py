"""Metrics of rankings with exact ties, curves, and the four protocols."""

from __future__ import annotations

from fusehash.evaluation.curves import (
    PrecisionRecall,
    precision_at,
    precision_recall_by_radius,
    precision_recall_by_rank,
)
from fusehash.evaluation.embeddings import (
    EmbeddingScores,
    evaluate_embeddings,
    nearest_by_cosine,
    recall_of,
    rescored,
)
from fusehash.evaluation.inspection import EmbeddingInspection, inspect_embeddings
from fusehash.evaluation.map_rules import MAP_RULES, MapRule
from fusehash.evaluation.metrics import (
    METRICS,
    Metric,
    average_precision,
    mean_average_precision,
    ndcg,
    ndcg_per_query,
    pair_auc,
    pair_recall,
)
from fusehash.evaluation.protocols import PROTOCOLS
from fusehash.evaluation.relevance import Relevance
from fusehash.evaluation.result import EvaluationResult, Score
from fusehash.evaluation.runs import evaluate

__all__ = [
    "MAP_RULES",
    "METRICS",
    "PROTOCOLS",
    "EmbeddingInspection",
    "EmbeddingScores",
    "EvaluationResult",
    "MapRule",
    "Metric",
    "PrecisionRecall",
    "Relevance",
    "Score",
    "average_precision",
    "evaluate",
    "evaluate_embeddings",
    "inspect_embeddings",
    "mean_average_precision",
    "ndcg",
    "ndcg_per_query",
    "nearest_by_cosine",
    "pair_auc",
    "pair_recall",
    "precision_at",
    "precision_recall_by_radius",
    "precision_recall_by_rank",
    "recall_of",
    "rescored",
]
