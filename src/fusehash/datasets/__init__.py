"""Loaders of the benchmark files and of generic paired files, and a generator with a known answer."""

from __future__ import annotations

from fusehash.datasets.base import PairedDataset
from fusehash.datasets.loading import load, names
from fusehash.datasets.mixture import ClassMixture
from fusehash.datasets.photos import PhotoDataset, load_photos
from fusehash.datasets.synthetic import SyntheticDataset, make_paired

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
