"""The only home of safetensors files and of atomic writes.

A fusehash file is a safetensors file: arrays as tensors, everything else as JSON in the header. The header's metadata
holds `format` (which kind of file), `version`, `checksum`, and one JSON document per entry. In it an array is
{"$array": tensor name} and a registered dataclass is {"$class": name, "fields": ...}. No code is ever loaded.
"""

from __future__ import annotations

from fusehash.files.atomic import (
    create_draft,
    draft_folder,
    make_folder,
    remove_stale_drafts,
    replacing,
    sync_folder,
    try_lock,
    unlock,
    write_atomically,
)
from fusehash.files.tensors import CHECKSUM, FileFormat, checksum_of
from fusehash.files.values import arrays_in, check_types, contiguous, storable

__all__ = [
    "CHECKSUM",
    "FileFormat",
    "arrays_in",
    "check_types",
    "checksum_of",
    "contiguous",
    "create_draft",
    "draft_folder",
    "make_folder",
    "remove_stale_drafts",
    "replacing",
    "storable",
    "sync_folder",
    "try_lock",
    "unlock",
    "write_atomically",
]
