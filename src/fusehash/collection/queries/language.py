"""The query language: words, "phrases", -exclusions, label:, before:, after: and OR.

    red car                 words to rank by
    "red car"               only captions with these words next to each other
    -people -"red car"      no captions with a word or a phrase
    label:beach             only items with a label; -label:beach, only items without it
    after:2019 before:2020-06-15    from a day on; up to the day before
    red car OR blue bus     what fits the left or the right side; each side is a query of its own

Quotes around a value allow spaces: label:"old town". A year or a month stands for its first day.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date

from fusehash.errors import DataError

MAX_CLAUSES = 8
_TERM = re.compile(r'(?P<minus>-?)(?:(?P<field>label|before|after):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")


@dataclass(frozen=True)
class Clause:
    """One side of an OR: what to rank by, and what an item must and must not have."""

    text: str = ""
    phrases: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()  # words and phrases
    labels: tuple[str, ...] = ()
    excluded_labels: tuple[str, ...] = ()
    after: date | None = None  # the first day that is allowed
    before: date | None = None  # the first day that is not

    @property
    def is_empty(self) -> bool:
        return self == Clause()


def parse(query: str) -> tuple[Clause, ...]:
    """The clauses of a query; raises DataError for a date that is none and for a query that asks for nothing."""
    sides: list[list[re.Match[str]]] = [[]]
    for term in _TERM.finditer(query):
        if term[0] == "OR":
            sides.append([])
        else:
            sides[-1].append(term)
    clauses = tuple(dict.fromkeys(clause for side in sides if not (clause := _clause(side)).is_empty))
    if not clauses:
        raise DataError("A text to search for must have at least one word. Got none.")
    if len(clauses) > MAX_CLAUSES:
        raise DataError(f"A query may have at most {MAX_CLAUSES} sides of OR. Got {len(clauses)}.")
    return clauses


def _clause(terms: list[re.Match[str]]) -> Clause:
    words: list[str] = []
    named: dict[str, list[str]] = {"phrase": [], "-": [], "label": [], "-label": []}
    days: dict[str, date] = {}
    for term in terms:
        minus, field = term["minus"], term["field"]
        value = " ".join((term["plain"] if term["quoted"] is None else term["quoted"]).split())
        if field in ("before", "after") and not minus:
            day = _first_day(field, value)
            # Of several, the narrowest.
            days[field] = day if field not in days else (min if field == "before" else max)(day, days[field])
        elif field == "label" and value:
            named[f"{minus}label"].append(value)
        elif field or not value.strip("-"):  # what is left of a term, such as -before: or a dash between words
            words += [] if field is None else [term[0]]
        elif minus:
            named["-"].append(value)
        else:
            words.append(value)
            if term["quoted"] is not None:
                named["phrase"].append(value)
    phrases, excluded, labels, excluded_labels = (tuple(dict.fromkeys(values)) for values in named.values())
    return Clause(" ".join(words), phrases, excluded, labels, excluded_labels, days.get("after"), days.get("before"))


def _first_day(field: str, value: str) -> date:
    match = _DATE.fullmatch(value)
    try:
        if match is None:
            raise ValueError
        year, month, day = (1 if part is None else int(part) for part in match.groups())
        return date(year, month, day)
    except ValueError:
        raise DataError(f"A date must be like 2020, 2020-06 or 2020-06-15. Got {field}:{value!r}.") from None
