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

Kind: TypeAlias = Literal["unsupervised", "supervised", "control"]
KINDS: tuple[Kind, ...] = ("unsupervised", "supervised", "control")


@dataclass(frozen=True)
class MethodInfo:
    """One method.

    name : what `make` calls it
    title : what papers call it
    kind : "unsupervised", "supervised" (learns from labels), "control" (what a good method must beat)
    year, reference : the publication
    basis : how sure we are: "author code known", "textbook", "reconstructed from text" or "this project"
    module, class_name : where it lives
    """

    name: str
    title: str
    kind: Kind
    year: int
    reference: str
    basis: str
    module: str
    class_name: str

    def load(self) -> type[CrossModalHasher]:
        """The class."""
        found: type[CrossModalHasher] = getattr(import_module(f"fusehash.hashers.{self.module}"), self.class_name)
        return found


_CODE, _TEXTBOOK, _TEXT, _OURS = "author code known", "textbook", "reconstructed from text", "this project"
_U: Kind = "unsupervised"
_S: Kind = "supervised"
_C: Kind = "control"

METHODS: dict[str, MethodInfo] = {
    entry[0]: MethodInfo(*entry)
    for entry in (
        ("agsfh", "AGSFH", _U, 2022, "Anchor Graph Structure Fusion Hashing", _OURS, "agsfh", "AGSFH"),
        ("fsh", "FSH", _U, 2017, "Fusion Similarity Hashing, CVPR 2017", _CODE, "fsh", "FSH"),
        ("rfdh", "RFDH", _U, 2018, "Robust and Flexible Discrete Hashing, TCSVT 2018", _CODE, "rfdh", "RFDH"),
        ("jimfh", "JIMFH", _U, 2020, "Joint and Individual Matrix Factorization Hashing, PR 2020", _CODE, "jimfh",
         "JIMFH"),
        ("cmfh", "CMFH", _U, 2014, "Collective Matrix Factorization Hashing, CVPR 2014", _CODE, "cmfh", "CMFH"),
        ("imh", "IMH", _U, 2013, "Inter-Media Hashing, SIGMOD 2013", _CODE, "imh", "IMH"),
        ("lssh", "LSSH", _U, 2014, "Latent Semantic Sparse Hashing, SIGIR 2014", _CODE, "lssh", "LSSH"),
        ("cvh", "CVH", _U, 2011, "Cross-View Hashing, IJCAI 2011 (its unsupervised form)", _TEXTBOOK, "cvh", "CVH"),
        ("cca_itq", "CCA-ITQ", _U, 2011, "Iterative Quantization, CVPR 2011", _TEXTBOOK, "cca_itq", "CCAITQ"),
        ("pdh", "PDH", _U, 2013, "Predictable Dual-view Hashing, ICML 2013", _TEXT, "pdh", "PDH"),
        ("csgh", "CSGH", _U, 2018, "Collaborative Subspace Graph Hashing, ICMR 2018", _TEXT, "csgh", "CSGH"),
        ("bgdh", "BGDH", _U, 2018, "Hypergraph-based Discrete Hashing, 2018", _TEXT, "bgdh", "BGDH"),
        ("jchr", "JCHR", _U, 2016, "Joint Coupled-Hashing Representation, 2016", _TEXT, "jchr", "JCHR"),
        ("agh", "AGH", _U, 2011, "Hashing with Graphs, ICML 2011, each view on its own", _CODE, "agh", "AGH"),
        ("scm", "SCM", _S, 2014, "Semantic Correlation Maximization, AAAI 2014", _CODE, "scm", "SCM"),
        ("seph", "SePH", _S, 2015, "Semantics-Preserving Hashing, CVPR 2015", _CODE, "seph", "SePH"),
        ("fdch", "FDCH", _S, 2018, "Fast Discrete Cross-modal Hashing, ACM MM 2018", _TEXT, "fdch", "FDCH"),
        ("adch", "ADCH", _S, 2018, "Asymmetric Discrete Cross-modal Hashing, ICMR 2018", _TEXT, "adch", "ADCH"),
        ("scvh", "CVH with labels", _S, 2011, "Cross-View Hashing, IJCAI 2011", _TEXT, "cvh", "SupervisedCVH"),
        ("regression", "REG", _C, 2026, "sign and regression alone: AGSFH without its graph", _OURS, "regression",
         "RegressionHasher"),
        ("random", "CCA + random rotation", _C, 2026, "canonical correlation analysis, then a random rotation", _OURS,
         "random_rotation", "RandomRotationHasher"),
    )
}  # fmt: skip


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
