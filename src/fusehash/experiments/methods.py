"""Methods as experiments know them: those of the catalogue, and codes that were made elsewhere, by any framework.

Codes made elsewhere are stored as runs of a method "codes/LABEL", or "labelled-codes/LABEL" if they were learned from
labels. Nothing can be fitted under these names.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from fusehash import hashers
from fusehash.errors import DataError
from fusehash.hashers.catalogue import Kind, allow, is_address

# Constructor arguments that are not settings of the method: a run has fields for them, or they do not change codes.
NOT_SETTINGS = ("n_bits", "random_state", "n_threads", "callback")
ELSEWHERE: dict[str, Kind] = {"codes/": "unsupervised", "labelled-codes/": "supervised"}
MAX_LABEL = 60


def made_elsewhere(label: str, *, supervised: bool = False) -> str:
    """The method under which codes with this label are stored."""
    if not label.isprintable() or not label.strip() or len(label) > MAX_LABEL:
        raise DataError(f"A label must be a line of at most {MAX_LABEL} characters. Got {label[:100]!r} instead.")
    return ("labelled-codes/" if supervised else "codes/") + label.strip()


def label_of(method: str) -> str:
    """The label of codes that were made elsewhere; "" for methods of the catalogue."""
    return next((method.removeprefix(prefix) for prefix in ELSEWHERE if method.startswith(prefix)), "")


def title_of(method: str) -> str:
    """What tables call a method."""
    return label_of(method) or hashers.info(method).title


def kind_of_method(method: str) -> Kind:
    """Unsupervised, supervised or control."""
    kinds = (kind for prefix, kind in ELSEWHERE.items() if method.startswith(prefix))
    return next(kinds, None) or hashers.info(method).kind


@cache
def settings_of(method: str) -> tuple[dict[str, Any], bool]:
    """The default settings of a method, and whether its codes can depend on the seed."""
    if label_of(method):
        return {}, True
    cls = hashers.get(method)
    defaults = {name: value for name, value in cls().get_params(deep=False).items() if name not in NOT_SETTINGS}
    return defaults, cls.seeded is not False


def versions_of(method: str) -> dict[str, str]:
    """The version of the package that a method comes from, if it is not fusehash."""
    entry = hashers.info(method)
    return {entry.basis: entry.version} if entry.version else {}


def file_stem(method: str) -> str:
    """The method as the start of a file name."""
    return re.sub(r"\W+", "-", method)


def check_method(method: Any, allowed: tuple[str, ...], where: str) -> str:
    """The name of a method that a specification may name.

    A class such as my_package:MyHasher is code that a file chooses. It is imported only if the user has allowed its
    package, by name; a package that is installed and registers its methods needs no permission.
    """
    if isinstance(method, str) and label_of(method):
        return method
    if isinstance(method, str) and is_address(method):
        module = method.partition(":")[0]
        parents = [module[:i] for i in range(len(module) + 1) if i == len(module) or module[i] == "."]
        if not {method, *parents} & set(allowed):
            package = module.partition(".")[0]
            raise DataError(
                f"{where} names {method!r}, code of another package, which a file may not choose. If you trust the "
                f"package, allow it: --allow {package}."
            )
        allow(method)
        return method
    if method not in hashers.names():
        names = ", ".join(hashers.names())
        raise DataError(f"Methods of {where} must be among {names}, or my_package:MyHasher. Got {method!r} instead.")
    return str(method)
