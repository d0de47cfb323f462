"""Fits of the private generator that are watched: what they release, charge and keep.

What is learned must be a function of what the mechanisms release and of the random state, of
nothing else. So a fit to another table, in which the mechanisms release what they did for the
first, must end in the same file.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from combutab import PrivateSynthesizer
from combutab.generators.private import _mechanisms
from tests.short import few_steps
from tests.trust.privacy_games import put

RELEASES = ("release_counts", "release_choice", "release_categories")
BOUNDS, KINDS = {"age": (0, 120)}, {"kind": ["flat", "house"]}


def table(n, seed, kinds=("flat", "house", "boat")):
    """People, some of whose cells are missing or out of bounds."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.normal(50, 40, n).round(1),
            "kind": rng.choice(kinds, n).astype(object),
            "member": rng.random(n) < 0.2 + 0.1 * seed,
            "paid": np.where(rng.random(n) < 0.3, np.nan, rng.gamma(2.0, 10.0**seed, n)),
        }
    )


def fit(X, person=None, **params):
    """A tiny mixture."""
    small = {"epsilon": 50.0, "delta": 1e-4, "n_components": 4, "epochs": 1, "random_state": 0}
    with few_steps():
        return PrivateSynthesizer(**small | params).fit(X, person=person)


def _everywhere(patch, name, function):
    """Replace a mechanism in each module of the package that has it."""
    for module in [m for n, m in sys.modules.items() if n.startswith(_mechanisms.__package__)]:
        if hasattr(module, name):
            patch.setattr(module, name, function)


@contextmanager
def recorded(told):
    """Note what the mechanisms release."""
    with pytest.MonkeyPatch.context() as patch:
        for name in RELEASES:
            release = getattr(_mechanisms, name)

            def note(*arguments, release=release, **options):
                found = release(*arguments, **options)
                ledger = next(a for a in (*arguments, *options.values()) if hasattr(a, "charge"))
                told.append((release.__name__, found, dict(ledger.steps[-1])))
                return found

            _everywhere(patch, name, note)
        yield


@contextmanager
def replayed(told):
    """Let the mechanisms release what they have released before, whatever the rows are."""
    rest = iter(told)
    with pytest.MonkeyPatch.context() as patch:
        for name in RELEASES:

            def repeat(*arguments, name=name, **options):
                own, found, step = next(rest)
                assert own == name, "the steps depend on rows"
                ledger = next(a for a in (*arguments, *options.values()) if hasattr(a, "charge"))
                ledger.steps.append(dict(step))
                return found

            _everywhere(patch, name, repeat)
        yield
    assert next(rest, None) is None, "the number of steps depends on rows"


@contextmanager
def watched(calls):
    """Note what each draw of OpenDP costs, by OpenDP's own account."""
    real = _mechanisms._opendp

    class Watched:
        def __init__(self, name, measurement):
            self.name, self.measurement, self.cost = name, measurement, None

        def map(self, distance):
            self.cost = self.measurement.map(distance)
            return self.cost

        def __call__(self, data):
            calls.append((self.name, self.cost))
            return self.measurement(data)

    def opendp():
        dp = real()
        names = [name for name in vars(dp.m) if name.startswith("make_")]

        def make(name):
            return lambda *args, **options: Watched(name, getattr(dp.m, name)(*args, **options))

        own = SimpleNamespace(**vars(dp.m) | {name: make(name) for name in names})
        return SimpleNamespace(**vars(dp) | {"m": own})

    with pytest.MonkeyPatch.context() as patch:
        put(patch, opendp)
        yield
