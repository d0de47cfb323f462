"""Fidelity: how alike a synthetic and a real table are, by column, pair of columns and row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from combutab.core.rng import seed_from
from combutab.evaluation._alignment import AlignedTables, Kind
from combutab.evaluation._efficacy import REAL, align_synthetic, at_least, by_source, mean_and_sd

# ---- One column at a time: its shape, its range, its missing values ------------------------------


@dataclass(frozen=True)
class Measured:
    """One value of one table."""

    measure: str
    value: float
    column: Hashable = None
    other_column: Hashable = None
    note: str = ""


def numbers_of(column: pd.Series) -> np.ndarray:
    """Numbers, or microseconds of datetimes, as float64; NaN where missing."""
    values = column.to_numpy()
    if values.dtype.kind == "M":
        return np.where(np.isnat(values), np.nan, values.astype("datetime64[us]").astype(np.int64))
    return values


def codes_of(column: pd.Series) -> np.ndarray:
    """Return the codes of the categories, int64; -1 where missing."""
    return column.cat.codes.to_numpy(np.int64)


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Return the total variation distance of the frequencies of two arrays of codes from 0.

    >>> total_variation(np.array([0, 0, 1, 1]), np.array([0, 2]))
    0.5
    """
    n = max(a.max(), b.max()) + 1
    if n > 4 * (len(a) + len(b)):  # far more codes than values
        _, codes = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b = codes[: len(a)], codes[len(a) :]
        n = codes.max() + 1
    p, q = np.bincount(a, minlength=n) / len(a), np.bincount(b, minlength=n) / len(b)
    return min(float(np.abs(p - q).sum() / 2), 1.0)


def spread(values: np.ndarray) -> float:
    """The standard deviation; 1 for a constant, which so has its own unit.

    >>> spread(np.array([1.0, 3.0])), spread(np.array([5.0]))
    (1.0, 1.0)
    """
    if not len(values) or not _is_varying(values):
        return 1.0
    off = values - values[0]
    largest = np.abs(off).max()  # taken out, so that no square overflows
    return float(largest * (off / largest).std())


def column_scores(tables: AlignedTables, name: str, *, aspect: str) -> Iterator[Measured]:
    """Score each column by the measures of an aspect, of its present values in both tables."""
    for column, kind in tables.kinds.items():
        real, synthetic = (_present(tables[label][column], kind) for label in ("real", name))
        kinds = "category" if kind == "category" else "number"
        for measure, compare in _OF_COLUMNS[aspect, kinds].items():
            if not len(real):
                yield Measured(measure, np.nan, column, note="no real values")
            elif not len(synthetic):
                worst = np.nan if measure in _DISTANCES else 0.0
                yield Measured(measure, worst, column, note="no synthetic values")
            else:
                yield Measured(measure, float(compare(real, synthetic)), column)


def missing_values(tables: AlignedTables, name: str) -> Iterator[Measured]:
    """Score the shares and the patterns of missing values, if any of the tables has some."""
    holes = np.any([table.isna().any() for table in tables.tables.values()], axis=0)
    columns = [column for column, has in zip(tables.kinds, holes, strict=True) if has]
    if not columns:
        return
    real, synthetic = tables["real"][columns].isna(), tables[name][columns].isna()
    for column in columns:
        yield Measured(
            "missing_share", 1.0 - abs(real[column].mean() - synthetic[column].mean()), column
        )
    both = np.packbits(np.concatenate([real, synthetic]), axis=1)
    _, patterns = np.unique(both, axis=0, return_inverse=True)
    patterns = patterns.ravel()  # numpy 2.0 has it as a column
    variation = total_variation(patterns[: len(real)], patterns[len(real) :])
    yield Measured("missing_pattern", 1.0 - variation)


def _present(column: pd.Series, kind: Kind) -> np.ndarray:
    values = column.dropna()
    return codes_of(values) if kind == "category" else numbers_of(values)


def ks_complement(a: np.ndarray, b: np.ndarray) -> float:
    """1 minus the Kolmogorov-Smirnov statistic of two arrays of numbers."""
    # scipy's ks_2samp has the p-value as well, and warns of one where a table has one row
    a, b = np.sort(a), np.sort(b)
    every = np.concatenate([a, b])
    p = np.searchsorted(a, every, side="right") / len(a)
    q = np.searchsorted(b, every, side="right") / len(b)
    return 1.0 - float(np.abs(p - q).max())


