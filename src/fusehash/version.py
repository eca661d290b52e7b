"""The version of fusehash."""

__version__ = "0.1.0"
