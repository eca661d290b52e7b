"""What the API reference documents: every public name, each on one page, under the module that defines it."""

from __future__ import annotations

import inspect
from importlib import import_module
from types import ModuleType

# Page -> modules, whose __all__ is documented, or single objects. An object is on the first page that has it.
PAGES: dict[str, tuple[str, ...]] = {
    "Learn codes": (
        "hashers.fusehash.FuseHash", "hashers.agsfh.AGSFH", "hashers.controls.RegressionHasher",
        "hashers.base.CrossModalHasher", "hashers.load", "hashers.make", "hashers.get", "hashers.names",
    ),
    "Every method": ("hashers",),
    "Search": ("search",),
    "Retriever": ("retriever.Retriever", "retriever.RetrieverError"),
    "Collections": ("collection",),
    "Encoders": ("encoders", "encoders.base.Encoder"),
    "Evaluate": ("evaluation",),
    "Plots": ("plots",),
    "Views and streams": ("views.PairedViews", "streams"),
    "Data sets": ("datasets", "datasets.verification.verify", "datasets.verification.Verification"),
    "Near-duplicates": ("dedupe", "search.near.groups"),
    "Exchange codes": ("search.exchange", "bits"),
    "Adapters": (
        "integrations.sklearn.HashTransformer", "integrations.langchain.FusehashVectorStore",
        "integrations.llama_index.FusehashVectorIndex", "integrations.haystack.FusehashDocumentStore",
        "integrations.haystack.FusehashEmbeddingRetriever", "integrations.datasets.add_hamming_index",
        "integrations.datasets.HammingDatasetIndex", "integrations.datasets.views_of",
        "integrations.dataframes", "integrations.duckdb",
    ),
    "Test a method": ("testing",),
    "Errors": ("errors",),
}  # fmt: skip
WITHOUT_MEMBERS = ("Every method",)  # what these classes share is on the page of CrossModalHasher
NEEDS_PACKAGES = ("integrations.",)  # not imported to write the pages


def names_by_page() -> dict[str, list[str]]:
    """The full names of what every page documents."""
    pages: dict[str, list[str]] = {}
    seen: set[str] = set()
    for title, entries in PAGES.items():
        names = [name for entry in entries for name in _names(entry) if name not in seen]
        seen.update(names)
        pages[title] = list(dict.fromkeys(names))
    return pages


def markdown(title: str, names: list[str]) -> str:
    """A page for mkdocstrings."""
    options = "\n    options:\n      members: false\n      inherited_members: false" * (title in WITHOUT_MEMBERS)
    return "\n\n".join([f"# {title}", *(f"::: {name}{options}" for name in names), ""])


def path_of(title: str) -> str:
    """The file of a page."""
    return f"reference/{title.lower().replace(' ', '-')}.md"


def index(pages: dict[str, list[str]]) -> str:
    """The page that lists all pages and names."""
    lines = ["# API reference", "", "Everything public, from its docstrings.", ""]
    for title, names in pages.items():
        file = path_of(title).partition("/")[2]
        links = (f"[`{name.rpartition('.')[2]}`][{name}]" for name in names)
        lines += [f"**[{title}]({file})**: {', '.join(links)}", ""]
    return "\n".join(lines)


def _names(entry: str) -> list[str]:
    """Full names for a module (all that is public in it) or an object."""
    if entry.startswith(NEEDS_PACKAGES):
        return [f"fusehash.{entry}"]
    room, _, last = entry.rpartition(".")
    parent = import_module(f"fusehash.{room}" if room else "fusehash")
    value = getattr(parent, last, None) or import_module(f"fusehash.{entry}")
    if not isinstance(value, ModuleType):
        return [_defined(parent, last)]
    public = getattr(value, "__all__", None) or [
        name
        for name, member in vars(value).items()
        if not name.startswith("_") and getattr(member, "__module__", None) == value.__name__ and callable(member)
    ]
    extra = _encoders() if entry == "encoders" else []
    return [*(_defined(value, name) for name in public if not isinstance(getattr(value, name), ModuleType)), *extra]


def _defined(module: ModuleType, name: str) -> str:
    """The full name of an object where it is defined; the documentation is read there, and nothing is run."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{module.__name__}.{name}"


def _encoders() -> list[str]:
    from fusehash.encoders import ENCODERS

    return list(dict.fromkeys(f"fusehash.encoders.{module}.{name}" for module, name in ENCODERS.values()))