def _wasserstein(a: np.ndarray, b: np.ndarray) -> float:
    from scipy.stats import wasserstein_distance

    unit = spread(a)
    # of large numbers, as dates are, the differences keep their digits
    return float(wasserstein_distance((a - a[0]) / unit, (b - a[0]) / unit))


def _is_varying(values: np.ndarray) -> bool:
    return bool(values.min() < values.max())


def _range_coverage(a: np.ndarray, b: np.ndarray) -> float:
    low, high = a.min(), a.max()
    inside = min(high, b.max()) - max(low, b.min())
    if not _is_varying(a):
        return float(inside == 0)
    return float(max(inside, 0.0) / (high - low))


_DISTANCES = {"wasserstein"}  # 0 is best; all other measures are scores from 0 to 1
_OF_COLUMNS: dict[tuple[str, str], dict[str, Callable[[np.ndarray, np.ndarray], Any]]] = {
    ("shape", "category"): {"tv": lambda a, b: 1.0 - total_variation(a, b)},
    ("shape", "number"): {"ks": ks_complement, "wasserstein": _wasserstein},
    ("coverage", "category"): {
        "category_coverage": lambda a, b: np.isin(np.unique(a), b).mean(),
        "category_adherence": lambda a, b: np.isin(b, np.unique(a)).mean(),
    },
    ("coverage", "number"): {
        "range_coverage": _range_coverage,
        "range_adherence": lambda a, b: ((b >= a.min()) & (b <= a.max())).mean(),
    },
}


# ---- Pairs of columns: correlations and joint frequencies ----------------------------------------

Numbers = dict[Hashable, np.ndarray]


def pair_trends(
    tables: AlignedTables,
    name: str,
    *,
    n_bins: int,
    pairs: Iterable[tuple[Hashable, Hashable]] | None = None,
) -> Iterator[Measured]:
    """Score each pair of columns by how alike its dependence is in the two tables."""
    numeric = set(tables.columns("number", "datetime"))
    real, synthetic = (
        {column: numbers_of(tables[label][column]) for column in numeric}
        for label in ("real", name)
    )
    real_codes, made_codes = (_codes(tables, label, real, n_bins) for label in ("real", name))
    for pair in combinations(tables.kinds, 2) if pairs is None else pairs:
        if numeric.issuperset(pair):
            value, note = _correlation_similarity(
                *(of[c] for of in (real, synthetic) for c in pair)
            )
            yield Measured("correlation", value, *pair, note)
        else:
            first, second = pair  # as one code
            a, b = (of[first] * (1 << 31) + of[second] for of in (real_codes, made_codes))
            yield Measured("contingency", 1.0 - total_variation(a, b), *pair)


def _codes(tables: AlignedTables, name: str, real: Numbers, n_bins: int) -> Numbers:
    """Every column as numbers from 0, a missing value being 0."""
    codes = {}
    for column, kind in tables.kinds.items():
        values = tables[name][column]
        if kind == "category":
            codes[column] = codes_of(values) + 1
        else:
            codes[column] = _binned(numbers_of(values), real[column], n_bins)
    return codes


def _binned(values: np.ndarray, real: np.ndarray, n_bins: int) -> np.ndarray:
    """Bins of equal counts of the real values, the first and the last without end."""
    real_values = real[~np.isnan(real)]
    if not len(real_values):
        return (~np.isnan(values)).astype(np.int64)
    edges = np.unique(
        np.quantile(real_values, np.arange(1, n_bins) / n_bins, method="inverted_cdf")
    )
    bins = np.searchsorted(edges, values, side="left") + 1  # an edge is the last of its bin
    return np.where(np.isnan(values), 0, bins)


def _correlation_similarity(
    a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray
) -> tuple[float, str]:
    real, synthetic = _known_correlation(a, b), _known_correlation(c, d)
    if np.isnan(real):
        return np.nan, "no real correlation"
    if np.isnan(synthetic):
        return 1.0 - abs(real) / 2, "no synthetic correlation: taken as 0"
    return 1.0 - abs(real - synthetic) / 2, ""


