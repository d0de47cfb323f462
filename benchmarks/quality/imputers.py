"""What fills the missing cells that are compared: ours, scikit-learn's, and donors of cells.

All have their own defaults. Tables have columns of float64, and others of the dtype category.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from combutab import TabFlow, TabFlowImputer

N_DRAWS = 19  # of m draws and a truth of the same distribution, m - 1 of m + 1 lie within: 90 %
OURS, DRAWS = "TabFlowImputer", "TabFlow.impute, a draw"
ITERATIVE, POSTERIOR = "IterativeImputer", "IterativeImputer, posterior"
NEAREST, RANDOM = "hot deck, nearest donor", "hot deck, random donor"
MIDDLE = "mean, most frequent"
_ROWS = 200  # whose distances to all others are held at a time


@dataclass(frozen=True, eq=False)
class Gaps:
    """A table of which cells are hidden.

    Attributes
    ----------
    table : DataFrame
        The truth.
    hidden : ndarray of shape (n_rows, n_columns), bool
    seed : int
    quick : bool
        Training is to be as short as can be.
    """

    table: pd.DataFrame
    hidden: np.ndarray
    seed: int
    quick: bool = False

    @cached_property
    def holed(self) -> pd.DataFrame:
        return self.table.mask(pd.DataFrame(self.hidden, columns=self.table.columns))

    @property
    def numbers(self) -> list[Any]:
        return list(self.table.select_dtypes("number"))

    @property
    def categories(self) -> list[Any]:
        return list(self.table.select_dtypes("category"))

    def hidden_of(self, columns: list[Any]) -> np.ndarray:
        return self.hidden[:, [self.table.columns.get_loc(name) for name in columns]]

    @property
    def n_draws(self) -> int:
        return 3 if self.quick else N_DRAWS


Filled = tuple[str, list[pd.DataFrame]]  # a name; one table, or several draws


def fill_by_tabflow(gaps: Gaps) -> Iterator[Filled]:
    """One fit: what the imputer fills in, then draws of its generator."""
    quick = {"epochs": 2} if gaps.quick else {}
    generator = TabFlow(random_state=gaps.seed, device="cpu", **quick)
    imputer = TabFlowImputer(generator, random_state=gaps.seed).fit(gaps.holed)
    yield OURS, [imputer.transform(gaps.holed)]
    fitted = imputer.generator_
    yield DRAWS, fitted.impute(gaps.holed, n_draws=gaps.n_draws, random_state=gaps.seed)


def fill_by_regression(gaps: Gaps) -> Iterator[Filled]:
    """Bayesian ridge regression in turn: its means, then draws from its posterior."""
    yield ITERATIVE, [_iterate(gaps, gaps.seed)]
    seeds = range(gaps.seed, gaps.seed + gaps.n_draws)
    yield POSTERIOR, [_iterate(gaps, s, sample_posterior=True) for s in seeds]


def _iterate(gaps: Gaps, seed: int, **options: Any) -> pd.DataFrame:
    """Fill numbers and one-hot categories, all standardised; of the latter the greatest is taken.

    A missing category misses all its columns. There is none for the first category, which is what
    the others lack to 1: with it each column would be found from the others that it misses with.
    """
    holed = gaps.holed
    one_hot = {
        name: pd.get_dummies(holed[name], dtype=float)
        .where(holed[name].notna(), axis=0)
        .iloc[:, 1:]
        for name in gaps.categories
    }
    X = np.hstack([holed[gaps.numbers].to_numpy(), *one_hot.values()])
    mean, sd = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    sd[sd == 0] = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        imputer = IterativeImputer(random_state=seed, keep_empty_features=True, **options)
        found = imputer.fit_transform((X - mean) / sd) * sd + mean
    filled = holed.copy()
    place = len(gaps.numbers)
    filled[gaps.numbers] = found[:, :place]
    for name, columns in one_hot.items():
        others = found[:, place : place + columns.shape[1]]
        codes = np.column_stack([1 - others.sum(axis=1), others]).argmax(axis=1)
        filled[name] = pd.Categorical.from_codes(codes, dtype=holed[name].dtype)
        place += columns.shape[1]
    return filled


def fill_by_donors(gaps: Gaps) -> Iterator[Filled]:
    """Cells of other rows: of the nearest that has one, and of any, at random."""
    places = np.arange(len(gaps.table))[:, None]
    donors = np.where(gaps.holed.isna(), nearest_donors(gaps.holed), places)
    yield NEAREST, [_given(gaps.holed, donors)]
    rng = np.random.default_rng(gaps.seed)
    draws = []
    for _ in range(gaps.n_draws):
        donors = np.broadcast_to(places, gaps.hidden.shape).copy()
        for j, name in enumerate(gaps.holed):
            lost = gaps.holed[name].isna().to_numpy()
            donors[lost, j] = rng.choice(np.flatnonzero(~lost), lost.sum())
        draws.append(_given(gaps.holed, donors))
    yield RANDOM, draws


def nearest_donors(holed: pd.DataFrame) -> np.ndarray:
    """The nearest other row that has a cell of the column, (n_rows, n_columns).

    J. C. Gower, "A general coefficient of similarity and some of its properties", Biometrics 27,
    1971: the mean over the columns that both rows have of the difference over the column's range,
    or of whether categories differ.
    """
    points = np.empty(holed.shape)
    for j, name in enumerate(holed):
        if isinstance(holed[name].dtype, pd.CategoricalDtype):
            points[:, j] = holed[name].cat.codes.where(holed[name].notna())
        else:
            points[:, j] = holed[name] / (np.ptp(holed[name].dropna()) or 1.0)
    is_category = holed.dtypes == "category"
    there = ~np.isnan(points)
    n = len(points)
    donors = np.empty(holed.shape, dtype=np.intp)
    for start in range(0, n, _ROWS):
        rows = np.arange(start, min(start + _ROWS, n))
        far, shared = np.zeros((len(rows), n)), np.zeros((len(rows), n))
        for j, discrete in enumerate(is_category):
            apart = np.abs(points[rows, j, None] - points[:, j])
            both = ~np.isnan(apart)
            far[both] += apart[both] > 0 if discrete else apart[both]
            shared += both
        distance = np.where(shared, far / np.maximum(shared, 1), np.inf)
        distance[np.arange(len(rows)), rows] = np.inf
        for j in range(holed.shape[1]):
            have = np.flatnonzero(there[:, j])
            donors[rows, j] = have[distance[:, have].argmin(axis=1)]
    return donors


def _given(holed: pd.DataFrame, donors: np.ndarray) -> pd.DataFrame:
    """Each cell from its donor's row."""
    columns = [holed[name].take(donors[:, j]) for j, name in enumerate(holed)]
    return pd.concat([c.reset_index(drop=True) for c in columns], axis=1)


def fill_by_middles(gaps: Gaps) -> Iterator[Filled]:
    """The mean of a column, or its most frequent category: what knowing no other cell is worth."""
    means = {name: gaps.holed[name].mean() for name in gaps.numbers}
    modes = {name: gaps.holed[name].mode()[0] for name in gaps.categories}
    yield MIDDLE, [gaps.holed.fillna(means | modes)]


FILLERS = (fill_by_tabflow, fill_by_regression, fill_by_donors, fill_by_middles)
MODELS = (OURS, DRAWS, ITERATIVE, POSTERIOR, NEAREST, RANDOM, MIDDLE)  # in the order of these
