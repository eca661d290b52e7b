"""Paired data with a known answer: classes in a shared latent space, seen through noisy non-linear views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusehash.datasets.base import PairedDataset
from fusehash.datasets.mixture import ClassMixture, Floats, random_mixture
from fusehash.errors import ParameterError
from fusehash.views import PairedViews

DEFAULT_NAMES = ("image", "text", "audio", "video")
DEFAULT_WIDTHS = (64, 32, 48, 40)
NUISANCE_CLUSTERS = 5


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticDataset(PairedDataset):
    """A generated dataset that also knows the truth behind it.

    Attributes
    ----------
    latent : (rows, latent_dim) the position that all views of an item were made from
    mixture : the distribution the items were drawn from
    """

    latent: Floats = None  # type: ignore[assignment]
    mixture: ClassMixture = None  # type: ignore[assignment]

    def oracle(self, queries: Any = None, items: Any = None) -> Floats:
        """Probability that a query and an item share a class, given their true latent positions: (queries, items).

        Exact for the mixture. To rank by it maximizes the expected precision at every cut (the probability ranking
        principle), among all rankings that may know the classes but not the labels of the items; codes learned from
        noisy views see less. By default the queries and the database of the split.
        """
        posterior = self.mixture.posterior
        asked = posterior(self.latent[self.query if queries is None else queries])
        searched = posterior(self.latent[self.database if items is None else items])
        return np.asarray(asked @ searched.T)

    def oracle_map(self, k: int | None = 50) -> float:
        """MAP@k of the oracle's ranking (divided by the relevant items in the top k): the upper reference."""
        order = np.argsort(-self.oracle(), axis=1, kind="stable")[:, :k]
        hit = self.labels[self.database][order] == self.labels[self.query][:, None]
        precision = np.cumsum(hit, axis=1) / np.arange(1, hit.shape[1] + 1)
        return float(np.mean((precision * hit).sum(axis=1) / np.maximum(hit.sum(axis=1), 1)))


