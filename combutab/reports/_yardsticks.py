"""Reference values of the scores, from real rows compared with other real and shuffled rows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from combutab.evaluation import fidelity

# ---- Associations of a table's columns, whatever they hold ---------------------------------------


def associations(
    table: pd.DataFrame, columns: Sequence[Hashable], kinds: Mapping[Hashable, str]
) -> np.ndarray:
    """Measure the association of each column with each other, (n_columns, n_columns).

    Of two columns of numbers or datetimes Pearson's correlation, from -1 to 1; of one of them and
    categories the correlation ratio (R. A. Fisher, "Statistical methods for research workers",
    1925, section 45), from 0 to 1; of two of categories Cramér's V (H. Cramér, "Mathematical
    methods of statistics", 1946, 21.9), from 0 to 1. Each is of the rows where both columns have a
    value, and NaN where these do not vary. The table is as aligned.

    >>> table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "g": pd.Categorical(list("aabb"))})
    >>> associations(table, ["x", "g"], {"x": "number", "g": "category"}).round(2)
    array([[1.  , 0.89],
           [0.89, 1.  ]])
    """
    values = [association_values(table[name], kinds[name]) for name in columns]
    discrete = [kinds[name] == "category" for name in columns]
    strengths = np.full((len(columns), len(columns)), np.nan)
    for i in range(len(columns)):
        for j in range(i + 1):
            a, b = values[i], values[j]
            both = ~(np.isnan(a) | np.isnan(b))
            a, b = a[both], b[both]
            if discrete[i] and discrete[j]:
                strength = _cramers_v(a, b)
            elif discrete[i] or discrete[j]:
                strength = _correlation_ratio(*((a, b) if discrete[i] else (b, a)))
            else:
                strength = _pearson(a, b)
            strengths[i, j] = strengths[j, i] = strength
    return strengths


def association_values(column: pd.Series, kind: str) -> np.ndarray:
    """Floats, with NaN for missing; of categories, their codes."""
    if kind == "category":
        codes = column.cat.codes.to_numpy().astype(float)
        return np.where(codes < 0, np.nan, codes)
    if kind == "datetime":
        microseconds = column.to_numpy().astype("datetime64[us]")
        return np.where(np.isnat(microseconds), np.nan, microseconds.astype(np.int64).astype(float))
    return column.to_numpy(dtype=float)


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    if _has_one_value(a) or _has_one_value(b):
        return np.nan
    # ratios first: the squares of microseconds would lose the digits
    a, b = ((values - values.mean()) / np.abs(values - values.mean()).max() for values in (a, b))
    return float(np.clip((a @ b) / np.sqrt((a @ a) * (b @ b)), -1.0, 1.0))


def _correlation_ratio(groups: np.ndarray, numbers: np.ndarray) -> float:
    """Correlate numbers with the means of their groups."""
    return abs(_pearson(pd.Series(numbers).groupby(groups).transform("mean").to_numpy(), numbers))


def _cramers_v(a: np.ndarray, b: np.ndarray) -> float:
    if _has_one_value(a) or _has_one_value(b):
        return np.nan
    rows, columns = (np.unique(codes, return_inverse=True)[1] for codes in (a, b))
    n_rows, n_columns = int(rows.max()) + 1, int(columns.max()) + 1
    # only cells that hold a row count; of 100,000 categories all of them would not fit
    cells, counts = np.unique(rows * n_columns + columns, return_counts=True)
    p, q = np.bincount(rows) / len(a), np.bincount(columns) / len(a)
    joint = counts / len(a)
    chi2 = float((joint**2 / (p[cells // n_columns] * q[cells % n_columns])).sum()) - 1.0
    return float(np.sqrt(np.clip(chi2 / (min(n_rows, n_columns) - 1), 0.0, 1.0)))


def _has_one_value(values: np.ndarray) -> bool:
    return len(values) == 0 or bool((values == values[0]).all())


_FEWEST = 4  # rows that can be halved
_MOST = 20_000  # rows that are halved: of more, chance does too little to be looked for
_CELLS = 400_000  # of the tables that are drawn, together
_DRAWS = (4, 12)  # at least and at most
_TIED = 0.01  # of a pair's score, from where real rows are above shuffled ones
_ERRORS = 2.0  # standard errors of an association and of the retained share
_ROUGH = 12.5  # rows of a part of whose spread half is unknown
_AGAIN, _SHUFFLED = "again", "shuffled"


@dataclass(frozen=True)
class Yardsticks:
    """Losses of columns and pairs of columns by chance, and by being shuffled: 0 is alike.

    Attributes
    ----------
    chance : mapping of column to float
        Loss of real rows compared with other real rows, in tables of these sizes.
    ties : mapping of pair of columns to (float, float)
        Of the pairs with something to do with each other, beyond doubt: what they lose if their
        columns are shuffled, and if they are real.
    ties_off : (float, float)
        How far chance may move `kept` where nothing is kept, and where all is.
    strongest : float
        Without ties the strongest association of two real columns, from 0 to 1; else NaN.
    """

    chance: Mapping[Hashable, float]
    ties: Mapping[tuple[Hashable, Hashable], tuple[float, float]]
    ties_off: tuple[float, float]
    strongest: float

    def kept(self, losses: pd.Series) -> float:
        """The share of what ties columns together, from 0 (as shuffled) to 1 (as real)."""
        shuffled, real = np.array(list(self.ties.values())).T
        synthetic = losses.reindex(pd.Index(list(self.ties), tupleize_cols=False)).to_numpy(
            dtype=float
        )
        return float(np.clip(np.nansum(shuffled - synthetic) / (shuffled - real).sum(), 0.0, 1.0))

    def kept_off(self, kept_share: float) -> float:
        """Return how far chance may move the share that `kept` gives."""
        nothing, everything = self.ties_off
        return (1.0 - kept_share) * nothing + kept_share * everything


def column_losses(table: pd.DataFrame, source: str) -> pd.Series:
    """Return each column's loss: 1 minus the worse of its score and that of its missing share."""
    chosen = table["aspect"].isin(["shape"]) | (table["measure"] == "missing_share")
    rows = table[chosen & table["greater_is_better"] & (table["source"] == source)]
    scores = rows.dropna(subset="mean").groupby("column", sort=False)["mean"].min()
    return 1.0 - scores