def _known_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Pearson's, of the rows that have both; NaN where one is constant or there is no row."""
    both = ~(np.isnan(a) | np.isnan(b))
    if not both.all():
        a, b = a[both], b[both]
    if not len(a) or a.min() == a.max() or b.min() == b.max():
        return np.nan
    a, b = _unit_length(a), _unit_length(b)
    return float(np.clip(a @ b, -1.0, 1.0))


def _unit_length(values: np.ndarray) -> np.ndarray:
    """Centred, of length 1; scaled before it is squared, so that no size overflows."""
    centred = values - values[0]
    centred = centred / np.abs(centred).max()
    centred = centred - centred.mean()
    return centred / np.linalg.norm(centred)


# ---- Rows: whether synthetic ones lie where real ones do, and the reverse ------------------------

_CATEGORIES = 50
_NEIGHBOURS = 5
_FAR = 1e6  # standard deviations; beyond, squares might overflow
_LEVELS = np.linspace(0.0, 1.0, 101)


def support(tables: AlignedTables, name: str, *, max_rows: int, seed: int) -> Iterator[Measured]:
    """Integrated alpha-precision and beta-recall of Alaa et al. (2022)."""
    n_rows = min(len(tables["real"]), len(tables[name]), max_rows)
    if n_rows < 2:
        for measure in ("alpha_precision", "beta_recall"):
            yield Measured(measure, np.nan, note="fewer than 2 rows")
        return
    rng = np.random.default_rng(seed)
    rows = [rng.permutation(len(tables[label]))[:n_rows] for label in ("real", name)]
    real, synthetic = (
        points[sampled] for points, sampled in zip(_embed(tables, name), rows, strict=True)
    )
    yield Measured("alpha_precision", _integrated(_precision(real, synthetic)))
    yield Measured("beta_recall", _integrated(_recall(real, synthetic)))


def _precision(real: np.ndarray, synthetic: np.ndarray) -> np.ndarray:
    """At each level, the share of synthetic rows in the ball that holds this share of real ones."""
    centre = real.mean(axis=0)
    return _within(_radii(real, centre), _radii(synthetic, centre)).mean(axis=1)


def _recall(real: np.ndarray, synthetic: np.ndarray) -> np.ndarray:
    """At each level, the share of real rows that have a synthetic one near, inside the ball.

    Near is no farther than the fifth nearest of the other real rows. The ball is around the
    synthetic rows' centre and holds this share of them; of the near ones the nearest must be in it.
    """
    from sklearn.neighbors import NearestNeighbors

    # NOTE[DIFF]: the paper takes the nearest of the synthetic rows inside the ball; we take the
    # nearest of all, and ask whether it is inside. Else even a small ball has rows near to
    # many real ones, and rows of the same distribution score about 0.75 instead of 1.
    k = min(_NEIGHBOURS, len(real) - 1)
    near = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(real).kneighbors()[0][:, -1]
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(synthetic)
    distance, which = (neighbours[:, 0] for neighbours in nearest.kneighbors(real))
    radii = _radii(synthetic, synthetic.mean(axis=0))
    # the two distances are rounded otherwise where a row is there twice
    covered = distance <= near + 1e-6
    return (_within(radii, radii[which]) * covered).mean(axis=1)


def _radii(rows: np.ndarray, centre: np.ndarray) -> np.ndarray:
    # rounded, so that equal rows have equal ones
    return np.sqrt(((rows - centre) ** 2).sum(axis=1)).round(9)


