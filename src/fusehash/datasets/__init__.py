"""Paired datasets: benchmark files, your own files and photo folders, and synthetic data with a known best ranking."""

from __future__ import annotations

from fusehash.datasets.base import PairedDataset
from fusehash.datasets.loading import load, names
from fusehash.datasets.photos import PhotoDataset, load_photos
from fusehash.datasets.synthetic import ClassMixture, SyntheticDataset, make_paired

__all__ = [
    "ClassMixture",
    "PairedDataset",
    "PhotoDataset",
    "SyntheticDataset",
    "load",
    "load_photos",
    "make_paired",
    "names",
]
