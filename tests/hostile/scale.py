"""How many hostile cases to run: a few thousand in `make test-all`, the whole campaign in `make attack`; its report."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ATTACK = os.environ.get("FUSEHASH_ATTACK") == "1"


def cases(normal: int, attack: int) -> int:
    """`normal` cases, or `attack` in `make attack`, where FUSEHASH_ATTACK_SHARE=0.1 runs a tenth of them."""
    return max(1, round(attack * float(os.environ.get("FUSEHASH_ATTACK_SHARE", "1")))) if ATTACK else normal


def report(campaign: str, part: str, outcome: dict[str, Any]) -> None:
    """Print one part of a campaign, and store it in CAMPAIGN.json in the folder FUSEHASH_ATTACK_OUT if that is set."""
    sys.stdout.write(f"{campaign}, {part}: {json.dumps(outcome)}\n")
    if folder := os.environ.get("FUSEHASH_ATTACK_OUT"):
        path = Path(folder, f"{campaign}.json")
        stored = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**stored, part: outcome}, indent=2) + "\n")