def _within(radii: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return how far each of the others is inside the ball of each share of the radii.

    (level, other): 0 or 1, and between them where several radii are equal: each level has its part
    of them, or no level but 1 would hold its share of a table of few distinct rows.
    """
    ordered = np.sort(radii)
    low = np.searchsorted(ordered, points, side="left") / len(ordered)
    high = np.searchsorted(ordered, points, side="right") / len(ordered)
    width = np.maximum(high - low, 1e-12)  # 0 for any other radius
    return np.clip((_LEVELS[:, None] - low) / width, 0.0, 1.0)


def _integrated(curve: np.ndarray) -> float:
    """1 where the share is the level everywhere, 0 where it is as far from it as can be."""
    off = np.abs(curve - _LEVELS)
    return float(max(1.0 - 2.0 * ((off[1:] + off[:-1]) / 2 * np.diff(_LEVELS)).sum(), 0.0))


def _embed(tables: AlignedTables, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Both tables as points, of shape (n_rows, width); see `fidelity`."""
    points = [
        (_category_points if kind == "category" else _number_points)(
            tables["real"][column], tables[name][column]
        )
        for column, kind in tables.kinds.items()
    ]
    return np.hstack([real for real, _ in points]), np.hstack(
        [synthetic for _, synthetic in points]
    )


def _number_points(real: pd.Series, synthetic: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    a, b = numbers_of(real), numbers_of(synthetic)
    numbers = a[~np.isnan(a)]
    mean, unit = float(numbers.mean()) if len(numbers) else 0.0, spread(numbers)

    def points(values: np.ndarray) -> np.ndarray:
        absent = np.isnan(values)
        scaled = np.clip((values - mean) / unit, -_FAR, _FAR)
        return np.column_stack([np.where(absent, 0.0, scaled), absent])

    return points(a), points(b)


def _category_points(real: pd.Series, synthetic: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    a, b = codes_of(real) + 1, codes_of(synthetic) + 1  # a missing value is category 0
    counts = np.bincount(a, minlength=len(real.cat.categories) + 1)
    bins = np.full(len(counts), min(_CATEGORIES, len(counts)))  # of the rare ones: one for all
    frequent = np.argsort(-counts, kind="stable")[:_CATEGORIES]
    bins[frequent] = np.arange(len(frequent))
    onehot = np.eye(bins.max() + 1) * np.sqrt(0.5)
    return onehot[bins[a]], onehot[bins[b]]


# ---- Fidelity scores of synthetic tables ---------------------------------------------------------

_COLUMNS = ["aspect", "measure", "column", "other_column", "source"]
_COLUMNS += ["mean", "sd", "n_tables", "greater_is_better", "note"]
Aspects = dict[str, Callable[[AlignedTables, str], Iterator[Measured]]]


def fidelity(
    *,
    real: Any,
    synthetic: Any,
    categorical: Collection[Hashable] = (),
    n_bins: int = 10,
    max_rows: int = 5000,
    random_state: Any = 0,
) -> pd.DataFrame:
    """Measure the fidelity of synthetic tables: columns, pairs of columns, and whole rows.

    Parameters
    ----------
    real : DataFrame of pandas or polars, or array of shape (n_rows, n_columns)
    synthetic : table, list of tables, or mapping of name to either
        Synthetic rows, with the columns of ``real`` in any order; dtypes may differ. A list has
        several samples of one generator, which are averaged; a mapping has several generators. Add
        held-out real rows as one of them to see the score of a perfect generator, which is below 1.
    categorical : collection of column names, default=()
        Columns of numbers or dates to treat as categories.
    n_bins : int, default=10
        Number of bins, with equal numbers of real values, for numbers in the joint frequencies of
        numbers and categories.
    max_rows : int, default=5000
        Maximum number of rows of each table for "alpha_precision" and "beta_recall", sampled at
        random. Their time grows with its square.
    random_state : int, RandomState or None, default=0
        Random seed for sampling these rows.

    Returns
    -------
    DataFrame, one row per measure, column or pair of columns, and source
        ``aspect`` and ``measure`` (see the notes); ``column`` and ``other_column`` (None for
        measures of the whole table; ``other_column`` also for measures of one column);
        ``source`` ("synthetic", or a name of the mapping); ``mean`` and ``sd`` (ddof 1, NaN for one
        table) over the samples; ``n_tables``; ``greater_is_better``; ``note`` (a remark on the
        value). All measures are scores from 0 to 1, where 1 is best, except "wasserstein", a
        distance where 0 is best. ``mean`` is NaN if the real table has no values to compare with.

    Raises
    ------
    ValueError
        If columns are missing or added (the message lists them), or values cannot be compared.

    Notes
    -----
    Numbers include dates and durations. Missing values are left out, except in "contingency" and in
    the aspect "missing".

    Aspect "shape", the distribution of one column:

    - "ks", for numbers: 1 minus the Kolmogorov-Smirnov statistic.
    - "wasserstein", for numbers: first Wasserstein distance, in standard deviations of the real
      column.
    - "tv", for categories: 1 minus the total variation distance.

    Aspect "pairs", the association of two columns:

    - "correlation", for two columns of numbers: ``1 - |r - s| / 2`` with Pearson's correlations r
      and s of the real and the synthetic rows.
    - "contingency", for two columns of categories, or categories and binned numbers: 1 minus the
      total variation distance of the joint frequencies. Missing is a category.

    Aspect "coverage", the range or the categories of one column:

    - "range_coverage": share of the real range between the smallest and the largest synthetic
      number.
    - "range_adherence": share of the synthetic numbers within the real range.
    - "category_coverage": share of the real categories that occur in the synthetic rows.
    - "category_adherence": share of the synthetic values that are real categories.

    Aspect "missing", if a table has missing values:

    - "missing_share", for one column: 1 minus the difference of the shares of missing values.
    - "missing_pattern", for the table: 1 minus the total variation distance of the frequencies of
      the combinations of columns that are missing in a row.

    Aspect "support", for whole rows (Alaa et al.), integrated over all levels, 1 for the same
    distribution:

    - "alpha_precision": whether synthetic rows lie where real rows lie.
    - "beta_recall": whether synthetic rows lie everywhere that real rows lie. A real row is covered
      if the nearest synthetic row is no farther than its fifth nearest real row, and within the
      ball of the level.

    The paper embeds rows by a trained network; this function uses a fixed embedding. Numbers are
    standardized as the real ones; missing numbers become the mean, with a 1 in an additional
    column. The 50 most frequent categories are one-hot encoded, divided by the square root of 2, so
    that two categories have the distance 1. Distances are Euclidean.

    References
    ----------
    A. Alaa, B. van Breugel, E. Saveliev and M. van der Schaar, "How faithful is your synthetic
    data? Sample-level metrics for evaluating and auditing generative models", ICML 2022.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"a": rng.normal(size=500)}).assign(b=lambda t: t["a"] ** 3)
    >>> shuffled = real.apply(lambda column: rng.permutation(column))
    >>> table = fidelity(real=real, synthetic={"copy": real, "shuffled": shuffled})
    >>> shown = table[table["measure"].isin(["ks", "correlation", "alpha_precision"])]
    >>> shown[["measure", "column", "other_column", "source", "mean"]].round(1)
                measure column other_column    source  mean
    0                ks      a         None      copy   1.0
    1                ks      a         None  shuffled   1.0
    4                ks      b         None      copy   1.0
    5                ks      b         None  shuffled   1.0
    8       correlation      a            b      copy   1.0
    9       correlation      a            b  shuffled   0.7
    18  alpha_precision   None         None      copy   1.0
    19  alpha_precision   None         None  shuffled   0.9
    """
    aspects: Aspects = {
        "shape": partial(column_scores, aspect="shape"),
        "pairs": partial(pair_trends, n_bins=at_least(n_bins, 2, "n_bins")),
        "coverage": partial(column_scores, aspect="coverage"),
        "missing": missing_values,
        "support": partial(
            support, max_rows=at_least(max_rows, 2, "max_rows"), seed=seed_from(random_state)
        ),
    }
    aligned, sources = align_synthetic({REAL: real}, synthetic, categorical)
    scored = (
        ((aspect, score.measure, score.column, score.other_column), source, score)
        for aspect, measure in aspects.items()
        for label, source in sources.items()
        for score in measure(aligned, label)
    )
    rows = []
    for measured, source, samples in by_source(scored):
        notes = "; ".join(dict.fromkeys(score.note for score in samples if score.note))
        scores = mean_and_sd([score.value for score in samples])
        rows.append((*measured, source, *scores, measured[1] not in _DISTANCES, notes))
    table = pd.DataFrame(rows, columns=_COLUMNS)
    for name in ("column", "other_column"):  # None stays None, and a position an integer
        position = _COLUMNS.index(name)
        table[name] = pd.Series([row[position] for row in rows], dtype=object)
    return table
