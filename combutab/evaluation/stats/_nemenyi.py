"""Friedman's test with Nemenyi's after it: which models differ over many data sets?"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from combutab.evaluation.stats._ranks import check_alpha, mean_ranks
from combutab.evaluation.stats._significance import Significance, friedman

Clique = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class NemenyiResult:
    """Result of `nemenyi`; `summarise_nemenyi` says it in words.

    Attributes
    ----------
    mean_ranks : Series of length n_models, the best first
        1 is the best rank there is. Its index has the models' names.
    friedman : Significance (statistic, pvalue)
        Of the hypothesis that no model differs from any other.
    critical_difference : float
        Two models whose mean ranks differ by more are significantly different.
    p : DataFrame of shape (n_models, n_models), in the order of ``mean_ranks``
        Nemenyi's p-values, adjusted for all pairs; 1 on the diagonal.
    cliques : tuple of tuples
        The largest groups whose mean ranks differ by no more than the critical difference, of two
        models at least. Models may be in several groups; one in none differs from all others.
    alpha : float
        Level of both tests.
    n_rows : int
        Data sets (or whatever the rows of the scores were).
    rows : str
        What the rows are called: "data sets".
    """

    mean_ranks: pd.Series
    friedman: Significance
    critical_difference: float
    p: pd.DataFrame
    cliques: tuple[Clique, ...]
    alpha: float
    n_rows: int
    rows: str

    @property
    def differ(self) -> bool:
        """Say whether Friedman's test finds that the models differ."""
        return self.friedman.pvalue < self.alpha

    @property
    def not_told_apart(self) -> tuple[Clique, ...]:
        """The cliques, or one of all models where Friedman's test finds no difference."""
        return self.cliques if self.differ else (tuple(self.mean_ranks.index),)

    @property
    def n_rows_needed(self) -> int:
        """Rows below which no two models differ significantly, even if all rank them alike."""
        # n equal rows: mean ranks 1 to k, Friedman's statistic n (k - 1), of k - 1 degrees
        widest = len(self.mean_ranks) - 1
        for_nemenyi = (critical_difference(widest + 1, 1, self.alpha) / widest) ** 2
        for_friedman = float(stats.chi2.isf(self.alpha, widest)) / widest
        return max(2, 1 + math.floor(max(for_nemenyi, for_friedman)))


def nemenyi(
    scores: pd.DataFrame, *, greater_is_better: bool = True, alpha: float = 0.05
) -> NemenyiResult:
    """Friedman's test of mean ranks, and Nemenyi's test of all pairs.

    Parameters
    ----------
    scores : DataFrame of shape (n_data_sets, n_models)
        One score a model on each data set (its mean over splits and seeds), all finite; at least
        2 rows and 3 columns. The names of its index and its columns, such as "data_set" and
        "activation", are what the sentences and the diagram call them.
    greater_is_better : bool, default=True
        False for losses and errors.
    alpha : float in (0, 1), default=0.05

    Returns
    -------
    NemenyiResult

    Raises
    ------
    ValueError
        Scores are missing, there are too few rows or columns, or two columns share a name.

    Notes
    -----
    Both tests take the rows as independent, which data sets are. Folds or splits of one data set
    share their rows: the p-values are too small for them, and `compare_pairs` is the better test.
    The p-values are approximations for many rows, and rough for fewer than about ten.

    Nemenyi's test may find no pair where Friedman's finds a difference, being the weaker, and
    seldom the other way round. Its pairs count where Friedman's test finds a difference.

    References
    ----------
    J. Demsar, "Statistical comparisons of classifiers over multiple data sets", Journal of
    Machine Learning Research 7, 2006.

    Examples
    --------
    >>> scores = pd.DataFrame({
    ...     "relu": [0.71, 0.82, 0.63, 0.94, 0.75, 0.86],
    ...     "combu": [0.74, 0.83, 0.67, 0.95, 0.79, 0.84],
    ...     "tanh": [0.68, 0.77, 0.61, 0.90, 0.70, 0.80],
    ... })
    >>> result = nemenyi(scores)
    >>> result.mean_ranks.round(2).to_dict()
    {'combu': 1.17, 'relu': 1.83, 'tanh': 3.0}
    >>> round(result.critical_difference, 2), result.cliques
    (1.35, (('combu', 'relu'), ('relu', 'tanh')))
    """
    check_alpha(alpha)
    if not scores.columns.is_unique:
        repeated = scores.columns[scores.columns.duplicated()].unique().tolist()
        raise ValueError(f"scores must have one column a model, got several of {repeated}")
    test = friedman(scores)
    ranks = mean_ranks(scores, greater_is_better=greater_is_better)
    ranks = ranks.iloc[np.argsort(ranks.to_numpy(), kind="stable")]
    names, values = ranks.index, ranks.to_numpy()
    apart = np.abs(values[:, None] - values)
    p = stats.studentized_range.sf(apart / _scale(len(names), len(scores)), len(names), math.inf)
    critical = critical_difference(len(names), len(scores), alpha)
    return NemenyiResult(
        mean_ranks=ranks,
        friedman=test,
        critical_difference=critical,
        p=pd.DataFrame(p, index=names, columns=names),
        cliques=maximal_cliques(pd.DataFrame(apart <= critical, index=names, columns=names)),
        alpha=alpha,
        n_rows=len(scores),
        rows=_what_rows_are(scores.index),
    )


def critical_difference(n_models: int, n_rows: int, alpha: float) -> float:
    """Return the difference of two mean ranks that Nemenyi's test finds at the level ``alpha``."""
    quantile = float(stats.studentized_range.isf(alpha, n_models, math.inf))
    return quantile * _scale(n_models, n_rows)


def _scale(n_models: int, n_rows: int) -> float:
    """Return the standard deviation of each of the normal variables whose range mean ranks have."""
    return math.sqrt(n_models * (n_models + 1) / (12.0 * n_rows))


def maximal_cliques(alike: pd.DataFrame) -> tuple[Clique, ...]:
    """Return all groups of two or more that are alike pair by pair and cannot be enlarged.

    ``alike`` is symmetric; members and groups are in the order of its labels. The algorithm is that
    of C. Bron and J. Kerbosch, "Algorithm 457: finding all cliques of an undirected graph",
    Communications of the ACM 16, 1973.
    """
    neighbours = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(alike.to_numpy())]
    found: list[list[int]] = []

    def grow(clique: set[int], candidates: set[int], seen: set[int]) -> None:
        if not candidates and not seen:
            found.append(sorted(clique))
            return
        # Of a pivot and its neighbours, a group without the pivot holds a stranger to it
        pivot = max(candidates | seen, key=lambda i: len(neighbours[i] & candidates))
        for i in sorted(candidates - neighbours[pivot]):
            grow(clique | {i}, candidates & neighbours[i], seen & neighbours[i])
            candidates, seen = candidates - {i}, seen | {i}

    grow(set(), set(range(len(alike))), set())
    labels = list(alike.index)
    return tuple(tuple(labels[i] for i in clique) for clique in sorted(found) if len(clique) > 1)


def plural(word: str) -> str:
    """Return the English plural of a regular noun."""
    if word.endswith("y") and word[-2:-1] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def _what_rows_are(index: pd.Index) -> str:
    if isinstance(index, pd.MultiIndex):  # such as (repeat, fold)
        return "resamples"
    return "data sets" if index.name is None else plural(str(index.name).replace("_", " "))
