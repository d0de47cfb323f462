"""Games against a private mechanism, and lower bounds of its epsilon from how they end.

An attacker sees what a mechanism released from one of two neighbouring tables, and bets on which it
was by whether an event has happened. If P1 and P0 are the event's probabilities in the two worlds,
(epsilon, delta)-differential privacy demands P1 <= exp(epsilon) P0 + delta, the same with worlds
exchanged, and the same for the opposite event. Many plays bound P1 and P0, and so epsilon from
below. The bounds are Clopper and Pearson's, each wrong with a probability of `ALPHA` at most.

References
----------
M. Jagielski, J. Ullman and A. Oprea, "Auditing differentially private machine learning", NeurIPS
2020; M. Nasr et al., "Tight auditing of differentially private machine learning", USENIX Security
2023. C. Clopper and E. Pearson, Biometrika 26, 1934.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace

import numpy as np
from scipy import optimize, stats

from combutab.generators.private import _mechanisms

ALPHA = 1e-8  # four bounds a game, under 25 games: all hold with a probability of 1 - 1e-6


@dataclass(frozen=True)
class Game:
    """One attack.

    Attributes
    ----------
    play : callable
        ``play(world)`` releases from the table of world 0 or 1; whether the event has happened.
    claim : callable
        ``claim(delta)``: the epsilon that the ledger promises at a delta, once it was played.
    delta : float
        At which the two are compared.
    n_plays : int
        In each world.
    """

    play: Callable[[int], bool]
    claim: Callable[[float], float]
    delta: float
    n_plays: int

    def lower_bound(self) -> float:
        """Play, and bound epsilon from below; 0 where nothing is shown."""
        seen = [sum(bool(self.play(world)) for _ in range(self.n_plays)) for world in (0, 1)]
        return epsilon_shown(seen, self.n_plays, self.delta)

    def excess(self) -> float:
        """By how much the promise is broken at least; at most 0 where that is not shown."""
        shown = self.lower_bound()
        return shown - self.claim(self.delta)


def epsilon_shown(seen: list[int], n: int, delta: float) -> float:
    """The largest epsilon that is too small for what was seen in worlds 0 and 1, n plays each."""
    found = [0.0]
    for few, many in (seen, seen[::-1]):
        for less, more in ((few, many), (n - few, n - many)):
            low = stats.beta.ppf(ALPHA, more, n - more + 1) if more else 0.0
            high = stats.beta.ppf(1 - ALPHA, less + 1, n - less) if less < n else 1.0
            found.append(math.log((low - delta) / high) if low > delta else 0.0)
    return max(found)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of Gaussian noise with standard deviation 1 / mu for a sensitivity of 1.

    B. Balle and Y.-X. Wang, "Improving the Gaussian mechanism", ICML 2018, Theorem 8.
    """

    def excess(epsilon: float) -> float:
        below = stats.norm.logcdf(-epsilon / mu - mu / 2)
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + below) - delta

    return optimize.brentq(excess, 0.0, 500.0) if excess(0.0) > 0 else 0.0


def choice_epsilon(shift: float, delta: float) -> float:
    """The epsilon of a choice of two whose log odds another table shifts by so much."""
    odds = np.linspace(-30.0, 30.0, 60_001)
    more, less = (1 / (1 + np.exp(-odds - add)) for add in (shift, 0.0))

    def excess(epsilon: float) -> float:
        return float(np.max(more - math.exp(epsilon) * less)) - delta

    if delta == 0.0:
        return shift
    return optimize.brentq(excess, 0.0, shift) if excess(0.0) > 0 else 0.0


# ---- mechanisms that are broken on purpose -----------------------------------------------------


class _Liar:
    """A measurement that draws other noise than it accounts for."""

    def __init__(self, says, draws):
        self.map, self.draws = says.map, draws

    def __call__(self, data):
        return self.draws(data)


def let_lie(monkeypatch, name, wrong):
    """Let an OpenDP constructor account for what it is asked for, and draw as ``wrong`` makes it.

    ``wrong(make, *arguments, **options)`` gives what draws.
    """
    real = _mechanisms._opendp

    def opendp():
        dp = real()
        make = getattr(dp.m, name)

        def lying(*arguments, **options):
            return _Liar(make(*arguments, **options), wrong(make, *arguments, **options))

        return SimpleNamespace(**vars(dp) | {"m": SimpleNamespace(**vars(dp.m) | {name: lying})})

    put(monkeypatch, opendp)


def put(monkeypatch, opendp):
    """Let mechanisms use another OpenDP; the conversion of rho asks the real one."""
    conversion = FunctionType(
        _mechanisms.epsilon_of.__code__, vars(_mechanisms) | {"_opendp": _mechanisms._opendp}
    )
    monkeypatch.setattr(_mechanisms, "epsilon_of", conversion)
    monkeypatch.setattr(_mechanisms, "_opendp", opendp)
