"""Ranking metrics with ties done right, curves, and the four protocols."""

from __future__ import annotations

from fusehash.evaluation.ap import average_precision, mean_average_precision
from fusehash.evaluation.curves import (
    PrecisionRecall,
    precision_at,
    precision_recall_by_radius,
    precision_recall_by_rank,
)
from fusehash.evaluation.map_rules import MAP_RULES, MapRule
from fusehash.evaluation.ndcg import ndcg, ndcg_per_query
from fusehash.evaluation.pairs import pair_auc, pair_recall
from fusehash.evaluation.protocols import PROTOCOLS
from fusehash.evaluation.relevance import Relevance
from fusehash.evaluation.result import EvaluationResult, Score
from fusehash.evaluation.runner import evaluate

__all__ = [
    "MAP_RULES",
    "PROTOCOLS",
    "EvaluationResult",
    "MapRule",
    "PrecisionRecall",
    "Relevance",
    "Score",
    "average_precision",
    "evaluate",
    "mean_average_precision",
    "ndcg",
    "ndcg_per_query",
    "pair_auc",
    "pair_recall",
    "precision_at",
    "precision_recall_by_radius",
    "precision_recall_by_rank",
]
