"""Servers that keep the codes of a `HammingIndex` and answer its searches: PostgreSQL and Milvus."""
