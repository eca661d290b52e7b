"""Classes in a latent space as Gaussian mixtures, so that the probability of every class is known exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassMixture:
    """Classes made of Gaussian components: component j belongs to class ``class_of[j]``.

    Attributes
    ----------
    weights : (J,) probability of each component, over all classes
    means : (J, dim); factors : (J, dim, dim), covariance of component j is factors[j] @ factors[j].T
    class_of : (J,) the class of each component
    """

    weights: Floats
    means: Floats
    factors: Floats
    class_of: Ints

    @property
    def n_classes(self) -> int:
        return int(self.class_of.max()) + 1

    def sample(self, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Ints]:
        """Latent positions and class numbers of independent items."""
        component = rng.choice(self.weights.size, size=n_samples, p=self.weights)
        white = rng.standard_normal((n_samples, self.means.shape[1]))
        latent = np.empty_like(white)
        for j in range(self.weights.size):
            rows = component == j
            latent[rows] = self.means[j] + white[rows] @ self.factors[j].T
        return latent, self.class_of[component]

    def posterior(self, latent: Any) -> Floats:
        """(n, n_classes) probability of every class given the latent position, exact by Bayes' rule."""
        latent = np.asarray(latent, dtype=np.float64)
        log_joint = np.empty((latent.shape[0], self.weights.size))
        for j, (mean, factor) in enumerate(zip(self.means, self.factors, strict=True)):
            white = np.linalg.solve(factor, (latent - mean).T)
            _, log_volume = np.linalg.slogdet(factor)
            log_joint[:, j] = np.log(self.weights[j]) - log_volume - 0.5 * (white**2).sum(axis=0)
        by_class = [logsumexp(log_joint[:, self.class_of == c], axis=1) for c in range(self.n_classes)]
        return np.asarray(softmax(np.stack(by_class, axis=1), axis=1))


def random_mixture(
    n_classes: int, latent_dim: int, *, modes: int, separation: float, rng: np.random.Generator
) -> ClassMixture:
    """Classes of unequal size, each with several elongated modes.

    ``separation`` is the typical distance between two class centers, in standard deviations of one mode along one
    direction; the modes of a class lie at half that distance from its center.
    """
    radius = separation / np.sqrt(2)
    centers = radius * _directions(n_classes, latent_dim, rng)
    offsets = 0.5 * radius * _directions(n_classes * modes, latent_dim, rng)
    stretch = np.geomspace(0.5, 2.0, latent_dim)
    stretch /= np.sqrt(np.mean(stretch**2))
    factors = np.stack(
        [np.linalg.qr(rng.standard_normal((latent_dim, latent_dim)))[0] * stretch for _ in range(n_classes * modes)]
    )
    size = np.repeat(rng.permutation(np.linspace(1.0, 2.0, n_classes)), modes) * rng.uniform(
        0.5, 1.5, n_classes * modes
    )
    return ClassMixture(
        weights=size / size.sum(),
        means=np.repeat(centers, modes, axis=0) + offsets,
        factors=factors,
        class_of=np.repeat(np.arange(n_classes), modes),
    )


def _directions(count: int, dim: int, rng: np.random.Generator) -> Floats:
    vectors = rng.standard_normal((count, dim))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
