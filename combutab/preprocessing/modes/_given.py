"""Columns whose values and bounds are given beforehand, not learned from rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types

from combutab.core.dates import is_now
from combutab.preprocessing.modes._columns import (
    CategoryColumn,
    IdentifierColumn,
    Identifiers,
    NumberColumn,
)
from combutab.preprocessing.modes._numbers import (
    GRID_ROUNDING,
    NARROW,
    Bins,
    fit_format,
)


def may_miss(dtype: Any) -> bool:
    """Return whether a column of this dtype can have missing values.

    >>> may_miss(np.dtype(np.int64)), may_miss(np.dtype(np.float64))
    (False, True)
    """
    return not (isinstance(dtype, np.dtype) and dtype.kind in "biu")


def given_numbers(
    dtype: Any, label: str, edges: Sequence[Any], n_bins: int, decimals: int | None = None
) -> NumberColumn:
    """Make a column of numbers or dates with given bounds or bins, without data.

    Two edges are the bounds: between them there are ``n_bins`` bins of equal width, and the bounds
    and zero have their own bins. More edges are the edges of the bins. Numbers with at most
    ``n_bins`` values have one bin each. An edge that a number can equal, of integers, dates or
    rounded floats, is the least number of its bin; the last edge belongs to the last bin.

    Parameters
    ----------
    dtype : dtype
        Dtype of the column, of numbers or dates.
    label : str
        Name of the column in error messages.
    edges : sequence
        Bounds, or edges of the bins, in ascending order.
    n_bins : int
        Number of bins.
    decimals : int, optional
        Number of decimals of floats; by default they are not rounded.

    Raises
    ------
    ValueError
        If the edges are not in ascending order, or the dtype cannot hold them.

    Examples
    --------
    >>> column = given_numbers(np.dtype(float), "column 'x'", (0, 8), 4)
    >>> numbers, rng = pd.Series([0.0, 1.0, 7.9, 99.0, np.nan]), np.random.default_rng()
    >>> column.encode(numbers, "x", rng)[1].tolist()
    [0, 1, 4, 5, 6]
    """
    some = edges if len(edges) <= 6 else [*edges[:3], "...", *edges[-2:]]
    edges_text = ", ".join(map(str, some))
    try:
        _check_range(dtype, edges)
        _refuse_now(edges)
        column = pd.Series(list(edges)).astype(dtype)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{label}: {dtype} cannot hold its bounds {edges_text}: {error}"
        ) from error
    if column.isna().any() or not all(
        before < after for before, after in itertools.pairwise(column)
    ):
        raise ValueError(f"{label}: its bounds must ascend, got {edges_text}")
    if types.is_integer_dtype(dtype) and not np.array_equal(column.to_numpy(float), edges):
        raise ValueError(f"{label} has whole numbers; so must its bounds, got {edges_text}")
    format = fit_format(column, label)
    if format is None:
        raise ValueError(
            f"{label} has the dtype {dtype}, which has no bounds; give its categories, or "
            "convert it (pandas.to_datetime for dates, pandas.to_numeric for numbers)"
        )
    format = format.with_decimals(decimals)
    offsets, _ = format.read(column, label)
    missing, (first, step) = may_miss(dtype), format.grid()
    if len(edges) > 2:
        bins = _even_intervals(_cut_between(offsets, first, step))
    elif offsets[-1] < step * n_bins:
        bins = _even_atoms(np.arange(first, offsets[-1] + step * GRID_ROUNDING, step))
    else:
        cuts = _cut_between(np.linspace(0.0, offsets[-1], n_bins + 1), first, step)
        special = [0.0, float(offsets[-1])]
        if not types.is_datetime64_any_dtype(dtype) and format.low < 0 < format.high:
            special.append(float(format.above(np.zeros(1))[0]))
        bins = _join_sorted(_even_intervals(cuts), _even_atoms(np.unique(special)))
    return NumberColumn(format, bins, missing)


def _check_range(dtype: Any, edges: Sequence[Any]) -> None:
    """Raise an error for numbers that the dtype would wrap round or make infinite.

    >>> _check_range(np.dtype("int8"), (0, 130))
    Traceback (most recent call last):
    ValueError: it holds -128 to 127
    """
    numpy_dtype = getattr(dtype, "numpy_dtype", dtype)
    if types.is_bool_dtype(numpy_dtype) or not types.is_numeric_dtype(numpy_dtype):
        return
    limits: Any = (
        np.iinfo(numpy_dtype) if types.is_integer_dtype(numpy_dtype) else np.finfo(numpy_dtype)
    )
    low, high, *plain = _python_scalars([limits.min, limits.max, *edges])
    if not all(low <= edge <= high for edge in plain):
        raise ValueError(f"it holds {limits.min!s} to {limits.max!s}")


def _refuse_now(values: Sequence[Any]) -> None:
    """Raise ValueError for text that pandas would read as the current time."""
    if any(map(is_now, values)):
        raise ValueError("'now' and 'today' are not dates")


def _python_scalars(values: Sequence[Any]) -> list[Any]:
    """Python's own numbers for NumPy's: comparing float32 with others may overflow."""
    return [v.item() if isinstance(v, np.generic) else v for v in values]


def _cut_between(edges: np.ndarray, first: float, step: float) -> np.ndarray:
    """Move edges halfway between numbers of a grid, so that rounding does not change the bin."""
    if not step:
        return edges
    positions = (edges - first) / step
    cuts = np.ceil(positions - GRID_ROUNDING) - 0.5
    cuts[-1] = np.floor(positions[-1] + GRID_ROUNDING) + 0.5
    return first + step * np.unique(cuts)


def _even_intervals(edges: np.ndarray) -> Bins:
    half = np.diff(edges) / 2
    return Bins(np.full(len(half), 1 / len(half)), edges[:-1] + half, half / 4)


def _even_atoms(values: np.ndarray) -> Bins:
    return Bins(np.full(len(values), 1 / len(values)), values, np.full(len(values), NARROW))


def _join_sorted(intervals: Bins, atoms: Bins) -> Bins:
    """Bins in ascending order."""
    means, sds = np.r_[intervals.means, atoms.means], np.r_[intervals.sds, atoms.sds]
    order = np.lexsort((sds, means))
    return Bins(np.full(len(means), 1 / len(means)), means[order], sds[order])


def merge_bins(
    column: NumberColumn, weights: np.ndarray, n_bins: int, noise: float = 0.0
) -> np.ndarray:
    """Merge neighbouring bins into about ``n_bins`` bins of about equal weight.

    A bin of a single number stays separate if its weight is at least that of an average bin;
    otherwise it joins the interval around it. The bins before and after all that hold more than
    ``noise``, alone or together with their neighbours, become one bin on each side.

    Parameters
    ----------
    column : NumberColumn
        A column from `given_numbers`.
    weights : ndarray, (n_fine,)
        Weights of its bins; with noise also negative ones, which are merged as 0.
    n_bins : int
        Approximate number of merged bins.
    noise : float, default=0.0
        Weight up to which a bin counts as empty; of k bins together, the square root of k times it.

    Returns
    -------
    ndarray of int, (n_fine,)
        The merged bin of each bin.

    Examples
    --------
    >>> column = given_numbers(np.dtype(float), "column 'x'", (0, 8), 4)
    >>> merge_bins(column, np.array([9.0, 1.0, 1.0, 1.0, 1.0, 0.0]), 3)
    array([0, 1, 1, 2, 2, 2])
    """
    bins = column.mixture
    share = np.maximum(weights, 0)
    share = share / max(share.sum(), 1e-300)
    is_atom = bins.sds <= NARROW
    single = is_atom & (share >= 1 / n_bins)
    some = np.where(single, 0.0, weights)
    within = occupied(some, noise) or slice(0, len(some))
    even_share = np.where(single, 0.0, share)[within]
    n_merged = max(1, n_bins - int(single.sum()))
    middle = np.cumsum(even_share) - even_share / 2
    group = np.full(len(share), n_merged)
    group[: within.start] = -1
    cuts = (middle / max(even_share.sum(), 1e-300) * n_merged).astype(int)
    group[within] = np.minimum(cuts, n_merged - 1)
    if is_atom.all():  # in order, each run of atoms that are no single ones is an interval
        label = np.where(single, -2 - np.arange(len(share)), group)
        return np.cumsum(np.r_[0, label[1:] != label[:-1]])
    # an atom lies in the interval next to it
    wide = np.where(is_atom, 0, np.arange(len(share)))
    nearest = np.maximum.accumulate(wide)
    nearest = np.where(is_atom[nearest], np.flatnonzero(~is_atom)[0], nearest)
    group = np.where(single, n_merged + np.cumsum(single), group[nearest])
    group_codes: np.ndarray = np.unique(group, return_inverse=True)[1].reshape(-1)
    # in ascending order of where they lie
    group_means = np.array(
        [bins.means[group_codes == g].mean() for g in range(group_codes.max() + 1)]
    )
    rank: np.ndarray = np.argsort(np.argsort(group_means, kind="stable"), kind="stable")
    return rank[group_codes]


def occupied(weights: np.ndarray, noise: float) -> slice | None:
    """The range of bins that hold something.

    Sums of 1, 2, 4, ... neighbours are compared with their noise. The range begins at that one of
    those that exceed it which ends first, or before it, if the bins before it add a quarter of
    ``noise`` each on average. Its end is found likewise.

    Parameters
    ----------
    weights : ndarray, (n,)
        Weights of the bins, with noise.
    noise : float
        Weight up to which a bin counts as empty; of k bins together, the square root of k times it.

    Returns
    -------
    slice or None
        None if no sum exceeds its noise.

    Examples
    --------
    >>> occupied(np.array([0.5, -1.0, 3.0, 3.0, 3.0, 3.0, 1.0, -1.0, 9.0, 0.0]), 4.0)
    slice(2, 9, None)
    """
    ends = [_first_occupied(side_weights, noise) for side_weights in (weights, weights[::-1])]
    return None if ends[0] is None else slice(ends[0], len(weights) - int(ends[1] or 0))


def _first_occupied(weights: np.ndarray, noise: float) -> int | None:
    sums = np.r_[0.0, np.cumsum(weights)]
    candidates = []
    for width in 2 ** np.arange(len(weights).bit_length()):
        starts = np.flatnonzero(sums[width:] - sums[:-width] > noise * np.sqrt(width))
        if len(starts):
            candidates.append((starts[0] + width, -starts[0]))
    if not candidates:
        return None
    start = int(-min(candidates)[1])  # of equal ends the narrowest
    before = np.arange(start + 1)
    return start - int((sums[start] - sums[start - before] - noise / 4 * before).argmax())


def join_bins(column: NumberColumn, groups: np.ndarray, weights: np.ndarray) -> NumberColumn:
    """Merge the bins of a column by groups; ``weights``, (n_groups,), are positive."""
    low, high = column.mixture.ends(np.arange(len(groups)))
    is_atom = column.mixture.sds <= NARROW
    _, step = column.format.grid()
    means, sds = np.empty(len(weights)), np.empty(len(weights))
    for g in range(len(weights)):
        in_group = groups == g
        if in_group.sum() == 1 and is_atom[in_group][0]:
            means[g], sds[g] = column.mixture.means[in_group][0], NARROW
            continue
        wide = in_group & ~is_atom
        if wide.any():
            lowest, highest = low[wide].min(), high[wide].max()
        else:
            lowest, highest = (
                column.mixture.means[in_group].min() - step / 2,
                column.mixture.means[in_group].max() + step / 2,
            )
        means[g], sds[g] = (lowest + highest) / 2, (highest - lowest) / 8
    return replace(column, mixture=Bins(weights / weights.sum(), means, sds))


def given_categories(
    dtype: Any, label: str, values: Sequence[Any] | None, has_other_values: bool
) -> CategoryColumn:
    """Make a column of given categories, by default those of its dtype, without data.

    With ``has_other_values``, rows can have other values, which share one code.

    Examples
    --------
    >>> column = given_categories(np.dtype(object), "column 'city'", ["Bonn", "Ulm"], True)
    >>> column.encode(pd.Series(["Ulm", "Rom", None]), "city")[1].tolist()
    [1, 3, 2]
    """
    if values is None:
        values = [False, True]
        if isinstance(dtype, pd.CategoricalDtype):
            values = dtype.categories.tolist()
    plain = _python_scalars(values)
    if len(set(plain)) < len(plain) or any(types.is_scalar(v) and pd.isna(v) for v in plain):
        raise ValueError(f"{label}: its categories must be different values, none of them missing")
    missing = may_miss(dtype)
    listed = [*plain, *([None] if missing else [])]
    try:
        if isinstance(
            dtype, pd.CategoricalDtype
        ):  # without the other categories, which depend on the rows
            categories = pd.Index(plain, dtype=dtype.categories.dtype)
            dtype = pd.CategoricalDtype(categories, dtype.ordered)
        if types.is_datetime64_any_dtype(getattr(dtype, "categories", dtype)):
            _refuse_now(plain)
        column = pd.Series(listed, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{label}: {dtype} cannot hold its categories: {error}") from error
    if column.isna().sum() > missing:
        raise ValueError(f"{label}: {dtype} cannot hold the categories {plain}")
    counts = np.ones(len(listed) + has_other_values, dtype=np.int64)
    return CategoryColumn(column, missing, counts, rare=has_other_values)


def given_identifiers(dtype: Any) -> IdentifierColumn:
    """Make a column of identifiers, counted from 1, without data."""
    kind: Any = "integer" if types.is_numeric_dtype(dtype) else "text"
    if isinstance(dtype, pd.CategoricalDtype):
        dtype = pd.CategoricalDtype(dtype.categories[:0], dtype.ordered)
    identifiers = Identifiers(kind, 1, "" if kind == "integer" else "id-")
    return IdentifierColumn(dtype, identifiers, False, np.ones(1, dtype=np.int64))
