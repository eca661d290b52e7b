"""Every method in one list: what it is, where it comes from, and how sure we are that this is it.

Nothing is imported to read the list; a class is imported when it is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from fusehash.errors import ParameterError

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
    basis: str  # how sure we are: "author code known", "textbook", "reconstructed from text" or "this project"
    package: str  # where it is; in a folder of methods, the module has the name of the method
    class_name: str

    @property
    def module(self) -> str:
        """The full name of its module."""
        return f"fusehash.hashers.{self.package}" + (f".{self.name}" if self.package in (_B, _R, _Z) else "")

    def load(self) -> type[CrossModalHasher]:
        """The class."""
        cls: type[CrossModalHasher] = getattr(import_module(self.module), self.class_name)
        return cls


_CODE, _TEXTBOOK, _TEXT, _OURS = "author code known", "textbook", "reconstructed from text", "this project"
_U, _S, _C, _Q = KINDS
_B, _R, _K, _Z = "baselines", "reconstructed", "controls", "quantizers"

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
    """What is known of one method."""
    if name not in METHODS:
        raise ParameterError("hashers", "name", f"one of {', '.join(map(repr, METHODS))}", name)
    return METHODS[name]


def catalogue(kind: Kind | None = None) -> list[MethodInfo]:
    """Every method, or those of one kind."""
    if kind is not None and kind not in KINDS:
        raise ParameterError("hashers", "kind", f"one of {', '.join(map(repr, KINDS))}", kind)
    return [entry for entry in METHODS.values() if kind in (None, entry.kind)]
