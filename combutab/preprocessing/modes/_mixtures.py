"""Mixtures of normal distributions: the modes of a numeric column."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

# After these the likelihood of common columns no longer grows: modes that overlap trade shares.
_MAX_ITER = 30
NARROW = 1e-300  # the standard deviation that a mode of one number has in the place of 0
# A sample of this share of the column's range is one value: its squares would underflow.
_POINT = 1e-50
# Posteriors that are held at a time: 4 MB of float64.
_PIECE = 2**19


@dataclass(frozen=True, eq=False)
class Mixture:
    """The modes of a column: normal distributions of shares `weights`, each (n_modes,) float64.

    >>> modes = Mixture(np.array([0.5, 0.5]), np.array([0.0, 10.0]), np.array([1.0, 0.5]))
    >>> codes = modes.draw(np.array([1.0, 9.0]), np.array([0.3, 0.3]))
    >>> codes, modes.scale(np.array([1.0, 9.0]), codes)
    (array([0, 1], dtype=int32), array([ 0.25, -0.5 ]))
    """

    weights: np.ndarray
    means: np.ndarray
    sds: np.ndarray

    def posterior(self, x: np.ndarray) -> np.ndarray:
        """Compute each mode's probability for each value: (n,) -> (n, n_modes), rows of sum 1."""
        log = -0.5 * ((x[:, None] - self.means) / self.sds) ** 2 + np.log(self.weights / self.sds)
        log -= log.max(axis=1, keepdims=True)
        np.exp(log, out=log)
        log /= log.sum(axis=1, keepdims=True)
        return log

    def draw(self, x: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """A mode for each value, drawn from its posterior by a uniform in [0, 1): (n,) int32."""
        codes = np.zeros(len(x), dtype=np.int32)
        if len(self.weights) == 1:
            return codes
        step = max(1, _PIECE // len(self.weights))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            posterior = self.posterior(x[rows])
            # NOTE[DIFF]: the paper may draw a mode within which `scale` clips the value; we do so
            # only where every mode would.
            near = np.where(self._holds(x[rows]), posterior, 0.0)
            posterior = np.where(near.any(axis=1, keepdims=True), near, posterior)
            cumulative = posterior.cumsum(axis=1)
            drawn = uniforms[rows, None] * cumulative[:, -1:]
            # The last is left out: rounding may bring the draw up to it.
            codes[rows] = (cumulative[:, :-1] <= drawn).sum(axis=1)
        return codes

    def scale(self, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Each value within its mode: four standard deviations are 1, further ones clipped."""
        # CTGAN, section 4.2: alpha = (c - eta) / (4 phi)
        return np.clip((x - self.means[codes]) / (4 * self.sds[codes]), -1.0, 1.0)

    def spread(self, x: np.ndarray) -> np.ndarray:
        """Those of some numbers that are no mode of one number."""
        return x[~np.isin(x, self.means[self.sds <= NARROW])]

    def ends(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that -1 and 1 stand for, of each mode: (n,) and (n,)."""
        half = 4 * self.sds[codes]
        return self.means[codes] - half, self.means[codes] + half

    def _holds(self, x: np.ndarray) -> np.ndarray:
        """Tell which modes scale which values without clipping: (n,) -> (n, n_modes)."""
        holds: np.ndarray = np.abs(x[:, None] - self.means) < 4 * self.sds
        return holds

    def unscale(self, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Invert `scale`, where it did not clip."""
        return np.clip(values, -1.0, 1.0) * (4 * self.sds[codes]) + self.means[codes]


_filters_lock = threading.Lock()


@dataclass(frozen=True, eq=False)
class Sample:
    """Values of one column to fit a mixture to, the range of all its values, and a seed."""

    values: np.ndarray
    range: float
    seed: int


def take_sample(x: np.ndarray, max_rows: int, rng: np.random.Generator) -> Sample:
    """Draw at most `max_rows` of the values, all equally likely."""
    chosen = x if len(x) <= max_rows else rng.choice(x, max_rows, replace=False, shuffle=False)
    return Sample(chosen, float(x.max() - x.min()), int(rng.integers(2**31)))


def fit_mixtures(
    samples: Sequence[Sample],
    *,
    n_modes: int,
    min_weight: float,
    n_jobs: int | None,
    fewest: int = 1,
) -> list[Mixture]:
    """Fit a variational mixture of at most `n_modes` modes to each sample, in threads.

    A mode that fewer values than `fewest` make is left out.
    """
    controller = ThreadpoolController()
    # Filters belong to the process, so they are set here and not in each thread, and by one fit of
    # a process at a time.
    with _filters_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_fit)(each, n_modes, min_weight, fewest, controller) for each in samples
        )


def _fit(
    sample: Sample, n_modes: int, min_weight: float, fewest: int, controller: ThreadpoolController
) -> Mixture:
    from sklearn.mixture import BayesianGaussianMixture  # 0.1 s, of use to generators only

    x = sample.values
    n_distinct = len(np.unique(x))
    centre, spread = x.mean(), x.std()
    if n_distinct == 1 or spread <= _POINT * sample.range:
        # All other values of the column are rarer than the sample shows: none is clipped.
        return Mixture(np.ones(1), x[:1].copy(), np.array([sample.range / 4 or 1.0]))
    model = BayesianGaussianMixture(
        n_components=max(1, min(n_modes, n_distinct, len(x) // fewest)),
        covariance_type="diag",  # of one column: the same model as "full", computed faster
        max_iter=_MAX_ITER,
        weight_concentration_prior=0.001,
        n_init=1,
        random_state=sample.seed,
    )
    # k-means adds up in an order that depends on its threads; with one the result is the same.
    with controller.limit(limits=1, user_api="openmp"):
        model.fit(((x - centre) / spread)[:, None])
    least = max(min_weight, (fewest - 0.5) / len(x)) if fewest > 1 else min_weight
    kept = model.weights_ > min(least, np.nextafter(model.weights_.max(), 0))
    return Mixture(
        weights=model.weights_[kept] / model.weights_[kept].sum(),
        means=model.means_[kept, 0] * spread + centre,
        sds=np.sqrt(model.covariances_[kept, 0]) * spread,
    )
