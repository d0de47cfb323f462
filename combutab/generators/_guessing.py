"""The best guess of missing cells: what a generator expects, corrected by what is linear."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import BayesianRidge

from combutab.generators._imputing import decode_numbers
from combutab.preprocessing import IncompleteTable, ModeTable, NumberColumn

_MOST_ROWS = 5000  # that lines are fitted to
_FEWEST_ROWS = 20
_MOST_COLUMNS = 50  # that a line is of: those nearest to its own
_ROUNDS = 5  # in which each column is found anew from the others


@dataclass(frozen=True)
class _Line:
    """A column from others and from what is expected of it: the known ends are kept to."""

    model: Any
    near: np.ndarray
    low: float
    high: float

    def of(self, filled: np.ndarray, expected: np.ndarray, k: int) -> np.ndarray:
        if self.model is None:  # too few rows know the column
            return expected[:, k]
        found = self.model.predict(_beside(filled, expected, k, self.near))
        return np.clip(found, self.low, self.high)


def _beside(filled: np.ndarray, expected: np.ndarray, k: int, near: np.ndarray) -> np.ndarray:
    """What is expected of column k, and columns near to it."""
    return np.column_stack([expected[:, k], filled[:, near]])


def _nearest(filled: np.ndarray, k: int) -> np.ndarray:
    """The columns of the greatest correlations with column k."""
    x = filled - filled.mean(axis=0)
    spread = np.sqrt((x**2).sum(axis=0))
    near = np.abs(x.T @ x[:, k]) / np.where(spread > 0, spread, 1.0)
    near[k] = -1.0
    order = np.argsort(-near, kind="stable")[: min(_MOST_COLUMNS, len(near) - 1)]
    return np.sort(order)


class Guesser:
    """What to put into missing cells: expected numbers, and the most probable categories.

    A generator that draws codes beside given ones tells how probable each code is. Numbers are
    further brought to Bayesian ridge regressions on the other numbers and on what the generator
    expects, each fitted to the cells that are known, as if these were missing: of what is linear
    they know more than bins do. They are found in turn, several rounds.

    Parameters
    ----------
    model : TabFlow
        Fitted.
    X : DataFrame or array
        The table that it was fitted on.
    seed : int
        Chooses among many rows.

    References
    ----------
    van Buuren and Groothuis-Oudshoorn (2011), "mice: multivariate imputation by chained equations
    in R".
    """

    def __init__(self, model: Any, X: Any, seed: int) -> None:
        self.model = model
        spans = model.encoder_.layout_.spans
        columns = [model.encoder_.columns_[span.column] for span in spans]
        self._numbers = {i: c for i, c in enumerate(columns) if isinstance(c, NumberColumn)}
        table = IncompleteTable(model.encoder_, X)
        n_rows = len(table.missing)
        rows = np.sort(np.random.default_rng(seed).permutation(n_rows)[:_MOST_ROWS])
        encoded, known = table.encode(seed, rows)
        x, codes = self._read(encoded, known), np.where(known, encoded.codes, -1)
        expected = np.empty_like(x)
        for k, i in enumerate(self._numbers):
            hidden = codes.copy()
            hidden[:, i] = -1
            expected[:, k] = self._expect(hidden, [i])[1][:, k]
        filled = np.where(np.isnan(x), expected, x)
        mean, sd = filled.mean(axis=0), filled.std(axis=0)
        self._mean, self._sd = mean, np.where(sd > 0, sd, 1.0)
        x, expected, filled = (self._standardise(each) for each in (x, expected, filled))
        self._lines: list[_Line] = []
        for _ in range(_ROUNDS):
            self._lines = []
            for k in range(x.shape[1]):
                there = ~np.isnan(x[:, k])
                self._lines.append(line := self._fit(x[:, k], there, filled, expected, k))
                if not there.all():
                    filled[~there, k] = line.of(filled[~there], expected[~there], k)

    def _fit(
        self, x: np.ndarray, there: np.ndarray, filled: np.ndarray, expected: np.ndarray, k: int
    ) -> _Line:
        if there.sum() < _FEWEST_ROWS:
            return _Line(None, np.empty(0, np.intp), -np.inf, np.inf)
        near = _nearest(filled, k)
        model = BayesianRidge().fit(_beside(filled[there], expected[there], k, near), x[there])
        return _Line(model, near, float(x[there].min()), float(x[there].max()))

    def fill(self, X: Any, seed: int) -> Any:
        """The table without missing cells; ``seed`` draws the modes that known numbers are in."""
        table = IncompleteTable(self.model.encoder_, X)
        encoded, known = table.encode(seed)
        codes, numbers = self._expect(np.where(known, encoded.codes, -1))
        codes = np.where(known, encoded.codes, codes)
        x, expected = (self._standardise(each) for each in (self._read(encoded, known), numbers))
        lost = np.isnan(x)
        filled = np.where(lost, expected, x)
        for _ in range(_ROUNDS if len(filled) else 0):
            for k, line in enumerate(self._lines):
                own = lost[:, k]
                if own.any():
                    filled[own, k] = line.of(filled[own], expected[own], k)
        filled = filled * self._sd + self._mean
        found = {i: filled[:, k] for k, i in enumerate(self._numbers)}
        return table.fill(decode_numbers(self.model.encoder_, encoded.values, codes, found))

    def _standardise(self, x: np.ndarray) -> np.ndarray:
        return (x - self._mean) / self._sd

    def _read(self, table: ModeTable, known: np.ndarray) -> np.ndarray:
        """Known numbers as their formats count them, NaN for others: (n, n_numbers)."""
        x = np.full((len(table.codes), len(self._numbers)), np.nan)
        for k, (i, column) in enumerate(self._numbers.items()):
            own, index = known[:, i], self.model.encoder_.layout_.spans[i].value_index
            x[own, k] = column.mixture.unscale(table.values[own, index], table.codes[own, i])
        return x

    def _expect(
        self, codes: np.ndarray, spans: Sequence[int] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The most probable codes, (n, n_spans), and the expected numbers, (n, n_numbers)."""
        best = np.zeros_like(codes)
        numbers = np.zeros((len(codes), len(self._numbers)))
        place = {i: k for k, i in enumerate(self._numbers)}
        for rows, i, shares in self.model._code_shares(codes, spans):
            best[rows, i] = shares.argmax(axis=1)
            if i in place:
                means = self._numbers[i].mixture.means
                numbers[rows, place[i]] = shares[:, : len(means)] @ means
        return best, numbers
