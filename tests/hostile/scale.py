"""How many hostile cases to run: a few thousand in `make test-all`, the whole campaign in `make attack`."""

from __future__ import annotations

import os

ATTACK = os.environ.get("FUSEHASH_ATTACK") == "1"


def cases(normal: int, attack: int) -> int:
    """`normal` cases, or `attack` in `make attack`, where FUSEHASH_ATTACK_SHARE=0.1 runs a tenth of them."""
    return max(1, round(attack * float(os.environ.get("FUSEHASH_ATTACK_SHARE", "1")))) if ATTACK else normal
