"""Every method in one list: what it is, where it comes from, and how sure we are that this is it.

Nothing is imported to read the list of names; a class is imported when it is asked for. Methods of other packages:

    installed    a package names its classes in the entry points of the group "fusehash.hashers"
    allowed      `allow("my_package:MyHasher")`, which only a user calls, never data
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Literal, TypeAlias

from fusehash.errors import DataError, FusehashError, ParameterError, warn

if TYPE_CHECKING:
    from fusehash.hashers.base import CrossModalHasher

# A supervised method learns from labels; a control is what a good method must beat; a quantizer copies embeddings.
Kind: TypeAlias = Literal["unsupervised", "supervised", "control", "quantizer"]
KINDS: tuple[Kind, Kind, Kind, Kind] = ("unsupervised", "supervised", "control", "quantizer")
OURS = ("fusehash", "agsfh")


@dataclass(frozen=True)
class MethodInfo:
    """One method."""

    name: str  # what `make` calls it
    title: str  # what papers call it
    kind: Kind
    year: int
    reference: str
    basis: str  # how sure we are: "author code known", "textbook", "reconstructed from text" or "this project";
    # for a method of another package the name of the package
    package: str  # where it is; in a folder of methods, the module has the name of the method
    class_name: str
    version: str = ""  # of another package

    @property
    def module(self) -> str:
        """The full name of its module."""
        if self.package not in _FOLDERS:
            return self.package
        return f"fusehash.hashers.{self.package}" + (f".{self.name}" if self.package in (_B, _R, _D, _Z) else "")

    @property
    def is_deep(self) -> bool:
        """Whether `fit` trains networks and needs PyTorch."""
        return self.package == _D

    def load(self) -> type[CrossModalHasher]:
        """The class."""
        cls: type[CrossModalHasher] = getattr(import_module(self.module), self.class_name)
        return cls


_CODE, _TEXTBOOK, _TEXT, _OURS = "author code known", "textbook", "reconstructed from text", "this project"
_U, _S, _C, _Q = KINDS
_B, _R, _D, _K, _Z = "baselines", "reconstructed", "deep", "controls", "quantizers"
_FOLDERS = (*OURS, _B, _R, _D, _K, _Z)
GROUP = "fusehash.hashers"  # of entry points
_ADDRESS = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_allowed: dict[str, MethodInfo] = {}

METHODS: dict[str, MethodInfo] = {
    entry[0]: MethodInfo(*entry)
    for entry in (
        ("fusehash", "FuseHash", _U, 2026, "closed form of this project, the default", _OURS, "fusehash", "FuseHash"),
        ("agsfh", "AGSFH", _U, 2022, "Anchor Graph Structure Fusion Hashing", _OURS, "agsfh", "AGSFH"),
        ("fsh", "FSH", _U, 2017, "Fusion Similarity Hashing, CVPR 2017", _CODE, _B, "FSH"),
        ("rfdh", "RFDH", _U, 2018, "Robust and Flexible Discrete Hashing, TCSVT 2018", _CODE, _B, "RFDH"),
        ("jimfh", "JIMFH", _U, 2020, "Joint and Individual Matrix Factorization Hashing, PR 2020", _CODE, _B, "JIMFH"),
        ("cmfh", "CMFH", _U, 2014, "Collective Matrix Factorization Hashing, CVPR 2014", _CODE, _B, "CMFH"),
        ("imh", "IMH", _U, 2013, "Inter-Media Hashing, SIGMOD 2013", _CODE, _B, "IMH"),
        ("lssh", "LSSH", _U, 2014, "Latent Semantic Sparse Hashing, SIGIR 2014", _CODE, _B, "LSSH"),
        ("cvh", "CVH", _U, 2011, "Cross-View Hashing, IJCAI 2011 (its unsupervised form)", _TEXTBOOK, _B, "CVH"),
        ("cca_itq", "CCA-ITQ", _U, 2011, "Iterative Quantization, CVPR 2011", _TEXTBOOK, _B, "CCAITQ"),
        ("pdh", "PDH", _U, 2013, "Predictable Dual-view Hashing, ICML 2013", _TEXT, _R, "PDH"),
        ("csgh", "CSGH", _U, 2018, "Collaborative Subspace Graph Hashing, ICMR 2018", _TEXT, _R, "CSGH"),
        ("bgdh", "BGDH", _U, 2018, "Hypergraph-based Discrete Hashing, 2018", _TEXT, _R, "BGDH"),
        ("jchr", "JCHR", _U, 2016, "Joint Coupled-Hashing Representation, 2016", _TEXT, _R, "JCHR"),
        ("agh", "AGH", _U, 2011, "Hashing with Graphs, ICML 2011, each view on its own", _CODE, _B, "AGH"),
        ("scm", "SCM", _S, 2014, "Semantic Correlation Maximization, AAAI 2014", _CODE, _B, "SCM"),
        ("seph", "SePH", _S, 2015, "Semantics-Preserving Hashing, CVPR 2015", _CODE, _B, "SePH"),
        ("fdch", "FDCH", _S, 2018, "Fast Discrete Cross-modal Hashing, ACM MM 2018", _TEXT, _R, "FDCH"),
        ("adch", "ADCH", _S, 2018, "Asymmetric Discrete Cross-modal Hashing, ICMR 2018", _TEXT, _R, "ADCH"),
        ("scvh", "CVH with labels", _S, 2011, "Cross-View Hashing, IJCAI 2011", _TEXT, _R, "SupervisedCVH"),
        ("djsrh", "DJSRH", _U, 2019, "Deep Joint-Semantics Reconstructing Hashing, ICCV 2019", _CODE, _D, "DJSRH"),
        ("jdsh", "JDSH", _U, 2020, "Joint-modal Distribution-based Similarity Hashing, SIGIR 2020", _CODE, _D, "JDSH"),
        ("dgcpn", "DGCPN", _U, 2021, "Deep Graph-neighbor Coherence Preserving Network, AAAI 2021", _CODE, _D, "DGCPN"),
        ("cirh", "CIRH", _U, 2022, "Correlation-Identity Reconstruction Hashing, TKDE 2022", _CODE, _D, "CIRH"),
        ("ucch", "UCCH", _U, 2023, "Unsupervised Contrastive Cross-modal Hashing, TPAMI 2023", _CODE, _D, "UCCH"),
        ("dbrc", "DBRC", _U, 2017, "Deep Binary Reconstruction, ACM MM 2017", _TEXT, _D, "DBRC"),
        ("dcmh", "DCMH", _S, 2017, "Deep Cross-Modal Hashing, CVPR 2017", _CODE, _D, "DCMH"),
        ("ddcmh", "DDCMH", _S, 2018, "Dual Deep Neural Networks Cross-Modal Hashing, AAAI 2018", _TEXT, _D, "DDCMH"),
        ("regression", "REG", _C, 2026, "signs and regression: AGSFH without its graph", _OURS, _K, "RegressionHasher"),
        ("random", "CCA + random rotation", _C, 2026, "CCA, randomly rotated", _OURS, _K, "RandomRotationHasher"),
        ("sign", "sign", _Q, 2024, "signs of embeddings, as databases binarize them", _TEXTBOOK, _Z, "SignQuantizer"),
        (
            "centered_sign",
            "own-mean sign",
            _Q,
            2026,
            "signs after own mean, rotated",
            _OURS,
            _Z,
            "CenteredSignQuantizer",
        ),
        ("itq", "ITQ", _Q, 2011, "Iterative Quantization, CVPR 2011, without pairs", _TEXTBOOK, _Z, "ITQ"),
        ("rabitq", "RaBitQ", _Q, 2024, "RaBitQ, SIGMOD 2024, one bit per dimension", _TEXTBOOK, _Z, "RaBitQ"),
        ("pq", "PQ", _Q, 2011, "Product Quantization, TPAMI 2011, by faiss", _TEXTBOOK, _Z, "ProductQuantizer"),
    )
}


def info(name: str) -> MethodInfo:
    """What is known of one method; the class is imported if it is of another package."""
    entry = METHODS.get(name) or _allowed.get(name)
    if entry is not None:
        return entry
    if name in installed():
        return _of_entry_point(name)
    expected = f"one of {', '.join(map(repr, method_names()))}"
    raise ParameterError("hashers", "name", expected + ", or a class that you allow" * is_address(name), name)


def catalogue(kind: Kind | None = None) -> list[MethodInfo]:
    """Every method, or those of one kind; a method of another package that cannot be imported is left out."""
    if kind is not None and kind not in KINDS:
        raise ParameterError("hashers", "kind", f"one of {', '.join(map(repr, KINDS))}", kind)
    entries = [*METHODS.values(), *_allowed.values()]
    for name in installed():
        try:
            entries.append(_of_entry_point(name))
        except FusehashError as error:
            warn(str(error))
    return [entry for entry in entries if kind in (None, entry.kind)]


def method_names() -> list[str]:
    """The names of all methods; nothing is imported."""
    return [*METHODS, *_allowed, *installed()]


@cache
def installed() -> dict[str, EntryPoint]:
    """The methods that other packages bring, by name; a name that fusehash has itself is left out."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in METHODS}


