"""Synthetic paired data with a known best ranking: classes in a latent space, seen through noisy non-linear views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from fusehash.datasets.base import PairedDataset, Rows
from fusehash.errors import ParameterError
from fusehash.parameters import check, integer, real
from fusehash.views import PairedViews

Floats = NDArray[np.float64]

DEFAULT_NAMES = ("image", "text", "audio", "video")
DEFAULT_WIDTHS = (64, 32, 48, 40)
NUISANCE_CLUSTERS = 5
PARAMETERS = {
    "n_samples": integer(4), "n_classes": integer(2), "latent_dim": integer(1), "modes": integer(1),
    "random_state": integer(0), "separation": real(), "noise": real(), "nuisance": real(),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ClassMixture:
    """Classes in a latent space, each a mixture of Gaussian components, so that class probabilities are exact.

    Attributes
    ----------
    weights, class_of : ndarray of shape (J,)
        Probability of each component, over all classes, and its class.
    means, factors : ndarray of shape (J, dim) and (J, dim, dim)
        The covariance of component j is factors[j] @ factors[j].T.
    """

    weights: Floats
    means: Floats
    factors: Floats
    class_of: Rows

    @property
    def n_classes(self) -> int:
        return int(self.class_of.max()) + 1

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Rows]:
        """Draw independent items: latent positions and class numbers."""
        component = rng.choice(self.weights.size, size=n_samples, p=self.weights)
        white = rng.standard_normal((n_samples, self.means.shape[1]))
        latent = np.empty_like(white)
        for j in range(self.weights.size):
            rows = component == j
            latent[rows] = self.means[j] + white[rows] @ self.factors[j].T
        return latent, self.class_of[component]

    def posterior(self, latent: Any) -> Floats:
        """Probability of every class given the latent position, by Bayes' rule: (n, n_classes)."""
        latent = np.asarray(latent, dtype=np.float64)
        log_joint = np.empty((latent.shape[0], self.weights.size))
        for j, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            white = np.linalg.solve(factor, (latent - mean).T)
            _, log_volume = np.linalg.slogdet(factor)
            log_joint[:, j] = np.log(self.weights[j]) - log_volume - 0.5 * (white**2).sum(axis=0)
        by_class = [logsumexp(log_joint[:, self.class_of == c], axis=1) for c in range(self.n_classes)]
        return np.asarray(softmax(np.stack(by_class, axis=1), axis=1))


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticDataset(PairedDataset):
    """A generated dataset with the truth behind it; `make_paired` returns one.

    Attributes
    ----------
    latent : ndarray of shape (n_rows, latent_dim)
        The positions from which the views were made; `mixture` (ClassMixture) is their distribution.
    """

    latent: Floats = None  # type: ignore[assignment]
    mixture: ClassMixture = None  # type: ignore[assignment]

    def oracle(self, queries: Any = None, items: Any = None) -> Floats:
        """Probability that a query and an item share a class, given their latent positions: (queries, items).

        Ranking by it maximizes the expected precision at every cut. By default, the rows of the split.
        """
        rows = self.query if queries is None else queries, self.database if items is None else items
        of_queries, of_items = (self.mixture.posterior(self.latent[part]) for part in rows)
        return np.asarray(of_queries @ of_items.T)

    def oracle_map(self, k: int | None = 50) -> float:
        """MAP@k of the oracle's ranking, divided by the relevant items in the top k."""
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

    Every class is a mixture of elongated Gaussian modes in a latent space. A view sees each latent direction with its
    own gain, so that views complement each other, together with nuisance factors that have clusters unrelated to the
    classes, through a random network. Noise, a scale per feature and a scale per view follow.

    Parameters
    ----------
    n_samples, n_classes : int
        Number of rows, and of classes, which differ in size.
    views : int or dict of str to int, default=2
        Number of views, or name -> number of features.
    latent_dim, modes : int
        Dimensions of the latent space, and Gaussian components per class.
    separation : float, default=5.0
        Typical distance of class centers in standard deviations of a mode. Smaller is harder, also for the oracle.
    noise : float, default=0.5
        Standard deviation of the noise in a feature, relative to that of the feature. Larger is harder for methods.
    nuisance : float, default=1.0
        Strength of what a view shows in addition to the latent space.
    nonlinear : bool, default=True
        Map through a random tanh network; False for a random linear map.
    histograms : sequence of str, default=()
        Views with non-negative rows that sum to 1, such as bags of words.
    n_query, n_train : int, optional
        The last rows are queries, by default a tenth; the others are the database. Its first rows, by default all,
        are for training.
    random_state : int, default=0
        Seed. The latent positions do not depend on the views, nor a view on the number of views.
    name : str, default="synthetic"
        Name of the dataset.

    Returns
    -------
    SyntheticDataset

    Examples
    --------
    >>> from fusehash.datasets import make_paired
    >>> data = make_paired(200, views={"image": 8, "text": 5}, random_state=0)
    >>> data.views["image"].shape, data.train.size, data.query.size
    ((200, 8), 180, 20)
    """
    counts = {"n_samples": n_samples, "n_classes": n_classes, "latent_dim": latent_dim, "modes": modes}
    strengths = {"separation": separation, "noise": noise, "nuisance": nuisance}
    check("make_paired", PARAMETERS, {**counts, **strengths, "random_state": random_state})
    widths = view_widths(views)
    for view in histograms:
        if view not in widths:
            raise ParameterError("make_paired", "histograms", f"a list of names among {', '.join(widths)}", histograms)
    n_query = max(1, n_samples // 10) if n_query is None else n_query
    n_database = n_samples - integer(1, n_samples - 2).check("make_paired", "n_query", n_query)
    n_train = n_database if n_train is None else integer(1, n_database).check("make_paired", "n_train", n_train)

    rng = np.random.default_rng([random_state, 0])
    mixture = random_mixture(n_classes, latent_dim, modes=modes, separation=float(separation), rng=rng)
    latent, labels = mixture.sample(n_samples, rng)
    seen = {}
    for number, (view, width) in enumerate(widths.items()):
        see = np.random.default_rng([random_state, 1 + number])
        signal = _look(_factors(latent, nuisance, see), width, nonlinear, see)
        seen[view] = _as_histogram(signal, noise, see) if view in histograms else _as_features(signal, noise, see)
    new = "" if n_train == n_database else f", {n_train:,} of it (the first rows) for training"
    drawn = f"generated with seed {random_state}: the last {n_query:,} rows as queries"
    split = f"{drawn}, the other {n_database:,} as database{new}"
    rows = np.arange(n_train), np.arange(n_database, n_samples), np.arange(n_database)
    return SyntheticDataset(name, PairedViews(seen), labels, *rows, split, latent=latent, mixture=mixture)


def view_widths(views: int | Mapping[str, int]) -> dict[str, int]:
    counts = list(views.values()) if isinstance(views, Mapping) else [views]
    if not counts or not all(map(integer(1).accepts, counts)):
        raise ParameterError("make_paired", "views", "a number of views, or a dict of name to width", views)
    if isinstance(views, Mapping):
        return dict(views)
    names = (*DEFAULT_NAMES, *(f"view{number}" for number in range(len(DEFAULT_NAMES), views)))[:views]
    return {name: DEFAULT_WIDTHS[number % len(DEFAULT_WIDTHS)] for number, name in enumerate(names)}


def _factors(latent: Floats, nuisance: float, rng: np.random.Generator) -> Floats:
    """What one view shows: the latent position, with a gain per direction, and nuisance factors of the view."""
    n_rows, dim = latent.shape
    gains = rng.permutation(np.geomspace(0.2, 1.0, dim)) if dim > 1 else np.ones(1)
    basis = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    shared = (latent - latent.mean(axis=0)) / latent.std() @ basis * gains
    private_dim = max(1, dim // 2)
    centers = 1.5 * rng.standard_normal((NUISANCE_CLUSTERS, private_dim))
    private = centers[rng.integers(NUISANCE_CLUSTERS, size=n_rows)] + rng.standard_normal((n_rows, private_dim))
    private *= nuisance * np.sqrt((shared**2).sum() / (private**2).sum())
    return np.concatenate([shared, private], axis=1)


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


def random_mixture(
    n_classes: int, latent_dim: int, *, modes: int, separation: float, rng: np.random.Generator
) -> ClassMixture:
    """Classes of unequal size, each with several elongated modes at half the separation from its center."""
    radius = separation / np.sqrt(2)
    centers = radius * _directions(n_classes, latent_dim, rng)
    offsets = 0.5 * radius * _directions(n_classes * modes, latent_dim, rng)
    stretch = np.geomspace(0.5, 2.0, latent_dim)
    stretch /= np.sqrt(np.mean(stretch**2))
    square = (latent_dim, latent_dim)
    factors = np.stack([np.linalg.qr(rng.standard_normal(square))[0] * stretch for _ in range(n_classes * modes)])
    size = np.repeat(rng.permutation(np.linspace(1.0, 2.0, n_classes)), modes)
    size *= rng.uniform(0.5, 1.5, n_classes * modes)
    means, class_of = np.repeat(centers, modes, axis=0) + offsets, np.repeat(np.arange(n_classes), modes)
    return ClassMixture(size / size.sum(), means, factors, class_of)


def _directions(count: int, dim: int, rng: np.random.Generator) -> Floats:
    vectors = rng.standard_normal((count, dim))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
