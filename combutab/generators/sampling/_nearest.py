"""Missing cells from synthetic rows that are near to a row's known cells: a hot deck."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from combutab._random import Purpose, derive, random_uniform
from combutab.generators.sampling._sampling import FREE, Sampler
from combutab.preprocessing import ModeEncoder, NumberColumn, missing_codes

_FEWEST, _MOST = 5000, 10_000  # donors
_NEIGHBORS = 5
_DISTANCES = 2**22  # held at a time
_FAR = 4.0  # standard deviations: no number is further away; unequal categories are at one
_JITTER = 1e-4  # decides between donors that are equally near


@dataclass(frozen=True, eq=False)
class Donors:
    """Synthetic rows: values (n, n_values), codes (n, n_spans), and which spans are missing."""

    values: np.ndarray
    codes: np.ndarray
    missing: np.ndarray


def draw_nearest(
    sampler: Sampler[Any], values: np.ndarray, codes: np.ndarray, known: np.ndarray, key: int
) -> tuple[np.ndarray, np.ndarray]:
    """Complete encoded rows by the cells of synthetic rows.

    Of each row the donor is one of the five synthetic rows that are nearest by its known cells:
    by the number of unequal categories and the numbers' distances in standard deviations. Rows
    that have a value in all cells that are wanted come first.

    Parameters
    ----------
    sampler : Sampler
    values, codes : ndarray of shapes (n, n_values) and (n, n_spans)
    known : ndarray of shape (n, n_spans), bool
    key : int

    Returns
    -------
    values, codes : the same for known spans; a missing value in others only where the column has
        no values
    """
    donors = _make_donors(sampler, min(max(_FEWEST, 2 * len(codes)), _MOST), key)
    chosen = _choose(sampler.encoder, donors, values, codes, known, key)
    drawn = np.where(known, codes, donors.codes[chosen])
    drawn_values = values.copy()
    missing = missing_codes(sampler.encoder)
    for i, span in enumerate(sampler.encoder.layout_.spans):
        wanted = ~known[:, i]
        if span.value_index is not None:
            here = donors.values[chosen[wanted], span.value_index]
            drawn_values[wanted, span.value_index] = here
        lacking = np.flatnonzero(wanted & (drawn[:, i] == missing[i]))
        if not len(lacking):
            continue
        shares = _shares(sampler.encoder, i, int(missing[i]))
        if shares.any():
            uniform = random_uniform([derive(key, Purpose.CODES, i)], len(lacking))[0].numpy()
            sums = np.cumsum(shares)
            drawn[lacking, i] = np.searchsorted(sums, uniform * sums[-1], "right")
            if span.value_index is not None:
                drawn_values[lacking, span.value_index] = 0.0  # the middle of a mode
    return drawn_values, drawn


def _make_donors(sampler: Sampler[Any], n: int, key: int) -> Donors:
    """Generate rows, without missing values where the network can be told so."""
    missing = missing_codes(sampler.encoder)
    allowed = {}
    for i, code in enumerate(missing.tolist()):
        shares = _shares(sampler.encoder, i, code)
        if code >= 0 and shares.any():
            allowed[i] = tuple(np.flatnonzero(shares).tolist())
    parts = []
    for made in range(0, n, sampler.chunk):
        size = min(sampler.chunk, n - made)
        free = np.full(size, FREE)
        chunk_key = derive(key, Purpose.CHUNK, made)
        parts.append(sampler._generate(size, free, free, chunk_key, allowed)[:2])
    values, codes = map(np.concatenate, zip(*parts, strict=True))
    return Donors(values, codes, codes == missing)


def _shares(encoder: ModeEncoder, i: int, missing: int) -> np.ndarray:
    """How frequent the codes of a span are, but for those of missing and of rare values."""
    coder = encoder.columns_[encoder.layout_.spans[i].column]
    shares = np.ones(coder.size)
    if isinstance(coder, NumberColumn):
        shares[: len(coder.mixture.weights)] = coder.mixture.weights
    else:
        shares[:] = encoder.category_counts_[i]
    shares[[code for code in (missing, coder.never) if code is not None and code >= 0]] = 0.0
    return shares


def _choose(
    encoder: ModeEncoder,
    donors: Donors,
    values: np.ndarray,
    codes: np.ndarray,
    known: np.ndarray,
    key: int,
) -> np.ndarray:
    """Draw a donor for each row among the nearest, (n,)."""
    n, n_donors = len(codes), len(donors.codes)
    spans = range(known.shape[1])
    numbers = {i: x for i in spans if (x := _numbers(encoder, i, donors, values, codes))}
    shift, pick = random_uniform([derive(key, Purpose.DONORS, 0)], 2 * n)[0].numpy().reshape(2, n)
    tie = random_uniform([derive(key, Purpose.DONORS, 1)], n_donors)[0].numpy()
    tie = np.tile((tie * _JITTER).astype(np.float32), 2)
    shift = (shift * n_donors).astype(int)
    lacks = np.float32((_FAR + 1) * len(spans)) * donors.missing.T.astype(np.float32)
    chosen = np.empty(n, dtype=np.intp)
    step = max(1, _DISTANCES // n_donors)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        # each row has an order of its own of those that are equally near
        away = np.stack([tie[s : s + n_donors] for s in shift[rows]])
        away += (~known[rows]).astype(np.float32) @ lacks
        for i in spans:
            if not known[rows, i].any():
                continue
            if i in numbers:
                asked, had = numbers[i]
                distance = np.minimum(np.abs(asked[rows, None] - had), np.float32(_FAR))
                distance[:, donors.missing[:, i]] = 1.0
            else:
                distance = (codes[rows, i, None] != donors.codes[:, i]).astype(np.float32)
            distance *= known[rows, i, None]
            away += distance
        k = min(_NEIGHBORS, n_donors)
        nearest = np.argpartition(away, k - 1, axis=1)[:, :k]
        chosen[rows] = nearest[np.arange(len(away)), (pick[rows] * k).astype(int)]
    return chosen


def _numbers(
    encoder: ModeEncoder, i: int, donors: Donors, values: np.ndarray, codes: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of rows and donors in the donors' standard deviations; None for categories."""
    span = encoder.layout_.spans[i]
    coder = encoder.columns_[span.column]
    if not isinstance(coder, NumberColumn):
        return None
    asked, had = (
        coder.format.read(coder.decode(v[:, span.value_index], c[:, i]), "")[0]
        for v, c in ((values, codes), (donors.values, donors.codes))
    )
    some = had[~donors.missing[:, i]]
    centre, sd = (some.mean(), some.std()) if len(some) else (0.0, 0.0)
    asked, had = ((np.asarray(x) - centre) / (sd or 1.0) for x in (asked, had))
    return asked.astype(np.float32), had.astype(np.float32)
