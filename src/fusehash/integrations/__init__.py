"""Adapters for the tools that people use: one file per tool, each with an extra of its own."""
