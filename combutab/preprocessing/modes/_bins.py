"""Quantile bins of a numeric column: atoms that many rows share, and intervals between."""

from __future__ import annotations

import math

import numpy as np

from combutab.preprocessing.modes._mixtures import NARROW, Mixture, Sample

_ROWS = 20  # of an interval, at least
_TAILS = 8  # times that the outermost intervals are halved, at most


class Bins(Mixture):
    """Intervals and atoms in the form of a `Mixture`, in ascending order.

    An interval reaches four ``sds`` to both sides of its mean, an atom is its mean. Each number is
    in one of them: in the atom that it is, or else in the interval around it.

    >>> bins = Bins(np.full(3, 1 / 3), np.array([0.0, 2.0, 6.0]), np.array([1e-300, 0.5, 0.5]))
    >>> codes = bins.draw(np.array([0.0, 0.5, 3.9, 9.0]), np.empty(0))
    >>> codes, bins.scale(np.array([0.0, 0.5, 3.9, 9.0]), codes)
    (array([0, 1, 1, 2], dtype=int32), array([ 0.  , -0.75,  0.95,  1.  ]))
    """

    def scale(self, x: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Each value within its interval, from -1 to 1; 0 in an atom."""
        atom = self.sds[codes] <= NARROW
        half = np.where(atom, 1.0, 4 * self.sds[codes])
        return np.where(atom, 0.0, np.clip((x - self.means[codes]) / half, -1.0, 1.0))

    def unscale(self, values: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Invert `scale`; an atom is its mean wherever the value lies."""
        found = super().unscale(values, codes)
        return np.where(self.sds[codes] <= NARROW, self.means[codes], found)

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
            place = np.minimum(np.searchsorted(self.means[atoms], x), len(atoms) - 1)
            is_atom = self.means[atoms][place] == x
            codes[is_atom] = atoms[place[is_atom]]
        return codes


def fit_bins(sample: Sample, n_bins: int, fewest: int) -> Bins:
    """Fit about ``n_bins`` bins to the values of a column.

    A value that as many rows share as an even bin would have is an atom, and so is each where there
    are no more than ``n_bins`` of them. The rest is cut into intervals of as many rows each; the
    outermost are halved again and again, for long tails. A cut is a round number between two
    values. No bin is of fewer rows than ``fewest``: a rest of fewer has none, and is taken for the
    nearest atoms.
    """
    n = len(sample.values)
    values, counts = np.unique(sample.values, return_counts=True)
    least = fewest if len(values) <= n_bins else max(fewest, 2, n / n_bins)
    atom = counts >= least
    if (~atom).sum() == 1 and counts[~atom][0] >= fewest:  # an interval of one value
        atom[:] = True
    rest, n_rest = values[~atom], int(counts[~atom].sum())
    means, sds = [values[atom]], [np.full(int(atom.sum()), NARROW)]
    weights = [counts[atom] / n]
    if n_rest >= fewest or not atom.any():
        parts = max(1, min(round(n_bins * n_rest / n), n_rest // max(fewest, _ROWS)))
        edges, shares = _cut(rest, counts[~atom], parts, fewest)
        half = np.maximum((edges[1:] - edges[:-1]) / 2, 4 * NARROW * 2)
        means.append((edges[1:] + edges[:-1]) / 2)
        sds.append(half / 4)
        weights.append(shares / n)
    order = np.argsort(np.concatenate(means), kind="stable")
    weight, mean, sd = (np.concatenate(each)[order] for each in (weights, means, sds))
    return Bins(weight, mean, sd)


def _cut(
    values: np.ndarray, counts: np.ndarray, n_parts: int, fewest: int
) -> tuple[np.ndarray, np.ndarray]:
    """Edges of intervals, and how many rows each has, of distinct values in ascending order."""
    below = np.cumsum(counts)  # rows up to each value
    shares = list(np.arange(1, n_parts) / n_parts)
    if shares:
        for k in range(1, _TAILS + 1):
            part = shares[0] / 2**k
            if part * below[-1] < max(fewest, _ROWS):
                break
            shares += [part, 1 - part]
    places = np.searchsorted(below, np.sort(shares) * below[-1])
    kept, last_row = [], 0  # a cut follows the value there
    for place in np.unique(places).tolist():  # where many rows share a value, few may be left
        if min(below[place] - last_row, below[-1] - below[place]) >= fewest:
            kept.append(place)
            last_row = below[place]
    places = np.array(kept, dtype=np.intp)
    cuts = [_round_between(values[i], values[i + 1]) for i in places]
    held = np.diff(np.concatenate([[0], below[places], below[-1:]])).astype(float)
    # the outermost reach as far beyond their rows as these are from each other
    spacing = [
        ((cuts[0] if cuts else values[-1]) - values[0]) / held[0],
        (values[-1] - (cuts[-1] if cuts else values[0])) / held[-1],
    ]
    if len(values) > 1 and counts[0] > 1:  # rounded numbers: half a step
        spacing[0] = (values[1] - values[0]) / 4
    if len(values) > 1 and counts[-1] > 1:
        spacing[1] = (values[-1] - values[-2]) / 4
    first = _round_between(values[0] - 2 * spacing[0], values[0])
    last = _round_between(values[-1], values[-1] + 2 * spacing[1])
    if first == last:
        first, last = first - 0.5, last + 0.5
    return np.array([first, *cuts, last]), held


def _round_between(low: float, high: float) -> float:
    """The number of fewest binary digits in the middle half between two numbers.

    >>> _round_between(4.0, 5.0), _round_between(0.3, 2.9)
    (4.5, 2.0)
    """
    quarter = (high - low) / 4
    least, most = low + quarter, high - quarter
    if not least < most:  # neighbours
        return low
    exponent = math.frexp(most)[1]
    while True:
        unit = math.ldexp(1.0, exponent)
        found = math.ceil(least / unit) * unit
        if found <= most:
            return found
        exponent -= 1