def pair_losses(scores: pd.DataFrame, source: str) -> pd.Series:
    """1 minus the score of each pair of columns."""
    rows = scores[(scores["aspect"] == "pairs") & (scores["source"] == source)].dropna(
        subset="mean"
    )
    pairs = list(zip(rows["column"], rows["other_column"], strict=True))
    return pd.Series(1.0 - rows["mean"].to_numpy(), index=pd.Index(pairs, tupleize_cols=False))


def measure_yardsticks(
    train: pd.DataFrame, *, n_rows: int, kinds: Mapping[Hashable, str], random_state: int
) -> Yardsticks:
    """Split the real rows at random, several times, and compare one part with the other.

    ``train`` is as `align_tables` gives it, and ``n_rows`` are those of the synthetic table.

    What chance does to Kolmogorov-Smirnov statistics and to correlations goes with
    ``sqrt(1 / n + 1 / m)`` of the two tables' rows, so that of the parts is scaled to that of the
    tables; of frequencies of categories it is not, as these may be there once each.
    """
    n = min(len(train), _MOST)
    if n < _FEWEST:
        return Yardsticks({}, {}, (math.inf, math.inf), 1.0)
    rng = np.random.default_rng(random_state)
    part = max(1, min(n_rows, n // 2))
    scale = math.sqrt((1 / len(train) + 1 / n_rows) / (1 / part + 1 / (n - part)))
    n_draws = int(np.clip(_CELLS // (n * train.shape[1]), *_DRAWS))
    drawn = [_compare_halves(train, n, part, kinds, rng) for _ in range(n_draws)]

    losses = {i: column_losses(comparison, _AGAIN) for i, comparison in enumerate(drawn)}
    columns = pd.concat(losses, axis=1)
    numbers = [kinds[column] != "category" for column in columns.index]
    columns = columns.mul(np.where(numbers, scale, 1.0), axis=0)
    chance = dict(columns.mean(axis=1).fillna(0.0))

    real, shuffled = (
        pd.concat([pair_losses(comparison, source) for comparison in drawn], axis=1)
        for source in (_AGAIN, _SHUFFLED)
    )
    ties, ties_off = _ties(real.dropna(), shuffled.dropna(), scale, part)
    strongest = math.nan if ties else _strongest_association(train.iloc[:_MOST], kinds)
    return Yardsticks(chance, ties, ties_off, strongest)


def _compare_halves(
    train: pd.DataFrame,
    n: int,
    part: int,
    kinds: Mapping[Hashable, str],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """`fidelity` of some real rows to others, and to these with each column shuffled."""
    order = rng.permutation(len(train))[:n]
    again = train.iloc[order[:part]].reset_index(drop=True)
    shuffled = {name: again[name].take(rng.permutation(part)).array for name in again}
    return fidelity(
        real=train.iloc[order[part:]],
        synthetic={_AGAIN: again, _SHUFFLED: pd.DataFrame(shuffled)},
        categorical=[name for name, kind in kinds.items() if kind == "category"],
        max_rows=2,  # of alpha-precision and beta-recall, which are not looked at
        random_state=0,
    )


def _ties(
    real: pd.DataFrame, shuffled: pd.DataFrame, scale: float, n: int
) -> tuple[dict[tuple[Hashable, Hashable], tuple[float, float]], tuple[float, float]]:
    """Return the losses of the pairs that are tied (see `Yardsticks.ties`), and their errors."""
    pairs = real.index.intersection(shuffled.index)
    real, shuffled = real.loc[pairs], shuffled.loc[pairs]
    gap = shuffled - real
    clear = gap.mean(axis=1) >= np.maximum(_TIED, _ERRORS * gap.std(axis=1, ddof=1))
    real, shuffled = real[clear], shuffled[clear]
    if real.empty:
        return {}, (math.inf, math.inf)
    near, far = real.mean(axis=1), shuffled.mean(axis=1)
    # what shuffling takes and what chance takes add up as squares do
    structure = np.maximum(far**2 - near**2, 0.0)
    near = scale * near
    far = np.sqrt(structure + near**2)
    ties = {pair: (float(far.iloc[i]), float(near.iloc[i])) for i, pair in enumerate(far.index)}
    # of few rows the spread is known no better than the ties are
    unit = _ERRORS * (1 + _ROUGH / n) * scale / float((far - near).sum())
    nothing, everything = (unit * float(losses.sum().std(ddof=1)) for losses in (shuffled, real))
    return ties, (nothing, everything)


def _strongest_association(train: pd.DataFrame, kinds: Mapping[Hashable, str]) -> float:
    strengths = np.abs(associations(train, list(train.columns), kinds))
    strengths = strengths[np.tril_indices(len(strengths), -1)]
    return float(np.nanmax(strengths, initial=0.0))