def make_paired(
    n_samples: int = 2000,
    *,
    n_classes: int = 10,
    views: int | Mapping[str, int] = 2,
    latent_dim: int = 16,
    modes: int = 3,
    separation: float = 5.0,
    noise: float = 0.5,
    nuisance: float = 1.0,
    nonlinear: bool = True,
    histograms: Sequence[str] = (),
    n_query: int | None = None,
    n_train: int | None = None,
    random_state: int = 0,
    name: str = "synthetic",
) -> SyntheticDataset:
    """Generate paired data whose best ranking is known.

    Every class is a mixture of elongated Gaussian modes in a latent space. A view sees each latent direction with a
    gain of its own (so views complement each other), mixed with nuisance factors that have clusters but nothing to do
    with the classes, through a random network; then noise, features of different scales, and a scale for the view.

    Parameters
    ----------
    n_samples : rows in all
    n_classes : classes, of unequal size
    views : how many views, or name -> number of features
    latent_dim : dimensions of the shared space
    modes : Gaussian components of each class
    separation : typical distance of class centers in standard deviations of a mode; smaller is harder for everyone
    noise : standard deviation of the noise in a feature, relative to the feature's own; smaller is easier for methods
    nuisance : strength of what a view shows beside the shared space
    nonlinear : look through a random tanh network; False: through a random linear map
    histograms : names of views that come as non-negative rows that sum to 1, like bags of words
    n_query : rows at the end that ask; by default a tenth
    n_train : rows at the start that train, the other non-query rows being new items in the database; by default all
        non-query rows train and are the database
    random_state : seed; the latent positions do not depend on the views, nor a view on the number of views
    """
    owner = "make_paired"
    _check_whole(owner, "n_samples", n_samples, 4)
    _check_whole(owner, "n_classes", n_classes, 2)
    _check_whole(owner, "latent_dim", latent_dim, 1)
    _check_whole(owner, "modes", modes, 1)
    _check_whole(owner, "random_state", random_state, 0)
    for parameter, value in (("separation", separation), ("noise", noise), ("nuisance", nuisance)):
        if not (isinstance(value, int | float | np.number) and np.isfinite(value) and value >= 0):
            raise ParameterError(owner, parameter, "a number of at least 0", value)
    widths = view_widths(views)
    for view in histograms:
        if view not in widths:
            raise ParameterError(owner, "histograms", f"a list of names among {', '.join(widths)}", histograms)
    n_query = max(1, n_samples // 10) if n_query is None else _check_whole(owner, "n_query", n_query, 1, n_samples - 2)
    n_database = n_samples - n_query
    n_train = n_database if n_train is None else _check_whole(owner, "n_train", n_train, 1, n_database)

    rng = np.random.default_rng([random_state, 0])
    mixture = random_mixture(n_classes, latent_dim, modes=modes, separation=float(separation), rng=rng)
    latent, labels = mixture.sample(n_samples, rng)
    seen = {}
    for number, (view, width) in enumerate(widths.items()):
        see = np.random.default_rng([random_state, 1 + number])
        factors = _factors(latent, nuisance, see)
        signal = _look(factors, width, nonlinear, see)
        seen[view] = _as_histogram(signal, noise, see) if view in histograms else _as_features(signal, noise, see)
    new = "" if n_train == n_database else f", {n_train:,} of it (the first rows) for training"
    return SyntheticDataset(
        name=name,
        views=PairedViews(seen),
        labels=labels,
        train=np.arange(n_train),
        query=np.arange(n_database, n_samples),
        database=np.arange(n_database),
        split=f"generated with seed {random_state}: the last {n_query:,} rows as queries, the other {n_database:,} as "
        f"database{new}",
        latent=latent,
        mixture=mixture,
    )


def view_widths(views: int | Mapping[str, int]) -> dict[str, int]:
    """Name -> number of features of the views asked for."""
    expected = "a number of views, or a mapping from name to number of features"
    if isinstance(views, Mapping):
        if not views or any(not isinstance(width, int) or width < 1 for width in views.values()):
            raise ParameterError("make_paired", "views", expected, views)
        return dict(views)
    if isinstance(views, bool) or not isinstance(views, int) or views < 1:
        raise ParameterError("make_paired", "views", expected, views)
    names = (*DEFAULT_NAMES, *(f"view{number}" for number in range(len(DEFAULT_NAMES), views)))[:views]
    return {name: DEFAULT_WIDTHS[number % len(DEFAULT_WIDTHS)] for number, name in enumerate(names)}


def _factors(latent: Floats, nuisance: float, rng: np.random.Generator) -> Floats:
    """What lies behind one view: the latent position, some directions of it faint, and the view's own nuisance."""
    n_rows, dim = latent.shape
    gains = rng.permutation(np.geomspace(0.2, 1.0, dim)) if dim > 1 else np.ones(1)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    shared = (latent - latent.mean(axis=0)) / latent.std() @ basis * gains
    own_dim = max(1, dim // 2)
    centers = 1.5 * rng.standard_normal((NUISANCE_CLUSTERS, own_dim))
    own = centers[rng.integers(NUISANCE_CLUSTERS, size=n_rows)] + rng.standard_normal((n_rows, own_dim))
    own *= nuisance * np.sqrt((shared**2).sum() / (own**2).sum())
    return np.concatenate([shared, own], axis=1)


def _look(factors: Floats, width: int, nonlinear: bool, rng: np.random.Generator) -> Floats:
    """Factors -> features with mean 0 and variance 1, through a random map."""
    if nonlinear:
        hidden = 4 * factors.shape[1]
        pull = factors @ rng.standard_normal((factors.shape[1], hidden)) + rng.standard_normal(hidden)
        factors = np.tanh(pull / np.sqrt(np.mean(factors**2) * factors.shape[1]))
    signal = factors @ rng.standard_normal((factors.shape[1], width))
    signal -= signal.mean(axis=0)
    return np.asarray(signal / np.maximum(signal.std(axis=0), 1e-12))


def _as_features(signal: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """Noise, then a scale for each feature, a scale for the view and an offset."""
    noisy = signal + noise * rng.standard_normal(signal.shape)
    scales = np.exp(0.5 * rng.standard_normal(signal.shape[1])) * 10.0 ** rng.uniform(-1, 1)
    return np.asarray(scales * (noisy + rng.standard_normal(signal.shape[1])))


def _as_histogram(signal: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """Counts drawn from probabilities that follow the signal, divided by their sum."""
    logits = signal + noise * rng.standard_normal(signal.shape) + rng.standard_normal(signal.shape[1])
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    counts = rng.poisson(20 * signal.shape[1] * shares) + (shares == shares.max(axis=1, keepdims=True))
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _check_whole(owner: str, parameter: str, value: Any, least: int, most: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least or (most and value > most):
        expected = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
        raise ParameterError(owner, parameter, expected, value)
    return int(value)
