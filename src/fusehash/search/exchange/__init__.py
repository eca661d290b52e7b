"""Codes to and from other libraries and databases, one file per format.

Others pack the first bit of a code into the highest bit of a byte, as NumPy does by default: "big". fusehash
packs it into the lowest: "little". Files are written in the order that their readers expect, "big" unless you say
otherwise, and converted when they are read. Formats that can say which order they have do so. Vectors and factors of an
index go with its codes, except into formats that hold codes alone.
"""

from __future__ import annotations

from fusehash.bits import looks_reversed
from fusehash.search.exchange.codes import ORDERS
from fusehash.search.exchange.formats import FORMATS, Imported, export_codes, format_of, holds_vectors, import_codes

__all__ = [
    "FORMATS",
    "ORDERS",
    "Imported",
    "export_codes",
    "format_of",
    "holds_vectors",
    "import_codes",
    "looks_reversed",
]
