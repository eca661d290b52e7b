"""Near-duplicates: pictures of a folder that look alike, reports of them, and what may be done with them."""

from __future__ import annotations

from fusehash.dedupe.page import code_page, picture_page
from fusehash.dedupe.perceptual import as_hex, dhash, perceptual_hash, phash
from fusehash.dedupe.pictures import Member, Picture, PictureGroups, find
from fusehash.dedupe.removal import RemovalPlan, carry_out

__all__ = [
    "Member",
    "Picture",
    "PictureGroups",
    "RemovalPlan",
    "as_hex",
    "carry_out",
    "code_page",
    "dhash",
    "find",
    "perceptual_hash",
    "phash",
    "picture_page",
]
