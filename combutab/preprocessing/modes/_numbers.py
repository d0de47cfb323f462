"""Columns of numbers, dates and durations as float64 that starts at 0, and exactly back.

Integers, dates and durations are counted from the smallest one in integer arithmetic, so that
large offsets lose no digits. Floats are counted from the smallest one in units of a power of two
near their range, so that nothing overflows.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas.api import types
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import ThreadpoolController

from combutab.preprocessing._columns import (
    LARGEST,
    ColumnKind,
    large_numbers,
    raise_complex,
    refuse_equal,
    refuse_large,
    to_float,
)

# ---- Bounds of numbers that are no single row's: shared by enough rows, or rounded outward -------

_REACH = 3  # times as far as the outermost rows reach, the last may lie beyond them
_N_PARTS = 20  # of the spread: a bound is rounded to one of them at least
_ULPS = 128  # of a float: multiples of less might be the float itself


def find_bounds(x: np.ndarray, min_count: int) -> tuple[Any, Any]:
    """Compute a lower and an upper bound that do not reveal the number of a single row.

    A bound that at least `min_count` rows share stays as it is. Another one is moved outward to the
    next multiple of 1, 2 or 5 times a power of ten, of about a twentieth of the spread; none
    crosses zero. Outliers are ignored: a bound lies at most three times as far outside the
    `min_count`-th number as the next `min_count` numbers reach inside. Integers, (n,) with at least
    one, give integers, computed exactly.

    >>> find_bounds(np.r_[0, 0, 0, np.arange(73, 913)], 3)
    (0, 920)
    >>> find_bounds(np.r_[np.arange(1.37, 9.0, 0.01), 1e6], 5)
    (1.2, 9.2)
    """
    ordered = np.sort(x)
    lowest, highest = ordered[0].item(), ordered[-1].item()
    if min_count <= 1:
        return lowest, highest
    k = min(min_count, (len(x) + 1) // 2)
    m = min(2 * k, len(x))
    inner, outer = ordered[k - 1].item(), ordered[-k].item()
    low = max(lowest, inner - _REACH * (ordered[m - 1].item() - inner))
    high = min(highest, outer + _REACH * (outer - ordered[-m].item()))
    shared = [np.count_nonzero(ordered == bound) >= min_count for bound in (low, high)]
    part = (high - low or abs(high)) / _N_PARTS
    return (
        low if shared[0] else _rounded_outward(low, lowest, part),
        high if shared[1] else -_rounded_outward(-high, -highest, part),
    )


def _rounded_outward(value: Any, extreme: Any, part: float) -> Any:
    """A round number below a value, and not the extreme, which may lie there by chance."""
    rounded = _next_lower(value, part)
    return _next_lower(rounded, part) if rounded == extreme else rounded


def _next_lower(value: Any, part: float) -> Any:
    """The next lower multiple of a round number as large as a part; above zero if the value is."""
    if value == 0:
        return value
    is_integer = isinstance(value, int)
    digit, power = _round_number(part if is_integer else max(part, _ULPS * math.ulp(value)))
    if is_integer:
        unit = digit * 10 ** max(power, 0)
        rounded: Any = (value - 1) // unit * unit
    else:
        n = math.ceil(_in_units(value, digit, power)) - 1
        n -= _multiple(n, digit, power) >= value  # by a rounding
        rounded = _multiple(n, digit, power)
    if value > 0 and rounded <= 0:
        digit, power = _round_number(value)
        if digit * 10**power == value:
            digit, power = {1: (5, power - 1), 2: (1, power), 5: (2, power)}[digit]
        positive = max(1, int(digit * 10.0**power)) if is_integer else digit * 10.0**power
        rounded = positive if positive <= value else 0.0  # for the smallest floats
    return rounded


def _in_units(value: float, digit: int, power: int) -> float:
    """How many times a round number it is."""
    return value / (digit * 10.0**power) if power >= 0 else value * 10.0**-power / digit


def _multiple(n: int, digit: int, power: int) -> float:
    """n times a round number; divided by a power of ten, which is exact, it is the nearest one."""
    return n * (digit * 10.0**power) if power >= 0 else n * digit / 10.0**-power


def _round_number(part: float) -> tuple[int, int]:
    """1, 2 or 5, and a power of ten: of all such products the next below."""
    power = max(-300, math.floor(math.log10(part))) if part > 0 else 0
    digit = part / 10.0**power
    return (5 if digit >= 5 else 2 if digit >= 2 else 1), power


# ---- How finely numbers are written: most as whole ones, say, and some with halves ---------------

_MIN_NUMBERS = 20  # numbers, that a grid is seen from
_MIN_SHARE = 0.1  # of the numbers of a grid, beyond chance, that are on a coarser one
_STEP_DIGITS = 11  # of numbers of any number of decimals, beyond which they are on no grid
HELD = 2**53  # whole floats are exact up to it
_SINGLE_ROUNDING = 2.0**-22  # rounding error of single precision, relative to half a mode's width


@dataclass(frozen=True)
class RoundingSteps:
    """Grids of ascending steps, each of whole multiples of the one before.

    Attributes
    ----------
    decimals : int
        The grids' steps are counted in units of ``10 ** -decimals``.
    steps : tuple of int
    shares : tuple of float
        Of the numbers that are put on each grid or a coarser one, descending; the rest is on none.

    >>> rounding_steps = find_rounding_steps(np.r_[np.arange(1.0, 99.0), 0.5, 2.5], 1)
    >>> rounding_steps
    RoundingSteps(decimals=1, steps=(5, 10), shares=(1.0, 0.96))
    >>> low, high = np.full(3, 0.0), np.full(3, 100.0)
    >>> rounding_steps.put(np.array([17.31, 17.31, 99.9]), np.array([0.5, 0.99, 0.5]), low, high)
    array([ 17. ,  17.5, 100. ])
    """

    decimals: int
    steps: tuple[int, ...]
    shares: tuple[float, ...]

    def put(
        self, numbers: np.ndarray, uniforms: np.ndarray, low: np.ndarray, high: np.ndarray
    ) -> np.ndarray:
        """Bring each number to the nearest place between ``low`` and ``high`` of a grid.

        Which grid is drawn by a uniform in [0, 1); a finer one, where it has no place there. All
        are of shape (n,).
        """
        scale, rounded = 10.0**self.decimals, numbers.copy()
        is_pending = np.ones(len(numbers), dtype=bool)
        for step, share in zip(reversed(self.steps), reversed(self.shares), strict=True):
            rows = np.flatnonzero(is_pending & (uniforms < share))
            unit = step / scale
            first_multiple, last_multiple = np.ceil(low[rows] / unit), np.floor(high[rows] / unit)
            rows, first_multiple, last_multiple = (
                values[first_multiple <= last_multiple]
                for values in (rows, first_multiple, last_multiple)
            )
            multiple = np.clip(np.rint(numbers[rows] / unit), first_multiple, last_multiple)
            rounded[rows] = multiple * step / scale
            is_pending[rows] = False
        return rounded

    def restore(self, numbers: np.ndarray, widths: np.ndarray) -> np.ndarray:
        """Remove the rounding of single precision from numbers on a grid, all (n,).

        ``widths`` are those that the numbers were scaled by.
        """
        scale, restored = 10.0**self.decimals, numbers.copy()
        for step in self.steps:  # the coarsest last
            nearest = np.rint(numbers * (scale / step)) * step / scale
            restored = np.where(
                np.abs(nearest - numbers) <= _SINGLE_ROUNDING * widths, nearest, restored
            )
        return restored


def find_rounding_steps(
    numbers: np.ndarray, decimals: int | None, min_count: int = 1
) -> RoundingSteps | None:
    """Find the grids that numbers, (n,) float64, are on.

    ``decimals`` are those that all of them have, None if there are too many to tell. A coarser grid
    counts if it has a tenth of the numbers of the finer one more than expected by chance, and
    ``min_count`` numbers other than 0; the finer one counts if ``min_count`` numbers need it.
    Returns None if no grid is coarser than the decimals.
    """
    largest = float(np.abs(numbers).max(initial=0.0))
    if len(numbers) < _MIN_NUMBERS or not largest:
        return None
    any_number = decimals is None
    if any_number:
        decimals = _STEP_DIGITS - math.ceil(math.log10(largest))
    assert decimals is not None
    if not 0 <= decimals <= 22 or largest * 10.0**decimals >= HELD:  # 10.0**22 is exact
        return None
    counted = numbers * 10.0**decimals
    counts = np.rint(counted)
    if any_number:
        deviation = np.abs(counts / 10.0**decimals - numbers)
        counts = counts[deviation <= 4 * np.spacing(largest)]
    n_off = len(numbers) - len(counts)
    steps, shares = [1], [1.0 if n_off < min_count else len(counts) / len(numbers)]
    if shares[0] < _MIN_SHARE:
        return None
    step, multiples = 1, counts.astype(np.int64)
    while len(multiples) >= _MIN_NUMBERS:
        factor = 2 if str(step).startswith("5") else 5
        is_multiple = multiples % (step * factor) == 0
        chance, n = 1 / factor, len(multiples)
        excess_share = (float(is_multiple.mean()) - chance) / (1 - chance)
        noise = 3 * math.sqrt(chance / (1 - chance) / n)
        n_nonzero = np.count_nonzero(multiples[is_multiple])  # zero is on every grid
        if excess_share < max(_MIN_SHARE, noise) or n_nonzero < max(1, min_count):
            break
        step, multiples = step * factor, multiples[is_multiple]
        if n - is_multiple.sum() < max(1, min_count):  # the finer one is not needed
            steps[-1] = step
        else:
            steps.append(step)
            shares.append(shares[-1] * excess_share)
    if steps == [1] and not any_number:
        return None
    return RoundingSteps(decimals, tuple(steps), tuple(shares))


# ---- Mixtures of normal distributions: the modes of a numeric column -----------------------------

# After these the likelihood of common columns no longer grows: modes that overlap trade shares.
_MAX_ITER = 30
NARROW = 1e-300  # the standard deviation that a mode of one number has in the place of 0
# A sample of this share of the column's range is one value: its squares would underflow.
_MIN_SPREAD = 1e-50
# Posteriors that are held at a time: 4 MB of float64.
_POSTERIOR_PIECE = 2**19


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
        step = max(1, _POSTERIOR_PIECE // len(self.weights))
        for start in range(0, len(x), step):
            rows = slice(start, start + step)
            posterior = self.posterior(x[rows])
            # NOTE[DIFF]: the paper may draw a mode within which `scale` clips the value; we do so
            # only where every mode would.
            near = np.where(self._unclipped(x[rows]), posterior, 0.0)
            posterior = np.where(near.any(axis=1, keepdims=True), near, posterior)
            cumulative = posterior.cumsum(axis=1)
            drawn = uniforms[rows, None] * cumulative[:, -1:]
            # The last is left out: rounding may bring the draw up to it.
            codes[rows] = (cumulative[:, :-1] <= drawn).sum(axis=1)
        return codes

    def scale(self, x: np.ndarray, codes: np.ndarray, steps: Any = 0.5) -> np.ndarray:
        """Each value within its mode: four standard deviations are 1, further ones clipped."""
        # CTGAN, section 4.2: alpha = (c - eta) / (4 phi)
        return np.clip((x - self.means[codes]) / (4 * self.sds[codes]), -1.0, 1.0)

    def spread(self, x: np.ndarray) -> np.ndarray:
        """Those of some numbers that are no mode of one number."""
        return x[~self.is_kept(x)]

    def is_kept(self, x: np.ndarray) -> np.ndarray:
        """Tell which numbers are modes of one number."""
        is_single: np.ndarray = np.isin(x, self.means[self.sds <= NARROW])
        return is_single

    def ends(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that -1 and 1 stand for, of each mode: (n,) and (n,)."""
        half = 4 * self.sds[codes]
        return self.means[codes] - half, self.means[codes] + half

    def _unclipped(self, x: np.ndarray) -> np.ndarray:
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
    min_count: int = 1,
) -> list[Mixture]:
    """Fit a variational mixture of at most `n_modes` modes to each sample, in threads.

    A mode that fewer values than `min_count` make is left out.
    """
    controller = ThreadpoolController()
    # Filters belong to the process, so they are set here and not in each thread, and by one fit of
    # a process at a time.
    with _filters_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_fit_mixture)(sample, n_modes, min_weight, min_count, controller)
            for sample in samples
        )


