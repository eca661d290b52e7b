"""How much one visitor may ask for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from fusehash.parameters import check_integer


@dataclass(frozen=True)
class Limits:
    """Bounds on what is read, computed and answered; together they bound the memory.

    upload_bytes : of an image to search with, and of one that is added.
    upload_pixels : of an image; more are refused before it is decoded.
    uploads : requests with a body that may be under way at once; more are told to come back.
    upload_seconds : that a body may take to arrive.
    encoders : images that are decoded and encoded at once.
    searches : by text, item or code that are worked on at once; more would only take turns on Python's lock.
    text_length : characters of a text to search for.
    results : of one search, and items of one page.
    batch_items, batch_bytes : that may be added in one request.
    """

    upload_bytes: int = 10_000_000
    upload_pixels: int = 32_000_000
    uploads: int = 8
    upload_seconds: int = 30
    encoders: int = 2
    searches: int = 2
    text_length: int = 1_000
    results: int = 200
    batch_items: int = 100
    batch_bytes: int = 40_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            check_integer("Limits", field.name, getattr(self, field.name), low=1)
