"""The AI Feynman equations: their order, and rows inside and outside of the ranges learned from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import sympy
from scipy.stats import binomtest

from combutab.datasets import list_feynman, load_feynman, parse_formula

BEYOND = 0.2  # of a variable's range, by which it is left at either end
_VARIABLE = re.compile(r"(\w+) \[([^,]+), ([^\]]+)\]")


@dataclass(frozen=True)
class Equation:
    """A law, and the interval of each of its variables."""

    name: str
    formula: str
    domain: tuple[tuple[str, float, float], ...]

    @property
    def has_angles(self) -> bool:
        """Whether a sine, a cosine or their inverse is in it."""
        return re.search(r"sin\(|cos\(", self.formula) is not None

    def expression(self) -> sympy.Expr:
        return parse_formula(self.formula, [name for name, _, _ in self.domain])

    def values(self, X: pd.DataFrame) -> np.ndarray:
        """The law at these rows; NaN where it has no value."""
        names = list(X)
        law = sympy.lambdify([sympy.Symbol(n) for n in names], self.expression(), "numpy")
        with np.errstate(all="ignore"):
            found = np.asarray(law(*X.to_numpy().T), dtype=float)
        return np.where(np.isfinite(found), found, np.nan)

    def rows(
        self, n: int, seed: int, data_home: str | None, noise: float = 0.0
    ) -> tuple[pd.DataFrame, np.ndarray]:
        """Rows uniform on the ranges; ``noise`` is a fraction of the target's root mean square."""
        X, y = load_feynman(self.name, n, noise=noise, data_home=data_home, random_state=seed)
        return X, y.to_numpy()

    def rows_outside(self, n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
        """Rows of ranges a fifth wider at both ends, one variable outside at least.

        Those at which the law has no value are left out.
        """
        rng, (names, low, high) = np.random.default_rng(seed), zip(*self.domain, strict=True)
        low, high = np.array(low), np.array(high)
        room = BEYOND * (high - low)
        found = rng.uniform(low - room, high + room, size=(20 * n, len(names)))
        found = found[((found < low) | (found > high)).any(1)]
        X = pd.DataFrame(found, columns=list(names))
        y = self.values(X)
        kept = np.flatnonzero(~np.isnan(y))[:n]
        return X.iloc[kept].reset_index(drop=True), y[kept]


@lru_cache(maxsize=2)
def all_equations(data_home: str | None) -> tuple[Equation, ...]:
    """The 120, in the order of the tables."""
    found = []
    for row in list_feynman(data_home).itertuples():
        domain = tuple((n, float(a), float(b)) for n, a, b in _VARIABLE.findall(row.variables))
        found.append(Equation(row.name, row.formula, domain))
    return tuple(found)


def spread(count: int) -> Sequence[int]:
    """Order places so that the first few are spread evenly over all: by their bits, reversed.

    >>> spread(8), spread(6)
    ([0, 4, 2, 6, 1, 5, 3, 7], [0, 4, 2, 1, 5, 3])
    """
    bits = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda i: f"{i:0{bits}b}"[::-1])


def choose_equations(n: int, data_home: str | None) -> list[Equation]:
    """The first n in the order of ``spread``, which no result has a part in."""
    known = all_equations(data_home)
    return [known[place] for place in spread(len(known))[:n]]


def wilson(good: pd.Series) -> tuple[str, str]:
    """The share of equations, and its 95 % interval, Wilson's.

    >>> wilson(pd.Series([True] * 16 + [False] * 7))
    ('70 %', '49 to 84 %')
    """
    low, high = binomtest(int(good.sum()), len(good)).proportion_ci(method="wilson")
    return f"{100 * good.mean():.0f} %", f"{100 * low:.0f} to {100 * high:.0f} %"