def _fit_mixture(
    sample: Sample,
    n_modes: int,
    min_weight: float,
    min_count: int,
    controller: ThreadpoolController,
) -> Mixture:
    from sklearn.mixture import BayesianGaussianMixture  # 0.1 s, of use to generators only

    x = sample.values
    n_distinct = len(np.unique(x))
    centre, spread = x.mean(), x.std()
    if n_distinct == 1 or spread <= _MIN_SPREAD * sample.range:
        # All other values of the column are rarer than the sample shows: none is clipped.
        return Mixture(np.ones(1), x[:1].copy(), np.array([sample.range / 4 or 1.0]))
    model = BayesianGaussianMixture(
        n_components=max(1, min(n_modes, n_distinct, len(x) // min_count)),
        covariance_type="diag",  # of one column: the same model as "full", computed faster
        max_iter=_MAX_ITER,
        weight_concentration_prior=0.001,
        n_init=1,
        random_state=sample.seed,
    )
    # k-means adds up in an order that depends on its threads; with one the result is the same.
    with controller.limit(limits=1, user_api="openmp"):
        model.fit(((x - centre) / spread)[:, None])
    lowest_weight = max(min_weight, (min_count - 0.5) / len(x)) if min_count > 1 else min_weight
    is_selected = model.weights_ > min(lowest_weight, np.nextafter(model.weights_.max(), 0))
    return Mixture(
        weights=model.weights_[is_selected] / model.weights_[is_selected].sum(),
        means=model.means_[is_selected, 0] * spread + centre,
        sds=np.sqrt(model.covariances_[is_selected, 0]) * spread,
    )


# ---- Quantile bins of a numeric column: atoms that many rows share, and intervals between --------

_MIN_INTERVAL_ROWS = 20  # of an interval, at least
_RECURRING = 5  # rows that share a number, at least, for it to be a point of an interval
_LEAST_REST = 1 / 64  # of an interval's rows, that are spread evenly
_NO_REST = 1e-12  # a smaller share is rounding
_MAX_HALVINGS = 8  # times that the outermost intervals are halved, at most


class _Points(NamedTuple):
    """Of the points of bins: their intervals, and where their steps are on these."""

    bin_codes: np.ndarray  # (k,): the code of each point's interval
    first: np.ndarray  # (n_bins + 1,): the first point of each bin, and how many there are
    below: np.ndarray  # (k + 1,): the shares of all points before each, whichever interval's
    even_shares: np.ndarray  # (n_bins,): the share of an interval's rows that are no points
    lower: np.ndarray  # (k,): the cumulative share of the interval's rows below the point
    upper: np.ndarray  # (k,): the same with the point


@dataclass(frozen=True, eq=False)
class Bins(Mixture):
    """Intervals and atoms in the form of a `Mixture`, in ascending order.

    An interval reaches four ``sds`` to both sides of its mean, an atom is its mean. Each number is
    in one of them: in the atom that it is, or else in the interval around it. Within an interval
    there may be ``points``, (k,) ascending: numbers that recur, each with its share, ``shares``, of
    the interval's rows. A place in an interval, from -1 to 1, is the cumulative share of its rows
    where the rest of them is spread evenly: at a point that has steps, as wide as its share.

    >>> bins = Bins(np.full(3, 1 / 3), np.array([0.0, 2.0, 6.0]), np.array([1e-300, 0.5, 0.5]))
    >>> codes = bins.draw(np.array([0.0, 0.5, 3.9, 9.0]), np.empty(0))
    >>> codes, bins.scale(np.array([0.0, 0.5, 3.9, 9.0]), codes)
    (array([0, 1, 1, 2], dtype=int32), array([ 0.  , -0.75,  0.95,  1.  ]))
    >>> one = np.ones(1)
    >>> half = Bins(one, 2 * one, one / 2, points=one, shares=one / 2)  # half of 0 to 4 are 1
    >>> half.unscale(np.array([-0.8, -0.7, 0.2, 0.3]), np.zeros(4, int))
    array([0.8, 1. , 1. , 1.2])
    """

    points: np.ndarray = field(default_factory=lambda: np.empty(0))
    shares: np.ndarray = field(default_factory=lambda: np.empty(0))

    @cached_property
    def _steps(self) -> _Points:
        wide = np.flatnonzero(self.sds > NARROW)
        high = self.ends(wide)[1]
        bin_codes = wide[np.minimum(np.searchsorted(high, self.points), max(len(wide) - 1, 0))]
        first = np.searchsorted(bin_codes, np.arange(len(self.weights) + 1))
        below = np.concatenate([[0.0], np.cumsum(self.shares)])
        even_shares = 1 - (below[first[1:]] - below[first[:-1]])
        even_shares[even_shares < _NO_REST] = 0.0
        even = (self.points - self.ends(bin_codes)[0]) / (8 * self.sds[bin_codes])
        lower = even_shares[bin_codes] * even + below[:-1] - below[first[bin_codes]]
        return _Points(bin_codes, first, below, even_shares, lower, lower + self.shares)

    def scale(self, x: np.ndarray, codes: np.ndarray, steps: Any = 0.5) -> np.ndarray:
        """Each value within its interval, from -1 to 1; 0 in an atom.

        ``steps``, in (0, 1), is where on a point's step it is.
        """
        atom = self.sds[codes] <= NARROW
        half = np.where(atom, 1.0, 4 * self.sds[codes])
        position = np.clip((x - self.means[codes]) / half, -1.0, 1.0)
        if len(self.points):
            at, first, last = self._steps, self._steps.first[codes], self._steps.first[codes + 1]
            i = np.clip(np.searchsorted(self.points, x), first, last)
            point = np.minimum(i, len(self.points) - 1)
            step = np.where((i < last) & (self.points[point] == x), self.shares[point], 0.0)
            below = at.below[i] - at.below[first] + at.even_shares[codes] * (position + 1) / 2
            on_steps = np.clip(2 * (below + step * steps) - 1, -1.0, 1.0)  # against rounding
            position = np.where(first < last, on_steps, position)
        return np.where(atom, 0.0, position)

    def unscale(self, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Invert `scale`; an atom is its mean wherever the value lies."""
        if not len(self.points):
            numbers = super().unscale(values, codes)
            return np.where(self.sds[codes] <= NARROW, self.means[codes], numbers)
        at, first, last = self._steps, self._steps.first[codes], self._steps.first[codes + 1]
        share = (np.clip(values, -1.0, 1.0).astype(np.float64) + 1) / 2 * (1 - _NO_REST)
        i = np.clip(
            np.searchsorted(at.bin_codes + at.upper, codes + share, side="right"), first, last
        )
        point = np.minimum(i, len(self.points) - 1)
        on_step = (i < last) & (at.lower[point] <= share)
        even_part = share - (at.below[i] - at.below[first])
        even = np.clip(even_part / np.maximum(at.even_shares[codes], _NO_REST), 0.0, 1.0)
        numbers = super().unscale(2 * even - 1, codes)
        numbers = np.where(on_step, self.points[point], numbers)
        return np.where(self.sds[codes] <= NARROW, self.means[codes], numbers)

    def is_kept(self, x: np.ndarray) -> np.ndarray:
        """Tell which numbers are atoms or points."""
        return super().is_kept(x) | np.isin(x, self.points)

    def draw(self, x: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
        """The code of each value's bin, (n,) int32, or of the nearest; nothing is drawn."""
        atoms = np.flatnonzero(self.sds <= NARROW)
        wide = np.flatnonzero(self.sds > NARROW)
        codes = np.empty(len(x), dtype=np.int32)
        if len(wide):
            ends = self.means[wide] + 4 * self.sds[wide]
            codes[:] = wide[np.minimum(np.searchsorted(ends, x), len(wide) - 1)]
        else:
            middles = (self.means[1:] + self.means[:-1]) / 2
            codes[:] = np.searchsorted(middles, x)
        if len(atoms):
            atom_index = np.minimum(np.searchsorted(self.means[atoms], x), len(atoms) - 1)
            is_atom = self.means[atoms][atom_index] == x
            codes[is_atom] = atoms[atom_index[is_atom]]
        return codes


def fit_bins(sample: Sample, n_bins: int, min_count: int) -> Bins:
    """Fit about ``n_bins`` bins to the values of a column.

    A value that fills a bin is an atom; with at most ``n_bins`` different values, all are. Other
    values are cut into intervals with equal numbers of rows; the outermost are halved again and
    again, for long tails. A cut is a round number between two
    values. No bin has fewer rows than ``min_count``: a rest of fewer has none and is taken for the
    nearest atoms.
    """
    n = len(sample.values)
    values, counts = np.unique(sample.values, return_counts=True)
    atom_count = min_count if len(values) <= n_bins else max(min_count, 2, n / n_bins)
    atom = counts >= atom_count
    if (~atom).sum() == 1 and counts[~atom][0] >= min_count:  # an interval of one value
        atom[:] = True
    other_values, n_others = values[~atom], int(counts[~atom].sum())
    means, sds = [values[atom]], [np.full(int(atom.sum()), NARROW)]
    weights, points, shares = [counts[atom] / n], np.empty(0), np.empty(0)
    if n_others >= min_count or not atom.any():
        parts = max(
            1, min(round(n_bins * n_others / n), n_others // max(min_count, _MIN_INTERVAL_ROWS))
        )
        edges, interval_counts = _cut(other_values, counts[~atom], parts, min_count)
        half = np.maximum((edges[1:] - edges[:-1]) / 2, 4 * NARROW * 2)
        means.append((edges[1:] + edges[:-1]) / 2)
        sds.append(half / 4)
        weights.append(interval_counts / n)
        interval = np.searchsorted(edges[1:-1], other_values)
        recurring = counts[~atom] >= max(min_count, _RECURRING)
        points = other_values[recurring]
        shares = counts[~atom][recurring] / interval_counts[interval[recurring]]
        rare = (
            np.bincount(interval, counts[~atom] * ~recurring, len(interval_counts))
            / interval_counts
        )
        few = (rare > 0) & (rare < _LEAST_REST)
        shares *= np.where(few, (1 - _LEAST_REST) / np.maximum(1 - rare, 0.5), 1.0)[
            interval[recurring]
        ]
    order = np.argsort(np.concatenate(means), kind="stable")
    weight, mean, sd = (
        np.concatenate(parts_of_bins)[order] for parts_of_bins in (weights, means, sds)
    )
    return Bins(weight, mean, sd, points, shares)


def _cut(
    values: np.ndarray, counts: np.ndarray, n_parts: int, min_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of intervals, and how many rows each has, of distinct values in ascending order."""
    below = np.cumsum(counts)  # rows up to each value
    shares = list(np.arange(1, n_parts) / n_parts)
    if shares:
        for k in range(1, _MAX_HALVINGS + 1):
            part = shares[0] / 2**k
            if part * below[-1] < max(min_count, _MIN_INTERVAL_ROWS):
                break
            shares += [part, 1 - part]
    cut_rows = np.searchsorted(below, np.sort(shares) * below[-1])
    accepted, last_row = [], 0  # a cut follows the value there
    for row in np.unique(cut_rows).tolist():  # where many rows share a value, few may be left
        if min(below[row] - last_row, below[-1] - below[row]) >= min_count:
            accepted.append(row)
            last_row = below[row]
    cut_rows = np.array(accepted, dtype=np.intp)
    cuts = [_round_between(values[i], values[i + 1]) for i in cut_rows]
    interval_counts = np.diff(np.concatenate([[0], below[cut_rows], below[-1:]])).astype(float)
    # the outermost reach as far beyond their rows as these are from each other
    spacing = [
        ((cuts[0] if cuts else values[-1]) - values[0]) / interval_counts[0],
        (values[-1] - (cuts[-1] if cuts else values[0])) / interval_counts[-1],
    ]
    if len(values) > 1 and counts[0] > 1:  # rounded numbers: half a step
        spacing[0] = (values[1] - values[0]) / 4
    if len(values) > 1 and counts[-1] > 1:
        spacing[1] = (values[-1] - values[-2]) / 4
    first = _round_between(values[0] - 2 * spacing[0], values[0])
    last = _round_between(values[-1], values[-1] + 2 * spacing[1])
    if first == last:
        first, last = first - 0.5, last + 0.5
    return np.array([first, *cuts, last]), interval_counts


def _round_between(low: float, high: float) -> float:
    """The number of fewest binary digits in the middle half between two numbers.

    >>> _round_between(4.0, 5.0), _round_between(0.3, 2.9)
    (4.5, 2.0)
    """
    quarter = (high - low) / 4
    lowest, highest = low + quarter, high - quarter
    if not lowest < highest:  # neighbours
        return low
    exponent = math.frexp(highest)[1]
    while True:
        unit = math.ldexp(1.0, exponent)
        multiple = math.ceil(lowest / unit) * unit
        if multiple <= highest:
            return multiple
        exponent -= 1


_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_UNITS["D"] = 24 * _UNITS["h"]
_NAT = np.iinfo(np.int64).min
# Decimal digits that the floating dtypes hold for certain, by bytes.
_CERTAIN_DIGITS = {2: 3, 4: 6, 8: 15}


@dataclass(frozen=True)
class TickFormat:
    """Integers, dates or durations between `low` and `high`, on a grid of `step` ticks.

    A tick is 1, or the unit of the dtype. A grid of days is one of the column's own time zone.
    """

    dtype: Any
    low: int
    high: int
    step: int
    is_integer: ClassVar[Literal[True]] = True
    decimals: ClassVar[int] = 0

    def read(self, column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Ticks above `low`, (n,) float64, and where they are missing, (n,) bool."""
        ticks, missing = to_ticks(column)
        low, high = (np.asarray(bound, dtype=ticks.dtype) for bound in (self.low, self.high))
        offsets = np.clip(ticks, low, high).view(np.uint64) - low.view(np.uint64)
        return offsets.astype(np.float64), missing

    def numbers(self, x: np.ndarray) -> np.ndarray:
        """The integers that `read` made x of, within the bounds, (n,) float64."""
        return np.clip(x, 0.0, float(self.high - self.low)) + float(self.low)

    def above(self, numbers: np.ndarray) -> np.ndarray:
        """Invert `numbers`."""
        return numbers - float(self.low)

    def write(self, x: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Invert `read`, with all numbers brought to the grid and the bounds."""
        width = self.high - self.low
        zone = _time_zone(self.dtype)
        step = 1 if zone else self.step
        x = np.clip(np.rint(x / step) * step, 0.0, float(width))
        # float(width) may be above the integers of 64 bits
        offsets = np.minimum(x, np.nextafter(float(width), 0.0)).astype(np.uint64)
        offsets[x >= float(width)] = width
        ticks = offsets + np.uint64(self.low % 2**64)
        if self.high <= np.iinfo(np.int64).max:
            ticks = ticks.view(np.int64)
        if zone and self.step > 1:
            ticks = _snap(ticks, self.step, _time_unit(self.dtype), zone)
            ticks = np.clip(ticks, self.low, self.high)
        return _from_ticks(ticks, missing, self.dtype)

    def with_decimals(self, decimals: int | None) -> TickFormat:
        """Return itself, because integers have no decimals."""
        return self

    def grid(self) -> tuple[float, float]:
        """The first number and the distance of neighbouring numbers, as `read` returns them."""
        return 0.0, float(self.step)

    def find_rounding_steps(self, x: np.ndarray, min_count: int) -> RoundingSteps | None:
        """Find the grids of numbers that `read` returned, (n,); None for dates."""
        if _time_unit(self.dtype) is not None or max(abs(self.low), abs(self.high)) >= HELD:
            return None
        return find_rounding_steps(self.numbers(x), 0, min_count)


@dataclass(frozen=True)
class FloatFormat:
    """Floats between `low` and `high`, counted in units of 2**exponent.

    `decimals` is how many they all have, None if more than their dtype holds for certain.
    """

    dtype: Any
    low: float
    high: float
    exponent: int
    decimals: int | None
    is_integer: ClassVar[Literal[False]] = False

    def read(self, column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Numbers above `low`, (n,) float64 in [0, 1], and where they are missing, (n,) bool."""
        x, missing = _to_floats(column, label)
        return self.above(np.clip(x, self.low, self.high)), missing

    def write(self, x: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Invert `read`, with all numbers brought to the decimals and the bounds."""
        return self.hold(self.numbers(x), missing)

    def numbers(self, x: np.ndarray) -> np.ndarray:
        """The numbers that `read` made x of, within the bounds."""
        x = np.clip(
            x, 0.0, np.ldexp(self.high, -self.exponent) - np.ldexp(self.low, -self.exponent)
        )
        return np.ldexp(x + np.ldexp(self.low, -self.exponent), self.exponent)

    def above(self, numbers: np.ndarray) -> np.ndarray:
        """Invert `numbers`."""
        return np.ldexp(numbers, -self.exponent) - np.ldexp(self.low, -self.exponent)

    def hold(self, numbers: np.ndarray, missing: np.ndarray) -> pd.Series:
        """Numbers as the column has them, with its decimals and bounds."""
        if self.decimals is not None:
            numbers = np.round(numbers, self.decimals) + 0.0  # no -0.0
        return _from_floats(np.clip(numbers, self.low, self.high), missing, self.dtype)

    def with_decimals(self, decimals: int | None) -> FloatFormat:
        """Return the format with another number of decimals."""
        return replace(self, decimals=decimals)

    def grid(self) -> tuple[float, float]:
        """The first number and the distance of neighbouring numbers, as `read` returns them.

        The distance is 0 where it is unknown, or where the bounds contain no number of the grid.
        """
        if self.decimals is None:
            return 0.0, 0.0
        step = 10.0**-self.decimals
        if step * 2.0**53 <= max(abs(self.low), abs(self.high)):  # finer than floats are
            return 0.0, 0.0
        lowest = np.ceil(self.low / step - GRID_ROUNDING) * step
        if lowest > self.high:
            return 0.0, 0.0
        return float(self.above(lowest)), float(np.ldexp(step, -self.exponent))

    def find_rounding_steps(self, x: np.ndarray, min_count: int) -> RoundingSteps | None:
        """Find the grids of numbers that `read` returned, (n,)."""
        return find_rounding_steps(self.numbers(x), self.decimals, min_count)


GRID_ROUNDING = 1e-6  # rounding error of a number on a grid, relative to the step
Format = TickFormat | FloatFormat


def fit_format(column: pd.Series, label: str, min_count: int = 1) -> Format | None:
    """Find a column's number format; None for text, truth values and categories.

    An object column counts as numbers if all that is in it are. Bounds that fewer rows than
    `min_count` share are others, as `find_bounds` has them.

    Raises ValueError if a number is infinite or complex.
    """
    kind = _number_kind(column, label)
    if kind is None:
        return None
    dtype = column.dtype
    if kind == "ticks":
        try:
            ticks, missing = to_ticks(column)
        except OverflowError:  # Python's integers beyond 64 bits
            kind = "floats"
        else:
            present = ticks[~missing]
            if not len(present):
                return TickFormat(dtype, 0, 0, 1)
            step = _resolution(present, dtype)
            return TickFormat(dtype, *_tick_bounds(present, dtype, step, min_count), step)
    x, missing = _to_floats(column, label)
    refuse_equal(large_numbers(column, x, ColumnKind.NUMBER), label, ColumnKind.NUMBER)
    present = x[~missing]
    if not len(present):
        return FloatFormat(dtype, 0.0, 0.0, 0, None)
    decimals, highest = _count_decimals(present, dtype), min(_greatest_float(dtype), LARGEST)
    low, high = (min(max(float(v), -highest), highest) for v in find_bounds(present, min_count))
    return FloatFormat(dtype, low, high, _exponent(low, high), decimals)


def _number_kind(column: pd.Series, label: str) -> Literal["floats", "ticks"] | None:
    if types.is_object_dtype(getattr(column.dtype, "subtype", column.dtype)):
        inferred = types.infer_dtype(column.to_numpy(), skipna=True)
        floats = inferred in ("floating", "mixed-integer-float")
        return "floats" if floats else "ticks" if inferred == "integer" else None
    kind = _storage(column.dtype).kind
    if kind == "c":
        raise_complex(label)
    return "floats" if kind == "f" else "ticks" if kind in "iuMm" else None


def _storage(dtype: Any) -> np.dtype:
    """The numpy dtype that a column's numbers, dates or durations are held in, else another one."""
    if hasattr(dtype, "pyarrow_dtype"):
        kind: Any = dtype.pyarrow_dtype
        unit = getattr(kind, "unit", {"date32[day]": "D", "date64[ms]": "ms"}.get(str(kind)))
        if unit is not None:
            return np.dtype(f"m8[{unit}]")
        if hasattr(kind, "scale"):  # decimals
            return np.dtype(np.float64)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return np.dtype(f"M8[{dtype.unit}]")
    dtype = dtype.subtype if isinstance(dtype, pd.SparseDtype) else dtype
    numpy_dtype = getattr(dtype, "numpy_dtype", dtype)  # nullable ones, and pyarrow's
    return numpy_dtype if isinstance(numpy_dtype, np.dtype) else np.dtype(object)


def to_ticks(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Integers, dates or durations as (n,) int64 or uint64, and which are missing, (n,)."""
    dtype: Any = column.dtype
    missing = column.isna().to_numpy(dtype=bool)
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        kind: Any = dtype.pyarrow_dtype
        array = pa.array(column.array)
        if kind.bit_width == 32 and pa.types.is_temporal(kind):
            array = array.cast(pa.int32())
        wide = pa.uint64() if kind == pa.uint64() else pa.int64()
        ticks = array.cast(wide).fill_null(0).to_numpy(zero_copy_only=False)
        return ticks, missing
    if isinstance(dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    elif isinstance(dtype, pd.SparseDtype):
        column = column.astype(dtype.subtype)
    if column.dtype.kind in "Mm":
        return column.to_numpy().view(np.int64), missing
    if column.dtype.kind == "O":
        values = column.to_numpy(dtype=object, copy=True)
        values[missing] = 0
        return values.astype(np.int64), missing
    wide = np.uint64 if column.dtype.kind == "u" else np.int64
    if missing.any():
        return column.to_numpy(dtype=wide, na_value=0), missing
    return column.to_numpy(dtype=wide), missing


def _from_ticks(ticks: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        kind: Any = dtype.pyarrow_dtype
        array = pa.array(ticks, mask=missing)
        if kind.bit_width == 32 and pa.types.is_temporal(kind):
            array = array.cast(pa.int32())
        return pd.Series(pd.arrays.ArrowExtensionArray(array.cast(kind)))
    if dtype.kind in "Mm":
        ticks = np.where(missing, _NAT, ticks)
        if isinstance(dtype, pd.DatetimeTZDtype):
            moments = pd.Series(ticks.view(f"M8[{dtype.unit}]"))
            return moments.dt.tz_localize("UTC").dt.tz_convert(dtype.tz)
        return pd.Series(ticks.view(dtype))
    return _from_numbers(ticks, missing, dtype)


def from_integers(numbers: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    """Whole numbers, (n,) uint64 that fit into any dtype of numbers or objects, as a column."""
    if types.is_float_dtype(dtype):
        return _from_floats(np.where(missing, np.nan, numbers.astype(np.float64)), missing, dtype)
    unsigned = types.is_unsigned_integer_dtype(dtype)
    return _from_ticks(numbers if unsigned else numbers.astype(np.int64), missing, dtype)


def refuse_infinite(x: Any, label: str) -> None:
    """Raise ValueError if any number, (n,), is infinite."""
    if np.isinf(x).any():
        raise ValueError(f"{label} has infinite values; replace them by missing ones or by a bound")


def _to_floats(column: pd.Series, label: str) -> tuple[np.ndarray, np.ndarray]:
    """(n,) float64, and where they are missing."""
    x = to_float(column, ColumnKind.NUMBER, label).astype(np.float64)
    refuse_infinite(x, label)
    refuse_large(float(np.nanmax(np.abs(x), initial=0.0)), label)
    return x, np.isnan(x)


def _from_floats(x: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow as pa

        array = pa.array(x, mask=missing).cast(dtype.pyarrow_dtype)
        return pd.Series(pd.arrays.ArrowExtensionArray(array))
    return _from_numbers(x, missing, dtype)


def _from_numbers(numbers: np.ndarray, missing: np.ndarray, dtype: Any) -> pd.Series:
    if hasattr(dtype, "numpy_dtype"):  # pandas' nullable ones
        return pd.Series(dtype.construct_array_type()(numbers.astype(dtype.numpy_dtype), missing))
    if missing.any():
        objects = dtype.kind == "O"
        numbers = numbers.astype(object) if objects else numbers.astype(np.float64)
        numbers[missing] = np.nan
    return pd.Series(numbers).astype(dtype)


def _tick_bounds(ticks: np.ndarray, dtype: Any, step: int, min_count: int) -> tuple[int, int]:
    """Compute bounds on the grid of the steps, within the range of the dtype."""
    unit, zone = _time_unit(dtype), _time_zone(dtype)
    if min_count <= 1:
        return int(ticks.min()), int(ticks.max())
    local = ticks if zone is None else _local(ticks, unit, zone)
    bounds = find_bounds(local if step == 1 else local // step, min_count)
    lowest, highest = _tick_range(dtype, step)
    if _storage(dtype).kind == "m" and ticks.min() >= 0 and ticks.max() < _ticks_per_day(dtype):
        highest = min(highest, _ticks_per_day(dtype) - step)  # times of day
    low, high = (min(max(bound * step, lowest), highest) for bound in bounds)
    if zone is None:
        return low, high
    moments = pd.DatetimeIndex(np.array([low, high]).view(f"M8[{unit}]"))
    # of a clock's hour that is there twice the outer one; one that is left out is moved
    earlier = np.array([True, False])
    moments = moments.tz_localize(zone, ambiguous=earlier, nonexistent="shift_forward")
    low, high = moments.tz_convert("UTC").tz_localize(None).to_numpy().view(np.int64).tolist()
    return low, high


def _tick_range(dtype: Any, step: int) -> tuple[int, int]:
    """The least and the greatest whole number of steps that a dtype holds."""
    bits: Any = np.int64
    if isinstance(dtype, pd.ArrowDtype):
        import pyarrow.types as pat

        kind: Any = dtype.pyarrow_dtype
        if pat.is_time(kind):  # of day
            return 0, _ticks_per_day(dtype) - step
        bits = f"{'u' if pat.is_unsigned_integer(kind) else 'i'}{kind.bit_width // 8}"
    elif _storage(dtype).kind in "iu":
        bits = _storage(dtype)
    bounds = np.iinfo(bits)
    # the least one of all is a missing date
    lowest = int(bounds.min) if _time_unit(dtype) is None else -int(bounds.max)
    return -(-lowest // step) * step, int(bounds.max) // step * step


def _ticks_per_day(dtype: Any) -> int:
    return _UNITS["D"] // _UNITS[str(_time_unit(dtype))]


def _greatest_float(dtype: Any) -> float:
    if isinstance(dtype, pd.ArrowDtype) and hasattr(dtype.pyarrow_dtype, "scale"):
        kind: Any = dtype.pyarrow_dtype
        return float(10.0 ** (kind.precision - kind.scale) - 10.0**-kind.scale)
    return float(np.finfo(_float_dtype(dtype)).max)


def _exponent(low: float, high: float) -> int:
    """A power of two by which the range becomes at most 1, found without overflow."""
    exponent = max(np.frexp(low)[1], np.frexp(high)[1]) + 1
    return int(exponent + np.frexp(np.ldexp(high, -exponent) - np.ldexp(low, -exponent))[1])


def _count_decimals(x: np.ndarray, dtype: Any) -> int | None:
    """The fewest decimals that all numbers have, None if their dtype could not tell."""
    if isinstance(dtype, pd.ArrowDtype) and hasattr(dtype.pyarrow_dtype, "scale"):
        return int(dtype.pyarrow_dtype.scale)
    numpy_dtype = _float_dtype(dtype)
    digits = _CERTAIN_DIGITS[numpy_dtype.itemsize]
    largest = float(np.abs(x).max())
    for decimals in range(digits + 1):
        if largest > 10.0 ** (digits - decimals):
            return None
        # A few first: most columns that have more decimals show it there.
        for some in (x[:1000], x):
            if (np.round(some, decimals).astype(numpy_dtype) != some).any():
                break
        else:
            return decimals
    return None


def _float_dtype(dtype: Any) -> np.dtype:
    storage = _storage(dtype)
    return (
        storage
        if storage.kind == "f" and storage.itemsize in _CERTAIN_DIGITS
        else np.dtype(np.float64)
    )


def _resolution(ticks: np.ndarray, dtype: Any) -> int:
    """Ticks of the coarsest of day, hour, ... that all dates or durations are whole numbers of."""
    unit = _time_unit(dtype)
    if unit is None:
        return 1
    zone = _time_zone(dtype)
    local = ticks if zone is None else _local(ticks, unit, zone)
    for size in sorted(_UNITS.values(), reverse=True):
        step, remainder = divmod(size, _UNITS[unit])
        if remainder == 0 and not (local % step).any():
            return step
    return 1


def _time_unit(dtype: Any) -> str | None:
    """The unit of a dtype of dates or durations, None for other ones."""
    storage = _storage(dtype)
    return np.datetime_data(storage)[0] if storage.kind in "Mm" else None


def _time_zone(dtype: Any) -> Any:
    if isinstance(dtype, pd.ArrowDtype):
        return getattr(dtype.pyarrow_dtype, "tz", None)
    return getattr(dtype, "tz", None)


def _local(ticks: np.ndarray, unit: str | None, zone: Any) -> np.ndarray:
    """Moments as the clocks of a time zone show them."""
    moments = pd.DatetimeIndex(ticks.view(f"M8[{unit}]")).tz_localize("UTC").tz_convert(zone)
    return moments.tz_localize(None).to_numpy().view(np.int64)


def _snap(ticks: np.ndarray, step: int, unit: str | None, zone: Any) -> np.ndarray:
    """The nearest moments whose clocks show a whole number of steps."""
    local = _local(ticks, unit, zone)
    target = (local + step // 2) // step * step
    snapped = target - (local - ticks)
    # Where the clocks were changed between the two, they show no whole step yet.
    clock = _local(snapped, unit, zone)
    result: np.ndarray = np.where(clock % step, target - (clock - snapped), snapped)
    return result
