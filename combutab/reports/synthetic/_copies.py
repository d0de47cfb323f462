"""Synthetic rows, and single values, that are real ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binom

from combutab.reports.synthetic._verdict import RARE


@dataclass(frozen=True)
class Copies:
    """Counts of rows of one table that equal a row of another in every column.

    Attributes
    ----------
    rows : int
    of_single : int
        Those of them that equal a row that is there once: of a table of few distinct rows many are
        met by chance, of these hardly any is.
    expected : float
        How many ``of_single`` would be if the rows were others of the same distribution.
    pvalue : float
        How probable ``of_single``, or more, would be then.
    """

    rows: int
    of_single: int
    expected: float
    pvalue: float

    @property
    def by_chance(self) -> bool:
        """Say whether chance explains the copies."""
        return self.pvalue >= RARE


def count_copies(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame | None = None
) -> Copies:
    """Count the rows of ``synthetic`` that are in ``train``, both as `align_tables` gives them.

    Missing values equal each other. What is expected is what the rows of ``test`` show; without
    them it is estimated from ``train``: of n rows, those that are there once have together a
    probability of about twice the number of those that are there twice, over n (I. J. Good, "The
    population frequencies of species and the estimation of population parameters", Biometrika 40,
    1953).

    The p-value is that of J. Przyborowski and H. Wilenski ("Homogeneity of results in testing
    samples from Poisson series", Biometrika 31, 1940) for two Poisson counts: of all rows,
    synthetic and held-out, that equal one that is there once, each is as likely to be any of these
    rows.

    >>> train = pd.DataFrame({"a": [1.0, 2.0, 2.0, None]})
    >>> found = count_copies(train, pd.DataFrame({"a": [1.0, 2.0, 3.0, None, None]}))
    >>> found.rows, found.of_single
    (4, 3)
    """
    tables = [train, synthetic, *([] if test is None else [test])]
    rows = _numbered(pd.concat(tables, ignore_index=True))
    ours, theirs, others = np.split(rows, np.cumsum([len(train), len(synthetic)]))
    counts = np.bincount(ours, minlength=rows.max() + 1)
    n_made, of_single = len(synthetic), int((counts[theirs] == 1).sum())
    if test is None:
        hits, n = int((counts == 2).sum()), len(train) / 2
    else:
        hits, n = int((counts[others] == 1).sum()), float(len(test))
    return Copies(
        rows=int((counts[theirs] > 0).sum()),
        of_single=of_single,
        expected=n_made * hits / n,
        pvalue=float(binom.sf(of_single - 1, of_single + hits, n_made / (n_made + n))),
    )


def count_values(
    train: pd.DataFrame, synthetic: pd.DataFrame, test: pd.DataFrame | None = None
) -> dict[Hashable, Copies]:
    """Find the columns whose values of single real rows are copied too often to be chance.

    What chance does is what the rows of ``test`` show, or ``train`` itself, whichever is more: a
    column of dates or of running numbers may have other values in other real rows.

    >>> train = pd.DataFrame({"name": [f"person {i}" for i in range(50)], "sex": ["f", "m"] * 25})
    >>> found = count_values(train, train)
    >>> {column: copies.of_single for column, copies in found.items()}
    {'name': 50}
    """
    found: dict[Hashable, Copies] = {}
    for column in train.columns:
        # a missing value is no one's own
        tables = [
            None if table is None else table[[column]].dropna()
            for table in (train, synthetic, test)
        ]
        ours, made, others = tables
        if ours is None or made is None or not len(ours) or not len(made):
            continue
        likely = count_copies(ours, made)
        if others is not None and len(others):
            likely = max(likely, count_copies(ours, made, others), key=lambda each: each.pvalue)
        if likely.pvalue < RARE / train.shape[1]:
            found[column] = likely
    return found


def _numbered(table: pd.DataFrame) -> np.ndarray:
    """A number for each row, from 0; equal rows have equal ones."""
    numbers = np.zeros(len(table), dtype=np.int64)
    for j in range(table.shape[1]):
        codes, values = pd.factorize(table.iloc[:, j])  # -1 where missing
        _, numbers = np.unique(numbers * (len(values) + 1) + codes + 1, return_inverse=True)
    return numbers
