"""Near pairs and groups of near-duplicates among the codes of an index."""

from __future__ import annotations

from fusehash.search.near.groups import near_groups
from fusehash.search.near.pairs import near_pairs

__all__ = ["near_groups", "near_pairs"]
