"""What public codes call "MAP@k", by name. Compare two numbers only if they follow the same rule.

All rules share precision@r = relevant items in the first r / r, and differ in which ranks are averaged, by what the sum
is divided, and over which queries the mean is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fusehash.errors import ParameterError
from fusehash.parameters import choice


@dataclass(frozen=True)
class MapRule:
    """One meaning of MAP@k.

    Attributes
    ----------
    name, definition, source : str
        The key in `MAP_RULES`, one sentence, and where the rule is used.
    cut : {"rank", "hits"}
        Average over relevant items inside the top k, or over the first min(k, all relevant) ones wherever they are.
    default_k : int or None
        The k of the code it comes from; None is the whole ranking.
    any_k : bool
        Whether another k is possible.
    skip_hopeless : bool
        Leave queries without any relevant item in the database out of the mean.
    phantom_queries : int
        Count queries that do not exist (with AP 0) in the mean.

    Examples
    --------
    >>> from fusehash.evaluation import MAP_RULES
    >>> MAP_RULES["E4"].definition
    'As E1 over the whole ranking, divided by all queries.'
    """

    name: str
    definition: str
    source: str
    cut: Literal["rank", "hits"] = "rank"
    default_k: int | None = None
    any_k: bool = False
    skip_hopeless: bool = False
    phantom_queries: int = 0

    def mean(self, values: NDArray[np.float64], has_relevant: NDArray[np.bool_]) -> float:
        """Mean over queries of their average precisions, as this rule takes it."""
        divisor = self.phantom_queries + int(has_relevant.sum() if self.skip_hopeless else len(values))
        return float(values.sum() / divisor) if divisor else 0.0


_RULES = (
    MapRule(
        "E1",
        "Mean of precision@r over the relevant ranks r <= k (divided by the relevant items inside the top k), 0 if "
        "there are none; mean over all queries.",
        "FSH (k = 100), CVH, IMH, LSSH (100, all, 50), CMFH eq. 15 (50), AGSFH (50)",
        default_k=50,
        any_k=True,
    ),
    MapRule("E2", "As E1; the demos print k = 100.", "RFDH, JIMFH map_rank.m", default_k=100, any_k=True),
    MapRule(
        "E3",
        "As E1 over the whole ranking; queries without any relevant item are left out of the mean.",
        "SePH perf_metric4Label.m",
        skip_hopeless=True,
    ),
    MapRule(
        "E3'",
        "As E3, but the counter of queries starts at 10 (a bug, kept for comparison): n / (n + 10) of E3.",
        "copies of perf_metric4Label.m in BMC-SDNU/Cross-Modal-Hashing-Retrieval",
        skip_hopeless=True,
        phantom_queries=10,
    ),
    MapRule("E4", "As E1 over the whole ranking, divided by all queries.", "DCMH calc_map, calcMap*.m"),
    MapRule(
        "E5",
        "Mean of precision at the first min(k, all relevant) relevant items, wherever they are in the whole ranking; "
        "mean over all queries. Not a MAP@k: items far beyond rank k count.",
        "WendellGul/DCMH calc_map_k",
        cut="hits",
        default_k=50,
        any_k=True,
    ),
    MapRule("E6", "As E1 with k = the size of the database.", "SCRATCH, BATCH mAP.m"),
)

MAP_RULES: Mapping[str, MapRule] = MappingProxyType({rule.name: rule for rule in _RULES})


def get_rule(name: Any, k: int | None, owner: str) -> MapRule:
    """The rule of that name, if it allows this k."""
    rule = MAP_RULES[choice(*MAP_RULES).check(owner, "rule", name)]
    if k is not None and not rule.any_k:
        raise ParameterError(owner, "k", f"None for rule {name}, which always averages over the whole ranking", k)
    return rule
