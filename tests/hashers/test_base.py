"""What the base class gives every method: how it is shown, its parameter rules, and a method written from the docs."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
import pytest

import fusehash as fh
from fusehash import bits, hashers
from fusehash.errors import ParameterError
from fusehash.hashers.base import CrossModalHasher
from fusehash.parameters import Rule, real, rng_for
from fusehash.views import PairedViews


@pytest.mark.parametrize("name", hashers.names())
def test_html_representation_emits_no_warnings(name: str) -> None:
    """scikit-learn parses the docstring for it: every section must be valid numpydoc."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert name in hashers.names()
        assert "n_bits" in hashers.make(name)._repr_html_()


@pytest.mark.parametrize("name", hashers.names())
def test_repr_shows_changed_parameters_only(name: str) -> None:
    cls = hashers.get(name)
    assert repr(cls()) == f"{cls.__name__}()"
    assert repr(cls(n_bits=24)) == f"{cls.__name__}(n_bits=24)"


class SignedProjection(CrossModalHasher):
    """A method written as the base class says: random directions, scaled."""

    method: ClassVar[str] = "signed"
    PARAMETERS: ClassVar[dict[str, Rule]] = {"scale": real(strict=True)}
    REMOVED: ClassVar[dict[str, str]] = {"width": "use scale"}

    def __init__(self, *, n_bits: int = 16, scale: float = 1.0, random_state: Any = None) -> None:
        self.n_bits, self.scale, self.random_state = n_bits, scale, random_state
        self.n_threads = self.callback = None

    def _fit(self, views: PairedViews, labels: Any) -> None:
        assert labels is None
        rng = rng_for(self._seed, "directions")
        self.directions_ = {name: rng.standard_normal((d, self.n_bits)) for name, d in views.n_features.items()}
        self._report(1, 1, "directions")
        self.codes_ = self._codes_of(views)

    def _project_block(self, block: Any, view: str) -> Any:
        return self.scale * (block @ self.directions_[view])


@pytest.fixture(scope="module")
def views() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {"a": rng.standard_normal((70, 5)), "b": rng.standard_normal((70, 3))}


def test_a_method_of_two_functions_has_everything_else(views: dict[str, np.ndarray], tmp_path: Any) -> None:
    model = SignedProjection(random_state=0).fit(views)
    assert np.array_equal(model.encode_fused(views), model.codes_)
    assert np.array_equal(model.encode(views["a"], view=0), bits.pack(model.project(views["a"], view="a")))
    assert np.array_equal(model.cut(8).encode(views["a"], view="a"), model.encode(views["a"], view="a")[:, :1])
    model.encode(views["b"], view="b", out=tmp_path / "codes.npy")
    assert np.array_equal(np.load(tmp_path / "codes.npy"), model.encode(views["b"], view="b"))
    model.encode_fused(views, out=tmp_path / "fused.npy")
    assert np.array_equal(np.load(tmp_path / "fused.npy"), model.codes_)
    assert 0.0 <= model.score(views) <= 1.0


def test_rules_of_all_classes_are_one_table() -> None:
    assert list(SignedProjection.parameter_rules()) == ["n_bits", "random_state", "scale"]
    with pytest.raises(ParameterError, match="'scale' parameter of SignedProjection must be a finite number"):
        SignedProjection(scale=0.0).fit({"a": np.eye(3)})
    with pytest.raises(ParameterError, match="left out: use scale"):
        SignedProjection(width=1.0)  # type: ignore[call-arg]


def test_fusehash_says_where_its_removed_parameter_went() -> None:
    with pytest.raises(ParameterError, match="use AGSFH"):
        fh.FuseHash(preset="paper")  # type: ignore[call-arg]