def is_address(name: str) -> bool:
    """Whether a name is of the form my_package.my_module:MyHasher."""
    return _ADDRESS.fullmatch(name) is not None


def allow(address: str) -> MethodInfo:
    """Make the class my_package:MyHasher a method of this process, under that name.

    This imports the package, which runs its code: call it with what the user has named, never with what data names.
    """
    if address not in _allowed:
        package, _, class_name = address.partition(":")
        if not is_address(address):
            raise DataError(
                f"A method of another package must be named as my_package:MyHasher. Got {address!r} instead."
            )
        try:
            cls = getattr(import_module(package), class_name)
        except Exception as error:  # whatever its code raises
            raise _unusable(address, package, error) from error
        _allowed[address] = _described(address, cls, package, "")
    return _allowed[address]


def class_of(method: str) -> type[CrossModalHasher] | None:
    """The class whose attribute `method` a model file holds; None if there is none."""
    if method in METHODS or method in installed():
        return info(method).load()
    return next((cls for entry in _allowed.values() if (cls := entry.load()).method == method), None)


@cache
def _of_entry_point(name: str) -> MethodInfo:
    entry = installed()[name]
    owner = entry.dist.name if entry.dist is not None else entry.module
    try:
        cls = entry.load()
    except Exception as error:  # whatever its code raises
        raise _unusable(name, owner, error) from error
    return _described(name, cls, owner, entry.dist.version if entry.dist is not None else "")


def _described(name: str, cls: object, owner: str, version: str) -> MethodInfo:
    """A class of another package as an entry of the catalogue."""
    from fusehash.hashers.base import CrossModalHasher

    if not (isinstance(cls, type) and issubclass(cls, CrossModalHasher)):
        raise DataError(f"The method {name!r} must be a class derived from fusehash's CrossModalHasher. Got {cls!r}.")
    if not is_address(name) and cls.method != name:
        raise DataError(
            f"The class {cls.__name__} of {owner} must have the attribute method = {name!r}, the name that it is "
            f"registered under. Got {cls.method!r} instead."
        )
    title, kind = str(getattr(cls, "title", cls.__name__)), "supervised" if cls.supervised else "unsupervised"
    year, reference = int(getattr(cls, "year", 0)), str(getattr(cls, "reference", "") or cls.summary)
    return MethodInfo(name, title, kind, year, reference, owner, cls.__module__, cls.__qualname__, version)  # type: ignore[arg-type]


def _unusable(name: str, owner: str, error: Exception) -> DataError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return DataError(f"The method {name!r} of {owner} cannot be imported: {reason}")
